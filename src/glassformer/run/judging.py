"""Judging: what a run makes of each held-out example, so that runs can be compared example by example."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glassformer.data import BETWEEN
from glassformer.errors import InputError
from glassformer.evaluation import Estimate, paired_bleu, paired_means, score
from glassformer.evaluation.answers import word_f1
from glassformer.run.answerer import Answerer
from glassformer.run.classifier import Classifier
from glassformer.run.denoiser import Denoiser
from glassformer.run.filler import Filler
from glassformer.run.held_out import Progress
from glassformer.run.image_classifier import ImageClassifier
from glassformer.run.language import LanguageModel
from glassformer.run.run import Run
from glassformer.run.tagger import Tagger

BLEU, ACCURACY = "BLEU", "accuracy (%)"
HUNDRED = 100.0
STRETCHES = 5  # of lengths, each with about as many examples
FEWEST = 20  # examples in a stretch


@dataclass(frozen=True)
class Judged:
    """What a run scores on some examples: of each its value and weight, or the outputs that BLEU is made of."""

    score: str  # its name
    better: str  # higher or lower
    values: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


def judge(run: Any, examples: Sequence[tuple[Any, str]], progress: Progress | None = None) -> Judged:
    """Let a run do its task on some examples."""
    if type(run) not in JUDGES:
        raise InputError(f"runs for {run.recipe.task.kind} cannot be compared: nobody has said how to score them")
    return JUDGES[type(run)](run, examples, progress)


def estimates(judged: Sequence[Judged], references: Sequence[str]) -> tuple[list[Estimate], str]:
    """The scores of some runs on the same examples, the first of which the others are tested against; a signature."""
    if judged[0].score == BLEU:
        return paired_bleu([each.outputs for each in judged], references)
    return paired_means([each.values for each in judged], [each.weights for each in judged]), ""


def value(judged: Judged, references: Sequence[str], rows: Sequence[int]) -> float:
    """The score on some of the examples."""
    if judged.score == BLEU:
        return score([judged.outputs[row] for row in rows], [references[row] for row in rows]).bleu
    return sum(judged.values[row] for row in rows) / max(sum(judged.weights[row] for row in rows), 1e-300)


def stretches(examples: Sequence[tuple[Any, str]]) -> dict[str, list[int]]:
    """Rows of examples by how many words are read, such as "4 to 7", shortest first; images have none."""
    if not examples or not isinstance(examples[0][0], str):
        return {}
    lengths = np.array([len(source.replace(BETWEEN, " ").split()) for source, _ in examples])
    parts = max(1, min(STRETCHES, len(examples) // FEWEST))
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, parts + 1), method="lower"))
    found: dict[str, list[int]] = {}
    for number, least in enumerate(edges[:-1] if len(edges) > 1 else edges):
        last = number >= len(edges) - 2
        most = int(edges[-1]) if last else int(edges[number + 1]) - 1
        name = f"{least}" if least == most else f"{least} to {most}"
        found[name] = np.flatnonzero((lengths >= least) & (lengths <= most)).tolist()
    return found


def _translated(run: Run, examples: Sequence[tuple[str, str]], progress: Progress | None) -> Judged:
    found = run.translate([source for source, _ in examples], progress=progress)
    return Judged(BLEU, "higher", outputs=[each.text for each in found])


def _classified(run: Any, examples: Sequence[tuple[Any, str]], progress: Progress | None) -> Judged:
    """A label that was not in training cannot be right."""
    known = [row for row, (_, label) in enumerate(examples) if label in run.labels]
    found = zip(known, run.evaluate([examples[row] for row in known], progress).answers, strict=True)
    right = {row for row, answer in found if answer.label == examples[row][1]}
    hits = [HUNDRED * (row in right) for row in range(len(examples))]
    return Judged(ACCURACY, "higher", hits, [1.0] * len(hits))


def _tagged(run: Tagger, examples: Sequence[tuple[str, str]], progress: Progress | None) -> Judged:
    """Of words, not of sentences."""
    answers = run.tag([text for text, _ in examples], progress)
    right = [tags.split() for _, tags in examples]
    hits = [sum(map(str.__eq__, answer.tags, tags)) for answer, tags in zip(answers, right, strict=True)]
    return Judged(ACCURACY, "higher", [HUNDRED * hit for hit in hits], [float(len(tags)) for tags in right])


def _answered(run: Answerer, examples: Sequence[tuple[str, str]], progress: Progress | None) -> Judged:
    answers = run.evaluate(examples, progress).answers
    right = [[each["text"] for each in json.loads(target)] or [""] for _, target in examples]
    f1 = [HUNDRED * word_f1(answer.text, some) for answer, some in zip(answers, right, strict=True)]
    return Judged("F1 (%)", "higher", f1, [1.0] * len(f1))


def _surprised(run: LanguageModel, examples: Sequence[tuple[str, str]], progress: Progress | None) -> Judged:
    found = _each(run, examples, progress)
    bits = [each.nats / math.log(2) for each in found]
    return Judged("bits per byte", "lower", bits, [float(each.bytes) for each in found])


def _filled(run: Filler, examples: Sequence[tuple[str, str]], progress: Progress | None) -> Judged:
    found = _each(run, examples, progress)
    hidden = [float(each.hidden) for each in found]
    return Judged("loss", "lower", [each.loss * each.hidden for each in found], hidden)


def _mended(run: Denoiser, examples: Sequence[tuple[str, str]], progress: Progress | None) -> Judged:
    found = _each(run, examples, progress)
    return Judged("loss", "lower", [each.loss * each.tokens for each in found], [float(each.tokens) for each in found])


def _each(run: Any, examples: Sequence[tuple[str, str]], progress: Progress | None) -> list[Any]:
    """What a run says of each document by itself."""
    found = []
    for number, example in enumerate(examples, start=1):
        found.append(run.evaluate([example]))
        if progress is not None:
            progress(number, len(examples))
    return found


JUDGES: dict[type, Callable[..., Judged]] = {
    Run: _translated,
    Classifier: _classified,
    ImageClassifier: _classified,
    Tagger: _tagged,
    Answerer: _answered,
    LanguageModel: _surprised,
    Filler: _filled,
    Denoiser: _mended,
}
