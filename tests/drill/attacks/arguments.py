"""Arguments from the tree of commands: any command, with options drawn by what their help calls their values."""

from __future__ import annotations

import shutil
from random import Random
from typing import Any

import typer

from drill.engine import Bench, Case
from drill.schemas import NUMBERS, STRINGS, WHOLE
from drill.world import World
from glassformer.cli import app as program
from glassformer.experiments import EXPERIMENTS
from glassformer.recipe import bundled
from glassformer.registry import TASKS
from glassformer.tasks.run import Run

PATIENCE = 3.0  # seconds, then SIGTERM: some commands work for minutes
STRANGE = 0.08  # of the values are anything at all


def cases(world: World, seed: int, count: int) -> list[Case]:
    """As many as asked for."""
    commands = _leaves(typer.main.get_command(program.app), [])
    return [_case(world, seed, number, commands) for number in range(count)]


def _leaves(command: Any, path: list[str]) -> list[tuple[list[str], list[Any]]]:
    """All commands with their parameters."""
    inner = getattr(command, "commands", None)
    if inner is None:
        return [(path, list(command.params))]
    return [leaf for name, each in inner.items() for leaf in _leaves(each, [*path, name])]


def _case(world: World, seed: int, number: int, commands: list[tuple[list[str], list[Any]]]) -> Case:
    name = f"arguments/{number}"

    def act(bench: Bench) -> None:
        rng = Random(f"{seed}/{name}")
        path, parameters = rng.choice(commands)
        if path == ["experiment"] and rng.random() < 0.7:  # most of these take minutes
            path, parameters = rng.choice(commands)
        task = rng.choice(_suited(path[-1]) if rng.random() < 0.8 else TASKS.names())
        shutil.copytree(world.run(task), bench.work / "run")
        for file in (world.recipe(task), world.data / "pairs.tsv", world.data / "vectors.txt"):
            shutil.copy(file, bench.work / file.name)
        (bench.work / "loop").symlink_to("loop")
        arguments = [*path, *_arguments(world, task, parameters, rng)]
        if rng.random() < 0.03:
            arguments.insert(rng.randrange(len(arguments) + 1), rng.choice(("--nothing", "-h", "--version", "--", "x")))
        stdin = rng.choice((b"", b"a b c\n", b"the cat sat\n\n\xff\n", b"[MASK] a <extra_id_0>\n"))
        bench.run(*arguments, stdin=stdin, patience=PATIENCE, may_need_memory=True)
        bench.check_clean()

    return Case(name, act)


def _suited(verb: str) -> list[str]:
    """The tasks whose runs do what a command says; all, if it is no matter of the task."""
    verb = "translate" if verb == "transform" else verb
    found = [name for name, task in TASKS.items() if getattr(task.Run, verb, None) is not getattr(Run, verb, None)]
    return found or TASKS.names()


def _arguments(world: World, task: str, parameters: list[Any], rng: Random) -> list[str]:
    """Values for the arguments of a command, and for some of its options."""
    found: list[str] = []
    for each in parameters:
        option = each.opts[0].startswith("-")
        likely = 0.9 if each.name == "run" else 0.1 if each.name == "file" else 0.25
        if each.name == "help" or (option and not each.required and rng.random() > likely):
            continue
        if not option and not each.required and rng.random() < 0.3:
            continue
        seldom = 0.1 if each.name == "run" else 0.33  # several runs: an ensemble, or refused
        count = 1 + (rng.random() < seldom) if each.multiple else rng.choice((1, 2, 3)) if each.nargs == -1 else 1
        for _ in range(count):
            words = [] if getattr(each, "is_flag", False) else [_value(world, task, each, rng)]
            found += [rng.choice(each.opts), *words] if option else words
    if rng.random() < 0.02:
        rng.shuffle(found)
    return [word.replace("\x00", "") for word in found]  # which no argument can hold


def _value(world: World, task: str, parameter: Any, rng: Random) -> str:
    """A value for an option, by the word for it in the help."""
    if rng.random() < STRANGE:
        return rng.choice(STRINGS)
    files = ["pairs.tsv", "vectors.txt", f"{task}.toml", "run", "loop", "nothing", "new", ".", "-", "run/config.json"]
    checkpoints = [str(path) for path in world.exported.values()]
    match parameter.metavar:
        case "N":
            return str(rng.choice(WHOLE) if rng.random() < 0.3 else rng.randint(1, 9))
        case "X":
            return str(rng.choice(NUMBERS) if rng.random() < 0.5 else rng.random())
        case "N,N,…":
            return rng.choice(("0", "0,1", "", ",", "1,", "-1", "x", "0,0", "1e3", str(2**64), "0," * 50 + "0"))
        case "RECIPE":
            return rng.choice((f"{task}.toml", f"{task}.toml", *bundled(), *files))
        case "RECIPE|RUN":
            return rng.choice((f"{task}.toml", "run", "run", *files))
        case "KEY=VALUE":
            return _change(rng)
        case "DIR" if parameter.name == "run":
            return "run" if rng.random() < 0.85 else rng.choice((*files, *checkpoints))
        case "DIR" | "OUT":
            return rng.choice(("new", "new/deep/er", *files, ""))
        case "SOURCE":
            return rng.choice((*checkpoints, *checkpoints, "run", "org/name", "package:nothing", *files))
        case "FILE" | "VECTORS":
            return rng.choice(files)
        case "NAME" if parameter.name == "name":
            return rng.choice([*EXPERIMENTS, "nothing"])
        case "NAME":
            return rng.choice(
                ("cpu", "auto", "valid", "test", "ours", "gensim", "cuda", "mps", "meta", "train", "log-probabilities")
            )
        case _:
            return rng.choice(
                ("a b c", "the [MASK] sat", "a <extra_id_0> b", "vowel", "who sat ? | the cat", "a", *STRINGS)
            )


def _change(rng: Random) -> str:
    key = rng.choice(
        ("train.steps", "train.seed", "model.width", "decode.beam", "task.kind", "x.y", "train", "", "a.b.c")
    )
    value = rng.choice(("2", "0", "-1", "1e9", "nan", "[]", "{}", "", '"', "1\nz=2", "true", str(2**63), "x"))
    return f"{key}{rng.choice(('=', '=', '=', ' = ', '==', ''))}{value}"
