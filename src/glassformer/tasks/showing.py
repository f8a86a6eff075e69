"""What a run shows of itself: examples with its outputs, scores, pictures.

The terminal, the report and TensorBoard draw the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from glassformer.data.examples import Pixels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDEST, LONGEST = 80, 300  # characters of an input and of an output in a line


@dataclass(frozen=True)
class Sample:
    """An example, and what a run made of it."""

    input: str
    output: str
    reference: str | None = None  # what is right; None: there is nothing to compare with
    right: bool = True
    called: str = "reference"  # what that which is right is called: reference, true label, true answer
    detail: str = ""  # how likely the run finds its output
    whole: bool = False  # whether an output is right or wrong as a whole, as a label is
    pixels: Pixels | None = None  # the input, if it is an image, (S, S, C)

    @property
    def line(self) -> str:
        """The sample in a line, with the reference where it differs."""
        detail = f" {self.detail}" if self.detail else ""
        wrong = "" if self.right else f"   ({self.called}: {self.reference})"
        return f"{one_line(self.input, WIDEST)}  →  {one_line(self.output, LONGEST)}{detail}{wrong}"


@dataclass(frozen=True)
class Score:
    """A score for people: its name and value, its 95 % interval, per what it is, and what else there is to know."""

    name: str
    value: str
    interval: str = ""  # [0.1, 0.2]
    unit: str = ""
    note: str = ""

    def __str__(self) -> str:
        given = (("  ", self.interval), (" ", self.unit), ("   ", self.note))
        return self.value + "".join(f"{space}{text}" for space, text in given if text)


@dataclass(frozen=True)
class Picture:
    """A picture: the name of its file, what it shows, and the figure."""

    name: str
    caption: str
    figure: Figure


def shortened(text: str, most: int = WIDEST) -> str:
    """A text that is shown after training, cut where it is long."""
    return text if len(text) < most else f"{text[: most - 1]}…"


def one_line(text: str, most: int = 100) -> str:
    """A text on a line of its own, cut where it is long."""
    return shortened(" ".join(text.split()), most)
