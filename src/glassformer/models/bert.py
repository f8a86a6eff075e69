"""BERT and RoBERTa: the encoder alone, trained to guess hidden words, then asked for classes or answers.

B batch, T length, D model width, V vocabulary, C classes
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from glassformer.errors import ConfigurationError
from glassformer.models.encoder_only import EncoderOnly
from glassformer.models.family import family
from glassformer.models.initialise import initialise
from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.blocks import Encoder, EncoderBlock
from glassformer.parts.dropout import Dropout
from glassformer.parts.embeddings import Embedding, Head, TiedHead
from glassformer.parts.feedforward import Activation, FeedForward, Linear, gelu
from glassformer.parts.heads import Classifier, FirstToken, Pooler, Scores, Transform
from glassformer.parts.norms import LayerNorm, PostNorm
from glassformer.parts.positions import Learned

Answer = Literal["vectors", "words", "classes", "tags", "span"]


@family
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
    segments: int = 2,
    attention_dropout: float = 0.1,
    head_dropout: float | None = None,
    activation: Activation = gelu,
    epsilon: float = 1e-12,
    tie_output: bool = True,
    linear: Linear = nn.Linear,
) -> EncoderOnly:
    """The encoder of "BERT: Pre-training of Deep Bidirectional Transformers", for texts up to `length` tokens.

    It answers with its vectors (B, T, D), with the scores of `words` that may stand in each place (B, T, V), of
    `classes` for the whole text (B, C) or as `tags` of each token (B, T, C), or of each token beginning and ending a
    `span` (B, T, 2). With a `pooler`, `model.pooler(vectors)` is one vector (B, D) for the whole text.
    """
    encoder = _encoder(
        vocabulary=vocabulary,
        width=width,
        heads=heads,
        layers=layers,
        hidden=hidden,
        length=length,
        skip=0,
        dropout=dropout,
        segments=segments,
        attention_dropout=attention_dropout,
        activation=activation,
        epsilon=epsilon,
        linear=linear,
    )
    share = dropout if head_dropout is None else head_dropout
    if answer == "classes":
        return EncoderOnly(encoder, Classifier(Pooler(width), width, classes, share))
    if answer == "tags":
        return EncoderOnly(encoder, Scores(width, classes, share))
    head = _head(answer, encoder.embedding, activation, epsilon, tie_output)
    return EncoderOnly(encoder, head, Pooler(width) if pooler else None)


@family
def roberta(
    vocabulary: int = 50_265,
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
    segments: int = 1,
    attention_dropout: float = 0.1,
    head_dropout: float | None = None,
    activation: Activation = gelu,
    epsilon: float = 1e-5,
    tie_output: bool = True,
    linear: Linear = nn.Linear,
) -> EncoderOnly:
    """The encoder of "RoBERTa: A Robustly Optimized BERT Pretraining Approach": the same parts, other habits.

    Positions count from 2, there is one segment, words are scored by GELU, and classes by a head without pooler.
    """
    encoder = _encoder(
        vocabulary=vocabulary,
        width=width,
        heads=heads,
        layers=layers,
        hidden=hidden,
        length=length,
        skip=2,
        dropout=dropout,
        segments=segments,
        attention_dropout=attention_dropout,
        activation=activation,
        epsilon=epsilon,
        linear=linear,
    )
    share = dropout if head_dropout is None else head_dropout
    if answer == "tags":
        return EncoderOnly(encoder, Scores(width, classes, share))
    if answer == "classes":
        pool = nn.Sequential(FirstToken(), Dropout(share), Transform(width, torch.tanh))
        return EncoderOnly(encoder, Classifier(pool, width, classes, share))
    head = _head(answer, encoder.embedding, gelu, epsilon, tie_output)
    return EncoderOnly(encoder, head, Pooler(width) if pooler else None)


def _encoder(
    *,
    vocabulary: int,
    width: int,
    heads: int,
    layers: int,
    hidden: int,
    length: int,
    skip: int,
    dropout: float,
    segments: int,
    attention_dropout: float,
    activation: Activation,
    epsilon: float,
    linear: Linear,
) -> Encoder:
    """The stack that both have."""

    def block() -> EncoderBlock:
        attention = MultiHeadAttention(width, heads, dropout=attention_dropout, linear=linear)
        feed_forward = FeedForward(width, hidden, activation, linear=linear)
        return EncoderBlock(
            PostNorm(attention, LayerNorm(width, epsilon), dropout),
            PostNorm(feed_forward, LayerNorm(width, epsilon), dropout),
        )

    positions, norm = Learned(length, width, skip), LayerNorm(width, epsilon)
    embedding = Embedding(vocabulary, width, positions=positions, norm=norm, dropout=dropout, segments=segments)
    nn.init.normal_(embedding.weight, std=0.02)
    encoder = Encoder(embedding, [block() for _ in range(layers)])
    initialise(encoder)
    return encoder


def _head(
    answer: Answer, embedding: Embedding, activation: Activation, epsilon: float, tie_output: bool
) -> nn.Module | None:
    """What scores words or spans; nothing for the vectors themselves."""
    width = embedding.width
    if answer == "vectors":
        return None
    if answer == "span":
        return nn.Linear(width, 2)
    if answer == "words":
        scores = TiedHead(embedding, bias=True) if tie_output else Head(width, embedding.vocabulary, bias=True)
        return nn.Sequential(Transform(width, activation, LayerNorm(width, epsilon)), scores)
    raise ConfigurationError(f'a BERT answers with "vectors", "words", "classes", "tags" or "span", not "{answer}"')
