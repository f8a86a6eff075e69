"""Surroundings: losses that are not finite, two resumes at once, a clock that jumps, a home that cannot be written to,
other locales, signals at any moment, a reader that goes away.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any

import torch

from drill.attacks.kills import Scenario, scenarios, undisturbed
from drill.engine import Bench, Broken, Case
from drill.files import Fault
from drill.world import World

LOCALES = ({"LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {"LC_ALL": "C.UTF-8", "COLUMNS": "1"})


def cases(world: World, seed: int, count: int) -> list[Case]:
    """All kinds, again and again with other numbers."""
    trainings = [each for each in scenarios(world) if each.name in ("train-translation", "train-separate")]
    weights = [undisturbed(each, world.root)[1]["model.safetensors"] for each in trainings]
    kinds: list[Callable[[World, Random, Bench, Scenario, bytes], None]] = [
        _not_finite,
        _clock,
        _signal,
        _home,
        _at_once,
    ]
    found = []
    for number in range(count):
        kind = kinds[number % len(kinds)] if number % 40 else _locale
        which = number // len(kinds) % len(trainings)  # the second has averages of weights
        found.append(_case(world, seed, number, kind, trainings[which], weights[which]))
    return found


def _case(world: World, seed: int, number: int, kind: Callable[..., None], training: Scenario, weights: bytes) -> Case:
    name = f"surroundings/{kind.__name__.strip('_').replace('_', '-')}/{number}"
    return Case(name, lambda bench: kind(world, Random(f"{seed}/{name}"), bench, training, weights))


def _check(bench: Bench, weights: bytes) -> None:
    if (bench.work / "run" / "model.safetensors").read_bytes() != weights:
        raise Broken("other weights than undisturbed")
    bench.check_clean()


def _not_finite(world: World, rng: Random, bench: Bench, training: Scenario, weights: bytes) -> None:
    """Some losses are NaN or infinite; the weights that come of it are not."""
    bad = {number for number in range(8) if rng.random() < rng.choice((0.3, 1.0))}
    value, count = rng.choice((float("nan"), float("inf"), -float("inf"))), iter(range(1_000))
    backward: Any = torch.Tensor.backward

    def spoiled(loss: torch.Tensor, *args: object, **options: object) -> None:
        backward(loss * value if next(count) in bad else loss, *args, **options)

    def before() -> None:
        torch.Tensor.backward = spoiled  # type: ignore[assignment, method-assign]

    outcome = bench.run(*training.arguments, "--set", f"train.max_bad_steps={rng.choice((1, 2, 10))}", before=before)
    bench.check_clean()
    if outcome.code == 0:
        from safetensors.torch import load_file

        kept = load_file(bench.work / "run" / "model.safetensors")
        if not all(bool(tensor.isfinite().all()) for tensor in kept.values()):
            raise Broken("weights that are not finite, exit code 0")


def _clock(world: World, rng: Random, bench: Bench, training: Scenario, weights: bytes) -> None:
    """The clock jumps by years, forwards and backwards."""
    jumps = [rng.choice((-1e9, -3600.0, 0.0, 3600.0, 1e9)) for _ in range(10)]
    now = time.time

    def before() -> None:
        count = iter(range(10**9))
        time.time = lambda: max(now() + jumps[next(count) % len(jumps)], 1.0)

    bench.run(*training.arguments, before=before)
    _check(bench, weights)


def _signal(world: World, rng: Random, bench: Bench, training: Scenario, weights: bytes) -> None:
    """SIGTERM or Ctrl-C at any moment; then it is resumed, or begun again."""
    number, after = rng.choice((signal.SIGTERM, signal.SIGINT)), rng.random() * 0.5

    def before() -> None:
        main, used = os.getpid(), time.process_time()

        def send() -> None:
            while time.process_time() - used < after:
                time.sleep(0.002)
            os.kill(main, number)

        threading.Thread(target=send, daemon=True).start()

    stopped = bench.run(*training.arguments, before=before, judged=False)
    if stopped.code not in (0, 128 + number) or "Traceback" in stopped.err:
        raise Broken(
            f"{number.name}: exit code {stopped.code}: {stopped.last}", f"{number.name}: exit code {stopped.code}"
        )
    bench.check_clean()
    training.recover(bench, training.arguments, rng.random() < 0.5)
    _check(bench, weights)


def _home(world: World, rng: Random, bench: Bench, training: Scenario, weights: bytes) -> None:
    """The home, the cache or the folder of temporary files cannot be written to, or is not there."""
    nowhere = rng.choice(("/proc/nothing", "/dev/null/x", str(world.data / "pairs.tsv"), "/nothing/at/all"))
    names = rng.choice((("HOME",), ("HOME", "XDG_CACHE_HOME"), ("GLASSFORMER_CACHE",), ("TMPDIR",), ("MPLCONFIGDIR",)))
    shutil.copytree(world.run("translation"), bench.work / "other")
    used = bench.run("translate", "--run", "other", "a b", environment=dict.fromkeys(names, nowhere))
    if used.code:
        raise Broken(f"a run cannot be used where {names[0]} is {nowhere}: {used.last}", f"use without {names[0]}")
    outcome = bench.run(*training.arguments, environment=dict.fromkeys(names, nowhere))
    bench.check_clean()
    if outcome.code == 0:
        _check(bench, weights)


def _at_once(world: World, rng: Random, bench: Bench, training: Scenario, weights: bytes) -> None:
    """A training twice at once, or the resumption of one that was killed: one works, the other is refused."""
    arguments, wait = training.arguments, rng.random() * 0.3
    if rng.random() < 0.5:
        bench.run(*arguments, fault=Fault("kill", rng.randrange(80, 180)))
        arguments = (*arguments, *(["--resume"] if (bench.work / "run" / "recipe.toml").exists() else []))

    def before() -> None:
        second = os.fork()
        if second == 0:
            time.sleep(wait)

    outcome = bench.run(*arguments, before=before, judged=False)
    if "Traceback" in outcome.err or outcome.code not in (0, 2):
        raise Broken(f"two at once: {outcome.code}: {outcome.err[-300:]}", "two at once")
    _check(bench, weights)


def _locale(world: World, rng: Random, bench: Bench, training: Scenario, weights: bytes) -> None:
    """Another locale, in a process of its own: it is read when Python starts."""
    environment = {**os.environ, **rng.choice(LOCALES), "GLASSFORMER_CACHE": str(bench.cache)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-m", "glassformer", "translate", "--run", str(world.run("translation"))]
    answers = [
        subprocess.run([*command, *more], input=given, capture_output=True, env=environment, timeout=120, check=False)  # noqa: S603
        for more, given in (([], "é b\n".encode()), (["é b"], b""))
    ]
    for answer in answers:
        if answer.returncode or b"Traceback" in answer.stderr:
            raise Broken(f"{rng.choice(LOCALES)}: {answer.returncode}: {answer.stderr[-300:].decode(errors='replace')}")
    if answers[0].stdout != answers[1].stdout:
        raise Broken("an argument and a line of the same text have other answers")
