"""Comparing: several recipes on the same data, with the same tokens and seeds, side by side.

    OUT/runs/NAME-seed0/    a run folder for each recipe and seed
    OUT/scores/…json        what each run made of the held-out examples
    OUT/comparison.json     all of it in numbers; report.html and figure.png are drawn from it

What is there already is used: a comparison that was stopped goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from glassformer.errors import ConfigurationError, InputError, RunError
from glassformer.recipe import Recipe
from glassformer.recipes import PATHS, anchored, base_of, find_recipe, read_recipe, same
from glassformer.run import folder as files
from glassformer.run.apart import Told, train_apart
from glassformer.run.judging import Judged, estimates, judge, stretches, value
from glassformer.run.kinds import load
from glassformer.run.telling import read_metrics

PREPARATION = ("normalise", "strip", "max_characters", "max_ratio", "duplicates", "valid", "test", "seed")
EXAMPLES = 1000  # held-out examples that are judged, if nobody says otherwise
NEARLY = 0.05  # tokens, as a share, by which a run that had no budget may miss it
Train = Callable[[Recipe, Path, bool, Told], None]


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


def entries_of(names: Sequence[str], changes: list[str] | None = None) -> list[Entry]:
    """What the words of a command mean: recipe files, recipes that ship, run folders. They must go together."""
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
        files.read_config(path)
        if not (path / files.WEIGHTS).is_file():
            raise RunError(f"{path} has no {files.WEIGHTS}: its training has not ended; go on with train --resume")
        return Entry(path.resolve().name, files.read_run_recipe(path), path)
    found = find_recipe(name)
    return Entry(found.stem, anchored(read_recipe(found, changes), base_of(found)))


def _check_same(one: Entry, other: Entry) -> None:
    """Refuse to compare what has learned different things."""
    if one.recipe.task.kind != other.recipe.task.kind:
        raise ConfigurationError(
            f"{one.name} is for {one.recipe.task.kind}, {other.name} for {other.recipe.task.kind}: "
            "there is no score for both"
        )
    for section, keys in (("source", None), ("data", set(PREPARATION))):
        first, second = (
            getattr(each.recipe, section).model_dump(include=keys, exclude=PATHS if one.run or other.run else None)
            for each in (one, other)
        )
        for key in dict.fromkeys([*first, *second]):
            if first.get(key) != second.get(key):
                raise ConfigurationError(
                    f"{one.name} and {other.name} learn from different data: {section}.{key} is {first.get(key)!r} in "
                    f"one, {second.get(key)!r} in the other"
                )


def compare(
    entries: Sequence[Entry],
    out: Path,
    seeds: Sequence[int] = (0,),
    tokens: int | None = None,
    examples: int = EXAMPLES,
    split: str = "test",
    told: Told | None = None,
    train: Train = train_apart,
    device: str = "auto",
) -> dict[str, Any]:
    """Train what is not trained yet, judge what is not judged yet, and put all into numbers."""
    tell = told or (lambda stage, done, total: None)
    sides = _trained(entries, out, list(dict.fromkeys(seeds)), tokens, tell, train)
    shared = _shared(sides, split)[:examples]
    rows = stretches(shared)
    judged, facts = [], []
    for number, side in enumerate(sides, start=1):
        found = _judged(side, shared, split, out, f"judging {number} of {len(sides)}: {_called(side)}", tell, device)
        judged.append(found.judged)
        facts.append(found.facts)
    references = [target for _, target in shared]
    signature = _estimate(sides, judged, facts, references)
    for each, side_facts in zip(judged, facts, strict=True):
        side_facts["by_length"] = [value(each, references, some) for some in rows.values()]
    result = {
        "task": sides[0].recipe.task.kind,
        "score": judged[0].score,
        "better": judged[0].better,
        "signature": signature,
        "split": split,
        "examples": len(shared),
        "lengths": [{"words": name, "examples": len(some)} for name, some in rows.items()],
        "tokens": tokens or max(facts[0]["tokens"], 1),
        "runs": facts,
    }
    result["notes"] = _notes(sides, result)
    files.write_text(out / "comparison.json", json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    return result


def _trained(
    entries: Sequence[Entry], out: Path, seeds: list[int], tokens: int | None, tell: Told, train: Train
) -> list[Side]:
    """All runs, each entry's together. Without a budget, the first entry's steps decide what the others get."""
    sides: list[Side] = []
    jobs = sum(1 if entry.run else len(seeds) for entry in entries)
    for entry in entries:
        if entry.run is not None:
            sides.append(Side(entry.name, entry.recipe.train.seed, entry.run, entry.recipe))
            continue
        budget = tokens if tokens is not None or not sides or sides[0].name == entry.name else _tokens(sides[0].folder)
        for seed in seeds:
            changes = {"seed": seed} | ({} if budget is None else {"tokens": budget})
            asked = entry.recipe.model_copy(update={"train": entry.recipe.train.model_copy(update=changes)})
            side = Side(entry.name, seed, out / "runs" / f"{entry.name}-seed{seed}", asked)
            title = f"run {len(sides) + 1} of {jobs}, {_called(side)}"
            _train(side, _titled(tell, title), train)
            sides.append(side)
    return sides


def _titled(tell: Told, title: str) -> Told:
    return lambda stage, done, total: tell(f"{title}: {stage}", done, total)


def _train(side: Side, tell: Told, train: Train) -> None:
    """Train a run, or what is left of it; one that is finished stays."""
    begun = (side.folder / files.CONFIG).is_file()
    if begun:
        before = files.read_run_recipe(side.folder)
        wrong = [name for name in Recipe.model_fields if name != "title" and not _alike(before, side.recipe, name)]
        if wrong:
            raise RunError(
                f"{side.folder} was trained with another [{wrong[0]}]: choose another folder with --out, or remove it"
            )
        if (side.folder / files.WEIGHTS).is_file():
            return
    try:
        train(side.recipe, side.folder, begun, tell)
    except InputError as error:
        raise InputError(f"{side.name}: {error}") from None


def _alike(one: Recipe, other: Recipe, section: str) -> bool:
    return same(getattr(one, section), getattr(other, section))


def _shared(sides: Sequence[Side], split: str) -> list[tuple[Any, str]]:
    """The held-out examples, which must be the same for all."""
    kept = [files.read_pairs(side.folder, split) for side in sides]
    if not any(kept):
        raise InputError(f"there is nothing to compare on: no run has {split} examples; set data.{split}, or --split")
    for side, each in zip(sides, kept, strict=True):
        if each != kept[0]:
            raise InputError(f"{sides[0].name} and {side.name} cannot be compared: their {split} examples differ")
    found: list[tuple[Any, str]] = load(sides[0].folder, "cpu").pairs(split)
    return found


@dataclass(frozen=True)
class Found:
    """What is known of a run when it has been judged."""

    judged: Judged
    facts: dict[str, Any]


def _judged(side: Side, examples: Sequence[Any], split: str, out: Path, title: str, tell: Told, device: str) -> Found:
    """What a run makes of the examples, from a file if it was asked before."""
    path = out / "scores" / f"{side.folder.name}-{split}-{len(examples)}.json"
    stamp = (side.folder / files.WEIGHTS).stat().st_mtime_ns
    known = _read(path, stamp)
    if known is not None:
        return known
    run = load(side.folder, device)
    judged = judge(run, examples, lambda done, of: tell(title, done, of))
    facts = _facts(side, sum(parameter.numel() for parameter in run.model.parameters()))
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, json.dumps({"weights": stamp, "judged": asdict(judged), "facts": facts}) + "\n")
    return Found(judged, facts)


def _read(path: Path, stamp: int) -> Found | None:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        return Found(Judged(**table["judged"]), table["facts"]) if table["weights"] == stamp else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # it is judged again


def _facts(side: Side, parameters: int) -> dict[str, Any]:
    """What a run's own measurements say of it."""
    records = read_metrics(side.folder)
    logs = [each for each in records if each.get("loss") is not None]
    if not logs:
        raise RunError(f"{side.folder} has no measurements in {files.METRICS}: it cannot be compared")
    validations = [(each["step"], each["valid_loss"]) for each in records if each.get("valid_loss") is not None]
    curves = {"training": _curve([(each["step"], each["loss"]) for each in logs], logs)}
    if validations:
        curves["validation"] = _curve(validations, logs)
    kind = "validation" if validations else "training"
    return {
        "name": side.name,
        "seed": side.seed,
        "folder": str(side.folder),
        "parameters": parameters,
        "steps": logs[-1]["step"],
        "tokens": _tokens(side.folder),
        "seconds": logs[-1]["elapsed"],
        "tokens_per_s": median(each["tokens_per_s"] for each in logs),
        "memory": max(each.get("memory") or 0 for each in logs),
        "loss": curves[kind]["loss"][-1],
        "loss_of": kind,
        "curves": curves,
    }


