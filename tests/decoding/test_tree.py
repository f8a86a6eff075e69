"""The tree of a beam search: everything looked at, and what became of it."""

import math
from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.decoding import BeamTrees, Hypothesis, Limits, beam_search
from glassformer.decoding.tree import BeamTree, Fate, Node
from glassformer.parts import pad

from .helpers import END, START, ByHand, batches, lines, penalties, seeds, talker

LIMITS = Limits(START, END, max_length=7)


def watched(
    seed: int, batch: list[list[int]], width: int, alpha: float, best: int = 1
) -> tuple[list[list[Hypothesis]], BeamTrees]:
    trees = BeamTrees()
    options = {"limits": LIMITS, "width": width, "length_penalty": alpha, "best": best}
    found = beam_search(talker(seed), *pad(batch), **options, watch=trees)  # type: ignore[arg-type]
    unwatched = beam_search(talker(seed), *pad(batch), **options)  # type: ignore[arg-type]
    assert found == unwatched  # looking changes nothing
    assert len(trees) == len(batch)
    return found, trees


@settings(max_examples=40)
@given(seeds, batches, st.integers(1, 5), penalties)
def test_every_node_continues_its_parent(seed: int, batch: list[list[int]], width: int, alpha: float) -> None:
    _, trees = watched(seed, batch, width, alpha)
    for sentence in range(len(batch)):
        tree = trees[sentence]
        assert [node.number for node in tree.nodes] == list(range(len(tree.nodes)))
        for node in tree.nodes:
            parent = tree.nodes[node.parent] if node.parent >= 0 else None
            assert node.length == (parent.length if parent else 0) + 1 == len(tree.path(node))
            assert parent is None or parent.fate is Fate.KEPT
            assert node.total == pytest.approx(
                (parent.total if parent else 0.0) + node.log_probability, abs=1e-5, rel=1e-5
            )
            assert node.score == pytest.approx(node.total / node.length**alpha, abs=1e-6)
            assert node.total > -math.inf


@settings(max_examples=40)
@given(seeds, batches, st.integers(1, 5), penalties)
def test_each_step_looks_at_twice_the_width_and_keeps_the_likeliest(
    seed: int, batch: list[list[int]], width: int, alpha: float
) -> None:
    _, trees = watched(seed, batch, width, alpha)
    for sentence in range(len(batch)):
        for length, group in groupby(trees[sentence].nodes, key=lambda node: node.length):
            nodes = list(group)
            totals = [node.total for node in nodes]
            assert len(nodes) == 2 * width
            assert totals == sorted(totals, reverse=True)
            last = length == LIMITS.max_length
            ends = [node for node in nodes if last or node.token == END]
            others = [node for node in nodes if node not in ends]
            kept = 0 if last else width
            assert [node.fate for node in others] == [Fate.KEPT] * kept + [Fate.PRUNED] * (len(others) - kept)
            for rank, node in enumerate(nodes):
                if node in ends:
                    assert node.fate is (Fate.FINISHED if rank < width else Fate.PRUNED)


@settings(max_examples=40)
@given(seeds, batches, st.integers(1, 5), penalties)
def test_the_outputs_are_the_best_finished_paths(seed: int, batch: list[list[int]], width: int, alpha: float) -> None:
    found, trees = watched(seed, batch, width, alpha, best=width)
    for sentence, hypotheses in enumerate(found):
        tree = trees[sentence]
        finished = sorted((node for node in tree.nodes if node.fate is Fate.FINISHED), key=lambda node: -node.score)
        for hypothesis, node in zip(hypotheses, finished, strict=False):
            assert tree.path(node) == hypothesis.tokens + [END] * hypothesis.finished
            assert node.score == pytest.approx(hypothesis.score, abs=1e-9)
            assert node.total == pytest.approx(hypothesis.log_probability, abs=1e-9)
        assert len(hypotheses) == width <= len(finished)


def test_a_tree_by_hand() -> None:
    table: dict[tuple[int, ...], list[float]] = {(): [0, 0.4, 0.6, 0], (2,): [0, 0.3, 0, 0.7], (2, 3): [0, 1, 0, 0]}
    trees = BeamTrees()
    beam_search(ByHand(table, [0, 1, 0, 0]), lines(), limits=LIMITS, width=2, length_penalty=1.0, watch=trees)
    seen = [(tuple(trees[0].path(node)), node.fate.value, round(math.exp(node.total), 3)) for node in trees[0].nodes]
    assert seen == [
        ((2,), "kept", 0.6),
        ((END,), "finished", 0.4),
        ((2, 3), "kept", 0.42),
        ((2, END), "finished", 0.18),
        ((2, 3, END), "finished", 0.42),
    ]


def test_a_forced_beginning_is_a_single_line() -> None:
    trees = BeamTrees()
    beam_search(talker(1), *pad([[2, 3]]), limits=LIMITS, width=3, prefix=[[5, 6]], watch=trees)
    lengths = Counter(node.length for node in trees[0].nodes)
    assert [trees[0].path(node) for node in trees[0].nodes[:2]] == [[5], [5, 6]]
    assert (lengths[1], lengths[2], lengths[3]) == (1, 1, 6)


def test_a_long_path_can_be_read() -> None:
    """An output of a few thousand tokens is not deeper than Python's stack."""
    tree = BeamTree([Node(n, n - 1, n + 1, n % 5, -1.0, -1.0 - n, -1.0, Fate.KEPT) for n in range(5000)])
    assert tree.path(tree.nodes[-1]) == [n % 5 for n in range(5000)]


def test_the_tree_of_a_sentence_that_was_not_searched_is_missing() -> None:
    _, trees = watched(1, [[2]], 2, 1.0)
    with pytest.raises(KeyError):
        trees[1]


def test_trees_can_be_walked_and_begin_anew_with_a_second_search() -> None:
    trees, model, inputs = BeamTrees(), talker(3), pad([[5, 6], [7]])
    beam_search(model, *inputs, limits=LIMITS, width=2, watch=trees)
    first = [len(tree.nodes) for tree in trees]
    beam_search(model, *inputs, limits=LIMITS, width=2, watch=trees)
    assert [len(tree.nodes) for tree in trees] == first
    assert [tree.nodes[0].parent for tree in trees] == [-1, -1]
