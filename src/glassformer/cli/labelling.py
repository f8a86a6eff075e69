"""What is shown of runs that tell texts or images apart."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np

from glassformer.cli.showing import bar, next_commands, quoted, refuse, say
from glassformer.data import BETWEEN
from glassformer.data.images import PreparedImages
from glassformer.errors import GlassformerError
from glassformer.evaluation import BASELINE
from glassformer.looking.figures import confusion_figure
from glassformer.recipe import Recipe
from glassformer.run import Classifier, ImageClassifier
from glassformer.run.labelling import ClassEvaluation

SHOWN = 10  # answers at the end of a training
WIDEST = 80  # letters of a text that are shown
Examples = Sequence[tuple[Any, str]]
Report = tuple[dict[str, Any], list[str]]  # facts for programs, lines for people


def texts_classified(run: Classifier, folder: Path, examples: Examples) -> None:
    """Show what a run makes of texts that it never saw."""
    _finished(run, folder, examples, [_short(source) for source, _ in examples])
    shortest = min((source for source, _ in examples), key=len).split(BETWEEN)
    texts = [quoted(shorten(each, WIDEST, placeholder="")) for each in shortest]
    said = f"echo {texts[0]}" if len(texts) == 1 else rf"printf '%s\t%s\n' {' '.join(texts)}"
    next_commands(
        folder,
        f"{said} | {{command}} classify --run {{run}}",
        "{command} evaluate --run {run}",
        "{command} recipes",
    )


def images_classified(run: ImageClassifier, folder: Path, examples: Examples) -> None:
    """Show what a run makes of images that it never saw."""
    _finished(run, folder, examples, run.names("test")[: len(examples)])
    next_commands(
        folder,
        "{command} classify --run {run} image.png",
        "{command} evaluate --run {run}",
        "{command} recipes",
    )


def _finished(run: Classifier | ImageClassifier, folder: Path, examples: Examples, names: list[str]) -> None:
    with bar("testing", len(examples)) as progress:
        found = run.evaluate(examples, progress)
    say("")
    for row in np.linspace(0, len(examples) - 1, min(SHOWN, len(examples))).astype(int).tolist():  # of many labels
        answer, label = found.answers[row], examples[row][1]
        right = "" if answer.label == label else f"   (right: {label})"
        say(f"  {names[row]}  →  {answer.label} {answer.probability:.0%}{right}")
    for line in [*_lines(found, run), *_baseline(run, examples)[1]]:
        say(line)
    confusion_figure(found.scores.confusion, run.labels, folder / "confusion.png", run.recipe.title)
    say(f"\nThe run is in {folder}, the pictures are {folder / 'confusion.png'} and loss.png.")


def report(run: Classifier | ImageClassifier, examples: Examples, **options: Any) -> Report:
    """How a run does on some labelled examples."""
    refuse(run.path, options)
    unread: list[str] = []
    with bar("evaluating", len(examples)) as progress:
        if isinstance(run, ImageClassifier):
            found = run.evaluate(examples, progress, unread.append)
        else:
            found = run.evaluate(examples, progress)
    for complaint in unread:
        sys.stderr.write(f"glassformer: {complaint}: left out\n")
    if run.path is not None:
        confusion_figure(found.scores.confusion, run.labels, run.path / "confusion.png", run.recipe.title)
    facts = {
        _things(run): len(found.answers),
        "loss": found.loss,
        "accuracy": found.scores.accuracy,
        "macro_f1": found.scores.macro_f1,
        "f1": dict(zip(run.labels, found.scores.f1, strict=True)),
        "labels": run.labels,
        "confusion": found.scores.confusion.tolist(),
    }
    if isinstance(run, ImageClassifier):
        facts["unreadable"] = len(unread)
    left_out = [f"{len(unread):,} of the images could not be read, and are left out"] if unread else []
    simple, lines = _baseline(run, examples)
    return facts | simple, [*_lines(found, run), *left_out, *lines]


def _lines(found: ClassEvaluation, run: Classifier | ImageClassifier) -> list[str]:
    scores, width = found.scores, max(map(len, found.labels))
    total = f"{len(found.answers):,} {_things(run)}"
    rows = [f"  {label:{width}}  {f1:.3f}" for label, f1 in zip(found.labels, scores.f1, strict=True)]
    return [
        "",
        f"{total}: accuracy {scores.accuracy:.2%}, macro F1 {scores.macro_f1:.4f}",
        "F1 of each label:",
        *rows,
    ]


def _baseline(run: Classifier | ImageClassifier, examples: Examples) -> Report:
    """How counting words does on the same texts, or why that is not known; nothing of images, which have none."""
    if isinstance(run, ImageClassifier):
        return {}, []
    try:
        scores = run.baseline(examples)
    except GlassformerError as error:
        return {"baseline": {"name": BASELINE, "missing": str(error)}}, [f"no baseline: {error}"]
    facts = {"name": BASELINE, "accuracy": scores.accuracy, "macro_f1": scores.macro_f1}
    return {"baseline": facts}, [f"baseline: {BASELINE} {scores.accuracy:.2%}, macro F1 {scores.macro_f1:.4f}"]


def _things(run: Classifier | ImageClassifier) -> str:
    return "images" if isinstance(run, ImageClassifier) else "texts"


def _short(source: str) -> str:
    text = " | ".join(source.split(BETWEEN))
    return text if len(text) < WIDEST else f"{text[: WIDEST - 1]}…"


def describe_images(prepared: PreparedImages, recipe: Recipe, samples: int, as_json: bool) -> None:
    """What a recipe's images are like: counts, what was dropped, how many there are of each label."""
    counts = {name: Counter(images.labels) for name, images in prepared.splits.items()}
    if as_json:
        sys.stdout.write(json.dumps({"report": prepared.report.to_dict(), "splits": counts}) + "\n")
        return
    if recipe.title:
        say(recipe.title)
    for line in prepared.report.lines():
        say(line)
    width = max(map(len, prepared.labels))
    for label in prepared.labels:
        say(f"  {label:{width}}  " + ", ".join(f"{count[label]:,} {name}" for name, count in counts.items()))
    images = prepared.splits["train"]
    for name, label in list(zip(images.names, images.labels, strict=True))[:samples]:
        say(f"  {name}  →  {label}")
