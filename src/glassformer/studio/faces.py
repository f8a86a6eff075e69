"""Faces: what is shown of a run beside attention: its answer, the image that it sees, the cells of a recurrent model.

None of it names a task: a run says it (`Run.reply`, `Run.picture`), or it follows from the points of the model.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from glassformer.data.examples import png_of
from glassformer.looking.answer import Answer
from glassformer.looking.cells import cell_points, cells_of
from glassformer.looking.plots.images import patches_on_a_side
from glassformer.looking.points import points
from glassformer.looking.trace import Trace


def kept(run: Any) -> list[str]:
    """What is recorded: attention, or the cells of a recurrent model without any, and logits if there are any."""
    names = points(run)
    attention = any(name.endswith(".weights") for name in names)
    return [*(name for name in names if name == "logits"), *(["weights"] if attention else cell_points(names))]


def face_of(run: Any, item: Any, trace: Trace) -> Answer:
    """All that is shown of a run beside the attention of a trace."""
    header: dict[str, Any] = {"reply": asdict(run.reply(item, trace)), "picture": None}
    header["cells"], arrays = cells_of(trace)
    pixels = run.picture(item)
    if pixels is not None:
        header["picture"] = {"side": patches_on_a_side(trace), "seen": f"data:image/png;base64,{png_of(pixels)}"}
        arrays["pixels"] = pixels
    return Answer(header, arrays)
