"""The tree of a beam search: every continuation it looked at, and what became of it.

C candidates, t length so far
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from glassformer.decoding.beam import Expansion, length_penalised


class Fate(StrEnum):
    """What became of a continuation."""

    KEPT = "kept"
    PRUNED = "pruned"
    FINISHED = "finished"


@dataclass(frozen=True)
class Node:
    """One continuation: a token after its parent's, and the scores of the path that it ends.

    `log_probability` is the token's own, `total` the path's, `score` the total under the length penalty.
    """

    number: int
    parent: int  # the number of the node before it; -1: the start
    length: int
    token: int
    log_probability: float
    total: float
    score: float
    fate: Fate


@dataclass
class BeamTree:
    """The search tree of one sentence, in the order in which it grew, best first within a step."""

    nodes: list[Node] = field(default_factory=list)
    beams: list[int] = field(default_factory=lambda: [-1])  # the node that each running beam has reached

    def path(self, node: Node) -> list[int]:
        """The tokens from the start to a node."""
        tokens = [node.token]
        while node.parent >= 0:
            node = self.nodes[node.parent]
            tokens.append(node.token)
        return tokens[::-1]


class BeamTrees:
    """Watches a beam search, and keeps the tree of each sentence: `beam_search(…, watch=trees)`, then `trees[0]`.

    A second search begins anew.
    """

    def __init__(self) -> None:
        self._trees: dict[int, BeamTree] = {}

    def __getitem__(self, sentence: int) -> BeamTree:
        return self._trees[sentence]

    def __iter__(self) -> Iterator[BeamTree]:
        return (self._trees[sentence] for sentence in sorted(self._trees))

    def __len__(self) -> int:
        return len(self._trees)

    def __call__(self, step: Expansion) -> None:
        """Add what one step of the search looked at."""
        if step.candidates.tokens.shape[-1] == 1:  # the first step of a search
            self._trees.clear()
        for row, sentence in enumerate(step.sentences):
            self._grow(self._trees.setdefault(sentence, BeamTree()), step, row)

    def _grow(self, tree: BeamTree, step: Expansion, row: int) -> None:
        """Add one step to the tree of one sentence."""
        candidates = step.candidates.of(row)  # tokens and their log-probabilities (C, t), the rest (C)
        length = candidates.tokens.shape[-1]
        fates = [
            Fate.FINISHED if finished else Fate.KEPT if kept else Fate.PRUNED
            for finished, kept in zip(step.finished[row].tolist(), step.kept[row].tolist(), strict=True)
        ]
        columns = (candidates.parents, candidates.tokens[:, -1], candidates.log_probabilities[:, -1], candidates.scores)
        numbers: list[int] = []  # of the candidates, by rank
        for fate, parent, token, log_probability, total in zip(fates, *(x.tolist() for x in columns), strict=True):
            numbers.append(len(tree.nodes))
            if total == -math.inf:  # not a continuation, only a row of the table with nothing in it
                continue
            score = length_penalised(total, length, step.length_penalty)
            node = Node(numbers[-1], tree.beams[parent], length, token, log_probability, total, score, fate)
            tree.nodes.append(node)
        tree.beams = [numbers[rank] for rank in step.beams[row].tolist()]
