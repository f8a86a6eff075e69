"""TensorBoard: the curves of a training, and at each validation what the run makes of a few held-out examples.

The few are drawn once, and always the same. What is shown costs no random number and leaves the model as it is.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import GlassformerError
from glassformer.recipe import to_toml
from glassformer.tasks.run import Run
from glassformer.tasks.showing import Sample, one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch.utils.tensorboard import SummaryWriter

FEW = 5  # examples that are shown at each validation
LONGEST = 500  # characters of a text
DOTS = 72  # per inch of a picture
SHARE, EXPECTED = 0.05, 0.5  # of the time that looking may take; seconds that the first time is expected to take


class Board:
    """Writes what TensorBoard shows: text and pictures wait for the measurement that tells their step."""

    def __init__(self, writer: SummaryWriter, after: int) -> None:
        self._writer, self._after = writer, after
        self._few, self._samples = list[Any](), list[Sample]()
        self._picture: NDArray[np.uint8] | None = None
        self._began, self._spent, self._expected = monotonic(), 0.0, EXPECTED  # seconds

    def begin(self, run: Run, examples: Sequence[Any]) -> None:
        """Show the recipe, at the step from which training goes on; choose examples, different ones of all lengths."""
        self._writer.add_text("recipe", _verbatim(to_toml(run.recipe).splitlines()), self._after)
        self._few = [examples[row] for row in run.rows_shown(examples, FEW)] if examples else []

    def look(self, run: Run) -> None:
        """What a run makes of the chosen examples, and the attention over one of them, if the task shows it.

        Where validations follow each other quickly, some are left out.
        """
        began = monotonic()
        if self._spent + self._expected > SHARE * (began - self._began):
            return
        with suppress(GlassformerError):  # a model that cannot be used yet: its scores tell
            quick = run.quick()
            self._samples = quick.new_samples(self._few)
            picture = quick.attention_picture(self._few)
            self._picture = None if picture is None else _pixels(picture.figure)
        self._expected = monotonic() - began
        self._spent += self._expected

    def add(self, record: dict[str, Any]) -> None:
        """Write a measurement, and what was looked at for it."""
        step = record["step"]
        for name, value in record.items():
            if name != "step":
                self._writer.add_scalar(name.replace("valid_", "valid/"), value, step)
        if self._samples:
            text = "\n\n---\n\n".join(_verbatim(_lines(each)) for each in self._samples)
            self._writer.add_text("valid/samples", text, step)
        if self._picture is not None:
            self._writer.add_image("valid/attention", self._picture, step, dataformats="HWC")
        self._samples, self._picture = [], None


def open_board(folder: Path, after: int, stack: ExitStack) -> Board | None:
    """What writes to TensorBoard until the stack is closed; None if that is not installed."""
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder), purge_step=after + 1)

    def close() -> None:
        with suppress(OSError):  # of a full disk, which was told of when it was found
            writer.close()

    stack.callback(close)
    return Board(writer, after)


def _lines(sample: Sample) -> list[str]:
    """A sample, a line for each of its texts."""
    wrong = "" if sample.right else "  (differs)"
    texts = {"input": sample.input, "output": f"{sample.output} {sample.detail}".strip() + wrong}
    if sample.reference is not None:
        texts[sample.called] = sample.reference
    width = max(map(len, texts))
    return [f"{name:{width}}  {one_line(text, LONGEST)}" for name, text in texts.items()]


def _verbatim(lines: Sequence[str]) -> str:
    """Lines that Markdown shows as they are."""
    return "\n".join(f"    {line}" for line in lines)


def _pixels(figure: Figure) -> NDArray[np.uint8]:
    """A figure as an image, (height, width, 3)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(DOTS)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()  # type: ignore[no-untyped-call]
