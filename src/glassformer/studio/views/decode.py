"""Decoding: the output step by step, the probabilities that it was chosen from, and the tree of the search.

    decode       tokens and scores of the output, log-probabilities of each step, the tree
    vocabulary   how the tokens are spelled that these are of

Log-probabilities are sent, the highest first, so that a page can apply a temperature and limits by itself
(`Sampler.likely`, and web/src/studio/sampling.ts, are tested to be equal).

T steps, V vocabulary, N nodes of the tree, n tokens that are sent of each step
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from glassformer.decoding.paths import length_penalised
from glassformer.decoding.tree import BeamTree, Fate
from glassformer.errors import InputError
from glassformer.looking.answer import Answer, Array
from glassformer.looking.plots.choosing import name
from glassformer.studio.items import item_of
from glassformer.studio.views.traces import Reading, looked
from glassformer.studio.views.view import IMAGE, Options, View

MOST = 1 << 19  # log-probabilities that are sent
NODES = 2000  # of a tree
FATES = {fate: number for number, fate in enumerate((Fate.KEPT, Fate.PRUNED, Fate.FINISHED))}


class Decode(Reading):
    """And whether the log-probabilities of steps and the tree are wanted, or the output with its score alone."""

    brief: bool = False


class Vocabulary(Options):
    """Nothing more is asked."""


def decode(run: Any, options: Decode) -> Answer:
    """The output of a run for a text, with all that it was chosen from."""
    trace, item = looked(run, options), item_of(run, options.text)
    if run.extends and not options.length:
        raise InputError("0 tokens are to be written after the text: choose more to see how they are chosen")
    steps = run.steps(item, trace)
    ids, scores = steps.tokens, steps.scores
    penalty = run.recipe.decode.length_penalty if options.length_penalty is None else options.length_penalty
    chosen = scores.gather(1, scores.new_tensor(ids).long()[:, None])[:, 0]
    reads = "decoder" if run.extends else "encoder"
    header = {
        "input": trace.input,
        "output": trace.output,
        "tokens": ids,
        "texts": [name(text) for text in steps.texts],
        "source": [name(text) for text in trace.tokens(reads)[0]],
        "first": len(run.read(item)) - 1 if run.extends else 0,
        "score": _finite(length_penalised(float(chosen.sum()), len(ids), penalty)),
        "log_probabilities": [_finite(value) for value in chosen.tolist()],
        "forced": len(options.prefix),
        "vocabulary": scores.shape[1],
        "beam": options.beam or run.recipe.decode.beam,
        "length_penalty": penalty,
    }
    if options.brief:
        return Answer(header)
    count = min(scores.shape[1], max(64, MOST // len(scores)))
    values, tokens = scores.topk(count, dim=-1)  # (T, n)
    kind = np.uint16 if scores.shape[1] <= 1 << 16 else np.int32
    arrays: dict[str, Array] = {"values": values.numpy(), "tokens": tokens.numpy().astype(kind)}
    if trace.beams:
        tree, all_nodes = _cut(trace.beams[0])
        header["tree"] = {"nodes": len(tree.nodes), "all": all_nodes}
        arrays |= _arrays(tree)
    return Answer(header, arrays)


def _finite(value: float) -> float | None:
    """A number for JSON; None for the log-probability of a token that was not allowed, but chosen by hand."""
    return round(value, 5) if math.isfinite(value) else None


def _cut(tree: BeamTree) -> tuple[BeamTree, int]:
    """The tree with at most so many nodes, and how many there were: what was pruned goes first, then what is late."""
    if len(tree.nodes) <= NODES:
        return tree, len(tree.nodes)
    kept = [node for node in tree.nodes if node.fate != Fate.PRUNED][:NODES]
    return BeamTree(kept), len(tree.nodes)


def _arrays(tree: BeamTree) -> dict[str, Array]:
    """The nodes of a tree, (N) for each of their fields."""
    nodes = tree.nodes
    numbers = {"number": "number", "parent": "parent", "token": "token"}
    floats = ("log_probability", "total", "score")
    return {
        **{f"node {key}": np.array([getattr(each, field) for each in nodes], "<i4") for key, field in numbers.items()},
        **{f"node {field}": np.array([getattr(each, field) for each in nodes], "<f4") for field in floats},
        "node fate": np.array([FATES[each.fate] for each in nodes], "<u1"),
    }


def vocabulary(run: Any, options: Vocabulary) -> Answer:
    """How the tokens are spelled that a run writes, by their ids."""
    return Answer({"texts": [name(text) for text in run.target.vocabulary]})


def fits(run: Any) -> bool:
    """Whether the run writes a text, by a search or by drawing."""
    return bool(run.searches)


VIEWS = (View("decode", Decode, decode, fits, body=IMAGE), View("vocabulary", Vocabulary, vocabulary, fits))
