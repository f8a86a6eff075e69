"""Positions: how a model that sees all tokens at once learns their order.

Two kinds. `Sinusoidal`, `Learned` and `NoPositions` are added to the embeddings. `Rotary`, `RelativeBias` and `ALiBi`
work inside attention, on queries and keys or on their scores.

A `Position` says where the tokens of a call stand: None (at 0, 1, 2, …), a number (all at this one: a step of decoding)
or a tensor (T) or (B, T) (packed documents, padded prompts).

Tables that follow from a formula are in no state_dict. They are computed anew when a model moves or is emptied
(`to_empty` after building it on the meta device), so that no table is ever left without its numbers.

B batch, T query length, S key length, L length of a table, D model width, H heads, K head width
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Protocol, Self

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigurationError, InputError
from glassformer.parts.checks import check_positive, unread

Position = int | Tensor | None
EmbeddingPositions = Callable[[Tensor, Position], Tensor]  # adds to vectors (B, T, D) where they stand


class AttentionPositions(Protocol):
    """A scheme that works inside attention: it turns queries and keys, or adds a bias to their scores, or both."""

    def check(self, heads: int, head_width: int) -> None:
        """Refuse an attention of other sizes than the scheme was built for."""
        built_for = getattr(self, "heads", heads)
        if heads != built_for:
            raise ConfigurationError(f"{type(self).__name__} was built for {built_for} heads, not {heads}")

    def rotate(self, x: Tensor, position: Position) -> Tensor:
        """Queries or keys (B, H, T, K), turned by their positions; by default, just as they are."""
        return x

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """What to add to the scores, (B or 1, H, T, S), from positions (B or 1, T) and (B or 1, S)."""
        return None


class NoPositions(nn.Module):
    """No order at all: "dog bites man" is "man bites dog"."""

    def forward(self, x: Tensor, position: Position = None) -> Tensor:
        return x


class Waves(nn.Module):
    """A table (L, D) of sin(p / base^(2i/D)) and cos(the same) for each position p, longer as soon as it has to be.

    They take turns, or with `interleaved=False` all sines come before all cosines.
    """

    table: Tensor

    def __init__(self, width: int, base: float = 10_000.0, interleaved: bool = True, length: int = 512) -> None:
        super().__init__()
        check_positive(width=width, length=length)
        if width % 2:
            raise ConfigurationError(f"sinusoidal positions need an even width, not {width}")
        self.width, self.base, self.interleaved = width, base, interleaved
        self.register_buffer("table", self._table(length), persistent=False)

    @torch.inference_mode(False)  # a table that grows while decoding must still serve training afterwards
    def _table(self, length: int, like: Tensor | None = None) -> Tensor:
        """In float32 on the default device, or in the type and on the device of `like`."""
        frequencies = self.base ** (-torch.arange(0, self.width, 2, dtype=torch.float64, device="cpu") / self.width)
        angles = torch.arange(length, dtype=torch.float64, device="cpu")[:, None] * frequencies  # (L, D/2)
        pair = [wave.to(torch.empty(0) if like is None else like) for wave in (angles.sin(), angles.cos())]
        return torch.stack(pair, dim=-1).flatten(1) if self.interleaved else torch.cat(pair, dim=-1)  # (L, D)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.table = self._table(len(self.table), like=self.table)
        return self

    def rows(self, position: Position, length: int) -> Tensor:
        """The waves of so many tokens that stand there: (T, D), (1, D) or (B, T, D)."""
        self.reserve(_highest(position, length) + 1)
        return _rows(self.table, position, length)

    def reserve(self, positions: int) -> None:
        """Make the table long enough for so many positions."""
        if positions > len(self.table):
            self.table = self._table(2 * positions, like=self.table)


class Sinusoidal(Waves):
    """The waves of "Attention Is All You Need": PE(p, 2i) = sin(p / base^(2i/D)), PE(p, 2i+1) = cos(the same).

    With `interleaved=False` all sines come before all cosines, as in Marian.
    """

    def forward(self, x: Tensor, position: Position = None) -> Tensor:
        return x + self.rows(position, x.shape[1])


class Learned(nn.Module):
    """One trained vector for each position, as in BERT and GPT; there is none beyond the table.

    `skip` leaves that many rows unused at the start of the table, as BART's checkpoints do.
    """

    def __init__(self, length: int, width: int, skip: int = 0) -> None:
        super().__init__()
        check_positive(length=length, width=width)
        if skip < 0:
            raise ConfigurationError(f"skip must be at least 0, not {skip}")
        self.length, self.skip = length, skip
        self.weight = nn.Parameter(torch.empty(skip + length, width))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor, position: Position = None) -> Tensor:
        highest = _highest(position, x.shape[1])
        if highest >= self.length:
            raise InputError(
                f"position {highest} is beyond the learned table, which has positions 0 to {self.length - 1}"
            )
        return x + _rows(self.weight[self.skip :], position, x.shape[1])


class Rotary(nn.Module, AttentionPositions):
    """Rotary positions (RoPE): turn each pair of numbers in a query or key by an angle that grows with its position.

    The product of a query at p and a key at q then depends on p - q alone. Pairs are (i, i + K/2), as in Llama, or
    neighbours (2i, 2i + 1), as in the paper, with `interleaved=True`.
    """

    def __init__(self, head_width: int, base: float = 10_000.0, interleaved: bool = False, length: int = 512) -> None:
        super().__init__()
        check_positive(head_width=head_width, length=length)
        if head_width % 2:
            raise ConfigurationError(f"rotary positions need an even head width, not {head_width}")
        self.head_width, self.interleaved = head_width, interleaved
        self.waves = Waves(head_width, base, interleaved=False, length=length)

    def check(self, heads: int, head_width: int) -> None:
        if head_width != self.head_width:
            raise ConfigurationError(f"rotary positions were built for head width {self.head_width}, not {head_width}")

    def rotate(self, x: Tensor, position: Position) -> Tensor:
        waves = self.waves.rows(position, x.shape[2])  # (T, K) or (B, T, K)
        waves = waves[:, None] if waves.dim() == 3 else waves  # (B, 1, T, K)
        sine, cosine = waves.chunk(2, dim=-1)
        first, second = (x[..., ::2], x[..., 1::2]) if self.interleaved else x.chunk(2, dim=-1)  # (B, H, T, K/2) each
        turned = (first * cosine - second * sine, first * sine + second * cosine)
        return torch.stack(turned, dim=-1).flatten(-2) if self.interleaved else torch.cat(turned, dim=-1)


class RelativeBias(nn.Module, AttentionPositions):
    """T5's relative positions: each head adds a trained number to a score, one for each bucket of distances.

    Near distances have buckets of their own; far ones share buckets that grow logarithmically up to `distance`.
    """

    def __init__(self, heads: int, buckets: int = 32, distance: int = 128, bidirectional: bool = True) -> None:
        super().__init__()
        check_positive(heads=heads, buckets=buckets, distance=distance)
        sides = 2 if bidirectional else 1
        if buckets < 2 * sides or distance <= buckets // sides // 2:
            raise ConfigurationError(f"{buckets} buckets do not fit distances up to {distance}")
        self.heads, self.buckets, self.distance, self.bidirectional = heads, buckets, distance, bidirectional
        self.weight = nn.Parameter(torch.empty(buckets, heads))
        nn.init.normal_(self.weight, std=0.02)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        ahead = keys[:, None, :] - queries[:, :, None]  # (B, T, S)
        return self.weight[self.bucket(ahead)].permute(0, 3, 1, 2)  # (B, H, T, S)

    def bucket(self, ahead: Tensor) -> Tensor:
        """The bucket of each distance; `ahead` is positive where the key stands after the query."""
        if self.bidirectional:
            buckets = self.buckets // 2
            first = (ahead > 0) * buckets
            away = ahead.abs()
        else:
            buckets, first, away = self.buckets, torch.zeros_like(ahead), (-ahead).clamp(min=0)
        exact = buckets // 2
        growth = torch.log(away.clamp(min=1).float() / exact) / math.log(self.distance / exact)
        far = (exact + (growth * (buckets - exact)).long()).clamp(max=buckets - 1)
        return first + torch.where(away < exact, away, far)


class ALiBi(nn.Module, AttentionPositions):
    """Attention with linear biases: each head subtracts its own slope times the distance from a score."""

    slopes: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        check_positive(heads=heads)
        self.heads = heads
        self.register_buffer("slopes", self._slopes(), persistent=False)

    def _slopes(self) -> Tensor:
        whole = 2 ** math.floor(math.log2(self.heads))  # a geometric row where heads is a power of two
        slopes = [2 ** (-8 * (head + 1) / whole) for head in range(whole)]
        slopes += [2 ** (-4 * (2 * head + 1) / whole) for head in range(self.heads - whole)]  # others fall between
        return torch.tensor(slopes)  # (H)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.slopes = self._slopes().to(self.slopes)
        return self

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        distance = (queries[:, :, None] - keys[:, None, :]).abs()  # (B, T, S)
        return -self.slopes[:, None, None] * distance[:, None]  # (B, H, T, S)


def as_tensor(position: Position, length: int, device: torch.device) -> Tensor:
    """Where tokens stand, as a tensor: (1, T), (1, 1) or (B, T)."""
    if isinstance(position, Tensor):
        return position if position.dim() == 2 else position[None]
    if position is None:
        return torch.arange(length, device=device)[None]
    return torch.full((1, 1), position, device=device)


def reserve(parts: Iterable[nn.Module], positions: int, most: int = 0) -> bool:
    """Prepare the tables of some parts for so many positions; whether all of them have so many.

    Tables that can grow are prepared for `most` at once.
    """
    enough = True
    for part in parts:
        if isinstance(part, Waves):
            part.reserve(max(positions, most))
        elif isinstance(part, Learned):
            enough = enough and positions <= part.length
    return enough


def restarting(documents: Tensor) -> Tensor:
    """Positions (B, T) that begin anew with each document; documents (B, T) says which one each token is from."""
    positions = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    new = torch.ones_like(documents, dtype=torch.bool)
    new[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return positions - positions.masked_fill(~new, 0).cummax(dim=1).values


def _highest(position: Position, length: int) -> int:
    """The highest position of all tokens. A tensor on an accelerator is waited for; the other forms cost nothing.

    Nothing is waited for while a CUDA graph is captured, or in compiled code: who does so has called `reserve`.
    """
    if isinstance(position, Tensor):
        if torch.compiler.is_compiling() or unread():
            return 0
        lowest, highest = (int(bound) for bound in position.aminmax())
    else:
        lowest, highest = (0, length - 1) if position is None else (position, position)
    if lowest < 0:
        raise InputError(f"a token stands at position {lowest}: positions count from 0")
    return highest


def _rows(table: Tensor, position: Position, length: int) -> Tensor:
    """The rows of a table for tokens that stand there: (T, …), (1, …) or (B, T, …)."""
    if isinstance(position, Tensor):
        return table[position]
    return table[:length] if position is None else table[position : position + 1]
