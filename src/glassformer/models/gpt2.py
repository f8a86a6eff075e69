"""GPT-2: the decoder alone, pre-norm, with learned positions. It predicts the next token, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from glassformer.models.family import family
from glassformer.models.initialise import initialise
from glassformer.models.shapes import DecoderOnly
from glassformer.parts.builder import BlockBuilder
from glassformer.parts.embeddings import Embedding, Head, TiedHead
from glassformer.parts.feedforward import Activation, gelu_tanh
from glassformer.parts.linear import Linear, MakeLinear
from glassformer.parts.norms import LayerNorm, Norm, PreNorm, Residual
from glassformer.parts.schemes import Positions, learned


@family(answers=["next"])
def gpt2(
    vocabulary: int = 50_257,
    width: int = 768,
    heads: int = 12,
    layers: int = 12,
    hidden: int | None = None,
    length: int = 1024,
    dropout: float = 0.1,
    *,
    embedding_dropout: float | None = None,
    attention_dropout: float = 0.1,
    activation: Activation = gelu_tanh,
    gated: bool = False,
    key_value_heads: int | None = None,
    norm: Norm = LayerNorm,
    residual: Residual = PreNorm,
    positions: Positions = learned,
    epsilon: float = 1e-5,
    tie_output: bool = True,
    linear: MakeLinear = Linear,
) -> DecoderOnly:
    """The language model of "Language Models are Unsupervised Multitask Learners", for texts up to `length` tokens."""
    hidden = 4 * width if hidden is None else hidden
    blocks = BlockBuilder(width, heads, hidden, dropout, attention_dropout, key_value_heads, linear=linear)
    blocks = replace(blocks, residual=residual, norm=norm, epsilon=epsilon, activation=activation, gated=gated)
    sizes = blocks.sizes(length)
    rate = dropout if embedding_dropout is None else embedding_dropout
    embedding = Embedding(vocabulary, width, positions=positions.embedding(sizes), dropout=rate)
    decoder = blocks.decoder(embedding, layers, positions.attention(sizes, False))
    initialise(decoder)
    return DecoderOnly(decoder, TiedHead(embedding) if tie_output else Head(width, vocabulary))
