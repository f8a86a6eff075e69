"""Damage: every file of a run and of a checkpoint is truncated, flipped, emptied, replaced; then it is used.

A damaged file is refused with a sentence, or it does not matter. Weights of a run are never used with flipped bits;
text that people may edit (recipes, JSON) may be used as it says, if it says something that can be done.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from drill.engine import Bench, Broken, Case, Outcome
from drill.world import World

Damage = Callable[[Path, Random], None]
VERBS: dict[str, tuple[str, ...]] = {  # how each run is used, and with what
    "translation": ("translate", "a b c"),
    "classification": ("classify", "a b c"),
    "tagging": ("tag", "a b c"),
    "language-modelling": ("generate", "The cat", "--length", "5"),
    "masked-language-modelling": ("fill", "The [MASK] sat"),
    "span-corruption": ("fill", "The <extra_id_0> sat"),
    "answering": ("answer", "who sat ?", "--context", "context.txt"),
}
IMPORTED = {**VERBS, "span-corruption": VERBS["translation"]}  # no checkpoint of a T5 says that it mends texts
DAMAGED = ("translation", "classification", "language-modelling", "images", "answering")
OTHER_VALUES: tuple[Any, ...] = (None, 0, -1, 2**63, 1.5, float("nan"), "", "x", True, [], {}, [0], {"x": 0})
FLIPS = 6
PATIENCE = 10.0


def cases(world: World, seed: int, count: int) -> list[Case]:
    """Every file, every kind of damage, every use; or some of them."""
    found = [*_of_runs(world, seed), *_of_checkpoints(world, seed)]
    return found if len(found) <= count else Random(f"{seed}/damage").sample(found, count)


def _of_runs(world: World, seed: int) -> Iterator[Case]:
    for task in DAMAGED:
        run = world.run(task)
        for path in sorted(each for each in run.rglob("*") if each.is_file() and "tfevents" not in each.name):
            name = str(path.relative_to(run))
            uses = _uses(world, task, name)
            for kind, damage in _damages(path):
                for use in uses:
                    yield _run_case(world, task, name, kind, damage, use, seed)


def _uses(world: World, task: str, name: str) -> list[str]:
    """The commands that read a file of a run."""
    if name.startswith("checkpoints"):
        return ["resume"]
    if name.endswith((".png", ".txt", ".html")):
        return ["resume", "evaluate"]
    if name in ("environment.json", "metrics.jsonl", "valid.jsonl", "test.jsonl", "sample.jsonl", "data.json"):
        return ["evaluate", "resume", "report"]
    return ["evaluate", "resume", "export", *(["use"] if task in VERBS else [])]


def _run_case(world: World, task: str, name: str, kind: str, damage: Damage, use: str, seed: int) -> Case:
    full = f"damage/{task}/{name.replace('/', ':')}-{kind}-{use}"

    def act(bench: Bench) -> None:
        run = shutil.copytree(world.run(task), bench.work / "run")
        (bench.work / "context.txt").write_text("The cat sat on the mat.", encoding="utf-8")
        command = {
            "evaluate": ("evaluate", "--run", "run", "--json"),
            "resume": ("train", str(world.recipe(task)), "--out", "run", "--resume"),
            "export": ("export", "--run", "run", "made"),
            "report": ("report", "--run", "run"),
            "use": (*VERBS.get(task, ()), "--run", "run"),
        }[use]
        binary = name == "model.safetensors" and kind.startswith("flip") and use in ("evaluate", "use")
        expected = bench.run(*command) if binary else None
        damage(run / name, Random(f"{seed}/{full}"))
        outcome = bench.run(*command, patience=PATIENCE, may_need_memory=True)
        if expected is not None and outcome.code == 0:
            raise Broken(f"{kind} in {name}: used without a word", "flipped bits in the weights are not noticed")
        if expected is not None and "nan" in outcome.out.lower():
            raise Broken(f"not a number in the answer: {outcome.out[:100]}")
        if outcome.code == 2 and use == "export" and (bench.work / "made").exists():
            raise Broken("a refused export leaves a folder")
        if use == "resume" and outcome.code == 0:
            _check_weights(world.run(task), run, outcome)
        if (use == "resume" and outcome.code == 0) or outcome.code == 2:
            bench.check_clean()

    return Case(full, act)


def _check_weights(whole: Path, run: Path, outcome: Outcome) -> None:
    """A run that was resumed has the weights that it had, unless a damaged checkpoint was named."""
    if (
        "is damaged" not in outcome.err
        and (run / "model.safetensors").read_bytes() != (whole / "model.safetensors").read_bytes()
    ):
        raise Broken(f"resumed to other weights: {outcome.last}", "resumed to other weights")


def _of_checkpoints(world: World, seed: int) -> Iterator[Case]:
    for task, folder in world.exported.items():
        if task not in VERBS:
            continue
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            name = str(path.relative_to(folder))
            for kind, damage in _damages(path):
                yield _checkpoint_case(folder, task, name, kind, damage, seed)


def _checkpoint_case(folder: Path, task: str, name: str, kind: str, damage: Damage, seed: int) -> Case:
    full = f"damage/{task}-checkpoint/{name}-{kind}"

    def act(bench: Bench) -> None:
        copy = shutil.copytree(folder, bench.work / "checkpoint")
        damage(copy / name, Random(f"{seed}/{full}"))
        (bench.work / "context.txt").write_text("The cat sat on the mat.", encoding="utf-8")
        outcome = bench.run("import", "checkpoint", "run", patience=PATIENCE, may_need_memory=True)
        if outcome.code and (bench.work / "run").exists():
            raise Broken(f"a refused import leaves a folder: {outcome.last}", "a refused import leaves a folder")
        bench.check_clean()
        if outcome.code == 0:
            used = bench.run(*IMPORTED[task], "--run", "run", patience=PATIENCE, may_need_memory=True)
            if used.code and kind in ("emptied", "half", "other"):
                raise Broken(f"imported, but of no use: {used.last}", f"imported, but of no use: {used.last[-60:]}")

    return Case(full, act)


def _damages(path: Path) -> Iterator[tuple[str, Damage]]:
    """What can be done to a file, by name."""
    yield "emptied", _rewrite(lambda data, rng: b"")
    yield "half", _rewrite(lambda data, rng: data[: len(data) // 2])
    yield "shorter", _rewrite(lambda data, rng: data[: -rng.randint(1, 20)])
    yield "longer", _rewrite(lambda data, rng: data + rng.randbytes(100))
    yield "noise", _rewrite(lambda data, rng: rng.randbytes(500))
    yield "zeros", _rewrite(lambda data, rng: bytes(len(data)))
    yield "gone", lambda file, rng: file.unlink()
    yield "folder", _folder
    yield "loop", _loop
    yield "pipe", _pipe
    yield "utf16", _rewrite(lambda data, rng: data.decode(errors="replace").encode("utf-16"))
    for number in range(FLIPS):
        yield f"flip{number}", _flip
    if path.suffix in (".json", ".toml"):
        yield "huge", _huge
    if path.suffix == ".json":
        for number, (place, _) in enumerate(_places(json.loads(path.read_text(encoding="utf-8")))):
            if number < 60:
                yield f"value{number}", _changing(place)
    if path.suffix == ".toml":
        for number in range(15):
            yield f"line{number}", _drop_line
    if path.suffix in (".json", ".jsonl", ".toml"):
        for number, text in enumerate(("{}", "[]", "null", "[[[[", '"x"', "{" * 100_000, "[" * 100_000)):
            yield f"other{number}", _rewrite(lambda data, rng, text=text: text.encode())  # type: ignore[misc]


def _rewrite(change: Callable[[bytes, Random], bytes]) -> Damage:
    """Other bytes in place of a file's."""

    def damage(file: Path, rng: Random) -> None:
        file.write_bytes(change(file.read_bytes(), rng))

    return damage


