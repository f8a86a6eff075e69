"""Preparing: from a recipe's source to rows on disk, once; the next time, they are found by what they were made of.

Reading, cleaning and splitting come first and leave examples in a temporary folder; the tokenizer is trained on a
sample of them; then all examples are encoded. Only when everything is written does the folder get its name.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from glassformer.data import cache as caches
from glassformer.data.assets import Assets, read_tokenizers
from glassformer.data.examples import read_examples, to_line
from glassformer.data.reading import Progress, read_all
from glassformer.data.report import Report
from glassformer.data.source import SPLITS, Split
from glassformer.data.store import Block, Rows, read_block, write_starts
from glassformer.data.tokenising import SIDES, WORTHWHILE, Job, tokenise
from glassformer.errors import DataError, TrainingError
from glassformer.recipe import Recipe, to_toml
from glassformer.registry import FAMILIES, TOKENIZERS
from glassformer.text import Tokenizer

DROPPED = {  # what an encoder leaves out, and why; a task may add reasons of its own
    "drop": "too many tokens",
    "empty": "no tokens",
    "label": "label unseen in training",
}
MOST_UNKNOWN = 0.5  # fraction of the training tokens of a side; above it, there is hardly anything to learn
SAMPLE, SAMPLED = "sample.jsonl", 10_000  # a file of training examples for a baseline, and how many at most


@dataclass(frozen=True)
class Corpus:
    """A corpus that is ready for training."""

    recipe: Recipe
    folder: Path
    assets: Assets
    splits: dict[str, Rows]
    report: Report
    checksums: dict[str, list[int]]  # of its files

    def held_out(self, split: str) -> list[Any]:
        """The examples of valid or test that can be scored."""
        task = self.recipe.task
        found: list[Any] = task.scorable(read_examples(self.folder / f"{split}.jsonl", task.Example), self.assets)
        return found

    @property
    def sample(self) -> Path | None:
        """A file of some training examples, if the task asks for one."""
        return self.folder / SAMPLE if (self.folder / SAMPLE).exists() else None


def prepare(
    recipe: Recipe, base: Path, cache: Path, progress: Progress | None = None, given: Assets | None = None
) -> Corpus:
    """The recipe's corpus, from the cache if it is there, else made and put there.

    `base` is the folder that the recipe's paths start from; `progress` is called with the stage, how many examples are
    done, and of how many if that is known. A checkpoint to start from may have `given` tokenizers and special tokens.
    """
    if given is not None:
        recipe.task.add_special_tokens(given.tokenizers[0])
    try:
        folder = cache / caches.fingerprint(recipe, base, cache, given)
        caches.remove_abandoned(cache)
        corpus = _open(folder, recipe, given)
        if corpus is not None:
            return corpus
        tell = progress or (lambda stage, done, total: None)
        caches.fill(cache, folder, lambda making: _make(recipe, base, making, tell, given))
    except OSError as error:
        reason = error.strerror or error
        hint = "set GLASSFORMER_CACHE to another folder"
        raise TrainingError(f"{cache}: the prepared data cannot be written: {reason}; {hint}") from None
    corpus = _open(folder, recipe, given, sealed=True)
    if corpus is None:
        raise DataError(f"{folder}: was written but cannot be read back: the disk may be damaged")
    return corpus


def _open(folder: Path, recipe: Recipe, given: Assets | None, sealed: bool = False) -> Corpus | None:
    """The corpus in a folder; None if it is not there or not whole."""
    contents = caches.check(folder, sealed)
    if contents is None:
        return None
    tokenizers = given.tokenizers if given is not None else read_tokenizers(folder)
    assets = Assets(tokenizers, contents["labels"], given.special_tokens if given is not None else None)
    splits: dict[str, Rows] = {split: Rows.opened(folder, split, contents["dtype"]) for split in SPLITS}
    checksums = {name: values for name, values in contents["files"].items() if not name.endswith(".json")}
    return Corpus(recipe, folder, assets, splits, Report.from_dict(contents["report"]), checksums)


def _make(recipe: Recipe, base: Path, folder: Path, progress: Progress, given: Assets | None) -> None:
    task, report = recipe.task, Report(strict=recipe.data.strict, unit=recipe.source.unit)
    blocks = read_all(recipe, base, folder, report, progress)
    if len(blocks["train"]) < 2:
        raise DataError("the source leaves no example to train on: " + report.sentence())
    labels = task.labels(_examples(folder, blocks["train"], task))
    tokenizers = given.tokenizers if given else _tokenizers(recipe, base, folder, blocks["train"], report, progress)
    for tokenizer in tokenizers[:1]:
        task.add_special_tokens(tokenizer)
    for name, tokenizer in zip(("source.json", "target.json"), dict.fromkeys(tokenizers), strict=False):
        tokenizer.save(folder / name)
    assets = Assets(tokenizers, labels, given.special_tokens if given is not None else None)
    largest = task.largest_number(assets)
    dtype = "uint8" if largest < 2**8 else "uint16" if largest < 2**16 else "uint32"
    for split in SPLITS:
        _encode(recipe, folder, split, blocks[split], assets, dtype, given is not None, report, progress)
        write_starts(folder, split)
        views = recipe.data.views if split == "train" else 1
        report.kept[split] = (folder / f"{split}.starts").stat().st_size // 8 // views
    if not report.kept["train"]:
        raise DataError("the source leaves no example to train on: " + report.sentence())
    _write_sample(recipe, folder, blocks["train"])
    (folder / "train.jsonl").unlink()
    caches.seal(folder, {"dtype": dtype, "labels": labels, "report": report.to_dict()})


def _examples(folder: Path, blocks: list[Block], task: Any) -> Iterator[Any]:
    """All training examples."""
    pairs = (read_block(folder, "train", first, last, task.Example) for first, last in pairwise(blocks))
    return chain.from_iterable(pairs)


def _write_sample(recipe: Recipe, folder: Path, blocks: list[Block]) -> None:
    """Keep some training examples, evenly drawn, if the task asks for them: a baseline is trained on them."""
    step, task = -(-blocks[-1][0] // SAMPLED), recipe.task
    if not task.keeps_sample:
        return
    with (folder / SAMPLE).open("w", encoding="utf-8") as file:
        for first, last in pairwise(blocks):
            some = read_block(folder, "train", first, last, task.Example)[-first[0] % step :: step]
            file.writelines(to_line(task.shortened(example)) for example in some)


def _tokenizers(
    recipe: Recipe, base: Path, folder: Path, blocks: list[Block], report: Report, progress: Progress
) -> tuple[Tokenizer, ...]:
    """The tokenizers of source and target, trained or loaded."""
    section, task = recipe.tokenizer, recipe.task
    if not task.tokenizers:
        return ()
    progress("tokenizer", 0, None)
    if section.path is not None:
        source = target = Tokenizer.load(base / section.path)
        return source, target
    step = max(1, -(-blocks[-1][0] // section.sample))

    def texts(*sides: int) -> Iterator[str]:
        for first, last in pairwise(blocks):
            some = read_block(folder, "train", first, last, task.Example)[-first[0] % step :: step]
            for side in sides:
                yield from chain.from_iterable(task.texts(example, side) for example in some)

    def tell(cuts: int) -> None:
        report.changed["cuts in long words, for the tokenizer to learn from"] += cuts

    if task.tokenizers == 2 and not section.joint:
        return Tokenizer.train(texts(0), section, tell), Tokenizer.train(texts(1), section, tell)
    joint = Tokenizer.train(texts(*range(task.tokenizers)), section, tell)
    return joint, joint


def _encode(
    recipe: Recipe,
    folder: Path,
    split: Split,
    blocks: list[Block],
    assets: Assets,
    dtype: str,
    given: bool,
    report: Report,
    progress: Progress,
) -> None:
    """Encode a split. Held-out texts that are too long are truncated for the model, whatever becomes of others."""
    data, total = recipe.data, blocks[-1][0] * (recipe.data.views if split == "train" else 1)
    alone = total < WORTHWHILE or not recipe.task.tokenizers or "__main__" in _modules(recipe)
    count = 1 if alone else min(data.workers or os.cpu_count() or 1, len(blocks) - 1)
    cuts = [(len(blocks) - 1) * i // count for i in range(count + 1)]
    jobs = [
        Job(
            folder=str(folder),
            name=split,
            part=i,
            blocks=blocks[cuts[i] : cuts[i + 1] + 1],
            dtype=dtype,
            recipe=to_toml(recipe),
            modules=_modules(recipe),
            labels=assets.labels,
            special_tokens=None if assets.special_tokens is None else vars(assets.special_tokens),
            complete=not given,
        )
        for i in range(count)
    ]
    counts = tokenise(jobs, recipe, assets, lambda done: progress(f"encoding {split}", done, total))
    for name, kind in (("truncate", "truncated"), ("split", "split")):
        if counts[name]:
            report.changed[kind] += counts[name]
    for name, reason in {**DROPPED, **recipe.task.left_out}.items():
        if counts[name]:
            report.dropped[reason] += counts[name]
    for side in SIDES[: recipe.task.tokenizers]:
        _count_unknown(recipe, split, side, counts, given, report)


def _count_unknown(recipe: Recipe, split: str, side: str, counts: Counter[str], given: bool, report: Report) -> None:
    """Report the ratio of unknown tokens; refuse to train if most training tokens of a side are unknown."""
    unknown, tokens = counts[f"{side} unknown"], counts[f"{side} tokens"]
    ratio = unknown / max(tokens, 1)
    report.unknown.setdefault(split, {})[side] = ratio
    if split == "train" and ratio > MOST_UNKNOWN:
        remedy = (
            "the tokenizer of model.pretrained was made for other texts: name another checkpoint, or none"
            if given
            else "tokenizer.path names a tokenizer that was made for other texts: leave it out to train one"
            if recipe.tokenizer.path is not None
            else 'raise tokenizer.vocabulary, or set tokenizer.kind = "bpe", which knows every text'
        )
        raise DataError(
            f"{ratio:.1%} of the {side} tokens in training are not in the vocabulary, and at most {MOST_UNKNOWN:.0%} "
            f"may be: {remedy}"
        )


def _modules(recipe: Recipe) -> list[str]:
    """The modules that another process must import to know this recipe's task, source, family and tokenizer."""
    found = {type(recipe.task).__module__, type(recipe.source).__module__}
    if recipe.pretrained is None:
        found |= {FAMILIES[recipe.model.family].__module__, TOKENIZERS[recipe.tokenizer.kind].__module__}
    return sorted(found)
