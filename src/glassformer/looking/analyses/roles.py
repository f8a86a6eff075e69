"""Roles of heads: how much of a head's attention goes where a simple rule says.

L layers, H heads, R roles, T tokens, N length of a stretch that is repeated, B sentences
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.analyses.tables import HeadScores, attention_names, attention_weights, frame, need, sentence_of
from glassformer.looking.points import layer_of, model_of, points_of
from glassformer.looking.recording import record
from glassformer.looking.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WITHIN = ("previous", "next", "same", "duplicate", "first", "end")
ACROSS = ("first", "end")


@dataclass(frozen=True)
class Roles:
    """For each role and head, the mean weight that goes where the role says: 1 is a head that does nothing else."""

    values: Tensor  # (R, L, H)
    roles: list[str]
    points: list[str]  # L
    heads: list[int]  # H

    def of(self, role: str) -> HeadScores:
        """The scores of all heads in one role."""
        if role not in self.roles:
            raise InputError(f'there is no role "{role}": there are {", ".join(self.roles)}')
        return HeadScores(self.values[self.roles.index(role)], self.points, self.heads)

    def figure(self) -> Figure:
        """A map of layers and heads for each role."""
        from glassformer.looking.plots import grids

        return grids.roles(self)

    def pandas(self) -> Any:
        """The scores as a DataFrame: a row for each head, named as layer.head, a column for each role."""
        names = [f"{layer_of(point) or 0}.{head}" for point in self.points for head in self.heads]
        return frame(self.values.flatten(1).T, names, self.roles)


def roles(trace: Trace, kind: str, sentence: int = 0) -> Roles:
    """How much of each head's attention goes to simple places: the previous token, the token itself, the end.

    `previous` is s = t - 1, `next` s = t + 1, `same` s = t, `duplicate` all other places with the same token, `first`
    the first place and `end` the last, the sink of many heads. A score is the mean over the tokens that have such a
    place. Attention to another text has `first` and `end` only.
    """
    weights = attention_weights(trace, "roles", kind, sentence)  # (L, H, T, S)
    inside = kind.endswith("self")
    tables = _tables(weights.shape[-2:], _tokens(trace, kind, sentence) if inside else None)
    names = list(WITHIN if inside else ACROSS)
    found = []
    for role in names:
        wanted = tables[role].to(weights.dtype)  # (T, S)
        possible = ((weights.sum(dim=-1) > 0) & (wanted.sum(dim=-1) > 0)).to(weights.dtype)  # (L, H, T)
        found.append(((weights * wanted).sum(dim=-1) * possible).sum(dim=-1) / possible.sum(dim=-1).clamp(min=1))
    points = attention_names(trace, "roles", kind)
    return Roles(torch.stack(found), names, points, trace.axes(points[0])["head"])


def _tokens(trace: Trace, kind: str, sentence: int) -> Tensor | None:
    """The tokens that a stack reads; None: they are patches, of which no two are the same."""
    stack = kind.partition(".")[0]
    if f"{stack}.tokens" in trace:
        return sentence_of(trace[f"{stack}.tokens"], sentence)
    spelled = trace.tokens(stack)  # of a trace with words, which has no numbers of tokens
    if sentence >= len(spelled):
        return None
    known = {token: number for number, token in enumerate(dict.fromkeys(spelled[sentence]))}
    return torch.tensor([known[token] for token in spelled[sentence]])


def _tables(size: torch.Size, tokens: Tensor | None) -> dict[str, Tensor]:
    """Where each role looks, (T, S), True for the keys of each token."""
    apart = torch.arange(size[1]) - torch.arange(size[0])[:, None]  # (T, S)
    same = torch.zeros(tuple(size), dtype=torch.bool)
    if tokens is not None:
        same = tokens[: size[0], None] == tokens[None, : size[1]]
    last = torch.zeros(tuple(size), dtype=torch.bool)
    first = last.clone()
    first[:, 0], last[:, -1] = True, True
    places = {"previous": apart == -1, "next": apart == 1, "same": apart == 0}
    return {**places, "duplicate": same & (apart != 0), "first": first, "end": last}


@torch.no_grad()
def induction(model: Any, length: int = 20, sentences: int = 4, seed: int = 0) -> HeadScores:
    """The induction score (Olsson and others, 2022) of each head of a language model, or of a run's.

    The model reads `length` random tokens twice. An induction head, at a token of the second time, looks at the token
    that followed it the first time: the score is the mean of a_{t, t - N + 1}.
    """
    if length < 2 or sentences < 1:
        raise InputError(f"induction needs 2 tokens and 1 sentence at least, not {length} and {sentences}")
    tokens = _repeated(model, length, sentences, seed)
    with record(model_of(model), keep="decoder.*.self") as trace:
        model_of(model)(tokens.repeat(1, 2))
    names = attention_names(trace, "induction", "decoder.self")
    queries = torch.arange(length, 2 * length)
    weights = torch.stack(need(trace, "induction", *names, keep="weights"))  # (L, B, H, T, T)
    scores = weights[..., queries, queries - length + 1].float()
    return HeadScores(scores.mean(dim=(1, 3)), names, trace.axes(names[0])["head"])


def _repeated(model: Any, length: int, sentences: int, seed: int) -> Tensor:
    """Random tokens (B, N) of a language model's vocabulary, none of them special."""
    inside = model_of(model)
    names = points_of(inside)
    if any(name.startswith("encoder.") for name in names) or not any(name.endswith(".self.weights") for name in names):
        raise InputError("induction is measured on a language model with attention: a decoder without an encoder")
    decoder: Any = inside.decoder
    special: set[int] = getattr(getattr(model, "tokenizer", None), "special", set())
    known = torch.tensor([token for token in range(decoder.embedding.vocabulary) if token not in special])
    drawn = torch.randint(len(known), (sentences, length), generator=torch.Generator().manual_seed(seed))
    return known[drawn].to(decoder.embedding.weight.device)
