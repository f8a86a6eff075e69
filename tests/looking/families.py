"""One small model of every family, with inputs for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from glassformer import models
from glassformer.parts import GRU, LSTM, RNN, AdditiveScore, PostNorm
from glassformer.parts.schemes import alibi, rotary

V = 23
SOURCE = torch.tensor([[3, 4, 5, 6, 7], [8, 9, 10, 0, 0]])
KEEP = SOURCE > 0
TARGET = torch.tensor([[1, 12, 13, 14], [1, 15, 16, 17]])
PIXELS = torch.linspace(-1, 1, 2 * 3 * 8 * 8).view(2, 3, 8, 8).sin()
SMALL: dict[str, Any] = {"width": 16, "heads": 4, "layers": 2, "hidden": 24, "dropout": 0.0}


@dataclass(frozen=True)
class Case:
    """How a model is made, and what it is given."""

    make: Callable[[], nn.Module]
    inputs: tuple[Tensor, ...]

    def model(self, seed: int = 0) -> Any:
        """The model, with biases and norms that are not 0 and 1."""
        torch.manual_seed(seed)
        model = self.make().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(0.3 * torch.randn_like(parameter))
        return model


def _recurrent(cell: Any, answer: Any, **more: Any) -> Callable[[], nn.Module]:
    return lambda: models.recurrent(V, 16, 2, 0.0, answer=answer, cell=cell, **more)


PAIR, TEXT, IMAGE = (SOURCE, TARGET, KEEP), (SOURCE, KEEP), (PIXELS,)
CAPTIONED = {**SMALL, "image": 8, "patch": 4, "image_width": 8, "image_heads": 2}
FAMILIES: dict[str, Case] = {
    "transformer": Case(lambda: models.transformer(V, **SMALL), PAIR),
    "transformer-post": Case(
        lambda: models.transformer(V, **SMALL, residual=PostNorm, positions=rotary, key_value_heads=2, gated=True), PAIR
    ),
    "transformer-alibi": Case(lambda: models.transformer(V, **SMALL, positions=alibi), PAIR),
    "t5": Case(lambda: models.t5(V, **SMALL), PAIR),
    "bart": Case(lambda: models.bart(V, **SMALL, length=32), PAIR),
    "marian": Case(lambda: models.marian(V, **SMALL, length=32), PAIR),
    "bert": Case(lambda: models.bert(V, **SMALL, length=32, answer="words"), TEXT),
    "bert-classes": Case(lambda: models.bert(V, **SMALL, length=32, answer="classes"), TEXT),
    "roberta": Case(lambda: models.roberta(V, **SMALL, length=32, answer="tags"), TEXT),
    "gpt2": Case(lambda: models.gpt2(V, **SMALL, length=32), TEXT),
    "llama": Case(lambda: models.llama(V, **{**SMALL, "key_value_heads": 2}, length=32), TEXT),
    "vit": Case(lambda: models.vit(image=8, patch=4, **SMALL, classes=3), IMAGE),
    "captioner": Case(lambda: models.captioner(V, **CAPTIONED, length=32), (PIXELS, TARGET)),
    "rnn": Case(_recurrent(RNN, "target"), PAIR),
    "gru": Case(_recurrent(GRU, "target", attention=AdditiveScore, bidirectional=True), PAIR),
    "lstm": Case(_recurrent(LSTM, "target", bidirectional=True), PAIR),
    "lstm-blind": Case(_recurrent(LSTM, "target", attention=None), PAIR),
    "gru-next": Case(_recurrent(GRU, "next"), (SOURCE,)),
    "lstm-classes": Case(_recurrent(LSTM, "classes", bidirectional=True), TEXT),
    "rnn-tags": Case(_recurrent(RNN, "tags"), TEXT),
}
WRITERS = [name for name, case in FAMILIES.items() if len(case.inputs) == 3 or name == "captioner"]
SPEAKERS = ["gpt2", "llama", "gru-next"]


def translator(seed: int = 0, name: str = "transformer") -> Any:
    """A model that reads a source and writes a target."""
    return FAMILIES[name].model(seed)


def same(ours: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    """Equal but for rounding."""
    torch.testing.assert_close(ours, expected, atol=tolerance, rtol=tolerance)
