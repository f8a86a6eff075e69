"""Comparing: several recipes on the same data, with the same tokens and seeds, side by side.

    OUT/runs/NAME-seed0/    a run folder for each recipe and seed
    OUT/scores/…json        what each run scores on the held-out examples
    OUT/comparison.json     all of it in numbers; report.html and figure.png are drawn from it

What is there already is used: a comparison that was stopped continues where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import nn

from glassformer.compare.worker import Tell, train_in_process
from glassformer.data import Assets
from glassformer.errors import ConfigurationError, InputError, RunError
from glassformer.evaluation.choosing import drawn
from glassformer.evaluation.judging import Judged, by_length, estimates
from glassformer.files import SETTINGS, regular
from glassformer.recipe import Recipe, base_of, find_recipe, read_recipe, reset_idle_keys, same, with_absolute_paths
from glassformer.recipe.reading import PATHS
from glassformer.runs import folder as files
from glassformer.runs import load
from glassformer.runs.describing import rebuilt
from glassformer.runs.metrics import METRICS, read_metrics
from glassformer.writing import is_trained, write_json

PREPARATION = {"normalise", "strip", "max_characters", "max_ratio", "duplicates", "valid", "test", "seed"}
EXAMPLES = 1000  # held-out examples that are scored, unless said otherwise
TOLERANCE = 0.05  # the fraction of tokens by which a run that had no budget may miss it
PLAIN = (int, float, str, tuple, FunctionType)  # kinds of a part's attributes that say what it is
Train = Callable[[Recipe, Path, bool, Tell], None]


@dataclass(frozen=True)
class Entry:
    """Something to compare: a recipe to train, or a run that is finished."""

    name: str
    recipe: Recipe
    run: Path | None = None


@dataclass(frozen=True)
class Side:
    """One run in a comparison."""

    name: str
    seed: int
    folder: Path
    recipe: Recipe

    def __str__(self) -> str:
        """Its name and seed."""
        return f"{self.name}, seed {self.seed}"


@dataclass(frozen=True)
class Curve:
    """Losses at some steps, and how many tokens and seconds it took to come there."""

    steps: list[float]
    loss: list[float]
    tokens: list[float]
    seconds: list[float]


@dataclass
class Compared:
    """What is known of one run."""

    name: str
    seed: int
    folder: str
    parameters: int
    steps: int
    tokens: int
    seconds: float
    tokens_per_s: float
    memory: int
    loss: float
    loss_of: str  # training or validation
    curves: dict[str, Curve]
    score: float = 0.0
    low: float = 0.0
    high: float = 0.0
    p: float | None = None
    by_length: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class LengthGroup:
    """Examples of similar length: how many words, and how many examples."""

    words: str
    examples: int


@dataclass
class Comparison:
    """The whole comparison in numbers."""

    task: str
    score: str
    better: str
    signature: str
    split: str
    examples: int
    lengths: list[LengthGroup]
    tokens: int
    runs: list[Compared]
    notes: list[str] = field(default_factory=list)


def entries_of(names: Sequence[str], changes: list[str] | None = None) -> list[Entry]:
    """What the arguments of the command mean: recipe files, recipes that ship, run folders. They must go together."""
    if len(names) < 2:
        raise ConfigurationError("a comparison needs two recipes or runs, or more")
    entries = [_entry(name, changes) for name in names]
    taken: dict[str, str] = {}
    for entry, name in zip(entries, names, strict=True):
        if entry.name in taken:
            raise ConfigurationError(f"{taken[entry.name]} and {name} are both called {entry.name}: rename one")
        taken[entry.name] = name
    for other in entries[1:]:
        _check_same(entries[0], other)
    return entries


def _entry(name: str, changes: list[str] | None) -> Entry:
    path = Path(name)
    if path.is_dir():
        found = files.read_run(path)
        if not (path / files.WEIGHTS).is_file():
            raise RunError(
                f"{path} has no {files.WEIGHTS}: its training has not ended; continue it with train --resume"
            )
        return Entry(path.resolve().name, found.recipe, path)
    recipe = find_recipe(name)
    return Entry(recipe.stem, with_absolute_paths(read_recipe(recipe, changes), base_of(recipe)))


def _check_same(one: Entry, other: Entry) -> None:
    """Refuse to compare runs of different tasks or data."""
    if one.recipe.task.kind != other.recipe.task.kind:
        raise ConfigurationError(
            f"{one.name} is for {one.recipe.task.kind}, {other.name} for {other.recipe.task.kind}: "
            "they have no score in common"
        )
    for section, keys in (("source", None), ("data", PREPARATION)):
        first, second = (
            getattr(each.recipe, section).model_dump(include=keys, exclude=PATHS if one.run or other.run else None)
            for each in (one, other)
        )
        for key in dict.fromkeys([*first, *second]):
            if first.get(key) != second.get(key):
                raise ConfigurationError(
                    f"{one.name} and {other.name} have different data: {section}.{key} is {first.get(key)!r} in one, "
                    f"{second.get(key)!r} in the other"
                )


def compare(
    entries: Sequence[Entry],
    out: Path,
    seeds: Sequence[int] = (0,),
    tokens: int | None = None,
    examples: int = EXAMPLES,
    split: str = "test",
    tell: Tell | None = None,
    train: Train = train_in_process,
    device: str = "auto",
) -> Comparison:
    """Train what is not trained yet, score what is not scored yet, and put all into numbers."""
    tell = tell or (lambda stage, done, total: None)
    sides = _trained(entries, out, list(dict.fromkeys(seeds)), tokens, tell, train)
    shared = drawn(_shared(sides, split), examples)
    lengths = [sides[0].recipe.task.words(example) for example in shared]
    groups = {} if None in lengths else by_length([length or 0 for length in lengths])
    judged, runs = [], []
    for number, side in enumerate(sides, start=1):
        title = f"scoring {number} of {len(sides)}: {side}"
        scores, facts = _judged(side, shared, split, out, title, tell, device)
        facts.by_length = [scores.value(rows) for rows in groups.values()]
        judged.append(scores)
        runs.append(facts)
    signature = _estimate(sides, judged, runs)
    result = Comparison(
        task=sides[0].recipe.task.kind,
        score=judged[0].score,
        better=judged[0].better,
        signature=signature,
        split=split,
        examples=len(shared),
        lengths=[LengthGroup(name, len(rows)) for name, rows in groups.items()],
        tokens=tokens or max(runs[0].tokens, 1),
        runs=runs,
    )
    result.notes += _notes(sides, result)
    write_json(out / "comparison.json", asdict(result))
    return result


def _trained(
    entries: Sequence[Entry], out: Path, seeds: list[int], tokens: int | None, tell: Tell, train: Train
) -> list[Side]:
    """All runs, each entry's together. Without a budget, the steps of the very first decide what the others get."""
    sides: list[Side] = []
    jobs = sum(1 if entry.run else len(seeds) for entry in entries)
    for entry in entries:
        if entry.run is not None:
            sides.append(Side(entry.name, entry.recipe.train.seed, entry.run, entry.recipe))
            continue
        for seed in seeds:
            budget = tokens if tokens is not None or not sides else _tokens(sides[0].folder)
            changes = {"seed": seed} | ({} if budget is None else {"tokens": budget, "minutes": None})
            asked = entry.recipe.model_copy(update={"train": entry.recipe.train.model_copy(update=changes)})
            side = Side(entry.name, seed, out / "runs" / f"{entry.name}-seed{seed}", reset_idle_keys(asked))
            _train(side, _titled(tell, f"run {len(sides) + 1} of {jobs}, {side}"), train)
            sides.append(side)
    return sides


