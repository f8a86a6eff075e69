"""The whole recipe: its sections, what is usual for its task, and which of them go together."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from glassformer.recipe.sections import Data, Decode, Model, Tokenizer, Train, Tune
from glassformer.recipe.sources import FilesSource, PythonSource, Source, TextSource
from glassformer.recipe.tasks import Task, TranslationTask
from glassformer.recipe.values import Section
from glassformer.usual import DOCUMENTS, FAMILIES, TASK_DEFAULTS, WATCHED

IMAGES = ("digits", "image-folder")  # sources of images


class Recipe(Section):
    """A whole recipe."""

    title: str = Field("", description="what this recipe makes, in a line")
    task: Task = TranslationTask()
    source: Source
    data: Data = Data()
    tokenizer: Tokenizer = Tokenizer()
    model: Model = Model()
    tune: Tune = Tune()
    train: Train = Train()
    decode: Decode = Decode()

    @model_validator(mode="before")
    @classmethod
    def _for_its_task(cls, table: Any) -> Any:
        """What is not said is what is usual for the task."""
        task = table.get("task") if isinstance(table, dict) else None
        kind = task.get("kind") if isinstance(task, dict) else None
        usual = TASK_DEFAULTS.get(kind, {}) if isinstance(kind, str) else {}
        said = {name: table.get(name, {}) for name in usual}
        return {**table, **{name: {**usual[name], **each} for name, each in said.items() if isinstance(each, dict)}}

    @model_validator(mode="after")
    def _suits_its_task(self) -> Recipe:
        kind = self.task.kind
        for key, found, known in (
            ("model.family", self.model.family, FAMILIES[kind]),
            ("train.watch", self.train.watch, WATCHED[kind]),
        ):
            if found not in known and not (key == "model.family" and self.model.pretrained):
                raise ValueError(f"{key} is {found!r}: for {kind} it is one of {', '.join(known)}")
        if isinstance(self.source, TextSource | FilesSource | PythonSource) and kind not in DOCUMENTS:
            raise ValueError(f"source.kind is {self.source.kind!r}, which has no targets: {kind} needs some")
        return self

    @model_validator(mode="after")
    def _can_be_read_with(self) -> Recipe:
        if self.model.embeddings is None and not self.model.embeddings_learn:
            raise ValueError("model.embeddings_learn is false, but model.embeddings names no vectors to keep")
        if self.model.embeddings is not None and self.model.pretrained is not None:
            raise ValueError("model.embeddings has no place beside model.pretrained, which brings its own")
        if self.model.embeddings is not None and self.task.kind == "images":
            raise ValueError("model.embeddings is for texts: an image has no words")
        return self

    @model_validator(mode="after")
    def _has_learned_before(self) -> Recipe:
        if self.tune.mode != "full" and self.model.pretrained is None:
            raise ValueError(f"tune.mode is {self.tune.mode!r}, but model.pretrained names nothing that has learned")
        return self

    @model_validator(mode="after")
    def _can_be_answered(self) -> Recipe:
        if (self.task.kind == "answering") != (self.source.kind == "squad"):
            raise ValueError(f"source.kind is {self.source.kind!r} for {self.task.kind}: squad is for answering alone")
        if self.task.kind == "answering" and (self.data.normalise != "none" or self.data.strip):
            raise ValueError('answers are found by counting letters: data.normalise must be "none", data.strip false')
        return self

    @model_validator(mode="after")
    def _can_be_seen(self) -> Recipe:
        if (self.task.kind == "images") != (self.source.kind in IMAGES):
            known = " and ".join(IMAGES)
            raise ValueError(f"source.kind is {self.source.kind!r} for {self.task.kind}: {known} are for images alone")
        if self.task.kind == "images" and self.model.pretrained is None and self.task.size % self.model.patch:
            raise ValueError(f"task.size {self.task.size} does not divide into model.patch {self.model.patch}")
        return self

    @model_validator(mode="after")
    def _recurs(self) -> Recipe:
        """Keys that only recurrent models have, and only for some tasks, are refused elsewhere."""
        kind, model = self.task.kind, self.model
        for key, value, tasks in (
            ("model.cell", model.cell, FAMILIES),
            ("model.attention", model.attention, ("translation",)),
            ("model.bidirectional", model.bidirectional, [each for each in FAMILIES if each != "language-modelling"]),
            ("train.truncate", self.train.truncate, ("language-modelling",)),
        ):
            if value is not None and model.family != "recurrent":
                raise ValueError(f"{key} is for the family recurrent: {model.family} knows nothing of it")
            if value is not None and kind not in tasks:
                raise ValueError(f"{key} is not for {kind}: leave it out")
        if model.bidirectional and model.width % 2:
            raise ValueError(f"model.width {model.width} does not divide into two directions: make it even")
        return self

    @model_validator(mode="after")
    def _fits(self) -> Recipe:
        recurrent = self.model.family == "recurrent"
        if self.model.width % self.model.heads and not recurrent:
            raise ValueError(f"model.width {self.model.width} does not divide into model.heads {self.model.heads}")
        shares = self.model.family == "transformer" or (recurrent and self.task.kind == "translation")
        if shares and self.model.tie_source and not self.tokenizer.joint:
            raise ValueError("model.tie_source needs tokenizer.joint: two vocabularies cannot share one embedding")
        if self.model.family in ("t5", "bart", "marian") and not self.tokenizer.joint:
            raise ValueError(f"model.family {self.model.family} needs tokenizer.joint: it has one embedding for all")
        if self.data.max_tokens >= self.train.batch_tokens and self.task.kind != "images":
            raise ValueError(
                "data.max_tokens must be below train.batch_tokens: the longest pair and its end would fit into no batch"
            )
        if self.data.valid + self.data.test >= 1:
            raise ValueError("data.valid and data.test leave nothing to train on")
        return self
