"""What a view is: a name, its options with bounds on every number and text, and a function of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from glassformer.looking.answer import Answer
from glassformer.studio.items import LONGEST

BODY, IMAGE = 1 << 20, 8 << 20  # bytes of a question, and of one that may hold an image

Text = Annotated[str, Field(min_length=1, max_length=LONGEST)]
Given = Annotated[str, Field(min_length=1, max_length=IMAGE)]  # a text, or an image as a data URL: see `item_of`
Layer = Annotated[int, Field(ge=0, le=1000)]
Head = Annotated[int, Field(ge=0, le=1000)]
Place = Annotated[int, Field(ge=0, le=1_000_000)]  # of a token
Kind = Annotated[str, Field(pattern=r"^(encoder|decoder)\.(self|cross)$")]


class Options(BaseModel):
    """What is asked of a view. What it does not know is refused, and so is a value outside its bounds."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def always(run: Any) -> bool:
    """A view that every run has."""
    return True


@dataclass(frozen=True)
class View:
    """One thing that can be asked about a run.

    `others` are options that name more runs, which `answer` gets loaded, by the same names. With `folders`, the option
    that names runs, none is loaded: in place of a run, `answer` gets the folder of each by its name. An answer is kept
    for when the same is asked again, unless the view is of something that changes, such as a training under way.
    """

    name: str
    Options: type[Options]
    answer: Callable[..., Answer]  # (run, options, **others)
    fits: Callable[[Any], bool] = always  # whether a run has it
    others: tuple[str, ...] = ()
    folders: str = ""
    without: Callable[[str], Answer] | None = None  # what is answered if the run cannot be loaded, given why
    keeps: bool = True
    body: int = BODY  # bytes that a question may have
