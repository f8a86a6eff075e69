"""Kill -9 at every file operation of prepare, train, resume, import, export, compare; then the same command again.

An undisturbed run of each scenario tells how many operations there are, and what the result must be to the bit. After
a kill, the follow-ups must lead to that result, and leave nothing temporary behind.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from drill.engine import KILLED, Bench, Broken, Case, Outcome
from drill.files import Fault
from drill.world import World, tiny, write_recipe
from glassformer.registry import TASKS

Arguments = tuple[str, ...]
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Scenario:
    """A command that writes, and how to go on after it was interrupted.

    `prepare` makes what is there before; `recover` brings the work to its end; `result` is what must be the same.
    """

    name: str
    arguments: Arguments
    prepare: Callable[[Bench], None]
    recover: Callable[[Bench, Arguments, bool], None]
    result: Callable[[Bench], Any]
    thorough: bool = False
    at_once: str | None = None  # a folder that is there when it is complete, or not at all


def cases(world: World, seed: int, count: int) -> list[Case]:
    """Every operation of every scenario, or some of them."""
    found = [case for scenario in scenarios(world) for case in _of(world, scenario)]
    return found if len(found) <= count else Random(f"{seed}/kills").sample(found, count)


@cache
def undisturbed(scenario: Scenario, root: Path) -> tuple[Outcome, Any]:
    """How a scenario goes without a fault, and its result; tried in a folder at `root`."""
    bench = Bench(root / f"undisturbed-{scenario.name}")
    scenario.prepare(bench)
    outcome = bench.run(*scenario.arguments)
    if outcome.code:
        raise Broken(f"{scenario.name} fails undisturbed: {outcome.last}")
    result = scenario.result(bench)
    shutil.rmtree(bench.root)
    return outcome, result


def _of(world: World, scenario: Scenario) -> list[Case]:
    outcome, expected = undisturbed(scenario, world.root)
    found = []
    for number, operation in enumerate(outcome.operations):
        verb = operation.split()[0]
        kinds = ("kill", "tear") if verb == "write" else ("kill",)
        for kind in kinds:
            fault = Fault(kind, number)  # type: ignore[arg-type]
            # The same command once more first, or what continues it: in turn, and both of the first scenario.
            for again in (False, True) if scenario.thorough else ((number + (kind == "tear")) % 2 == 0,):
                name = f"kills/{scenario.name}/{number}-{kind}-{'again' if again else 'resume'}"
                found.append(Case(name, _attack(scenario, fault, again, expected)))
    return found


def _attack(scenario: Scenario, fault: Fault, again: bool, expected: Any) -> Callable[[Bench], None]:
    def act(bench: Bench) -> None:
        scenario.prepare(bench)
        killed = bench.run(*scenario.arguments, fault=fault)
        if killed.code != KILLED and killed.code != 1:  # 1: a worker was killed, and the command said so
            raise Broken(f"not killed at operation {fault.operation}, but ended with {killed.code}: {killed.last}")
        check_not_half_made(scenario, bench, expected)
        scenario.recover(bench, scenario.arguments, again)
        check_result(scenario, bench, expected)

    return act


def check_not_half_made(scenario: Scenario, bench: Bench, expected: Any) -> None:
    """What is made at once is complete, or not there."""
    if scenario.at_once and (bench.work / scenario.at_once).exists() and scenario.result(bench) != expected:
        raise Broken(f"{scenario.name}: {scenario.at_once} is half made")


def check_result(scenario: Scenario, bench: Bench, expected: Any) -> None:
    """The work has ended as if nothing had happened."""
    found = scenario.result(bench)
    if found != expected:
        wrong = [key for key in expected if found.get(key) != expected[key]] if isinstance(expected, dict) else []
        raise Broken(f"{scenario.name}: another result than undisturbed: {', '.join(map(str, wrong))}")
    bench.check_clean()


@cache
def scenarios(world: World) -> list[Scenario]:
    """All commands that write something."""
    recipes = {task: world.recipe(task) for task in TASKS.names()}
    found = [_training(task, path) for task, path in recipes.items() if task in ("translation", "classification")]
    other = tiny(world, "translation", "recurrent")
    other = {**other, "tokenizer": {"kind": "character", "vocabulary": 60, "joint": False}}
    other["train"] = {**other["train"], "ema": 0.9, "optimiser": "adamw"}
    other["model"] = {**other["model"], "tie_source": False}
    found.append(_training("separate", write_recipe(world.root / "recipes" / "separate.toml", other)))
    tuned = tiny(world, "language-modelling")
    tuned["model"] = {"pretrained": str(world.exported["language-modelling"])}
    tuned = {**tuned, "tune": {"mode": "lora", "rank": 2, "targets": ["query"]}}
    tuned.pop("tokenizer")
    found.append(_training("lora", write_recipe(world.root / "recipes" / "lora.toml", tuned)))
    found.append(_resuming("translation", recipes["translation"]))
    found.append(_extending(world, "separate"))
    found.append(_data(recipes["translation"]))
    exported = world.exported["language-modelling"]
    run = str(world.run("language-modelling"))
    for arguments in (("import", str(exported), "made"), ("export", "--run", run, "made")):
        found.append(_exchange(arguments[0], arguments, _nothing))
        found.append(_exchange(f"{arguments[0]}-over", (*arguments, "--force"), _something_else))
    found.append(_comparison(world))
    found.append(_vectors(world))
    return found


def _nothing(bench: Bench) -> None:
    pass


def _training(name: str, recipe: Path) -> Scenario:
    arguments = ("train", str(recipe), "--out", "run")
    return Scenario(f"train-{name}", arguments, _nothing, _train_or_resume, _trained, name == "translation")


def _resuming(name: str, recipe: Path) -> Scenario:
    """A training that was killed in its middle is resumed, and killed again."""

    def prepare(bench: Bench) -> None:
        stop_at = _operation_after_checkpoint(bench, recipe)
        bench.run("train", recipe, "--out", "run", fault=Fault("kill", stop_at))

    arguments = ("train", str(recipe), "--out", "run", "--resume")
    return Scenario(f"resume-{name}", arguments, prepare, _train_or_resume, _trained)


def _extending(world: World, name: str) -> Scenario:
    """A finished training goes on with more steps, and is killed."""
    recipe = world.root / "recipes" / f"{name}.toml"

    def prepare(bench: Bench) -> None:
        made = bench.run("train", recipe, "--out", "run")
        if made.code:
            raise Broken(f"{made.command} fails undisturbed: {made.last}")

    def recover(bench: Bench, arguments: Arguments, again: bool) -> None:
        for _ in range(2 if again else 1):
            outcome = bench.run(*arguments)
            if outcome.code:
                raise Broken(f"a longer training cannot be resumed: {outcome.last}")

    arguments = ("train", str(recipe), "--out", "run", "--resume", "--set", "train.steps=6")
    return Scenario(f"extend-{name}", arguments, prepare, recover, _trained)


_MIDDLES: dict[Path, int] = {}


def _operation_after_checkpoint(bench: Bench, recipe: Path) -> int:
    """The number of an operation between the first and the second checkpoint."""
    if recipe not in _MIDDLES:
        probe = Bench(bench.root.parent / "probe")
        operations = probe.run("train", recipe, "--out", "run").operations
        shutil.rmtree(probe.root)
        renamed = [n for n, each in enumerate(operations) if each.startswith("replace") and "step-" in each]
        _MIDDLES[recipe] = renamed[0] + 4
    return _MIDDLES[recipe]


def _train_or_resume(bench: Bench, arguments: Arguments, again: bool) -> None:
    """`train` and `train --resume`, in either order: one of them works, and the other says what to do."""
    plain = tuple(word for word in arguments if word != "--resume")
    resume = (*plain, "--resume")
    first, second = (plain, resume) if again else (resume, plain)
    tried = bench.run(*first)
    if tried.code not in (0, 2):
        raise Broken(f"after a kill, {tried.command} fails: {tried.last}", f"fails after a kill: {tried.last[:50]}")
    other = bench.run(*second)
    if tried.code == 0 and other.code != (2 if again is False else 0):
        raise Broken(f"a finished run: {other.command} ends with {other.code}: {other.last}")
    if tried.code == 2 and other.code != 0:
        raise Broken(f"stuck: neither train nor train --resume: {tried.last} / {other.last}", "stuck")


def _trained(bench: Bench) -> dict[str, Any]:
    """The weights and the measurements of a run."""
    run = bench.work / "run"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    measured = [{key: each[key] for key in ("step", "loss") if key in each} for each in lines]
    weights = {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*.safetensors"))}
    kept = {f"{split}.jsonl": (run / f"{split}.jsonl").read_bytes() for split in ("valid", "test")}
    checkpoints = {"checkpoints": sorted(path.name for path in (run / "checkpoints").iterdir())}
    files = [str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()]
    others = {"files": sorted(name for name in files if not name.startswith("tensorboard"))}
    return {**weights, **kept, **checkpoints, **others, "metrics": measured}


def _data(recipe: Path) -> Scenario:
    def recover(bench: Bench, arguments: Arguments, again: bool) -> None:
        for _ in range(2 if again else 1):
            outcome = bench.run(*arguments)
            if outcome.code:
                raise Broken(f"the data cannot be prepared again: {outcome.last}")

    def result(bench: Bench) -> dict[str, Any]:
        (corpus,) = bench.cache.glob("[!.]*")
        return {path.name: path.read_bytes() for path in sorted(corpus.iterdir())}

    return Scenario("data", ("data", str(recipe)), _nothing, recover, result)


def _something_else(bench: Bench) -> None:
    """There is a folder already, and what is in it is to be written over."""
    (bench.work / "made").mkdir()
    for name in ("config.json", "README.md"):
        (bench.work / "made" / name).write_text("{}", encoding="utf-8")


def _exchange(name: str, arguments: Arguments, prepare: Callable[[Bench], None]) -> Scenario:
    """An import or an export: the same command completes it, if need be with --force."""

    def recover(bench: Bench, arguments: Arguments, again: bool) -> None:
        outcome = bench.run(*arguments, *(() if again else ("--force",)))
        if outcome.code == 2 and "--force" in outcome.last:
            outcome = bench.run(*arguments, "--force")
        if outcome.code == 2 and "not empty" in outcome.last and not again:
            return
        if outcome.code:
            raise Broken(f"the {name} cannot be done again: {outcome.last}")

    def result(bench: Bench) -> dict[str, Any]:
        files = [path for path in sorted((bench.work / "made").rglob("[!.]*")) if path.is_file()]
        return {str(path.relative_to(bench.work)): path.read_bytes() for path in files}

    return Scenario(name, arguments, prepare, recover, result, at_once="made" if prepare is _nothing else None)


def _comparison(world: World) -> Scenario:
    second = tiny(world, "translation")
    second["model"] = {**second["model"], "width": 16}
    other = write_recipe(world.root / "recipes" / "wider.toml", second)

    def recover(bench: Bench, arguments: Arguments, again: bool) -> None:
        for _ in range(2 if again else 1):
            outcome = bench.run(*arguments)
            if outcome.code:
                raise Broken(f"the comparison cannot be continued: {outcome.last}", f"compare: {outcome.last[:60]}")

    def result(bench: Bench) -> dict[str, Any]:
        out = bench.work / "out"
        weights = {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.glob(f"runs/*/{WEIGHTS}"))}
        found = json.loads((out / "comparison.json").read_text(encoding="utf-8"))
        scores = [
            [each[key] for key in ("name", "seed", "tokens", "steps", "loss", "score", "p")] for each in found["runs"]
        ]
        return {**weights, "scores": scores, "files": sorted(path.name for path in out.glob("[!.]*"))}

    arguments = ("compare", str(world.recipe("translation")), str(other), "--out", "out", "--examples", "4")
    return Scenario("compare", arguments, _nothing, recover, result)


def _vectors(world: World) -> Scenario:
    def recover(bench: Bench, arguments: Arguments, again: bool) -> None:
        outcome = bench.run(*arguments)
        if outcome.code:
            raise Broken(f"the vectors cannot be trained again: {outcome.last}")

    def result(bench: Bench) -> dict[str, Any]:
        return {path.name: path.read_bytes() for path in bench.work.glob("[!.]*")}

    story = str(world.data / "story.txt")
    arguments = ("vectors", "train", story, "--out", "vectors.txt", "--width", "4", "--epochs", "1", "--least", "1")
    return Scenario("vectors", arguments, _nothing, recover, result)
