"""What a corpus is like: counts, lengths, labels, samples, what was dropped, tokens per word."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from glassformer.cli.showing import say
from glassformer.data import Corpus
from glassformer.data.examples import texts_in
from glassformer.data.store import Rows

BARS = " ▁▂▃▄▅▆▇█"
SIDES = ("source", "target")
LONGEST = 1_000  # characters of a text that are shown
COUNTED = 1_000  # examples from which tokens per word are counted
Sample = tuple[list[str], list[str]]  # an example as texts: what is read, and what is predicted


def describe(corpus: Corpus, samples: int, as_json: bool) -> None:
    """Print what a corpus is like."""
    shown = _samples(corpus)
    facts: dict[str, Any] = {
        "report": corpus.report.to_dict(),
        "splits": {name: _split(corpus, rows) for name, rows in corpus.splits.items() if len(rows)},
        "tokens_per_word": _tokens_per_word(corpus, shown),
    }
    if as_json:
        sys.stdout.write(json.dumps(facts, ensure_ascii=False) + "\n")
        return
    for line in _lines(corpus, facts):
        say(line)
    for sample in shown[:samples]:
        sides = [" | ".join(texts) for texts in sample if texts]
        say("  " + "  →  ".join(side if len(side) <= LONGEST else f"{side[:LONGEST]}…" for side in sides))


def _lines(corpus: Corpus, facts: dict[str, Any]) -> list[str]:
    """The facts for people."""
    lines = [corpus.recipe.title] if corpus.recipe.title else []
    lines += corpus.report.lines()
    for name, split in facts["splits"].items():
        for side in _text_sides(corpus).values():
            row = split[side]
            numbers = f"mean {row['mean']:5.1f} tokens, longest {row['longest']:4}"
            lines.append(f"{name:6} {side}  {numbers}   {row['histogram']}")
    labels = [label for label in corpus.assets.labels if any("labels" in each for each in facts["splits"].values())]
    width = max(map(len, labels), default=0)
    for label in labels:
        counts = ", ".join(f"{split['labels'][label]:,} {name}" for name, split in facts["splits"].items())
        lines.append(f"  {label:{width}}  {counts}")
    if facts["tokens_per_word"]:
        ratios = ", ".join(f"{side} {ratio:.2f}" for side, ratio in facts["tokens_per_word"].items())
        lines.append(f"tokens per word: {ratios}")
    return lines


def _text_sides(corpus: Corpus) -> dict[int, str]:
    """The sides of an example that are text, and what they are called: pixels and labels are none."""
    return {side: SIDES[side] for side in corpus.recipe.task.text_sides()}


def _split(corpus: Corpus, rows: Rows) -> dict[str, Any]:
    """The size of a split, the lengths of its texts, and how many examples each label has, if each has one."""
    facts: dict[str, Any] = {"examples": len(rows)}
    facts |= {side: _lengths(rows.lengths[:, column]) for column, side in _text_sides(corpus).items()}
    labels = corpus.assets.labels
    if labels and (rows.lengths[:, 1] == 1).all():
        counts = np.zeros(len(labels), np.int64)
        for _, numbers in rows.blocks(1):
            counts += np.bincount(numbers, minlength=len(labels))
        facts["labels"] = dict(zip(labels, counts.tolist(), strict=True))
    return facts


def _lengths(lengths: Any) -> dict[str, Any]:
    """Mean, longest, and a histogram in twenty steps."""
    values = np.asarray(lengths)
    counts, _ = np.histogram(values, bins=20, range=(0, max(20, int(values.max()) + 1)))
    heights = np.ceil(counts / max(counts.max(), 1) * (len(BARS) - 1)).astype(int)
    histogram = "".join(BARS[height] for height in heights)
    return {"mean": float(values.mean()), "longest": int(values.max()), "histogram": histogram}


def _samples(corpus: Corpus) -> list[Sample]:
    """Some examples: of valid or test, whose texts are kept, or else what the numbers of train stand for."""
    for split in ("valid", "test"):
        held_out = corpus.held_out(split)[:COUNTED]
        if held_out:
            return [_sample(corpus, example) for example in held_out]
    rows, assets = corpus.splits["train"], corpus.assets
    found = []
    for row in range(min(len(rows), COUNTED) if assets.tokenizers else 0):
        target = rows.target(row)
        if assets.labels:
            predicted = [assets.labels[int(target[0])]] if len(target) == 1 else []
        else:
            predicted = [assets.tokenizers[1].decode(target)] if 1 in _text_sides(corpus) else []
        read = [assets.tokenizers[0].decode(rows.source(row))] if 0 in _text_sides(corpus) else []
        found.append((read, predicted))
    return found


def _sample(corpus: Corpus, example: Any) -> Sample:
    """An example as texts. What is predicted: its labels, or all texts of it but those that are read."""
    task = corpus.recipe.task
    read = list(task.texts(example, 0)) if 0 in task.text_sides() else [task.name_of(example)]
    labels = " ".join(task.labels_of(example))
    others = list(texts_in(example)) if task.tokenizers else []
    for text in read:
        if text in others:
            others.remove(text)
    return read, [labels] if labels else others


def _tokens_per_word(corpus: Corpus, samples: Sequence[Sample]) -> dict[str, float]:
    """How many tokens a word between spaces becomes, on the sides that are text."""
    tokens: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for sample in samples:
        for column, side in _text_sides(corpus).items():
            encode, texts = corpus.assets.tokenizers[column].encode, sample[column]
            tokens[side] += sum(len(encode(text)) for text in texts)
            words[side] += sum(max(1, len(text.split())) for text in texts)
    return {side: tokens[side] / words[side] for side in words if words[side]}
