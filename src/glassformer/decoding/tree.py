"""The tree of a beam search: every candidate that it considered, and whether it was kept, pruned or finished.

C candidates, t length so far
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from glassformer.decoding.paths import Expansion, length_penalised


class Fate(StrEnum):
    """Whether a candidate was kept, pruned or finished."""

    KEPT = "kept"
    PRUNED = "pruned"
    FINISHED = "finished"


@dataclass(frozen=True)
class Node:
    """One candidate: a token after its parent node, and the scores of the path to it.

    `log_probability` belongs to the token, `total` to the path; `score` is the total with the length penalty.
    """

    number: int
    parent: int  # the number of the parent node; -1: the start
    length: int
    token: int
    log_probability: float
    total: float
    score: float
    fate: Fate


@dataclass
class BeamTree:
    """The search tree of one sentence: nodes in the order of the steps, best first within a step."""

    nodes: list[Node] = field(default_factory=list)
    beams: list[int] = field(default_factory=lambda: [-1])  # the last node of each beam

    def path(self, node: Node) -> list[int]:
        """The tokens from the start to a node."""
        tokens = [node.token]
        while node.parent >= 0:
            node = self.nodes[node.parent]
            tokens.append(node.token)
        return tokens[::-1]


class BeamTrees:
    """Records the tree of each sentence in a beam search: `beam_search(…, watch=trees)`, then `trees[0]`.

    A second search replaces the trees.
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
        """Add one step of the search."""
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
            if total == -math.inf:  # an empty row of the table, not a candidate
                continue
            score = length_penalised(total, length, step.length_penalty)
            node = Node(numbers[-1], tree.beams[parent], length, token, log_probability, total, score, fate)
            tree.nodes.append(node)
        tree.beams = [numbers[rank] for rank in step.beams[row].tolist()]
