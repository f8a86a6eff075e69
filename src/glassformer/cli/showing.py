"""What the commands print: the end of a training, a description of data, a progress bar."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from glassformer.data import Prepared, Report, read_pairs
from glassformer.errors import InputError
from glassformer.looking.figures import attention_figure, attention_text, loss_figure
from glassformer.recipe import Recipe, TsvSource
from glassformer.run import Run
from glassformer.run.showing import look
from glassformer.run.telling import read_metrics

out = Console(highlight=False)
BARS = " ▁▂▃▄▅▆▇█"
SHOWN = 10  # translations at the end of a training


@contextmanager
def bar(name: str, total: int) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on stderr, where that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal or total < 2:
        yield None
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(name, total=total)
        yield lambda done, of: progress.update(task, completed=done, total=of)


def tsv_pairs(path: Path) -> list[tuple[str, str]]:
    """The pairs of a TSV file."""
    report = Report()
    section = TsvSource(kind="tsv", train=str(path.resolve()))
    pairs = [(pair.source, pair.target) for pair in read_pairs(section, "train", path.parent, report, strict=True)]
    if not pairs:
        raise InputError(f"{path}: holds no pair")
    return pairs


def finish(run: Run, folder: Path) -> None:
    """What is shown when a training has ended: translations, scores, where it looks, what to try next."""
    loss_figure(read_metrics(folder), folder / "loss.png", run.recipe.title)
    try:
        pairs = run.pairs("test")
    except InputError:
        out.print(f"\nThe run is in {folder}", markup=False)
        return
    out.print()
    for source, reference in pairs[:SHOWN]:
        text = run.translate([source])[0].text
        out.print(
            f"  {source}  →  {text}" + ("" if text == reference else f"   (reference: {reference})"), markup=False
        )
    scores = run.evaluate(pairs[:1000]).scores
    out.print(f"\n{min(len(pairs), 1000):,} test pairs that it never saw: exact match {scores.exact:.1%}, ", end="")
    out.print(f"BLEU {scores.bleu:.1f}, chrF {scores.chrf:.1f}")
    source = next((source for source, _ in pairs if source.isascii()), pairs[0][0])
    seen = look(run, source)
    title = f"{source} → {seen.translation.text}"
    attention_figure(seen.mean, seen.target, seen.source, folder / "attention.png", title)
    out.print("\nWhere it looked while writing (cross-attention, mean of all heads; bright = much):\n")
    out.print(attention_text(seen.mean, seen.target, seen.source))
    out.print(f"\nThe run is in {folder}: pictures in {folder}/attention.png and {folder}/loss.png", markup=False)
    out.print("Try next:", markup=False)
    example = source.replace('"', "")
    out.print(f'  echo "{example}" | glassformer translate --run {folder} --nbest 3', markup=False)
    out.print(f"  glassformer evaluate --run {folder}", markup=False)
    out.print("  glassformer recipes", markup=False)


def describe(prepared: Prepared, recipe: Recipe, samples: int, as_json: bool) -> None:
    """What a recipe's data is like."""
    facts: dict[str, Any] = {"report": prepared.report.to_dict(), "splits": {}}
    for name, pairs in prepared.splits.items():
        if len(pairs):
            facts["splits"][name] = {"pairs": len(pairs), **_lengths(pairs.lengths)}
    texts = [pairs.texts(index) for pairs in (prepared.splits["valid"],) for index in range(min(len(pairs), 1000))]
    facts["tokens_per_word"] = _tokens_per_word(prepared, texts)
    if as_json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return
    if recipe.title:
        out.print(recipe.title, markup=False)
    for line in prepared.report.lines():
        out.print(line, markup=False)
    for name, split in facts["splits"].items():
        for side in ("source", "target"):
            row = split[side]
            out.print(
                f"{name:6} {side}  mean {row['mean']:5.1f} tokens, longest {row['longest']:4}   {row['histogram']}",
                markup=False,
            )
    words = facts["tokens_per_word"]
    if words:
        out.print(f"tokens per word: source {words['source']:.2f}, target {words['target']:.2f}")
    for source, target in texts[:samples]:
        out.print(f"  {source}  →  {target}", markup=False)


def _lengths(lengths: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Mean, longest and a histogram in twenty steps, of each side."""
    facts = {}
    for column, side in enumerate(("source", "target")):
        values = np.asarray(lengths[:, column])
        counts, _ = np.histogram(values, bins=20, range=(0, max(20, int(values.max()) + 1)))
        steps = np.ceil(counts / max(counts.max(), 1) * (len(BARS) - 1)).astype(int)
        histogram = "".join(BARS[step] for step in steps)
        facts[side] = {"mean": float(values.mean()), "longest": int(values.max()), "histogram": histogram}
    return facts


def _tokens_per_word(prepared: Prepared, texts: list[tuple[str, str]]) -> dict[str, float]:
    """How many tokens a word between spaces becomes."""
    if not texts:
        return {}
    counts: Counter[str] = Counter()
    for pair in texts:
        for side, text in zip(("source", "target"), pair, strict=True):
            tokenizer = prepared.source_tokenizer if side == "source" else prepared.target_tokenizer
            counts[side] += len(tokenizer.encode(text))
            counts[f"{side} words"] += max(1, len(text.split()))
    return {side: counts[side] / counts[f"{side} words"] for side in ("source", "target")}
