"""What the commands share: how they read lines, show progress, and describe data."""

from __future__ import annotations

import codecs
import json
import os
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import Progress

from glassformer.data import Prepared, Report, read_pairs
from glassformer.data.files import opened
from glassformer.data.labelled import IMAGES, labelled_files
from glassformer.data.preparing import LABELS
from glassformer.data.words import as_many
from glassformer.errors import ConfigurationError, InputError
from glassformer.recipe import Recipe, Source, SquadSource, TextSource, TsvSource, texts_of
from glassformer.run.labelling import number_of
from glassformer.usual import DOCUMENTS

Line = TypeVar("Line")
out = Console(highlight=False)
BARS = " ▁▂▃▄▅▆▇█"
SIDES = ("source", "target")
LONG = 1_000  # characters of a text that are shown at most
SCORED = 1000  # examples that are scored or counted where all would take long
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


def file_pairs(path: Path, recipe: Recipe, labels: list[str] | None = None) -> list[tuple[Any, str]]:
    """A file's examples: of a TSV, a text, a file in SQuAD's layout; of images' labels' folders.

    Where `labels` are given, one that is not among them is complained of with its place.
    """
    if recipe.task.kind == "images":
        return [*labelled_files(path, IMAGES)]
    report = Report()
    found = read_pairs(_file_source(str(path), recipe), "train", Path.cwd(), report, strict=False)
    if recipe.task.kind == "tagging":
        found = as_many(found, report, strict=False)
    pairs = []
    for pair in found:
        if labels is not None:
            for label in LABELS[recipe.task.kind](pair.target):
                number_of(label, labels, f"{pair.place}: ")
        pairs.append((pair.source, pair.target))
    if report.examples:
        raise InputError(report.examples[0])
    if not pairs:
        raise InputError(f"{path}: holds no pair")
    return pairs


def _file_source(name: str, recipe: Recipe) -> Source:
    """What a file is read as: as the run's task wants its examples."""
    if recipe.task.kind == "answering":
        return SquadSource(kind="squad", train=name)
    if recipe.task.kind in DOCUMENTS:
        return TextSource(kind="text", train=name, documents=getattr(recipe.source, "documents", "file"))
    return TsvSource(kind="tsv", train=name, columns=tuple(range(texts_of(recipe.source) + 1)))


def name_of(file: str) -> str:
    """What a file is called in a complaint."""
    return "standard input" if file == "-" else file


class Garbled(str):
    """In place of a line that cannot be read: what is wrong with it."""


def read_lines(file: str) -> Iterator[str]:
    """The lines of a file, plain or packed, or of standard input, one after the other; only a line feed ends a line."""
    for line in each_line(file):
        if isinstance(line, Garbled):
            raise InputError(line)
        yield line


def each_line(file: str) -> Iterator[str]:
    """The same, but a line that is not UTF-8 is `Garbled`, and the others are read; unless it is the first of all."""
    name = name_of(file)
    if " " in file and not os.path.exists(file):  # noqa: PTH110  # a path that is too long is none, and no error
        raise InputError(f"there is no file {name}; a text itself comes by a pipe: echo TEXT | glassformer …")
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else opened(Path(file)) as lines:
            for number, line in enumerate(lines, start=1):
                plain = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                try:
                    yield plain.decode("utf-8").removesuffix("\n").removesuffix("\r")
                except UnicodeDecodeError:
                    if number == 1:
                        raise InputError(f"{name}:{number}: is not UTF-8 text") from None
                    yield Garbled(f"{name}:{number}: is not UTF-8 text")
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror}") from None


def portions(lines: Iterator[Line]) -> Iterator[list[Line]]:
    """Some lines at a time: an input of any length, or without end, gives its first outputs early.

    Where it cannot be read any further, what was read before comes first, and then the complaint.
    """
    broken: InputError | None = None
    while broken is None:
        portion: list[Line] = []
        try:
            for line in islice(lines, PORTION):
                portion.append(line)  # those before an error stay
        except InputError as error:
            broken = error
        if portion:
            yield portion
        elif broken is None:
            return
    raise broken


def tell_cut(rows: list[str], limit: int) -> None:
    """Say that of some lines, by their places, only the beginning was read."""
    if rows:
        others = f" and {len(rows) - 1:,} more" if len(rows) > 1 else ""
        what = f"longer than the {limit:,} tokens that the model reads: what comes after them is left out"
        sys.stderr.write(f"glassformer: {rows[0]}{others}: {what}\n")


def command() -> str:
    """How Glassformer is called here: by its name, or as it was."""
    if shutil.which("glassformer"):
        return "glassformer"
    by_path = Path(sys.argv[0]).name == "glassformer"
    return shlex.quote(sys.argv[0]) if by_path else f"{shlex.quote(sys.executable)} -m glassformer"


