"""Preparing: from a recipe's source to tokens on disk, once; the next time, they are found by what they were made of.

Reading, cleaning and splitting come first and leave texts in a temporary folder; the tokenizer learns from a sample of
them; then all texts are tokenised. Only when everything is written does the folder get its name.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

from glassformer.data import cache as caches
from glassformer.data.reading import Progress, read_all
from glassformer.data.report import Report
from glassformer.data.sources import SPLITS, Split
from glassformer.data.store import Place, TokenPairs, read_texts, write_starts
from glassformer.data.tokenising import WORTHWHILE, Job, tokenise
from glassformer.errors import DataError, TrainingError
from glassformer.recipe import Recipe
from glassformer.text import Habits, Tokenizer
from glassformer.usual import DOCUMENTS

FRAMED = ("classification", "tagging", "answering")  # tasks whose texts are framed by special tokens
LABELS: dict[str, Callable[[str], list[str]]] = {  # what is told apart, by the tasks that do so
    "classification": lambda target: [target],
    "tagging": str.split,
}
DROPPED = {  # what an encoder leaves out, and why
    "drop": "too many tokens",
    "empty": "no tokens",
    "label": "label unseen in training",
    "apart": "answer in no window",
    "unanswerable": "without an answer (task.unanswerable is off)",
}
SAMPLE = "sample.jsonl"
SAMPLED, SAMPLED_LETTERS = 10_000, 5_000  # texts in a sample at most, and letters of each
MOST_LABELS = 50  # beyond which labels that hardly ever repeat are taken for a mistake


@dataclass(frozen=True)
class Prepared:
    """A corpus that is ready to be learned from. With a joint vocabulary, both tokenizers are the same object."""

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    splits: dict[str, TokenPairs]
    report: Report
    checksums: dict[str, list[int]]  # of its files of tokens and texts
    labels: list[str] = field(default_factory=list)  # of texts or of words, in the order of their numbers
    habits: Habits | None = None  # of a checkpoint that writes; None: those of a model that begins here
    sample: Path | None = None  # some of a classification's training texts with their labels, for a baseline
    labels_of: Callable[[str], list[str]] | None = None  # a target, where there are labels

    @property
    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """Those of source and target."""
        return self.source_tokenizer, self.target_tokenizer

    def held_out(self, split: str) -> list[tuple[str, str]]:
        """The texts of valid or test; without those that have a label which is not in training."""
        texts, known = self.splits[split].all_texts(), {*self.labels}
        return [each for each in texts if self.labels_of is None or known.issuperset(self.labels_of(each[1]))]


def prepare(
    recipe: Recipe,
    base: Path,
    cache: Path,
    progress: Progress | None = None,
    given: tuple[Tokenizer, Tokenizer] | None = None,
    habits: Habits | None = None,
) -> Prepared:
    """The recipe's corpus, from the cache if it is there, else made and put there.

    `base` is the folder that the recipe's paths start from; `progress` hears the stage, how many examples are done, and
    of how many if that is known. The tokenizers of source and target may be `given`, by a checkpoint, and
    the `habits` of one that writes.
    """
    if given is not None:
        _suit(given[0], recipe.task.kind)
    try:
        folder = cache / caches.fingerprint(recipe, base, cache, given, habits)
        prepared = _open(folder, recipe, given, habits)
        if prepared is not None:
            return prepared
        tell = progress or (lambda stage, done, total: None)
        caches.fill(cache, folder, lambda making: _make(recipe, base, making, tell, given, habits))
    except OSError as error:
        raise TrainingError(f"{cache}: the prepared data cannot be written: {error.strerror or error}") from None
    prepared = _open(folder, recipe, given, habits)
    if prepared is None:
        raise DataError(f"{folder}: was written but cannot be read back: the disk may be damaged")
    return prepared


def _open(
    folder: Path, recipe: Recipe, given: tuple[Tokenizer, Tokenizer] | None, habits: Habits | None
) -> Prepared | None:
    """The corpus in a folder; None if it is not there or not whole."""
    contents = caches.check(folder)
    if contents is None:
        return None
    source, target = given or _saved(folder)
    splits: dict[str, TokenPairs] = {split: TokenPairs(folder, split, contents["dtype"]) for split in SPLITS}
    checksums = {name: values for name, values in contents["files"].items() if not name.endswith(".json")}
    report = Report.from_dict(contents["report"])
    sample = folder / SAMPLE if SAMPLE in contents["files"] else None
    labels_of = LABELS.get(recipe.task.kind)
    return Prepared(source, target, splits, report, checksums, contents["labels"], habits, sample, labels_of)


def _saved(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    source = Tokenizer.load(folder / "source.json")
    return source, Tokenizer.load(folder / "target.json") if (folder / "target.json").exists() else source


def _make(
    recipe: Recipe,
    base: Path,
    folder: Path,
    progress: Progress,
    given: tuple[Tokenizer, Tokenizer] | None,
    habits: Habits | None,
) -> None:
    report = Report()
    blocks = read_all(recipe, base, folder, report, progress)
    if len(blocks["train"]) < 2:
        raise DataError("the source leaves no pair to train on: " + report.sentence())
    labels = _labels(folder, blocks["train"], LABELS[recipe.task.kind]) if recipe.task.kind in LABELS else []
    tokenizers = given or _tokenizers(recipe, base, folder, blocks["train"], progress)
    _suit(tokenizers[0], recipe.task.kind)
    _save(folder, tokenizers)
    dtype = "uint16" if max(len(labels), *(tokenizer.size for tokenizer in tokenizers)) <= 2**16 else "uint32"
    for split in SPLITS:
        _tokenise(recipe, folder, split, blocks[split], tokenizers, labels, habits, dtype, report, progress)
        write_starts(folder, split)
        report.kept[split] = (folder / f"{split}.starts").stat().st_size // 8
    if not report.kept["train"]:
        raise DataError("the source leaves no pair to train on: " + report.sentence())
    if recipe.task.kind == "classification":
        _keep_sample(folder, blocks["train"])
    for ending in ("text", "sizes"):
        (folder / f"train.{ending}").unlink()
    caches.seal(folder, {"dtype": dtype, "labels": labels, "report": report.to_dict()})


def _keep_sample(folder: Path, blocks: list[Place]) -> None:
    """Keep some training texts, evenly drawn, however large the corpus is: others can be taught with them too."""
    step = -(-blocks[-1][0] // SAMPLED)
    with (folder / SAMPLE).open("w", encoding="utf-8") as file:
        for first, last in pairwise(blocks):
            sources, targets = (side[-first[0] % step :: step] for side in read_texts(folder, "train", first, last))
            for source, target in zip(sources, targets, strict=True):
                row = {"source": source[:SAMPLED_LETTERS], "target": target}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _labels(folder: Path, blocks: list[Place], labels_of: Callable[[str], list[str]]) -> list[str]:
    """The labels that occur in training, sorted; `labels_of` a target are one or several."""
    counts: Counter[str] = Counter()
    for first, last in pairwise(blocks):
        counts.update(label for target in read_texts(folder, "train", first, last)[1] for label in labels_of(target))
    found, total = {*counts}, counts.total()
    one = next(iter(found))
    if len(found) < 2:
        raise DataError(f"there is nothing to tell apart: the only label in training is {one!r}")
    if len(found) > MOST_LABELS and 2 * len(found) > total:
        raise DataError(
            f"{total:,} answers have {len(found):,} different labels, such as {one!r}: is the label in that column?"
        )
    return sorted(found)


def _tokenizers(
    recipe: Recipe, base: Path, folder: Path, blocks: list[Place], progress: Progress
) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of source and target, trained or loaded."""
    section, total = recipe.tokenizer, blocks[-1][0]
    progress("tokenizer", 0, None)
    if section.path is not None:
        source = target = Tokenizer.load(base / section.path)
    else:
        alone = recipe.task.kind in (*FRAMED, *DOCUMENTS)
        sides = (0,) if alone or not section.joint else (0, 1)
        step = max(1, -(-total // section.sample))

        def texts(wanted: tuple[int, ...]) -> Iterator[str]:
            for first, last in pairwise(blocks):
                both = read_texts(folder, "train", first, last)
                for side in wanted:
                    yield from both[side][-first[0] % step :: step]

        source = target = Tokenizer.train(texts(sides), section)
        if not section.joint and not alone:
            target = Tokenizer.train(texts((1,)), section)
    return source, target


def _suit(tokenizer: Tokenizer, task: str) -> None:
    """Give a tokenizer the special tokens that a task needs."""
    if task in FRAMED:
        tokenizer.add_frame()
    elif task == "masked-language-modelling":
        tokenizer.add_mask()
    elif task == "span-corruption":
        tokenizer.add_sentinels()


def _save(folder: Path, tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    source, target = tokenizers
    source.save(folder / "source.json")
    if target is not source:
        target.save(folder / "target.json")


def _tokenise(
    recipe: Recipe,
    folder: Path,
    split: Split,
    blocks: list[Place],
    tokenizers: tuple[Tokenizer, Tokenizer],
    labels: list[str],
    habits: Habits | None,
    dtype: str,
    report: Report,
    progress: Progress,
) -> None:
    """Tokenise a split. Held-out pairs that are too long are truncated for the model, whatever becomes of others."""
    data, total = recipe.data, blocks[-1][0]
    count = 1 if total < WORTHWHILE else min(data.workers or os.cpu_count() or 1, len(blocks) - 1)
    cuts = [(len(blocks) - 1) * i // count for i in range(count + 1)]
    long = data.long if split == "train" else "truncate"
    jobs = [
        Job(
            folder=str(folder),
            name=split,
            part=i,
            places=blocks[cuts[i] : cuts[i + 1] + 1],
            dtype=dtype,
            max_tokens=data.max_tokens,
            long=long,
            whole=split != "train",
            task=recipe.task.model_dump(),
            labels=labels,
            habits=None if habits is None else asdict(habits),
            complete=recipe.model.pretrained is None,
        )
        for i in range(count)
    ]
    counts = tokenise(jobs, tokenizers, lambda done: progress(f"tokenising {split}", done, total))
    for name, kind in (("truncate", "truncated"), ("split", "split")):
        if counts[name]:
            report.changed[kind] += counts[name]
    for name, reason in DROPPED.items():
        if counts[name]:
            report.dropped[reason] += counts[name]
