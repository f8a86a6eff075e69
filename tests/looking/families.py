"""A small model of every family in the registry, and variants of some, each with inputs for it.

A family that is added is here without an edit: its sizes go by their names, its inputs by what its model embeds.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from glassformer import models, registry
from glassformer.models.shapes import DecoderOnly, EncoderDecoder
from glassformer.parts import GRU, LSTM, RNN, AdditiveScore, BatchNorm, Embedding, PostNorm, Recurrent
from glassformer.parts.norms import running_averages
from glassformer.parts.patches import FilmEmbedding, PatchEmbedding
from glassformer.parts.schemes import alibi, rotary
from glassformer.parts.values import ValueEmbedding

V = 23
SOURCE = torch.tensor([[3, 4, 5, 6, 7], [8, 9, 10, 0, 0]])
KEEP = SOURCE > 0
TARGET = torch.tensor([[1, 12, 13, 14], [1, 15, 16, 17]])
PIXELS = torch.linspace(-1, 1, 2 * 3 * 8 * 8).view(2, 3, 8, 8).sin()
FILMS = torch.linspace(-2, 2, 2 * 2 * 3 * 8 * 8).view(2, 2, 3, 8, 8).sin()
SERIES = torch.linspace(-3, 3, 2 * 5 * 3).view(2, 5, 3).sin()
SMALL: dict[str, Any] = {"width": 16, "heads": 4, "layers": 2, "hidden": 24, "dropout": 0.0}
SIZES: dict[str, Any] = {  # of whatever a family can be told, by its name
    **SMALL, "vocabulary": V, "columns": 3, "length": 32, "image": 8, "patch": 4, "image_width": 8, "image_heads": 2,
    "classes": 3, "numbers": 3,
}  # fmt: skip


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
            for average in running_averages(model).values():
                average.add_(0.3 * torch.rand_like(average))
        return model


def _recurrent(cell: Any, answer: Any, **more: Any) -> Callable[[], nn.Module]:
    return lambda: models.recurrent(V, 16, 2, 0.0, answer=answer, cell=cell, **more)


def _small(family: Callable[..., nn.Module]) -> Case:
    """A small model of a family of the registry."""
    known = inspect.signature(family).parameters
    make = partial(family, **{key: value for key, value in SIZES.items() if key in known})
    return Case(make, _inputs(make()))


def _inputs(model: Any) -> tuple[Tensor, ...]:
    """What a model is given: by what it embeds, and whether it reads a second text."""
    reader = model.encoder if hasattr(model, "encoder") else model.decoder
    of: dict[type, tuple[Tensor, ...]] = {
        Embedding: (SOURCE, KEEP), PatchEmbedding: (PIXELS,), FilmEmbedding: (FILMS,), ValueEmbedding: (SERIES,)
    }  # fmt: skip
    first, *masks = next(inputs for kind, inputs in of.items() if isinstance(reader.embedding, kind))
    return (first, TARGET, *masks) if isinstance(model, EncoderDecoder) else (first, *masks)


PAIR, TEXT, IMAGE = (SOURCE, TARGET, KEEP), (SOURCE, KEEP), (PIXELS,)
CAPTIONED = {**SMALL, "image": 8, "patch": 4, "image_width": 8, "image_heads": 2}
FAMILIES: dict[str, Case] = {name: _small(registry.FAMILIES[name]) for name in registry.FAMILIES.names()}
FAMILIES |= {
    "transformer-post": Case(
        lambda: models.transformer(V, **SMALL, residual=PostNorm, positions=rotary, key_value_heads=2, gated=True), PAIR
    ),
    "transformer-alibi": Case(lambda: models.transformer(V, **SMALL, positions=alibi), PAIR),
    "bert": Case(lambda: models.bert(V, **SMALL, length=32, answer="words"), TEXT),
    "bert-vectors": FAMILIES["bert"],
    "bert-classes": Case(lambda: models.bert(V, **SMALL, length=32, answer="classes"), TEXT),
    "roberta": Case(lambda: models.roberta(V, **SMALL, length=32, answer="tags"), TEXT),
    "llama": Case(lambda: models.llama(V, **{**SMALL, "key_value_heads": 2}, length=32), TEXT),
    "vit-batch": Case(lambda: models.vit(3, 8, 4, 16, 4, 2, 24, norm=BatchNorm), IMAGE),
    "captioner-film": Case(lambda: models.captioner(V, **CAPTIONED, length=32, frames=2), (FILMS, TARGET)),
    "series_encoder-classes": Case(lambda: models.series_encoder(3, **SMALL, answer="series-classes"), (SERIES,)),
    "rnn": Case(_recurrent(RNN, "target"), PAIR),
    "gru": Case(_recurrent(GRU, "target", attention=AdditiveScore, bidirectional=True), PAIR),
    "lstm": Case(_recurrent(LSTM, "target", bidirectional=True), PAIR),
    "lstm-blind": Case(_recurrent(LSTM, "target", attention=None), PAIR),
    "gru-next": Case(_recurrent(GRU, "next"), (SOURCE,)),
    "lstm-classes": Case(_recurrent(LSTM, "classes", bidirectional=True), TEXT),
    "rnn-tags": Case(_recurrent(RNN, "tags"), TEXT),
}
_MODELS = {name: case.make() for name, case in FAMILIES.items()}
WRITERS = [name for name, model in _MODELS.items() if isinstance(model, EncoderDecoder)]
SPEAKERS = [
    name for name, model in _MODELS.items()
    if isinstance(model, DecoderOnly) and isinstance(model.decoder.embedding, Embedding)
]  # fmt: skip
RECURRENT = [name for name, model in _MODELS.items() if any(isinstance(part, Recurrent) for part in model.modules())]
TRANSFORMERS = [name for name in FAMILIES if name not in RECURRENT]


def translator(seed: int = 0, name: str = "transformer") -> Any:
    """A model that reads a source and writes a target."""
    return FAMILIES[name].model(seed)


def same(ours: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    """Equal but for rounding."""
    torch.testing.assert_close(ours, expected, atol=tolerance, rtol=tolerance)
