"""Suggesting: a recipe whose size, vocabulary, dropout, batch and length of training suit the data and the machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from glassformer.data import Corpus
from glassformer.data.examples import texts_in
from glassformer.recipe import make_recipe, with_absolute_paths
from glassformer.recipe.model import section_of
from glassformer.recipe.reading import PATHS, toml_value
from glassformer.registry import SOURCES, TASKS
from glassformer.runs import prepare_corpus
from glassformer.suggest import sizes
from glassformer.suggest.recognising import Recognised
from glassformer.suggest.speed import Speed, measured_speed
from glassformer.training import resolve

Table = dict[str, dict[str, Any]]
Stage = Callable[[str, int, int | None], None]  # what is done, how far it is, of how much
TRAINING = 0.9  # of the time: the rest is for validations and checkpoints
FEWEST, MOST = 100, 500  # examples for validation, and as many for testing
PART, LARGEST_PART = 0.05, 0.1  # of all examples: what is held out between these numbers, and the most
WORDS, TOKENS, GROWTH = 2.3e6, 8_000, 0.4  # running words for which so many tokens are right, and how they grow
VOCABULARIES = 400, 32_000
ON_CPU, ELSEWHERE = (512, 4_096), (2_048, 25_000)  # tokens in a batch
STEPS = 2_000  # that are worth more than larger batches
CHECKS = 12  # validations in a training
WORSE = 1.0  # points after which larger sizes are not tried any more
COMMENTS = {
    "source.columns": "the first column is 0",
    "source.header": "the first line names the columns",
    "data.valid": "split off by content: the same text is never in two splits",
    "tokenizer.vocabulary": "tokens, for so many words",
    "model.width": "the size that gets furthest in the time, by our sweep",
    "model.dropout": "the more often an example is seen, the more helps",
    "train.minutes": "steps are fixed when the speed is measured; steps = 2000 instead sets them",
    "train.schedule": "the learning rate reaches 0 when the time ends",
    "train.patience": "validations without progress, then it stops",
    "train.watch": "the score that tells progress, and the best checkpoint",
}


@dataclass(frozen=True)
class Tried:
    """A size, its speed on this machine, and the score that the sweep came to at that speed."""

    size: str
    speed: Speed
    score: float


@dataclass(frozen=True)
class Suggestion:
    """A recipe, section by section, and what is expected of it."""

    title: str
    table: Table
    corpus: Corpus
    speed: Speed
    tried: list[Tried]

    @property
    def tokens(self) -> int:
        """How many tokens are trained on in the time, about; images are tokens, too."""
        return int(60 * self.table["train"]["minutes"] * TRAINING * self.speed.tokens_per_second)

    @property
    def epochs(self) -> float:
        """How often each training example is seen."""
        return self.tokens / max(1, int(self._rows.lengths.sum()))

    @property
    def examples(self) -> int:
        """How many examples there are to learn from; windows, where these are series."""
        task = self.corpus.recipe.task
        return self.corpus.report.kept["train"] if 0 in task.text_sides() else len(self._rows.lengths)

    @cached_property
    def _rows(self) -> Any:
        recipe = self.corpus.recipe
        if 0 in recipe.task.text_sides():
            return self.corpus.splits["train"]
        return recipe.task.collator(recipe, self.corpus, torch.nn.Identity()).pairs  # images, or windows of series

    @property
    def steps(self) -> int:
        """How many steps fit into the time, about."""
        return max(1, int(self.tokens / self.speed.tokens_per_batch_token / self.table["train"]["batch_tokens"]))

    def expected(self) -> list[str]:
        """What is expected, in sentences."""
        minutes, what = self.table["train"]["minutes"], self.corpus.recipe.task.learned_from
        lines = [f"{minutes:g} minutes on {_machine()}: about {self.steps:,} steps, {self.epochs:.1f} epochs of "]
        lines[0] += f"{self.examples:,} {what}"
        if self.tried:
            speeds = ", ".join(f"{each.size} {each.speed.tokens_per_second:,.0f}" for each in self.tried)
            lines.append(f"tokens a second, as measured here, by the size of the model: {speeds}")
        return lines

    def to_toml(self, folder: Path) -> str:
        """The recipe as a text with comments, whose paths start from a folder."""
        lines = [f"title = {toml_value(self.title)}", "", *(f"# {line}" for line in self.expected())]
        for name, section in self.table.items():
            lines += ["", f"[{name}]"]
            for key, value in section.items():
                shown = _seen_from(folder, value) if name == "source" and key in PATHS else value
                comment = self._comment(f"{name}.{key}", value)
                lines.append(f"{key} = {toml_value(shown)}" + (f"  # {comment}" if comment else ""))
        return "\n".join(lines) + "\n"

    def _comment(self, key: str, value: Any) -> str | None:
        unseeded: str | None = self.corpus.recipe.task.unused.get("data.seed")  # why nothing is split off by chance
        if key == "data.valid" and unseeded:
            return unseeded
        named = key == "source.columns" and any(isinstance(each, str) for each in value)
        unmeasured = key == "model.width" and not self.tried
        return None if named or unmeasured else COMMENTS.get(key)


def suggest(found: Recognised, minutes: float, stage: Stage | None = None) -> Suggestion:
    """A recipe for files that were recognised, to be trained in so many minutes on this machine."""
    tell = stage or (lambda name, done, total: None)
    rows = found.count()
    table = start(found, rows, minutes)
    corpus = prepare_corpus(with_absolute_paths(make_recipe(table), Path.cwd()), tell)
    title, tried = _title(found, rows), list[Tried]()
    if 0 in TASKS[found.task].text_sides():
        tried = _try_sizes(found.task, table, corpus, tell)
        best = max(tried, key=lambda each: each.score)
        made = Suggestion(title, table, corpus, best.speed, tried)
        rate = sizes.dropout(best.size, corpus.report.kept["train"], made.tokens)
        table["model"] = {**_model(found.task, best.size), "dropout": rate}
        table["train"]["batch_tokens"] = batch_tokens(made.tokens)
    else:
        made = Suggestion(title, table, corpus, measured_speed(make_recipe(table), corpus), tried)
    every = rounded(max(10, made.steps // CHECKS))
    table["train"] |= {"warmup": min(400, max(1, made.steps // 20)), "validate_every": every, "save_every": every}
    return made


def _try_sizes(task: str, table: Table, corpus: Corpus, tell: Stage) -> list[Tried]:
    """Measure the speed of models, the smallest first, until they are too slow to come as far as a smaller one."""
    seconds, tried = 60 * table["train"]["minutes"] * TRAINING, list[Tried]()
    known = sizes.known()
    for number, size in enumerate(known):
        tell("measuring the speed", number, len(known))
        recipe = make_recipe({**table, "model": _model(task, size)})
        speed = measured_speed(recipe, corpus)
        score = sizes.expected(size, corpus.report.kept["train"], seconds * speed.tokens_per_second)
        tried.append(Tried(size, speed, score))
        if score < max(each.score for each in tried) - WORSE:
            break
    return tried


def start(found: Recognised, rows: int, minutes: float) -> Table:
    """The sections, as far as they do not depend on the speed."""
    task = TASKS[found.task]
    words = sum(len(text.split()) for row in found.rows for text in texts_in(row)) / len(found.rows)
    part = held_out(rows)
    table: Table = {"task": {"kind": found.task}, "source": dict(found.source), "data": {"valid": part, "test": part}}
    if task.tokenizers:
        table["tokenizer"] = {"vocabulary": vocabulary(rows * words)}
    table["model"] = {"family": _family(found.task)}
    table["train"] = {"minutes": minutes, "batch_tokens": _batches()[1], "optimiser": "muon", "lr": 2e-3}
    table["train"] |= {"schedule": "linear", "patience": 5, "precision": "auto"}
    for name, section in task.suggested.items():
        table[name] = {**table.get(name, {}), **section}
    return table


def held_out(rows: int) -> float:
    """The part of so many examples that validation gets, and testing as well: small corpora need theirs to learn."""
    wanted = min(max(FEWEST, PART * rows), MOST) / rows
    return round(min(LARGEST_PART, max(0.001, wanted)), 4)


def vocabulary(words: float) -> int:
    """The number of tokens for a corpus of so many running words."""
    least, most = VOCABULARIES
    return rounded(min(max(TOKENS * (max(words, 1) / WORDS) ** GROWTH, least), most))


def batch_tokens(tokens: int, limits: tuple[int, int] | None = None) -> int:
    """The size of batches for a training on so many tokens: at least so many steps, rather than large batches."""
    least, most = limits or _batches()
    return rounded(min(max(tokens // STEPS, least), most))


def rounded(value: float) -> int:
    """A number with two digits that are not 0."""
    unit = 10 ** max(0, len(str(int(value))) - 2)
    return max(1, int(round(value / unit) * unit))


def _model(task: str, size: str) -> dict[str, Any]:
    """The section [model] of a size, in the keys that the task's family has."""
    family = _family(task)
    keys = section_of(family, TASKS[task].answer).model_fields
    return {"family": family, **{key: value for key, value in sizes.SIZES[size].items() if key in keys}}


def _family(task: str) -> str:
    return str(TASKS[task].defaults.get("model", {}).get("family", "transformer"))


def _batches() -> tuple[int, int]:
    return ON_CPU if resolve("auto").type == "cpu" else ELSEWHERE


def _title(found: Recognised, rows: int) -> str:
    """What it does, how much there is to learn from, and where."""
    languages = [each for each in found.languages if each is not None]
    translated = len(languages) == 2 and 0 in TASKS[found.task].text_sides()
    what = " → ".join(languages) if translated else found.task.replace("-", " ")
    path = found.source["train" if "train" in found.source else "path"]
    unit, file = SOURCES[found.source["kind"]].unit, Path(path if isinstance(path, str) else path[0]).name
    return f"{what}, {rows:,} {unit} of {file}"


def _seen_from(folder: Path, value: Any) -> Any:
    if not isinstance(value, str):
        return [_seen_from(folder, each) for each in value]
    return os.path.relpath(Path(value).resolve(), folder.resolve())


def _machine() -> str:
    device = resolve("auto")
    return torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} threads of this CPU"
