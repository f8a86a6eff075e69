"""From the recipe's words to a model's parts."""

from __future__ import annotations

from typing import Any

from glassformer.models import FAMILIES, EncoderDecoder
from glassformer.parts import PostNorm, PreNorm, gelu, gelu_tanh, relu, silu
from glassformer.recipe import Model

PLACEMENTS = {"pre": PreNorm, "post": PostNorm}
ACTIVATIONS = {"relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}


def build(section: Model, source_vocabulary: int, target_vocabulary: int) -> EncoderDecoder:
    """The model that a recipe describes, for vocabularies of these sizes, with fresh weights."""
    words: dict[str, Any] = section.model_dump()
    family = FAMILIES[words.pop("family")]
    words["residual"] = PLACEMENTS[words.pop("norm")]
    words["activation"] = ACTIVATIONS[words["activation"]]
    model = family(source_vocabulary, target_vocabulary=target_vocabulary, **words)
    assert isinstance(model, EncoderDecoder)  # noqa: S101  (every family of the recipe is one)
    return model