def _titled(tell: Tell, title: str) -> Tell:
    return lambda stage, done, total: tell(f"{title}: {stage}", done, total)


def _train(side: Side, tell: Tell, train: Train) -> None:
    """Train a run, or what is left of it; one that is finished stays."""
    begun = is_trained(side.folder)
    if begun:
        before = files.read_run(side.folder).recipe
        sections = [name for name in Recipe.model_fields if name != "title"]
        wrong = [name for name in sections if not same(getattr(before, name), getattr(side.recipe, name))]
        if wrong:
            raise RunError(
                f"{side.folder} was trained with another [{wrong[0]}]: choose another folder with --out, or remove it"
            )
        if (side.folder / files.WEIGHTS).is_file():
            with files.reserved(side.folder):  # which removes what a killed training has left
                return
    try:
        train(side.recipe, side.folder, begun, tell)
    except InputError as error:
        raise InputError(f"{side.name}: {error}") from None


def _shared(sides: Sequence[Side], split: str) -> list[Any]:
    """The held-out examples, which must be the same for all."""
    kept = [_held_out(side, split) for side in sides]
    if not any(kept):
        raise InputError(f"there is nothing to compare on: no run has {split} examples; set data.{split}, or --split")
    for side, each in zip(sides, kept, strict=True):
        if each != kept[0]:
            raise InputError(f"{sides[0].name} and {side.name} cannot be compared: their {split} examples differ")
    first = sides[0]
    run = first.recipe.task.Run(first.recipe, nn.Identity(), Assets(), first.folder)  # its examples need no model
    examples: list[Any] = run.examples(split)
    return examples


def _held_out(side: Side, split: str) -> str:
    path = side.folder / f"{split}.jsonl"
    try:
        return regular(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{path}: cannot be read: {error}") from None


def _judged(
    side: Side, examples: Sequence[Any], split: str, out: Path, title: str, tell: Tell, device: str
) -> tuple[Judged, Compared]:
    """What a run scores on the examples, from a file if it was scored before."""
    path = out / "scores" / f"{side.folder.name}-{split}-{len(examples)}-drawn.json"
    stamp = (side.folder / files.WEIGHTS).stat().st_mtime_ns
    known = _read(path, stamp)
    if known is not None:
        return known
    run = load(side.folder, device)
    judged = run.judge(examples, lambda done, of: tell(title, done, of))
    facts = _facts(side, sum(parameter.numel() for parameter in run.model.parameters()))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"weights": stamp, "judged": asdict(judged), "facts": asdict(facts)})
    return judged, facts


