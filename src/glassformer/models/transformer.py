"""The Transformer of "Attention Is All You Need": an encoder and a decoder made of attention and little else.

D model width, H heads, V vocabulary
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from glassformer.errors import ConfigurationError
from glassformer.models.family import family
from glassformer.models.initialise import initialise
from glassformer.models.shapes import EncoderDecoder
from glassformer.parts.builder import BlockBuilder
from glassformer.parts.checks import check_positive
from glassformer.parts.embeddings import Embedding, Head, TiedHead
from glassformer.parts.feedforward import Activation, relu
from glassformer.parts.linear import Linear, MakeLinear
from glassformer.parts.norms import LayerNorm, Norm, PostNorm, PreNorm, Residual
from glassformer.parts.schemes import Positions, sinusoidal
from glassformer.parts.similarity import SimilarityKind, scaled_dot_similarity


@family(answers=["target"])
def transformer(
    vocabulary: int,
    width: int = 512,
    heads: int = 8,
    layers: int = 6,
    hidden: int = 2048,
    dropout: float = 0.1,
    *,
    decoder_layers: int | None = None,
    target_vocabulary: int | None = None,
    length: int = 512,
    residual: Residual = PreNorm,
    norm: Norm = LayerNorm,
    positions: Positions = sinusoidal,
    activation: Activation = relu,
    gated: bool = False,
    key_value_heads: int | None = None,
    similarity: SimilarityKind = scaled_dot_similarity,
    linear: MakeLinear = Linear,
    attention_dropout: float = 0.0,
    tie_source: bool = True,
    tie_output: bool = True,
) -> EncoderDecoder:
    """The encoder-decoder of "Attention Is All You Need".

    `tie_source`: source and target share one embedding. `tie_output`: the head scores tokens by the target's
    embedding. `positions` are a scheme; `scheme_of` makes one from parts of your own. Only learned positions limit
    texts to `length` tokens. Dropout stands where the paper has it: on the embeddings and on what each part adds to the
    residual stream.
    """
    check_positive(layers=layers, decoder_layers=layers if decoder_layers is None else decoder_layers)
    target_vocabulary = vocabulary if target_vocabulary is None else target_vocabulary
    if tie_source and target_vocabulary != vocabulary:
        raise ConfigurationError(
            f"source and target cannot share an embedding: their vocabularies have {vocabulary} and "
            f"{target_vocabulary} tokens; pass tie_source=False"
        )
    blocks = BlockBuilder(width, heads, hidden, dropout, attention_dropout, key_value_heads, linear=linear)
    blocks = replace(blocks, residual=residual, norm=norm, activation=activation, gated=gated, similarity=similarity)
    sizes = blocks.sizes(length)
    order = positions.embedding(sizes)

    def embed(vocabulary: int) -> Embedding:
        return Embedding(vocabulary, width, scale=math.sqrt(width), positions=order, dropout=dropout)

    source = embed(vocabulary)
    target = source if tie_source else embed(target_vocabulary)
    encoder = blocks.encoder(source, layers, positions.attention(sizes, True))
    decoder = blocks.decoder(target, decoder_layers or layers, positions.attention(sizes, False), cross=True)
    initialise(encoder, decoder)
    return EncoderDecoder(encoder, decoder, TiedHead(target) if tie_output else Head(width, target_vocabulary))


def transformer_tiny(vocabulary: int, **changes: Any) -> EncoderDecoder:
    """Width 128, 4 heads, 2 + 2 layers: trains on a laptop in minutes."""
    return transformer(vocabulary, **{"width": 128, "heads": 4, "layers": 2, "hidden": 512} | changes)


def transformer_base(vocabulary: int = 37_000, **changes: Any) -> EncoderDecoder:
    """The paper's base model: width 512, 8 heads, 6 + 6 layers, post-norm."""
    return transformer(vocabulary, **{"residual": PostNorm} | changes)


def transformer_big(vocabulary: int = 37_000, **changes: Any) -> EncoderDecoder:
    """The paper's big model: width 1024, 16 heads, 6 + 6 layers, dropout 0.3, post-norm."""
    big: dict[str, Any] = {"width": 1024, "heads": 16, "hidden": 4096, "dropout": 0.3, "residual": PostNorm}
    return transformer(vocabulary, **big | changes)
