"""Attention in numbers: how spread out a head looks, how far, and where what it reads comes from in the end.

L layers, H heads, T tokens that look, S tokens that are looked at
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.analyses.tables import HeadScores, attention_names, attention_weights, frame, labels
from glassformer.looking.points import layer_of
from glassformer.looking.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def entropy(trace: Trace, kind: str, sentence: int = 0) -> HeadScores:
    """H = - Σ_s a_ts log₂ a_ts in bits, the mean over tokens: 0 if each token looks at one, log₂ S if at all alike."""
    weights = attention_weights(trace, "entropy", kind, sentence)  # (L, H, T, S)
    bits = -torch.special.xlogy(weights, weights).sum(dim=-1) / torch.log(torch.tensor(2.0))
    return scored(trace, kind, bits, weights, sentence)


def distance(trace: Trace, kind: str, sentence: int = 0) -> HeadScores:
    """Σ_s a_ts |t - s|: how many tokens away a head looks on average. For attention inside one text."""
    if not kind.endswith("self"):
        raise InputError(f"{kind} looks from one text into another, where positions have no distance")
    weights = attention_weights(trace, "distance", kind, sentence)  # (L, H, T, S)
    tokens, keys = (torch.arange(length) for length in weights.shape[-2:])
    return scored(trace, kind, (weights * (tokens[:, None] - keys).abs()).sum(dim=-1), weights, sentence)


def scored(trace: Trace, kind: str, by_token: Tensor, weights: Tensor, sentence: int) -> HeadScores:
    """Scores of heads from those of tokens, (L, H, T). Tokens that look at nothing are filled-up ends: left out."""
    names = attention_names(trace, "this", kind)
    real = (weights.sum(dim=-1) > 0).to(by_token.dtype)  # (L, H, T)
    means = (by_token * real).sum(dim=-1) / real.sum(dim=-1).clamp(min=1)
    axes = trace.axes(names[0], sentence)
    return HeadScores(means, names, axes["head"], by_token, [str(token) for token in axes["token"]])


@dataclass(frozen=True)
class Rollout:
    """How much of each token that was read is in each token's vector after all layers, if attention mixes vectors."""

    values: Tensor  # (T, S)
    rows: list[str]  # T, tokens of the stack
    columns: list[str]  # S, tokens that were read; of "decoder.cross", those of the source
    prefix: Tensor | None = None  # (T, T), of "decoder.cross": how much of the tokens written before
    prefix_columns: list[str] | None = None

    def figure(self) -> Figure:
        """A map of what is in each token's vector."""
        from glassformer.looking.plots import grids

        return grids.rollout(self)

    def pandas(self) -> Any:
        """The shares as a DataFrame: a row for each token, a column for each that was read."""
        return frame(self.values, self.rows, self.columns)


def rollout(trace: Trace, kind: str, sentence: int = 0, residual: float = 0.5) -> Rollout:
    """Attention rollout (Abnar and Zuidema, 2020): attention multiplied through the layers.

    Of self-attention, with A_l the mean over heads and r the share of the residual connection:

        R_l = (r I + (1 - r) A_l) R_{l-1},  R_0 = I

    Of "decoder.cross", the stream of each decoder token is followed to the prefix (P) and to the source (C), and the
    source to its own tokens by the encoder's rollout E; self-attention mixes both, then cross-attention adds:

        P ← (r I + (1 - r) A_self) P     C ← (r I + (1 - r) A_self) C
        P ← r P                          C ← r C + (1 - r) A_cross E
    """
    if not 0 <= residual < 1:
        raise InputError(f"the share of the residual connection is from 0 to below 1, not {residual}")
    if kind.endswith("cross"):
        return _through_cross(trace, kind, sentence, residual)
    rolled = _rolled(_means(trace, kind, sentence), residual)
    name = attention_names(trace, "rollout", kind)[0]
    return Rollout(rolled, labels(trace, name, "token", sentence), labels(trace, name, "key", sentence))


def _means(trace: Trace, kind: str, sentence: int) -> Tensor:
    """The mean over heads in each layer from the first on, (L, T, S)."""
    names = attention_names(trace, "rollout", kind)
    layers = [layer_of(name) or 0 for name in names]
    if layers != list(range(len(layers))):
        raise InputError(f"rollout needs {kind} in every layer from 0 on: record it without layers=")
    some = [name for name in names if trace.kept.heads_of(name) is not None]
    if some:
        raise InputError(f"rollout needs all heads, and the trace holds some of {some[0]}: record without heads=")
    return attention_weights(trace, "rollout", kind, sentence).mean(dim=1)


def _rolled(means: Tensor, residual: float) -> Tensor:
    """The product over layers of (L, T, T): (T, T)."""
    rolled = same = torch.eye(means.shape[-1])
    for mean in means:
        rolled = (residual * same + (1 - residual) * mean) @ rolled
    return rolled


def _through_cross(trace: Trace, kind: str, sentence: int, residual: float) -> Rollout:
    """The rollout of a decoder through its cross-attention."""
    crossed = _means(trace, kind, sentence)  # (L, T, S)
    own = _means(trace, "decoder.self", sentence)  # (L, T, T)
    source = _rolled(_means(trace, "encoder.self", sentence), residual)  # (S, S)
    same = torch.eye(own.shape[-1])
    prefix, reached = same, torch.zeros(crossed.shape[1:])  # (T, T), (T, S)
    for mean, cross in zip(own, crossed, strict=True):
        mixed = residual * same + (1 - residual) * mean
        prefix, reached = residual * (mixed @ prefix), residual * (mixed @ reached) + (1 - residual) * (cross @ source)
    name, before = (attention_names(trace, "rollout", each)[0] for each in (kind, "decoder.self"))
    rows, columns = (labels(trace, name, axis, sentence) for axis in ("token", "key"))
    return Rollout(reached, rows, columns, prefix, labels(trace, before, "key", sentence))
