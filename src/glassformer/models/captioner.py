"""The captioner: one model looks at an image, another tells what it sees, attending to the patches word by word.

B batch, F frames, C colours
"""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from glassformer.models.family import family
from glassformer.models.initialise import initialise
from glassformer.models.shapes import EncoderDecoder
from glassformer.parts.builder import BlockBuilder
from glassformer.parts.embeddings import Embedding, Head, TiedHead
from glassformer.parts.feedforward import Activation, gelu, gelu_tanh
from glassformer.parts.linear import Linear, MakeLinear
from glassformer.parts.norms import LayerNorm, Norm, PreNorm, Residual
from glassformer.parts.patches import FilmEmbedding, PatchEmbedding, grid_waves
from glassformer.parts.schemes import FramePositions, Positions, learned


@family(answers=["caption"])
def captioner(
    vocabulary: int = 50_257,
    image: int = 224,
    patch: int = 16,
    width: int = 768,
    heads: int = 12,
    layers: int = 12,
    hidden: int | None = 3072,
    length: int = 1024,
    dropout: float = 0.1,
    *,
    image_width: int | None = None,
    image_heads: int | None = None,
    image_layers: int | None = None,
    image_hidden: int | None = None,
    image_dropout: float = 0.0,
    image_activation: Activation = gelu,
    image_epsilon: float = 1e-12,
    colours: int = 3,
    embedding_dropout: float | None = None,
    attention_dropout: float = 0.1,
    image_attention_dropout: float = 0.0,
    activation: Activation = gelu_tanh,
    gated: bool = False,
    key_value_heads: int | None = None,
    norm: Norm = LayerNorm,
    residual: Residual = PreNorm,
    positions: Positions = learned,
    frames: int = 1,
    frame_positions: FramePositions = learned,
    epsilon: float = 1e-5,
    tie_output: bool = True,
    linear: MakeLinear = Linear,
) -> EncoderDecoder:
    """A ViT that reads images and a GPT-2 that writes captions: `model(pixels, target)`.

    Arguments that begin with `image_` are for the image's side; where they are missing, both sides are alike.
    `key_value_heads` and `positions` are the text's: patches have learned positions, and keys and values in all heads.
    With several `frames`, films are read, (B, F, C, image, image), and `frame_positions` tell their images apart.
    """
    hidden = 4 * width if hidden is None else hidden
    image_sizes = (image_width or width, image_heads or heads, image_hidden or hidden)
    seeing = BlockBuilder(*image_sizes, image_dropout, image_attention_dropout, linear=linear)
    seeing = replace(seeing, residual=residual, norm=norm, epsilon=image_epsilon, gated=gated)
    seeing = replace(seeing, activation=image_activation)
    writing = BlockBuilder(width, heads, hidden, dropout, attention_dropout, key_value_heads, linear=linear)
    writing = replace(writing, residual=residual, norm=norm, epsilon=epsilon, gated=gated, activation=activation)
    patches = PatchEmbedding(image, patch, seeing.width, colours, image_dropout)
    # A word such as "left" is about places: which of them are near each other is known from the beginning.
    patches.positions = nn.Parameter(grid_waves(image // patch, seeing.width)[None])
    reading: PatchEmbedding | FilmEmbedding = patches
    if frames != 1:
        reading = FilmEmbedding(patches, frames, frame_positions.embedding(seeing.sizes(frames)))
    encoder = seeing.encoder(reading, image_layers or layers)
    initialise(encoder)
    if seeing.width != width:
        encoder.norm = nn.Sequential(encoder.norm, Linear(seeing.width, width))
    rate = dropout if embedding_dropout is None else embedding_dropout
    sizes = writing.sizes(length)
    embedding = Embedding(vocabulary, width, positions=positions.embedding(sizes), dropout=rate)
    decoder = writing.decoder(embedding, layers, positions.attention(sizes, False), cross=True)
    initialise(decoder)
    return EncoderDecoder(encoder, decoder, TiedHead(embedding) if tie_output else Head(width, vocabulary))