def say(line: str) -> None:
    """A line for people, as it is."""
    out.print(line, markup=False, soft_wrap=True)


def quoted(text: str) -> str:
    """A text as a shell takes it; braces are doubled for who puts names into the command."""
    return shlex.quote(text).replace("{", "{{").replace("}", "}}")


def refuse(run: Path | None, options: dict[str, Any]) -> None:
    """Complain of options that only runs have which write."""
    if any(options.values()):
        raise ConfigurationError(f"{run} does not translate: --beam, --int8 and --rouge are for runs that write")


def next_commands(folder: Path, *commands: str) -> None:
    """What to try next with a run."""
    say("Try next:")
    for each in commands:
        say("  " + each.format(command=command(), run=shlex.quote(str(folder))))


def describe(prepared: Prepared, recipe: Recipe, samples: int, as_json: bool) -> None:
    """What a recipe's data is like."""
    facts: dict[str, Any] = {"report": prepared.report.to_dict(), "splits": {}}
    for name, pairs in prepared.splits.items():
        if len(pairs):
            facts["splits"][name] = {"pairs": len(pairs), **_lengths(pairs.lengths)}
    texts = _texts(prepared, recipe)
    facts["unknown"] = _unknown(prepared, recipe)
    facts["tokens_per_word"] = _tokens_per_word(prepared, texts, _written(recipe))
    if as_json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return
    if recipe.title:
        say(recipe.title)
    for line in prepared.report.lines():
        say(line)
    for name, split in facts["splits"].items():
        for side in SIDES:
            row, longest = split[side], split[side]["longest"]
            if longest:  # documents have no targets
                say(f"{name:6} {side}  mean {row['mean']:5.1f} tokens, longest {longest:4}   {row['histogram']}")
    words = facts["tokens_per_word"]
    if words:
        say("tokens per word: " + ", ".join(f"{side} {each:.2f}" for side, each in words.items()))
    for name, shares in facts["unknown"].items():
        said = ", ".join(f"{side} {share:.2%}" for side, share in shares.items())
        say(f"beyond the vocabulary, {name}: {said} of the tokens")
    for pair in texts[:samples]:
        say("  " + "  →  ".join(text if len(text) <= LONG else f"{text[:LONG]}…" for text in pair if text))


def _texts(prepared: Prepared, recipe: Recipe) -> list[tuple[str, str]]:
    """Some pairs: of valid or test, which have their texts, or else what the tokens of train spell."""
    held_out = next(filter(None, map(prepared.held_out, ("valid", "test"))), None)
    if held_out is not None:
        return held_out[:SCORED]
    pairs, source = prepared.splits["train"], prepared.source_tokenizer
    rows = range(min(len(pairs), SCORED))
    return [(source.decode(pairs.source(row)), _target(prepared, recipe, pairs.target(row))) for row in rows]


def _target(prepared: Prepared, recipe: Recipe, ids: Iterable[int]) -> str:
    """What the numbers of a target mean: tokens, or labels; those of places in a text, nothing by themselves."""
    if prepared.labels:
        return " ".join(prepared.labels[number] for number in ids)
    return prepared.target_tokenizer.decode(ids) if "target" in _written(recipe) else ""


def _written(recipe: Recipe) -> tuple[str, ...]:
    """The sides of an example that are text: a label is no word, nor is a place."""
    return SIDES if recipe.task.kind == "translation" else SIDES[:1]


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


def _unknown(prepared: Prepared, recipe: Recipe) -> dict[str, dict[str, float]]:
    """The share of tokens that are unknown, of each split and side, where whole words or letters are the tokens."""
    if recipe.tokenizer.kind not in ("word", "character") or recipe.tokenizer.path or recipe.model.pretrained:
        return {}
    found: dict[str, dict[str, float]] = {}
    for name, pairs in prepared.splits.items():
        for column, side in enumerate(_written(recipe) if len(pairs) else ()):
            unknown, all_of = prepared.tokenizers[column].unknown, int(pairs.lengths[:, column].sum(dtype=np.int64))
            count = sum(int((tokens == unknown).sum()) for _, tokens in pairs.blocks(column))
            found.setdefault(name, {})[side] = count / max(all_of, 1)
    return found


def _tokens_per_word(prepared: Prepared, texts: list[tuple[str, str]], sides: tuple[str, ...]) -> dict[str, float]:
    """How many tokens a word between spaces becomes, on the sides that are text."""
    if not texts:
        return {}
    counts: Counter[str] = Counter()
    for pair in texts:
        for side, text, tokenizer in zip(sides, pair, prepared.tokenizers, strict=False):
            counts[side] += len(tokenizer.encode(text))
            counts[f"{side} words"] += max(1, len(text.split()))
    return {side: counts[side] / counts[f"{side} words"] for side in sides}
