"""Hypotheses: the finished outputs of a beam search, read from its tables by following each candidate's parents back.

R sentences, k beams, C candidates, N outputs, M outputs of all sentences, t steps
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassformer.decoding.protocol import Hypothesis

Numbers = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Record:
    """The tables of `Beams`, of some sentences."""

    scores: Numbers  # (R, N)
    places: Whole  # (R, N)
    codes: Whole  # (t, R, C)
    each: Numbers  # (t, R, C)
    totals: Numbers  # (t, R, C)
    ranks: Whole  # (t, R, k)
    width: int


def hypotheses(record: Record, ends: Collection[int]) -> list[list[Hypothesis]]:
    """The outputs of each sentence, best first."""
    rows, columns = np.nonzero(record.scores > -np.inf)  # (M): in the order of the sentences
    steps, ranks = np.divmod(record.places[rows, columns], record.codes.shape[2])  # (M)
    totals = record.totals[steps, rows, ranks].tolist()
    longest = int(steps.max(initial=-1)) + 1
    tokens, each = np.zeros((len(rows), longest), np.int64), np.zeros((len(rows), longest))
    present = np.zeros_like(ranks)  # the candidate of each output at the present step
    for step in range(longest)[::-1]:
        present = np.where(steps == step, ranks, present)
        tokens[:, step], parents = np.divmod(record.codes[step, rows, present], record.width)
        each[:, step] = record.each[step, rows, present]
        present = record.ranks[step - 1, rows, parents] if step else present
    found: list[list[Hypothesis]] = [[] for _ in record.scores]
    scores, lengths = record.scores[rows, columns].tolist(), (steps + 1).tolist()
    for number, (row, length) in enumerate(zip(rows.tolist(), lengths, strict=True)):
        written, own = tokens[number, :length].tolist(), each[number, :length].tolist()
        finished = written[-1] in ends
        output = written[:-1] if finished else written
        found[row].append(Hypothesis(output, scores[number], totals[number], own, finished))
    return found
