"""Patches: an image as a sentence. Each square of pixels becomes a token, and one more stands for the whole.

A film is its images one after another, each of whose tokens is told which image it is from.

B batch, F frames, C colours, P patch edge, N patches, D model width
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigurationError, InputError
from glassformer.parts.checks import check_positive, readable
from glassformer.parts.dropout import Dropout
from glassformer.parts.embeddings import placed
from glassformer.parts.observing import Axes, Observer, axes
from glassformer.parts.positions import EmbeddingPositions, Position

HEIGHT = 0.2  # of waves: what is to be seen in a patch is larger


def token_count(image: int, patch: int) -> int:
    """How many tokens an image becomes: its patches, and one for the whole."""
    check_positive(image=image, patch=patch)
    if image % patch:
        raise ConfigurationError(f"images of {image} pixels do not divide into patches of {patch}")
    return 1 + (image // patch) ** 2


def grid_waves(side: int, width: int) -> Tensor:
    """Waves over the rows and columns of patches, (1 + N, D), for positions to begin with: near ones begin alike.

    Half of the numbers is for rows, half for columns; from a quarter of a wave over the image to one in two patches.
    The class token, which is nowhere, has zeros.
    """
    count, places = max(width // 4, 1), torch.arange(side, dtype=torch.float32)
    lowest = math.pi / (2 * side)
    frequencies = lowest * (math.pi / lowest) ** (torch.arange(count) / max(count - 1, 1))
    angles = places[:, None] * frequencies  # (side, D / 4)
    waves = torch.cat((angles.sin(), angles.cos()), dim=1)  # (side, D / 2)
    rows, columns = waves[:, None].expand(-1, side, -1), waves[None].expand(side, -1, -1)
    grid = torch.cat((rows, columns), dim=2).reshape(side * side, -1)[:, :width]
    table = torch.zeros(1 + side * side, width)
    table[1:, : grid.shape[1]] = HEIGHT * grid
    return table


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

    def reads(self) -> dict[str, Axes]:
        """What passes before anything is embedded."""
        return {"patches": axes(patch=None, feature=None)}

    def length(self, pixels: Tensor) -> int:
        """How many vectors each image becomes."""
        return token_count(self.image, self.patch)

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
        patches = self.cut(pixels)
        x = self.with_class(patches if observe is None else observe("patches", patches))
        return self.dropout(placed(x, self.place, position, observe))  # type: ignore[no-any-return]

    def cut(self, pixels: Tensor) -> Tensor:
        """Images (B, C, image, image) as vectors of their patches (B, N, D)."""
        return self.projection(pixels.to(self.projection.weight.dtype)).flatten(2).transpose(1, 2)  # type: ignore[no-any-return]

    def with_class(self, patches: Tensor) -> Tensor:
        """Vectors of patches (B, N, D) behind the class token, (B, 1 + N, D)."""
        return torch.cat((self.class_token.expand(len(patches), -1, -1), patches), dim=1)

    def place(self, x: Tensor, position: Position = None) -> Tensor:
        """Vectors (B, 1 + N, D) with their positions added."""
        return x + self.positions if isinstance(self.positions, Tensor) else self.positions(x, position)


class FilmEmbedding(nn.Module):
    """Embed each image of a film as `patches` does, and add to each of its vectors the position of its frame."""

    def __init__(self, patches: PatchEmbedding, frames: int, moments: EmbeddingPositions) -> None:
        super().__init__()
        check_positive(frames=frames)
        self.patches, self.frames, self.moments = patches, frames, moments
        self.width, self.image, self.patch, self.colours = patches.width, patches.image, patches.patch, patches.colours

    @property
    def positions(self) -> Tensor | EmbeddingPositions:
        """Those of the patches within each frame."""
        return self.patches.positions

    def reads(self) -> dict[str, Axes]:
        """What passes before anything is embedded: the patches of all frames."""
        return self.patches.reads()

    def length(self, films: Tensor) -> int:
        """How many vectors each film becomes."""
        return self.frames * self.patches.length(films)

    def check(self, films: Tensor, what: str = "films", anywhere: bool = False) -> None:
        """Refuse what is no batch of films of this many images, each of this size."""
        if films.dim() != 5 or films.shape[1] != self.frames or not len(films):
            size = " x ".join(str(number) for number in films.shape)
            raise InputError(f"{what} must be films (batch, {self.frames} frames, colours, size, size), not {size}")
        self.patches.check(films.flatten(0, 1), what, anywhere)

    def forward(self, films: Tensor, position: Position = None, observe: Observer | None = None) -> Tensor:
        """Films (B, F, C, image, image) to vectors (B, F · (1 + N), D), frame after frame."""
        self.check(films)
        patches = self.patches.cut(films.flatten(0, 1))  # (B · F, N, D)
        if observe is not None:
            seen = observe("patches", patches.reshape(len(films), -1, self.width))  # (B, F · N, D)
            patches = seen.reshape(patches.shape)
        x = self.patches.with_class(patches).view(len(films), -1, self.width)  # (B, F · (1 + N), D)
        return self.patches.dropout(placed(x, self.place, position, observe))  # type: ignore[no-any-return]

    def place(self, x: Tensor, position: Position = None) -> Tensor:
        """Vectors (B, F · (1 + N), D) with the positions of their patches and of their frames added, as one sum."""
        nothing = torch.zeros_like(x[:1]).view(self.frames, -1, self.width)  # (F, 1 + N, D)
        inside = self.patches.place(nothing)
        moments = self.moments(nothing[None, :, 0], None)  # (1, F, D)
        return x + (inside + moments[0, :, None]).view(1, -1, self.width)
