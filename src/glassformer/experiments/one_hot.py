"""one-hot: all words are equally far apart, until their vectors are learned.

A word as a place in the vocabulary says nothing about any other word: "cat" is as far from "dog" as from "table".
Vectors that are learned from sentences put words near each other that stand among the same words. Vectors of random
numbers are tried beside them, as they are dense and short, too, but have learned nothing.

V words, D width of the vectors, K kinds
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from glassformer.experiments.batches import Rng
from glassformer.experiments.charts import bars, heat, mark_level, panels
from glassformer.experiments.finding import Finding, Rows, Spread
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLUE, GREY, ORANGE
from glassformer.static import Vocabulary, one_hot, skip_gram
from glassformer.static.skipgram import Settings

CLAIM = (
    'One-hot vectors are long and sparse, and "cat" is as far from "dog" as from "table"; learned vectors are short '
    "and dense, and words of like meaning are near each other."
)
ORDER = 4  # in the story

KINDS = {
    "animals": (["cat", "dog", "horse", "cow", "fox", "sheep", "goat", "mouse"], ["sleeps", "runs", "eats", "hides"]),
    "furniture": (["table", "chair", "desk", "shelf", "bed", "sofa", "stool", "bench"], ["stands", "breaks", "creaks"]),
    "fruit": (["pear", "plum", "cherry", "grape", "melon", "lemon", "peach", "fig"], ["ripens", "falls", "tastes"]),
    "tools": (["hammer", "saw", "drill", "axe", "file", "rake", "spade", "wrench"], ["cuts", "rusts", "works"]),
}
NOUNS = {noun: kind for kind, (nouns, _) in KINDS.items() for noun in nouns}
WIDTH = 16
RIDGE = 0.1  # how much the classifier of kinds prefers small weights
ONE_HOT, RANDOM, LEARNED = "one-hot", "random", "learned"
COLOURS = {ONE_HOT: ORANGE, RANDOM: GREY, LEARNED: BLUE}
Table = NDArray[np.float64]


def run(trial: Trial, sentences: int = 800) -> Finding:
    """Distances between nouns by three kinds of vectors, and what these tell of nouns that had no label."""
    made = trial.map("learning vectors", partial(_vectors, sentences=sentences), [(each,) for each in trial.seeds()])
    rows = Rows()
    for each, tables in zip(trial.seeds(), made, strict=True):
        for name, table in tables.items():
            rows.append({"vectors": name, "seed": each.seed, "width": table.shape[1], **_measures(table, each.seed)})
    facts = {
        f"{column} {name}": spread
        for column in ("width", "zeros", "same_kind", "other_kind", "closest", "farthest", "neighbours", "right")
        for name, spread in rows.spreads(column, by="vectors").items()
    }
    first = made[0]
    cat, dog, desk = ([*NOUNS].index(noun) for noun in ("cat", "dog", "table"))
    pairs = {name: [_distances(tables[name]) for tables in made] for name in COLOURS}
    for name, found in pairs.items():
        facts[f"cat dog {name}"] = Spread(float(each[cat, dog]) for each in found)
        facts[f"cat table {name}"] = Spread(float(each[cat, desk]) for each in found)
    nearer = all(each[cat, dog] < each[cat, desk] for each in pairs[LEARNED])
    return Finding(
        method=f"{sentences:,} sentences such as 'the cat sleeps near the dog' were made, whose nouns and verb are of "
        f"one of {len(KINDS)} kinds; nobody says which. `skip_gram` learned vectors of {WIDTH} numbers from them, "
        f"three times with other sentences. Distances are those between the {len(NOUNS)} nouns, with vectors of "
        "length 1. Then a linear classifier by ridge regression learned the kind of half of the nouns and was asked "
        "for that of the others.",
        measured=f"A one-hot vector has {facts['width one-hot']:.0f} numbers of which {facts['zeros one-hot']:.1%} "
        f"are 0; cat is {facts['cat dog one-hot']:.3f} from dog and {facts['cat table one-hot']:.3f} from table, and "
        f"any two words are from {facts['closest one-hot']:.3f} to {facts['farthest one-hot']:.3f} apart. A learned "
        f"one has {WIDTH} numbers, {facts['zeros learned']:.0%} of them 0; cat is {facts['cat dog learned']:.2f} from "
        f"dog and {facts['cat table learned']:.2f} from table; the nearest noun is of the same kind in "
        f"{facts['neighbours learned']:.0%} (random vectors: {facts['neighbours random']:.0%}). So what is learned of "
        "some words carries over to others: the kind of nouns without a label is found for "
        f"{facts['right learned']:.0%} from learned, {facts['right random']:.0%} from random and "
        f"{facts['right one-hot']:.0%} from one-hot vectors; a guess finds {1 / len(KINDS):.0%}.",
        holds=facts["farthest one-hot"].high - facts["closest one-hot"].low < 1e-6
        and facts["zeros one-hot"].low > 0.9
        and facts["zeros learned"].high == 0
        and nearer
        and facts["neighbours learned"].low > 0.9
        and facts["right learned"].low > facts["right one-hot"].high + 0.3,
        facts={**facts},
        rows=rows,
        draw=lambda: _draw(rows, first),
        seeds=[each.seed for each in trial.seeds()],
    )


def _vectors(trial: Trial, sentences: int) -> dict[str, Table]:
    """The vectors of all nouns, of three kinds: (V, number of words), (V, D), (V, D)."""
    rng = np.random.default_rng([trial.seed, 5])
    texts = [_sentence(rng, kind) for kind in rng.choice([*KINDS], size=sentences)]
    vocabulary = Vocabulary.of(" ".join(text) for text in texts)
    learned = skip_gram(texts, Settings(width=WIDTH, window=4, epochs=6, sample=0.01, seed=trial.seed), batch=64)
    return {
        ONE_HOT: one_hot([*NOUNS], vocabulary).double().numpy(),
        RANDOM: rng.normal(size=(len(NOUNS), WIDTH)),
        LEARNED: np.stack([learned[noun] for noun in NOUNS]).astype(np.float64),
    }


def _sentence(rng: Rng, kind: str) -> list[str]:
    """The cat sleeps near the dog."""
    nouns, verbs = KINDS[kind]
    one, other = rng.choice(nouns, size=2, replace=False).tolist()
    return ["the", one, str(rng.choice(verbs)), "near", "the", other]


def _distances(table: Table) -> Table:
    """How far each two rows of a table (V, D) are apart when all are of length 1, (V, V)."""
    units = table / np.linalg.norm(table, axis=1, keepdims=True)
    apart: Table = np.sqrt(np.maximum(2 - 2 * units @ units.T, 0.0))
    return apart


def _measures(table: Table, seed: int) -> dict[str, float]:
    """What vectors (V, D) of the nouns tell of their kinds."""
    kinds = np.array([[*KINDS].index(kind) for kind in NOUNS.values()])  # (V)
    same, others = kinds[:, None] == kinds, ~np.eye(len(kinds), dtype=np.bool_)
    apart = _distances(table)
    return {
        "zeros": float((table == 0).mean()),
        "same_kind": float(apart[same & others].mean()),
        "other_kind": float(apart[~same].mean()),
        "closest": float(apart[others].min()),
        "farthest": float(apart[others].max()),
        "neighbours": float((kinds[(apart + 9 * np.eye(len(kinds))).argmin(axis=1)] == kinds).mean()),
        "right": _told(table, kinds, np.random.default_rng([seed, 6])),
    }


def _told(table: Table, kinds: NDArray[np.int64], rng: Rng, times: int = 20) -> float:
    """How often a linear classifier that knows the kinds of half of the words is right about the others."""
    units, right = table / np.linalg.norm(table, axis=1, keepdims=True), []
    for _ in range(times):
        order = np.concatenate([rng.permutation(np.flatnonzero(kinds == kind)) for kind in range(len(KINDS))])
        half = order.reshape(len(KINDS), 2, -1)
        known, asked = half[:, 0].ravel(), half[:, 1].ravel()
        weights = np.linalg.solve(
            units[known].T @ units[known] + RIDGE * np.eye(units.shape[1]),
            units[known].T @ np.eye(len(KINDS))[kinds[known]],
        )  # (D, K)
        scores = units[asked] @ weights + 1e-9 * rng.normal(size=(len(asked), len(KINDS)))  # equal scores are a guess
        right.append((scores.argmax(axis=1) == kinds[asked]).mean())
    return float(np.mean(right))


def _draw(rows: Rows, tables: dict[str, Table]) -> Figure:
    figure, (before, after, told) = panels(3, 11, 3.8, width_ratios=[1, 1.2, 1])
    size = len(NOUNS) // len(KINDS)
    middles: Sequence[float] = [size * number + (size - 1) / 2 for number in range(len(KINDS))]
    for axes, name in ((before, ONE_HOT), (after, LEARNED)):
        bar = "distance" if axes is after else None
        heat(axes, _distances(tables[name]), bar=bar, vmin=0, vmax=1.6)
        axes.set(title=f"{name}: how far nouns are apart")
        axes.set_xticks(middles, [*KINDS], rotation=30)
        axes.set_yticks(middles, [*KINDS])
    measures = {"nearest noun is\nof the same kind": "neighbours", "kind of nouns\nwithout a label": "right"}
    values = {
        name: [rows.where(vectors=name).spreads(column, by="vectors")[name] for column in measures.values()]
        for name in COLOURS
    }
    bars(told, [*measures], values, COLOURS)
    mark_level(told, 1 / len(KINDS), "guessing")
    told.set(title="What the vectors tell", ylabel="right", ylim=(0, 1.05))
    told.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
    return figure
