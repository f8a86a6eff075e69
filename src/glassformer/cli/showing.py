"""What the commands print: the end of a training, a description of data, a progress bar."""

from __future__ import annotations

import codecs
import json
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from glassformer.data import Prepared, Report, read_pairs
from glassformer.errors import InputError
from glassformer.looking.figures import attention_figure, attention_text, loss_figure
from glassformer.recipe import Recipe, TsvSource
from glassformer.run import Run
from glassformer.run.showing import look
from glassformer.run.telling import read_metrics

out = Console(highlight=False)
BARS = " ▁▂▃▄▅▆▇█"
SHOWN, SCORED = 10, 1000  # translations at the end of a training, and pairs that are scored
PORTION = 4096  # lines that are read, sorted by length and translated together


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
    section = TsvSource(kind="tsv", train=str(path))
    found = read_pairs(section, "train", Path.cwd(), report, strict=False)
    pairs = [(pair.source, pair.target) for pair in found]
    if report.examples:
        raise InputError(report.examples[0])
    if not pairs:
        raise InputError(f"{path}: holds no pair")
    return pairs


def read_lines(file: str) -> Iterator[str]:
    """The lines of a file, or of standard input, one after the other; only a line feed ends a line."""
    name = "standard input" if file == "-" else file
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                plain = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                try:
                    yield plain.decode("utf-8").removesuffix("\n").removesuffix("\r")
                except UnicodeDecodeError:
                    raise InputError(f"{name}:{number}: is not UTF-8 text") from None
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror}") from None


def portions(lines: Iterator[str]) -> Iterator[list[str]]:
    """Some lines at a time: an input of any length, or without end, gives its first outputs early."""
    while portion := list(islice(lines, PORTION)):
        yield portion


def finish(run: Run, folder: Path) -> None:
    """What is shown when a training has ended: translations, scores, where it looks, what to try next."""
    loss_figure(read_metrics(folder), folder / "loss.png", run.recipe.title)
    try:
        pairs = run.pairs("test")[:SCORED]
    except InputError:  # no test pairs
        _say(f"\nThe run is in {folder}, the picture of its loss is {folder / 'loss.png'}.")
        return
    with bar("testing", len(pairs)) as progress:
        found = run.evaluate(pairs, progress=progress)
    _say("")
    for (source, reference), text in list(zip(pairs, found.outputs, strict=True))[:SHOWN]:
        _say(f"  {source}  →  {text}" + ("" if text == reference else f"   (reference: {reference})"))
    scores = f"exact match {found.scores.exact:.1%}, BLEU {found.scores.bleu:.1f}, chrF {found.scores.chrf:.1f}"
    _say(f"\n{len(pairs):,} test pairs that it never saw: {scores}")
    source = _example(run, [source for source, _ in pairs])
    seen = look(run, source)
    attention_figure(
        seen.mean, seen.target, seen.source, folder / "attention.png", f"{source} → {seen.translation.text}"
    )
    heat = attention_text(seen.mean, seen.target, seen.source)
    if max(Text.from_markup(line).cell_len for line in heat.splitlines()) <= out.width:
        _say("\nWhere it looked: a line for each token written, a column for each read.\n")
        out.print(heat)
    _say(f"\nThe run is in {folder}, the pictures are {folder / 'attention.png'} and loss.png.")
    _say("Try next:")
    command = _command()
    _say(f"  echo {shlex.quote(source)} | {command} translate --run {shlex.quote(str(folder))} --nbest 3")
    _say(f"  {command} evaluate --run {shlex.quote(str(folder))}")
    _say(f"  {command} recipes")


def _command() -> str:
    """How Glassformer is called here: by its name, or as it was."""
    if shutil.which("glassformer"):
        return "glassformer"
    by_path = Path(sys.argv[0]).name == "glassformer"
    return shlex.quote(sys.argv[0]) if by_path else f"{shlex.quote(sys.executable)} -m glassformer"


def _say(line: str) -> None:
    out.print(line, markup=False, soft_wrap=True)


def _example(run: Run, sources: list[str]) -> str:
    """A text to look at: short enough for a terminal, and in letters that every terminal has, if there is one."""
    fitting = [source for source in sources if 4 <= len(run.encode(source)) <= 14] or [min(sources, key=len)]
    return next((source for source in fitting if source.isascii()), fitting[0])


def describe(prepared: Prepared, recipe: Recipe, samples: int, as_json: bool) -> None:
    """What a recipe's data is like."""
    facts: dict[str, Any] = {"report": prepared.report.to_dict(), "splits": {}}
    for name, pairs in prepared.splits.items():
        if len(pairs):
            facts["splits"][name] = {"pairs": len(pairs), **_lengths(pairs.lengths)}
    texts = _texts(prepared)
    facts["tokens_per_word"] = _tokens_per_word(prepared, texts)
    if as_json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return
    if recipe.title:
        _say(recipe.title)
    for line in prepared.report.lines():
        _say(line)
    for name, split in facts["splits"].items():
        for side in ("source", "target"):
            row = split[side]
            _say(f"{name:6} {side}  mean {row['mean']:5.1f} tokens, longest {row['longest']:4}   {row['histogram']}")
    words = facts["tokens_per_word"]
    if words:
        _say(f"tokens per word: source {words['source']:.2f}, target {words['target']:.2f}")
    for source, target in texts[:samples]:
        _say(f"  {source}  →  {target}")


def _texts(prepared: Prepared) -> list[tuple[str, str]]:
    """Some pairs: of valid or test, which have their texts, or else what the tokens of train spell."""
    held_out = next((prepared.splits[name] for name in ("valid", "test") if len(prepared.splits[name])), None)
    if held_out is not None:
        return [held_out.texts(row) for row in range(min(len(held_out), SCORED))]
    pairs, source, target = prepared.splits["train"], prepared.source_tokenizer, prepared.target_tokenizer
    rows = range(min(len(pairs), SCORED))
    return [(source.decode(pairs.source(row)), target.decode(pairs.target(row))) for row in rows]


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
