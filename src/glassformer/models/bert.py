"""BERT and RoBERTa: the encoder alone, trained to guess hidden words, then asked for classes or answers.

B batch, T length, D model width, V vocabulary, C classes
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import nn

from glassformer.errors import ConfigurationError
from glassformer.models.family import family, variant
from glassformer.models.initialise import initialise
from glassformer.models.shapes import EncoderOnly
from glassformer.parts.builder import BlockBuilder
from glassformer.parts.dropout import Dropout
from glassformer.parts.embeddings import Embedding, Head, TiedHead
from glassformer.parts.feedforward import Activation, gelu
from glassformer.parts.heads import Classifier, FirstToken, Transform, pooler_part
from glassformer.parts.linear import Linear, MakeLinear
from glassformer.parts.norms import LayerNorm, Norm, PostNorm, Residual
from glassformer.parts.schemes import Positions, learned

Answer = Literal["vectors", "words", "classes", "tags", "span"]


@family(
    only={
        "tie_output": ("words",),
        "head_activation": ("words",),
        "head_dropout": ("classes", "tags"),
        "pooled": ("classes",),
    }
)
def bert(
    vocabulary: int = 30_522,
    width: int = 768,
    heads: int = 12,
    layers: int = 12,
    hidden: int = 3072,
    length: int = 512,
    dropout: float = 0.1,
    *,
    answer: Answer = "vectors",
    classes: int = 2,
    pooler: bool = False,
    pooled: bool = True,
    segments: int = 2,
    attention_dropout: float = 0.1,
    head_dropout: float | None = None,
    activation: Activation = gelu,
    head_activation: Activation | None = None,
    gated: bool = False,
    key_value_heads: int | None = None,
    norm: Norm = LayerNorm,
    residual: Residual = PostNorm,
    positions: Positions = learned,
    skip: int = 0,
    epsilon: float = 1e-12,
    tie_output: bool = True,
    linear: MakeLinear = Linear,
) -> EncoderOnly:
    """The encoder of "BERT: Pre-training of Deep Bidirectional Transformers", for texts up to `length` tokens.

    It answers with its vectors (B, T, D), with the scores of `words` at each position (B, T, V), of `classes` for the
    whole text (B, C) or as `tags` of each token (B, T, C), or of each token beginning and ending a `span` (B, T, 2).
    With a `pooler`, `model.pooler(vectors)` is one vector (B, D) for the whole text.
    """
    if answer not in get_args(Answer):
        raise ConfigurationError(f'a BERT answers with one of {", ".join(get_args(Answer))}, not "{answer}"')
    blocks = BlockBuilder(width, heads, hidden, dropout, attention_dropout, key_value_heads, linear=linear)
    blocks = replace(blocks, residual=residual, norm=norm, epsilon=epsilon, activation=activation, gated=gated)
    sizes = blocks.sizes(length, skip=skip)
    embedding = Embedding(vocabulary, width, 1.0, positions.embedding(sizes), blocks.make_norm(), dropout, segments)
    nn.init.normal_(embedding.weight, std=0.02)
    encoder = blocks.encoder(embedding, layers, positions.attention(sizes, True))
    initialise(encoder)
    rate = dropout if head_dropout is None else head_dropout
    head: nn.Module | None
    match answer:
        case "vectors":
            head = None
        case "words":
            scores = TiedHead(embedding, bias=True) if tie_output else Head(width, vocabulary, bias=True)
            head = nn.Sequential(Transform(width, head_activation or activation, blocks.make_norm()), scores)
        case "classes":
            pool = pooler_part(width) if pooled else _dense(width, rate)
            return EncoderOnly(encoder, Classifier(pool, width, classes, rate))
        case "tags":
            return EncoderOnly(encoder, Classifier(None, width, classes, rate))
        case "span":
            head = Linear(width, 2)
    return EncoderOnly(encoder, head, pooler_part(width) if pooler else None)


def _dense(width: int, dropout: float) -> nn.Module:
    """What RoBERTa has in place of a pooler: (B, T, D) to (B, D)."""
    return nn.Sequential(FirstToken(), Dropout(dropout), Transform(width, torch.tanh))


roberta = variant(
    "roberta",
    bert,
    """The encoder of "RoBERTa: A Robustly Optimized BERT Pretraining Approach": BERT's parts with other numbers.

    The first two rows of its table of positions stay unused, there is one segment, the head that scores words has a
    GELU, and classes are scored without a pooler.
    """,
    vocabulary=50_265,
    segments=1,
    epsilon=1e-5,
    skip=2,
    head_activation=gelu,
    pooled=False,
)
