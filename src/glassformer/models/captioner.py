"""The captioner: one model looks at an image, another tells what it sees, attending to the patches word by word."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from glassformer.models.family import family
from glassformer.models.initialise import initialise
from glassformer.models.shapes import EncoderDecoder
from glassformer.parts.builder import BlockBuilder
from glassformer.parts.embeddings import Embedding, Head, TiedHead
from glassformer.parts.feedforward import Activation, gelu, gelu_tanh
from glassformer.parts.patches import PatchEmbedding
from glassformer.parts.positions import Learned


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
    epsilon: float = 1e-5,
    tie_output: bool = True,
) -> EncoderDecoder:
    """A ViT that reads images and a GPT-2 that writes captions: `model(pixels, target)`.

    Arguments that begin with `image_` are for the image's side; where they are missing, both sides are alike.
    """
    hidden = 4 * width if hidden is None else hidden
    image_sizes = (image_width or width, image_heads or heads, image_hidden or hidden)
    seeing = BlockBuilder(*image_sizes, image_dropout, image_attention_dropout)
    seeing = replace(seeing, activation=image_activation, epsilon=image_epsilon)
    writing = BlockBuilder(width, heads, hidden, dropout, attention_dropout, activation=activation, epsilon=epsilon)
    patches = PatchEmbedding(image, patch, seeing.width, colours, image_dropout)
    encoder = seeing.encoder(patches, image_layers or layers)
    initialise(encoder)
    if seeing.width != width:
        encoder.norm = nn.Sequential(encoder.norm, nn.Linear(seeing.width, width))
    rate = dropout if embedding_dropout is None else embedding_dropout
    embedding = Embedding(vocabulary, width, positions=Learned(length, width), dropout=rate)
    decoder = writing.decoder(embedding, layers, cross=True)
    initialise(decoder)
    return EncoderDecoder(encoder, decoder, TiedHead(embedding) if tie_output else Head(width, vocabulary))