def _folder(file: Path, rng: Random) -> None:
    file.unlink()
    file.mkdir()


def _loop(file: Path, rng: Random) -> None:
    file.unlink()
    file.symlink_to(file.name)


def _pipe(file: Path, rng: Random) -> None:
    file.unlink()
    os.mkfifo(file)


def _huge(file: Path, rng: Random) -> None:
    """A terabyte of zeros after what it holds, which takes no room on the disk."""
    with file.open("ab") as opened:
        opened.truncate(1 << 40)


def _flip(file: Path, rng: Random) -> None:
    """One bit, in the last half of the file if it is binary, where the numbers are."""
    data = bytearray(file.read_bytes())
    if data:
        first = len(data) // 2 if file.suffix == ".safetensors" else 0
        data[rng.randrange(first, len(data))] ^= 1 << rng.randrange(8)
        file.write_bytes(data)


def _drop_line(file: Path, rng: Random) -> None:
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[rng.randrange(len(lines))] = rng.choice(("", "x = \n", "[train]\n", 'kind = "x"\n', "width = -1\n"))
    file.write_text("".join(lines), encoding="utf-8")


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every place in nested JSON; of long lists, the first entries."""
    yield place, value
    inside = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for number, (key, each) in enumerate(inside):
        if number < 12:
            yield from _places(each, (*place, key))


def _changing(place: tuple[Any, ...]) -> Damage:
    """Another value at a place of a JSON file, or none."""

    def damage(file: Path, rng: Random) -> None:
        root = json.loads(file.read_text(encoding="utf-8"))
        if not place:
            root = rng.choice(OTHER_VALUES)
        else:
            inside = root
            for key in place[:-1]:
                inside = inside[key]
            if rng.random() < 0.2:
                del inside[place[-1]]
            else:
                inside[place[-1]] = rng.choice(OTHER_VALUES)
        file.write_text(json.dumps(root), encoding="utf-8")

    return damage
