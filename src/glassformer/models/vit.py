"""ViT: an image is worth 16 x 16 words. The encoder of a text, fed with patches.

B batch, N patches, D model width
"""

from __future__ import annotations

from dataclasses import replace

from glassformer.models.family import family
from glassformer.models.initialise import initialise
from glassformer.models.shapes import EncoderOnly
from glassformer.parts.builder import BlockBuilder
from glassformer.parts.feedforward import Activation, gelu
from glassformer.parts.heads import Classifier, FirstToken, pooler_part
from glassformer.parts.linear import Linear, MakeLinear
from glassformer.parts.norms import LayerNorm, PreNorm, Residual, UnpaddedNorm
from glassformer.parts.patches import PatchEmbedding, token_count
from glassformer.parts.schemes import Positions, learned


@family(answers=["image-classes"])
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
    gated: bool = False,
    key_value_heads: int | None = None,
    norm: UnpaddedNorm = LayerNorm,
    residual: Residual = PreNorm,
    positions: Positions = learned,
    epsilon: float = 1e-12,
    linear: MakeLinear = Linear,
) -> EncoderOnly:
    """The classifier of "An Image is Worth 16x16 Words"; without `classes` its answer is its vectors (B, 1 + N, D).

    With a `pooler`, `model.pooler(vectors)` is one vector (B, D) for the whole image. `positions` count the patches
    row by row.
    """
    blocks = BlockBuilder(width, heads, hidden, dropout, attention_dropout, key_value_heads, linear=linear)
    blocks = replace(blocks, residual=residual, norm=norm, epsilon=epsilon, activation=activation, gated=gated)
    sizes = blocks.sizes(token_count(image, patch))
    order = None if positions is learned else positions.embedding(sizes)
    embedding = PatchEmbedding(image, patch, width, colours, dropout, order)
    encoder = blocks.encoder(embedding, layers, positions.attention(sizes, True))
    initialise(encoder)
    head = None if classes is None else Classifier(FirstToken(), width, classes)
    return EncoderOnly(encoder, head, pooler_part(width) if pooler else None)
