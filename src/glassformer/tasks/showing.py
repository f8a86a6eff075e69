"""What a run shows of itself: examples with its outputs, scores, pictures.

The terminal, the report and TensorBoard draw the same samples; the Studio draws a `Reply`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from glassformer.data.examples import Pixels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDEST, LONGEST = 80, 300  # characters of an input and of an output in a line
COMPARED = 2000  # words, or letters, of which differences are looked for


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


@dataclass(frozen=True)
class Likely:
    """A label, a tag or a word, and how likely a run finds it."""

    text: str
    probability: float


@dataclass(frozen=True)
class Part:
    """A piece of a text that a run answers with, or says something of."""

    text: str
    marked: bool = False  # whether it is what the run found: the filling of a gap, an answer, what was written
    label: str = ""  # what the run says of it, such as a tag
    likely: tuple[Likely, ...] = ()  # what it, or its label, might be, likeliest first


@dataclass(frozen=True)
class Reply:
    """What a run answers, as a page shows it: a text in parts, labels of the whole, or both."""

    parts: tuple[Part, ...] = ()
    labels: tuple[Likely, ...] = ()  # likeliest first
    note: str = ""  # a sentence, if there is something to know


def differences(text: str, other: str, whole: bool = False) -> list[tuple[str, bool]]:
    """A text in pieces, and of each whether another text lacks it: words, or letters of a single word."""
    pieces, others = ([each] if whole else _pieces(each, text, other) for each in (text, other))
    if max(len(pieces), len(others)) > COMPARED:
        return [(text, False)]
    steps = SequenceMatcher(None, pieces, others, autojunk=False).get_opcodes()
    found = [("".join(pieces[begin:end]), step != "equal") for step, begin, end, _, _ in steps]
    return [(piece, lacking) for piece, lacking in found if piece]


def _pieces(text: str, *both: str) -> list[str]:
    """What is compared of a text: its words and the spaces between; of two texts of one word, the letters."""
    return re.findall(r"\s+|\S+", text) if any(len(each.split()) > 1 for each in both) else list(text)


def shortened(text: str, most: int = WIDEST) -> str:
    """A text that is shown after training, cut where it is long."""
    return text if len(text) < most else f"{text[: most - 1]}…"


def one_line(text: str, most: int = 100) -> str:
    """A text on a line of its own, cut where it is long."""
    return shortened(" ".join(text.split()), most)
