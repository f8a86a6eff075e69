"""The captioner: one model looks at an image, another tells what it sees, attending to the patches word by word."""

from __future__ import annotations

from torch import nn

from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.family import family
from glassformer.models.gpt2 import gpt2_decoder
from glassformer.models.vit import vit_encoder
from glassformer.parts.embeddings import Head, TiedHead
from glassformer.parts.feedforward import Activation, gelu, gelu_tanh


@family
def captioner(
    vocabulary: int = 50_257,
    image: int = 224,
    patch: int = 16,
    width: int = 768,
    heads: int = 12,
    layers: int = 12,
    hidden: int = 3072,
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

    What is said of the image's side alone begins with `image_`; where it is not said, both sides are alike.
    """
    seen = image_width or width
    encoder = vit_encoder(
        image=image,
        patch=patch,
        width=seen,
        heads=image_heads or heads,
        layers=image_layers or layers,
        hidden=image_hidden or hidden,
        dropout=image_dropout,
        colours=colours,
        attention_dropout=image_attention_dropout,
        activation=image_activation,
        epsilon=image_epsilon,
    )
    if seen != width:
        encoder.norm = nn.Sequential(encoder.norm, nn.Linear(seen, width))
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
        source=True,
    )
    head = TiedHead(decoder.embedding) if tie_output else Head(width, vocabulary)
    return EncoderDecoder(encoder, decoder, head)
