"""The runner: chooses the cases, runs each in a place of its own, some at a time, and reports."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from multiprocessing import Value
from pathlib import Path
from random import Random
from typing import Any

from drill.engine import KILLED, Bench, Broken, Case, adopt_orphans, bench
from drill.report import Report, Result
from drill.world import World, build

WHOLE = 10_000  # cases
SHARES = {  # of the cases. An attack with fewer cases than its share leaves the rest to those after it
    "selfcheck": 0.002,
    "kills": 0.18,
    "disk": 0.08,
    "damage": 0.25,
    "surroundings": 0.03,
    "inputs": 0.08,
    "data": 0.1,
    "arguments": 0.13,
    "recipes": 0.148,
}


def chosen(world: World, seed: int, count: int, only: str | None) -> list[Case]:
    """The cases of this drill: each attack's share, those that have only so many cases first."""
    left, weight, found = count, sum(SHARES.values()), list[Case]()
    for name, share in SHARES.items():
        module = import_module(f"drill.attacks.{name}")
        asked = WHOLE if only else round(left * share / weight)
        cases = module.cases(world, seed, asked)
        left, weight = left - len(cases), weight - share
        found += cases
    Random(seed).shuffle(found)  # so that a drill that is stopped has tried some of everything
    return [case for case in found if only is None or case.name == only or case.name.startswith(f"{only}/")]


def run_case(case: Case, home: Path) -> Result:
    """Run a case in a place of its own."""
    started = time.monotonic()
    result = Result(case.name, 0.0)
    with bench(home) as place:
        try:
            case.act(place)
        except Broken as broken:
            result.broken, result.key = str(broken), f"{case.attack}: {broken.key}"
        except Exception as error:
            result.broken = result.key = f"the drill itself: {type(error).__name__}: {error}"
        _count(place, result)
    result.seconds = time.monotonic() - started
    return result


def _count(place: Bench, result: Result) -> None:
    codes = [outcome.code for outcome in place.outcomes]
    result.commands, result.kills = len(codes), codes.count(KILLED)
    result.codes = {str(code): codes.count(code) for code in sorted(set(codes))}
    result.memory = max((outcome.memory for outcome in place.outcomes), default=0)
    result.slowest = max((outcome.seconds for outcome in place.outcomes), default=0.0)
    result.shown = [
        f"{outcome.command}  # {outcome.code}: {outcome.last}"[:800].replace(str(place.root), "…")
        for outcome in place.outcomes
    ]


def in_processes(cases: list[Case], home: Path, jobs: int) -> Iterator[Result]:
    """Run the cases in some processes; each takes the next one when it is free."""
    following: Any = Value("q", 0)
    reads, writes = os.pipe()
    workers = []
    for _ in range(jobs):
        worker = os.fork()
        if worker == 0:
            os.close(reads)
            _work(cases, home, following, writes)
        workers.append(worker)
    os.close(writes)
    try:
        with os.fdopen(reads, encoding="utf-8") as lines:
            for line in lines:
                yield Result(**json.loads(line))
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGTERM)  # it ends after its case, if it has not ended yet
        for worker in workers:
            os.waitpid(worker, 0)


def _work(cases: list[Case], home: Path, following: Any, writes: int) -> None:
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    try:
        while not stopped:
            with following.get_lock():
                number, following.value = following.value, following.value + 1
            if number >= len(cases):
                break
            os.write(writes, (json.dumps(asdict(run_case(cases[number], home))) + "\n").encode())
    finally:
        os._exit(0)


def main() -> None:
    """Run the drill and print its report; exit code 1 if something broke."""
    parser = argparse.ArgumentParser(prog="drill", description="Attack the commands; report what broke.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=WHOLE, help="how many, of all attacks together")
    parser.add_argument("--only", help="a case, or the beginning of the names of some: kills/train")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("--report", type=Path, help="a JSON file to write")
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    options = parser.parse_args()
    adopt_orphans()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    memory = Path("/dev/shm")  # noqa: S108  # a disk in memory: what the cases write is gone in a moment
    home = Path(tempfile.mkdtemp(prefix="drill-", dir=memory if os.access(memory, os.W_OK) else None))
    started = time.monotonic()
    report = Report(options.seed)
    try:
        with contextlib.suppress(KeyboardInterrupt):  # what was found until then is reported
            world = build(home / "world")
            cases = chosen(world, options.seed, options.cases, options.only)
            for result in in_processes(cases, home, options.jobs):
                report.results.append(result)
                if options.only:
                    sys.stderr.write("".join(f"{result.name} $ {line}\n" for line in result.shown))
                if not options.quiet and (result.broken or len(report.results) % 250 == 0):
                    said = f"{result.name}: {result.broken}" if result.broken else ""
                    sys.stderr.write(f"{len(report.results):6,} of {len(cases):,}  {said[:300]}\n")
        report.seconds = time.monotonic() - started
        if options.report is not None:
            report.write(options.report)
        sys.stdout.write("\n".join(report.lines()) + "\n")
    finally:
        shutil.rmtree(home, ignore_errors=True)
    sys.exit(1 if report.broken or not report.results else 0)
