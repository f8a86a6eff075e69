"""The whole recipe: its sections, and which of them go together."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from glassformer.recipe.model import Pretrained
from glassformer.recipe.sections import Data, Decode, Look, Tokenizer, Train, Tune
from glassformer.recipe.values import Section
from glassformer.registry import FAMILIES, SOURCES, TOKENIZERS


class Recipe(Section):
    """A whole recipe. Task, source and model are of classes that are found by name: `task.kind`, `model.family`."""

    title: str = Field("", description="what this recipe makes, in a line")
    task: Any  # a Task: what is learned
    source: Any  # a Source: where the examples come from
    data: Data = Data()
    tokenizer: Tokenizer = Tokenizer()
    model: Any  # Fresh or Pretrained
    tune: Tune = Tune()
    train: Train = Train()
    look: Look = Look()
    decode: Decode = Decode()

    @property
    def pretrained(self) -> str | None:
        """The checkpoint that training starts from, if any."""
        return self.model.pretrained if isinstance(self.model, Pretrained) else None

    @model_validator(mode="after")
    def _sections_fit(self) -> Recipe:
        task, source = self.task, self.source
        if not issubclass(source.gives, task.reads):
            kinds = [name for name, each in SOURCES.items() if issubclass(each.gives, task.reads)]
            raise ValueError(f"source.kind is {source.kind!r}: {task.kind} takes one of {', '.join(kinds)}")
        if self.tokenizer.kind not in TOKENIZERS:
            raise ValueError(f"tokenizer.kind is {self.tokenizer.kind!r}: it is one of {', '.join(TOKENIZERS.names())}")
        if self.train.watch not in task.scores:
            raise ValueError(
                f"train.watch is {self.train.watch!r}: for {task.kind} it is one of {', '.join(task.scores)}"
            )
        if self.tune.mode != "full" and self.pretrained is None:
            raise ValueError(f"tune.mode is {self.tune.mode!r}, but model.pretrained names no checkpoint to tune")
        if self.data.valid + self.data.test >= 1:
            raise ValueError("data.valid and data.test leave nothing to train on")
        if self.decode.min_length > self.decode.max_length:
            raise ValueError("decode.min_length is above decode.max_length: no output has both lengths")
        task.check(self)
        return self

    @model_validator(mode="after")
    def _model_fits(self) -> Recipe:
        if self.pretrained is not None:
            return self
        family, model = FAMILIES[self.model.family], self.model
        if getattr(model, "embeddings", None) is None and not getattr(model, "embeddings_learn", True):
            raise ValueError("model.embeddings_learn is false, but model.embeddings names no vectors to keep")
        two = self.task.tokenizers == 2 and not self.tokenizer.joint
        if two and getattr(model, "tie_source", "target_vocabulary" not in family.parameters):
            one = "model.tie_source" if hasattr(model, "tie_source") else f"model.family {model.family}"
            raise ValueError(f"{one} needs tokenizer.joint = true: there is one embedding for source and target")
        return self
