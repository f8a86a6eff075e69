"""GPT-2: the decoder alone, pre-norm, with learned positions. It predicts the next token, and nothing else."""

from __future__ import annotations

from torch import nn

from glassformer.models.decoder_only import DecoderOnly
from glassformer.models.family import family
from glassformer.models.initialise import initialise
from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.blocks import Decoder, DecoderBlock
from glassformer.parts.embeddings import Embedding, Head, TiedHead
from glassformer.parts.feedforward import Activation, FeedForward, Linear, gelu_tanh
from glassformer.parts.norms import LayerNorm, PreNorm
from glassformer.parts.positions import Learned


@family
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
    epsilon: float = 1e-5,
    tie_output: bool = True,
    linear: Linear = nn.Linear,
) -> DecoderOnly:
    """The language model of "Language Models are Unsupervised Multitask Learners", for texts up to `length` tokens."""
    decoder = gpt2_decoder(
        vocabulary=vocabulary,
        width=width,
        heads=heads,
        layers=layers,
        hidden=hidden,
        length=length,
        dropout=dropout,
        embedding_dropout=embedding_dropout,
        attention_dropout=attention_dropout,
        activation=activation,
        epsilon=epsilon,
        linear=linear,
    )
    embedding = decoder.embedding
    return DecoderOnly(decoder, TiedHead(embedding) if tie_output else Head(width, vocabulary))


def gpt2_decoder(
    *,
    vocabulary: int,
    width: int,
    heads: int,
    layers: int,
    hidden: int | None,
    length: int,
    dropout: float,
    embedding_dropout: float | None,
    attention_dropout: float,
    activation: Activation,
    epsilon: float,
    linear: Linear = nn.Linear,
    source: bool = False,
) -> Decoder:
    """The stack of GPT-2; with a `source` it also attends to one, as in image captioning."""

    def attention() -> nn.Module:
        part = MultiHeadAttention(width, heads, dropout=attention_dropout, linear=linear)
        return PreNorm(part, LayerNorm(width, epsilon), dropout)

    def feed_forward() -> nn.Module:
        part = FeedForward(width, 4 * width if hidden is None else hidden, activation, linear=linear)
        return PreNorm(part, LayerNorm(width, epsilon), dropout)

    share = dropout if embedding_dropout is None else embedding_dropout
    embedding = Embedding(vocabulary, width, positions=Learned(length, width), dropout=share)
    blocks = [DecoderBlock(attention(), attention() if source else None, feed_forward()) for _ in range(layers)]
    decoder = Decoder(embedding, blocks, LayerNorm(width, epsilon))
    initialise(decoder)
    return decoder
