"""Watched: the attention over one of the texts of [look] in a recipe, at one step of the training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from glassformer.looking.answer import Answer
from glassformer.looking.packing import answer_of
from glassformer.looking.sentences import sentence_of
from glassformer.runs.looks import read_look
from glassformer.studio.views.training import Name
from glassformer.studio.views.view import Options, View


class Watched(Options):
    """Which run, at which step, and the number of the text."""

    runs: Annotated[tuple[Name, ...], Field(min_length=1, max_length=1)]
    step: Annotated[int, Field(ge=0, le=10**12)]
    text: Annotated[int, Field(ge=0, le=1000)] = 0


def answer(folders: Mapping[str, Path], options: Watched) -> Answer:
    """The attention of all heads over the text, as it was at the step."""
    (folder,) = folders.values()
    return answer_of(sentence_of(read_look(folder, options.step), options.text))


VIEW = View("watched", Watched, answer, folders="runs")
