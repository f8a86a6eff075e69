"""ViT: an image is worth 16 x 16 words. The encoder of a text, fed with patches.

B batch, N patches, D model width
"""

from __future__ import annotations

from torch import nn

from glassformer.models.encoder_only import EncoderOnly
from glassformer.models.family import family
from glassformer.models.initialise import initialise
from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.blocks import Encoder, EncoderBlock
from glassformer.parts.feedforward import Activation, FeedForward, Linear, gelu
from glassformer.parts.heads import Classifier, FirstToken, Pooler
from glassformer.parts.norms import LayerNorm, PreNorm
from glassformer.parts.patches import PatchEmbedding


@family
def vit(
    classes: int | None = 1000,
    image: int = 224,
    patch: int = 16,
    width: int = 768,
    heads: int = 12,
    layers: int = 12,
    hidden: int = 3072,
    dropout: float = 0.0,
    *,
    pooler: bool = False,
    colours: int = 3,
    attention_dropout: float = 0.0,
    activation: Activation = gelu,
    epsilon: float = 1e-12,
    linear: Linear = nn.Linear,
) -> EncoderOnly:
    """The classifier of "An Image is Worth 16x16 Words"; without `classes` its answer is its vectors (B, 1 + N, D).

    With a `pooler`, `model.pooler(vectors)` is one vector (B, D) for the whole image.
    """
    encoder = vit_encoder(
        image=image,
        patch=patch,
        width=width,
        heads=heads,
        layers=layers,
        hidden=hidden,
        dropout=dropout,
        colours=colours,
        attention_dropout=attention_dropout,
        activation=activation,
        epsilon=epsilon,
        linear=linear,
    )
    head = None if classes is None else Classifier(FirstToken(), width, classes)
    return EncoderOnly(encoder, head, Pooler(width) if pooler else None)


def vit_encoder(
    *,
    image: int,
    patch: int,
    width: int,
    heads: int,
    layers: int,
    hidden: int,
    dropout: float,
    colours: int,
    attention_dropout: float,
    activation: Activation,
    epsilon: float,
    linear: Linear = nn.Linear,
) -> Encoder:
    """The stack of ViT: patches in, vectors in context out."""

    def block() -> EncoderBlock:
        attention = MultiHeadAttention(width, heads, dropout=attention_dropout, linear=linear)
        feed_forward = FeedForward(width, hidden, activation, linear=linear)
        return EncoderBlock(
            PreNorm(attention, LayerNorm(width, epsilon), dropout),
            PreNorm(feed_forward, LayerNorm(width, epsilon), dropout),
        )

    embedding = PatchEmbedding(image, patch, width, colours, dropout)
    encoder = Encoder(embedding, [block() for _ in range(layers)], LayerNorm(width, epsilon))
    initialise(encoder)
    return encoder
