"""What the tests of decoding share: models that end here and there, hand-made ones, and slow but certain searches.

B sentences, k beams, V vocabulary, D width
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer.decoding import Generator, Limits
from glassformer.models import EncoderDecoder, transformer
from glassformer.parts import Head, pad

START, END, VOCABULARY = 0, 1, 32

seeds = st.integers(0, 2**31 - 1)
sentences = st.lists(st.integers(2, VOCABULARY - 1), min_size=1, max_size=6)
batches = st.lists(sentences, min_size=1, max_size=5)
penalties = st.sampled_from([0.0, 0.6, 1.0, 2.0, -0.5])


def talker(
    seed: int, *, vocabulary: int = VOCABULARY, end_bias: float = 3.0, loud: float = 0.7, dropout: float = 0.0
) -> EncoderDecoder:
    """A random Transformer that is sure of itself, the surer the louder, and ends its outputs at different lengths."""
    torch.manual_seed(seed)
    model = transformer(vocabulary, 16, 2, 1, 24, dropout=dropout, tie_output=False)
    head = Head(16, vocabulary, bias=True)
    nn.init.normal_(head.weight, std=loud)
    nn.init.zeros_(head.bias)
    with torch.no_grad():
        head.bias[END] = end_bias
    model.head = head
    return model.eval()


@dataclass
class Hidden:
    """The state of a recurrent generator: one vector a beam, (B, k, D)."""

    vectors: Tensor

    def select(self, beams: Tensor, sentences: Tensor | None = None) -> None:
        rows = self.vectors if sentences is None else self.vectors[sentences]
        self.vectors = rows.gather(1, beams[:, :, None].expand(-1, -1, rows.shape[-1]))


class Recurrent(nn.Module):
    """A GRU that writes: nothing of a Transformer in it, only `start` and `step`."""

    def __init__(self, vocabulary: int = VOCABULARY, width: int = 12) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.cell = nn.GRUCell(width, width)
        self.head = nn.Linear(width, vocabulary)
        nn.init.normal_(self.head.weight, std=2.0)

    def start(self, source: Tensor, mask: Tensor) -> Hidden:
        kept = self.table(source) * mask[..., None]
        return Hidden(torch.tanh(kept.sum(dim=1, keepdim=True)))  # (B, 1, D)

    def step(self, state: Hidden, tokens: Tensor) -> tuple[Tensor, Hidden]:
        vectors = self.cell(self.table(tokens).flatten(0, 1), state.vectors.flatten(0, 1)).view_as(state.vectors)
        return self.head(vectors), Hidden(vectors)


@dataclass
class Prefixes:
    """The state of a hand-made generator: what each beam has written, B lists of k."""

    written: list[list[tuple[int, ...]]]

    def select(self, beams: Tensor, sentences: Tensor | None = None) -> None:
        rows = self.written if sentences is None else [self.written[row] for row in sentences.tolist()]
        self.written = [[row[beam] for beam in chosen] for row, chosen in zip(rows, beams.tolist(), strict=True)]


class ByHand:
    """A generator whose probabilities are written in a table: from the tokens so far to those of the next one.

    What the table does not have gets `otherwise`. `shift` is added to all logits: it must not matter.
    """

    def __init__(
        self, table: Mapping[tuple[int, ...], Sequence[float]], otherwise: Sequence[float], shift: float = 0.0
    ) -> None:
        self.table, self.otherwise, self.shift = table, otherwise, shift

    def start(self, source: Tensor) -> Prefixes:
        return Prefixes([[()] for _ in source])

    def step(self, state: Prefixes, tokens: Tensor) -> tuple[Tensor, Prefixes]:
        written = [
            [(*before, token) for before, token in zip(*row, strict=True)]
            for row in zip(state.written, tokens.tolist(), strict=True)
        ]
        rows = [[self.table.get(beam[1:], self.otherwise) for beam in row] for row in written]
        return torch.tensor(rows).log() + self.shift, Prefixes(written)


def lines(sentences: int = 1) -> Tensor:
    """A source for a hand-made generator, which only counts its sentences."""
    return torch.zeros(sentences, 1, dtype=torch.long)


def log_probabilities(model: EncoderDecoder, sentence: Sequence[int], output: Sequence[int]) -> list[float]:
    """Those that the model gives each token of an output when it reads all of it at once."""
    target = torch.tensor([[START, *output[:-1]]])
    with torch.no_grad():
        logits = model(torch.tensor([sentence]), target)
    scores = logits.log_softmax(dim=-1)[0].gather(1, torch.tensor(output)[:, None])  # (T, 1)
    return [score.item() for score in scores]


def all_outputs(tokens: Sequence[int], limits: Limits) -> list[list[int]]:
    """Every output of some tokens: all that end in time, and all that are cut off."""
    outputs = [
        [*before, *limits.ends]
        for length in range(limits.max_length)
        for before in itertools.product(tokens, repeat=length)
        if length >= limits.min_length
    ]
    return outputs + [list(output) for output in itertools.product(tokens, repeat=limits.max_length)]


def stepped(model: Generator, sentence: Sequence[int], outputs: Sequence[Sequence[int]]) -> list[float]:
    """The log-probability of each output, by stepping through it alone: no search, no choice."""
    totals = [0.0] * len(outputs)
    source, mask = pad([sentence] * len(outputs))
    with torch.no_grad():
        state = model.start(source, mask)
        before = [START] * len(outputs)
        for position in range(max(map(len, outputs))):
            logits, state = model.step(state, torch.tensor(before)[:, None])
            scores = logits[:, 0].log_softmax(dim=-1)
            for row, output in enumerate(outputs):
                if position < len(output):
                    totals[row] += scores[row, output[position]].item()
                    before[row] = output[position]
    return totals


def brute_force(
    model: Generator, sentence: Sequence[int], tokens: Sequence[int], limits: Limits, alpha: float
) -> list[tuple[float, list[int]]]:
    """Score and tokens of every output there is, best first."""
    outputs = all_outputs(tokens, limits)
    totals = stepped(model, sentence, outputs)
    return sorted(
        ((total / math.pow(len(output), alpha), output) for total, output in zip(totals, outputs, strict=True)),
        reverse=True,
    )
