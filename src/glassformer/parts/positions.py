"""Positions: how a model that sees all tokens at once learns their order.

Two kinds. `Sinusoidal`, `Learned` and `NoPositions` are added to the embeddings. `Rotary`, `RelativeBias` and `ALiBi`
work inside attention, on queries and keys or on their scores.

A place is None (tokens stand at 0, 1, 2, …), a number (all of them stand there: one step of decoding) or a tensor (T)
or (B, T) of positions (packed documents, padded prompts).

Tables that follow from a formula are in no state_dict. They are computed anew when a model moves or is emptied
(`to_empty` after building it on the meta device), so that no table is ever left without its numbers.

B batch, T query length, S key length, L length of a table, D model width, H heads, K head width
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, Self

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigurationError, InputError
from glassformer.parts.checks import check_positive

Place = int | Tensor | None


class EmbeddingPositions(Protocol):
    """A scheme that is added to the embeddings."""

    def __call__(self, x: Tensor, place: Place = None) -> Tensor:
        """The vectors (B, T, D) with their positions."""
        ...


class AttentionPositions(Protocol):
    """A scheme that works inside attention: it turns queries and keys, or biases their scores, or both."""

    def check(self, heads: int, head_width: int) -> None:
        """Refuse an attention of other sizes than the scheme was built for."""
        ...

    def rotate(self, x: Tensor, place: Place) -> Tensor:
        """Queries or keys (B, H, T, K), turned by their positions."""
        ...

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """What to add to the scores, (B or 1, H, T, S), from positions (B or 1, T) and (B or 1, S)."""
        ...


class NoPositions(nn.Module):
    """No order at all: "dog bites man" is "man bites dog"."""

    def forward(self, x: Tensor, place: Place = None) -> Tensor:
        """The vectors as they are."""
        return x


class Sinusoidal(nn.Module):
    """The waves of "Attention Is All You Need": PE(p, 2i) = sin(p / base^(2i/D)), PE(p, 2i+1) = cos(the same).

    Computed once; a sentence longer than the table makes the table longer. With `interleaved=False` all sines come
    before all cosines, as in Marian.
    """

    table: Tensor

    def __init__(self, width: int, base: float = 10_000.0, interleaved: bool = True, length: int = 512) -> None:
        super().__init__()
        check_positive(width=width, length=length)
        if width % 2:
            raise ConfigurationError(f"sinusoidal positions need an even width, not {width}")
        self.width, self.base, self.interleaved = width, base, interleaved
        self.register_buffer("table", self._table(length), persistent=False)

    def _table(self, length: int, like: Tensor | None = None) -> Tensor:
        pair = _waves(length, self.width, self.base, like)  # (L, D/2) each
        return torch.stack(pair, dim=-1).flatten(1) if self.interleaved else torch.cat(pair, dim=-1)  # (L, D)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.table = self._table(len(self.table), like=self.table)
        return self

    def forward(self, x: Tensor, place: Place = None) -> Tensor:
        """The vectors (B, T, D) plus their waves."""
        needed = _highest(place, x.shape[1]) + 1
        if needed > len(self.table):
            self.table = self._table(2 * needed, like=self.table)
        return x + _rows(self.table, place, x.shape[1])


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

    def forward(self, x: Tensor, place: Place = None) -> Tensor:
        """The vectors (B, T, D) plus the trained vectors of their positions."""
        highest = _highest(place, x.shape[1])
        if highest >= self.length:
            raise InputError(
                f"position {highest} is beyond the learned table, which has positions 0 to {self.length - 1}"
            )
        return x + _rows(self.weight[self.skip :], place, x.shape[1])


class Rotary(nn.Module):
    """Rotary positions (RoPE): turn each pair of numbers in a query or key by an angle that grows with its position.

    The product of a query at p and a key at q then depends on p - q alone. Pairs are (i, i + K/2), as in Llama, or
    neighbours (2i, 2i + 1), as in the paper, with `interleaved=True`.
    """

    cosines: Tensor
    sines: Tensor

    def __init__(self, head_width: int, base: float = 10_000.0, interleaved: bool = False, length: int = 512) -> None:
        super().__init__()
        check_positive(head_width=head_width, length=length)
        if head_width % 2:
            raise ConfigurationError(f"rotary positions need an even head width, not {head_width}")
        self.head_width, self.base, self.interleaved = head_width, base, interleaved
        sines, cosines = _waves(length, head_width, base)  # (L, K/2) each
        self.register_buffer("sines", sines, persistent=False)
        self.register_buffer("cosines", cosines, persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.sines, self.cosines = _waves(len(self.sines), self.head_width, self.base, like=self.sines)
        return self

    def check(self, heads: int, head_width: int) -> None:
        """Refuse heads of another width."""
        if head_width != self.head_width:
            raise ConfigurationError(f"rotary positions were built for head width {self.head_width}, not {head_width}")

    def rotate(self, x: Tensor, place: Place) -> Tensor:
        """Queries or keys (B, H, T, K), each pair turned by position * frequency."""
        length = x.shape[2]
        needed = _highest(place, length) + 1
        if needed > len(self.cosines):
            self.sines, self.cosines = _waves(2 * needed, self.head_width, self.base, like=self.sines)
        cosine, sine = _rows(self.cosines, place, length), _rows(self.sines, place, length)  # (T, K/2) or (B, T, K/2)
        if cosine.dim() == 3:
            cosine, sine = cosine[:, None], sine[:, None]  # (B, 1, T, K/2)
        first, second = (x[..., ::2], x[..., 1::2]) if self.interleaved else x.chunk(2, dim=-1)  # (B, H, T, K/2) each
        turned = (first * cosine - second * sine, first * sine + second * cosine)
        return torch.stack(turned, dim=-1).flatten(-2) if self.interleaved else torch.cat(turned, dim=-1)

    def bias(self, queries: Tensor, keys: Tensor) -> None:
        """Nothing is added to the scores."""


class RelativeBias(nn.Module):
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

    def check(self, heads: int, head_width: int) -> None:
        """Refuse another number of heads."""
        if heads != self.heads:
            raise ConfigurationError(f"{type(self).__name__} was built for {self.heads} heads, not {heads}")

    def rotate(self, x: Tensor, place: Place) -> Tensor:
        """Queries and keys stay as they are."""
        return x

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """The trained number of each head and distance, (B or 1, H, T, S)."""
        ahead = keys[:, None, :] - queries[:, :, None]  # (B, T, S)
        return self.weight[self.bucket(ahead)].permute(0, 3, 1, 2)  # (B, H, T, S)

    def bucket(self, ahead: Tensor) -> Tensor:
        """The bucket of each distance; `ahead` is positive where the key stands after the query."""
        if self.bidirectional:
            buckets = self.buckets // 2
            first = torch.where(ahead > 0, buckets, 0)
            away = ahead.abs()
        else:
            buckets, first, away = self.buckets, torch.zeros_like(ahead), (-ahead).clamp(min=0)
        exact = buckets // 2
        growth = torch.log(away.clamp(min=1).float() / exact) / math.log(self.distance / exact)
        far = (exact + (growth * (buckets - exact)).long()).clamp(max=buckets - 1)
        return first + torch.where(away < exact, away, far)


class ALiBi(nn.Module):
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

    def check(self, heads: int, head_width: int) -> None:
        """Refuse another number of heads."""
        if heads != self.heads:
            raise ConfigurationError(f"{type(self).__name__} was built for {self.heads} heads, not {heads}")

    def rotate(self, x: Tensor, place: Place) -> Tensor:
        """Queries and keys stay as they are."""
        return x

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Minus slope times distance, (B or 1, H, T, S)."""
        distance = (queries[:, :, None] - keys[:, None, :]).abs()  # (B, T, S)
        return -self.slopes[:, None, None] * distance[:, None]  # (B, H, T, S)


