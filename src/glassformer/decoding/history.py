"""History: the tokens before the next one, and the rules about what may come after them.

A history is the prompt, or the start token of an encoder-decoder, and the tokens generated so far.

B sentences, k beams, V vocabulary, t generated tokens, H length of the longest history, N sequences, n their length
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

NONE = -1  # stands for no token in a table of tokens


class Histories:
    """The histories of some sentences."""

    def __init__(self, start: int | None, inputs: Sequence[Any]) -> None:
        """A history begins with the start token, or with the prompt: the first input, and which of it is real."""
        tokens: Tensor = inputs[0]
        self._sentences = list(range(len(tokens)))
        if start is None:
            keep = inputs[1] if len(inputs) > 1 and inputs[1] is not None else torch.ones_like(tokens, dtype=torch.bool)
            padding = (~keep).sum(dim=-1, keepdim=True)
            places = torch.arange(tokens.shape[1], device=tokens.device) - padding  # the prompt, moved to the right
            self._begin = tokens.gather(1, places.clamp(min=0)).masked_fill(places < 0, NONE)  # (B, H)
        else:
            self._begin = torch.full((len(tokens), 1), start, device=tokens.device)  # (B, 1)

    def after(self, written: Tensor, sentences: Sequence[int]) -> Tensor:
        """The histories (B, k, H) after the tokens written so far (B, k, t); NONE stands before a shorter one."""
        if len(sentences) < len(self._sentences):  # finished sentences have left
            rows = [self._sentences.index(sentence) for sentence in sentences]
            self._begin, self._sentences = self._begin[torch.tensor(rows, device=written.device)], list(sentences)
        return torch.cat((self._begin[:, None].expand(-1, written.shape[1], -1), written), dim=-1)


def repeating(history: Tensor, size: int) -> Tensor:
    """The tokens that would complete a sequence of `size` tokens which a history (B, k, H) holds already, (B, k, N)."""
    if history.shape[-1] < size:
        return history[..., :0]
    known = history.unfold(-1, size, 1)  # (B, k, N, n)
    last = history[..., history.shape[-1] - size + 1 :]  # (B, k, n - 1)
    again = (known[..., :-1] == last[..., None, :]).all(dim=-1) & (known >= 0).all(dim=-1)  # (B, k, N)
    return known[..., -1].masked_fill(~again, NONE)


def completing(history: Tensor, sequences: Iterator[Tensor] | Sequence[Tensor]) -> Iterator[Tensor]:
    """The tokens that would complete one of some sequences, (N, n) for each length; (B, k, N) each."""
    for some in sequences:
        before = history.shape[-1] - some.shape[1] + 1
        if before >= 0:
            begun = (history[..., None, before:] == some[:, :-1]).all(dim=-1)  # (B, k, N)
            yield torch.where(begun, some[:, -1], NONE)


def tables(sequences: Sequence[Sequence[int]], device: torch.device) -> list[Tensor]:
    """Sequences of tokens as tables (N, n), one for each length."""
    lengths = sorted({len(tokens) for tokens in sequences})
    return [torch.tensor([[*each] for each in sequences if len(each) == n], device=device) for n in lengths]


def among(tokens: Tensor, vocabulary: int) -> Tensor:
    """Which tokens of the vocabulary are among some: (B, k, N) to (B, k, V)."""
    found = torch.zeros(*tokens.shape[:-1], vocabulary + 1, dtype=torch.bool, device=tokens.device)
    return found.scatter_(-1, torch.where(tokens < 0, vocabulary, tokens), True)[..., :-1]


def penalised(scores: Tensor, history: Tensor, penalty: float) -> Tensor:
    """Scores (B, k, V) in which tokens of the history are less likely, by a penalty above 1."""
    changed = torch.where(scores < 0, scores * penalty, scores / penalty)
    return torch.where(among(history, scores.shape[-1]), changed, scores)
