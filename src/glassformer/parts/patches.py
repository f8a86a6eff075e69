"""Patches: an image as a sentence. Each square of pixels becomes a token, and one more stands for the whole.

B batch, C colours, P patch edge, N patches, D model width
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigurationError, InputError
from glassformer.parts.checks import check_positive, readable
from glassformer.parts.dropout import Dropout
from glassformer.parts.embeddings import placed
from glassformer.parts.observing import Observer
from glassformer.parts.positions import EmbeddingPositions, Position


def token_count(image: int, patch: int) -> int:
    """How many tokens an image becomes: its patches, and one for the whole."""
    check_positive(image=image, patch=patch)
    if image % patch:
        raise ConfigurationError(f"images of {image} pixels do not divide into patches of {patch}")
    return 1 + (image // patch) ** 2


class PatchEmbedding(nn.Module):
    """Cut images into squares, project each, put a class token in front, add a trained vector for each position.

    Other `positions` take the place of the trained ones.
    """

    def __init__(
        self,
        image: int,
        patch: int,
        width: int,
        colours: int = 3,
        dropout: float = 0.0,
        positions: EmbeddingPositions | None = None,
    ) -> None:
        super().__init__()
        check_positive(width=width, colours=colours)
        count = token_count(image, patch)
        self.image, self.patch, self.width, self.colours = image, patch, width, colours
        self.projection = nn.Conv2d(colours, width, patch, stride=patch)
        self.class_token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, count, width)) if positions is None else positions
        self.dropout = Dropout(dropout)

    def check(self, pixels: Tensor, what: str = "pixels", anywhere: bool = False) -> None:
        """Refuse what is no batch of images of this size."""
        wanted = (self.colours, self.image, self.image)
        if pixels.dim() != 4 or tuple(pixels.shape[1:]) != wanted or not len(pixels):
            size = " x ".join(str(number) for number in pixels.shape)
            raise InputError(
                f"{what} must be images (batch, {self.colours} colours, {self.image}, {self.image}), not {size}"
            )
        if not pixels.is_floating_point():
            raise InputError(f"{what} must hold numbers such as 0.0 to 1.0, not {pixels.dtype}")
        if readable(pixels, anywhere) and not bool(pixels.isfinite().all()):
            row = int((~pixels.isfinite()).flatten(1).any(dim=1).nonzero()[0])
            raise InputError(f"image {row} of the batch holds what is no number (NaN or infinite): it is damaged")

    def forward(self, pixels: Tensor, position: Position = None, observe: Observer | None = None) -> Tensor:
        """Images (B, C, image, image) to vectors (B, 1 + N, D)."""
        self.check(pixels)
        pixels = pixels.to(self.projection.weight.dtype)
        patches = self.projection(pixels).flatten(2).transpose(1, 2)  # (B, N, D)
        patches = patches if observe is None else observe("patches", patches)
        whole = self.class_token.expand(len(pixels), -1, -1)
        return self.dropout(placed(torch.cat((whole, patches), dim=1), self._place, position, observe))  # type: ignore[no-any-return]

    def _place(self, x: Tensor, position: Position) -> Tensor:
        """Vectors (B, 1 + N, D) with their positions added."""
        return x + self.positions if isinstance(self.positions, Tensor) else self.positions(x, position)