def as_tensor(place: Place, length: int, device: torch.device) -> Tensor:
    """A place as a tensor of positions, (1, T), (1, 1) or (B, T)."""
    if isinstance(place, Tensor):
        return place if place.dim() == 2 else place[None]
    return torch.arange(length, device=device)[None] if place is None else torch.full((1, 1), place, device=device)


def restarting(documents: Tensor) -> Tensor:
    """Positions (B, T) that begin anew with each document; documents (B, T) says which one each token is from."""
    places = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    new = torch.ones_like(documents, dtype=torch.bool)
    new[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return places - places.masked_fill(~new, 0).cummax(dim=1).values


@torch.inference_mode(False)  # a table that grows while decoding must still serve training afterwards
def _waves(length: int, width: int, base: float, like: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sine and cosine of position / base^(2i / width), (L, width/2) each, from angles in double precision.

    In float32 on the default device, or in the type and on the device of `like`.
    """
    frequencies = base ** (-torch.arange(0, width, 2, dtype=torch.float64, device="cpu") / width)
    angles = torch.arange(length, dtype=torch.float64, device="cpu")[:, None] * frequencies
    like = torch.empty(0) if like is None else like
    return angles.sin().to(like), angles.cos().to(like)


def _highest(place: Place, length: int) -> int:
    """The highest position of a place. A tensor on an accelerator is waited for; the other forms cost nothing."""
    if isinstance(place, Tensor):
        lowest, highest = (int(bound) for bound in place.aminmax())
    else:
        lowest, highest = (0, length - 1) if place is None else (place, place)
    if lowest < 0:
        raise InputError(f"a token stands at position {lowest}: positions count from 0")
    return highest


def _rows(table: Tensor, place: Place, length: int) -> Tensor:
    """The rows of a table at a place: (T, …), (1, …) or (B, T, …)."""
    if isinstance(place, Tensor):
        return table[place]
    return table[:length] if place is None else table[place : place + 1]