def _curve(points: Sequence[tuple[int, float]], logs: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Losses at some steps, and how many tokens and seconds it took to come there, as far as the log tells."""
    along, steps = [step for step, _ in points], [each["step"] for each in logs]

    def reached(key: str) -> list[float]:
        found: list[float] = np.interp(along, steps, [each.get(key) or 0 for each in logs]).tolist()
        return found

    losses = [loss for _, loss in points]
    return {"steps": [*along], "loss": losses, "tokens": reached("tokens"), "seconds": reached("elapsed")}


def _tokens(folder: Path) -> int:
    """How many tokens a run has learned from."""
    return max([int(each.get("tokens") or 0) for each in read_metrics(folder)], default=0)


def _estimate(
    sides: Sequence[Side], judged: Sequence[Judged], facts: list[dict[str, Any]], references: Sequence[str]
) -> str:
    """Give each run its score: those of one seed are tested against the first entry's of that seed, or its only one."""
    names = list(dict.fromkeys(side.name for side in sides))
    rows = {name: [row for row, side in enumerate(sides) if side.name == name] for name in names}
    signature = ""
    for turn in range(max(map(len, rows.values()))):
        group = [some[min(turn, len(some) - 1)] for some in rows.values()]
        found, signature = estimates([judged[row] for row in group], references)
        for row, each in zip(group, found, strict=True):
            if "score" not in facts[row]:
                facts[row] |= {"score": each.value, "low": each.low, "high": each.high, "p": each.p}
    return signature


def _notes(sides: Sequence[Side], result: dict[str, Any]) -> list[str]:
    """What a reader should know before trusting the numbers."""
    notes = []
    for side, facts in zip(sides, result["runs"], strict=True):
        budgeted = side.recipe.train.tokens == result["tokens"]  # and then it stopped with the step that reached it
        if not budgeted and abs(facts["tokens"] - result["tokens"]) > NEARLY * result["tokens"]:
            notes.append(f"{_called(side)}, learned from {facts['tokens']:,} tokens, not from {result['tokens']:,}.")
    if any(not same(sides[0].recipe.tokenizer, side.recipe.tokenizer) for side in sides):
        notes.append("The tokenizers differ, so losses are per token of different vocabularies: compare the scores.")
    if not result["lengths"]:
        notes.append("Images have no length: there is no score by length.")
    return notes


def _called(side: Side) -> str:
    return f"{side.name}, seed {side.seed}"