def _read(path: Path, stamp: int) -> tuple[Judged, Compared] | None:
    try:
        table = json.loads(regular(path, SETTINGS).read_text(encoding="utf-8"))
        if table["weights"] != stamp:
            return None
        curves = {name: Curve(**curve) for name, curve in table["facts"]["curves"].items()}
        return Judged(**table["judged"]), Compared(**{**table["facts"], "curves": curves})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # it is scored again


def _facts(side: Side, parameters: int) -> Compared:
    """What a run's own measurements say of it."""
    records = read_metrics(side.folder)
    logs = [each for each in records if each.get("loss") is not None]
    if not logs:
        raise RunError(f"{side.folder} has no measurements in {METRICS}: it cannot be compared")
    validations = [(each["step"], each["valid_loss"]) for each in records if each.get("valid_loss") is not None]
    curves = {"training": _curve([(each["step"], each["loss"]) for each in logs], logs)}
    if validations:
        curves["validation"] = _curve(validations, logs)
    kind = "validation" if validations else "training"
    return Compared(
        name=side.name,
        seed=side.seed,
        folder=str(side.folder),
        parameters=parameters,
        steps=logs[-1]["step"],
        tokens=_tokens(side.folder),
        seconds=logs[-1]["elapsed"],
        tokens_per_s=median(each["tokens_per_s"] for each in logs),
        memory=max(each.get("memory") or 0 for each in logs),
        loss=curves[kind].loss[-1],
        loss_of=kind,
        curves=curves,
    )


def _curve(points: Sequence[tuple[int, float]], logs: Sequence[dict[str, Any]]) -> Curve:
    along, steps = [step for step, _ in points], [each["step"] for each in logs]

    def reached(key: str) -> list[float]:
        found: list[float] = np.interp(along, steps, [each.get(key) or 0 for each in logs]).tolist()
        return found

    return Curve([*along], [loss for _, loss in points], reached("tokens"), reached("elapsed"))


def _tokens(folder: Path) -> int:
    """How many tokens a run was trained on."""
    return max([int(each.get("tokens") or 0) for each in read_metrics(folder)], default=0)


def _estimate(sides: Sequence[Side], judged: Sequence[Judged], runs: list[Compared]) -> str:
    """Give each run its score: those of one seed are tested against the first entry's of that seed, or its only one."""
    names = list(dict.fromkeys(side.name for side in sides))
    rows = {name: [row for row, side in enumerate(sides) if side.name == name] for name in names}
    signature, scored = "", set[int]()
    for turn in range(max(map(len, rows.values()))):
        group = [some[min(turn, len(some) - 1)] for some in rows.values()]
        found, signature = estimates([judged[row] for row in group])
        for row, each in zip(group, found, strict=True):
            if row not in scored:
                scored.add(row)
                runs[row].score, runs[row].low, runs[row].high, runs[row].p = each.value, each.low, each.high, each.p
    return signature


def _notes(sides: Sequence[Side], result: Comparison) -> list[str]:
    """What a reader should know before trusting the numbers."""
    notes = _same_models(sides)
    for side, facts in zip(sides, result.runs, strict=True):
        budgeted = side.recipe.train.tokens == result.tokens  # and then it stopped with the step that reached it
        if not budgeted and abs(facts.tokens - result.tokens) > TOLERANCE * result.tokens:
            notes.append(f"{side}, was trained on {facts.tokens:,} tokens, not on {result.tokens:,}.")
    if any(not same(sides[0].recipe.tokenizer, side.recipe.tokenizer) for side in sides):
        notes.append("The tokenizers differ, so losses are per token of different vocabularies: compare the scores.")
    if not result.lengths:
        notes.append("Images have no length: there is no score by length.")
    return notes


def _same_models(sides: Sequence[Side]) -> list[str]:
    """Say which entries have built the same model: they differ in their training at most."""
    groups: dict[str, list[str]] = {}
    for name, folder in {side.name: side.folder for side in sides}.items():
        groups.setdefault(_anatomy(files.read_run(folder).model), []).append(name)
    return [f"{' and '.join(names)} build the same model." for names in groups.values() if len(names) > 1]


def _anatomy(description: Any) -> str:
    """All parts of a model with their plain attributes and the shapes of their weights; its values are not made."""
    with torch.device("meta"):
        model = rebuilt(description)
    parts = [f"{name} {type(part).__name__} {_attributes(part)}" for name, part in model.named_modules()]
    return str((parts, [(name, tuple(each.shape)) for name, each in model.named_parameters()]))


def _attributes(part: nn.Module) -> list[tuple[str, str]]:
    """Numbers, words and functions that a part holds."""
    found = {key: value for key, value in vars(part).items() if not key.startswith("_")}
    return sorted((key, str(value)) for key, value in found.items() if value is None or isinstance(value, PLAIN))
