"""What the drill must find: a traceback, a hang, too much memory, a wrong exit code, something left behind.

Each case breaks the program on purpose, in its own process, and is broken itself if that goes unnoticed.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from drill.engine import MEMORY, Bench, Broken, Case
from drill.world import World
from glassformer.cli import app


def cases(world: World, seed: int, count: int) -> list[Case]:
    """All, or the first ones."""
    faults: dict[str, Callable[[], None]] = {
        "traceback": _fail,
        "hang": _hang,
        "memory": _fill,
        "memory-said": _fill_and_say,
        "abort": os.abort,
        "code": lambda: sys.exit(3),
        "silent": lambda: sys.exit(2),
        "left-behind": _leave,
        "internal": lambda: _say("lib/site-packages/x.py:1: UserWarning: x"),
    }
    return [_case(name, fault) for name, fault in faults.items()][:count]


def _case(name: str, fault: Callable[[], None]) -> Case:
    def act(bench: Bench) -> None:
        def before() -> None:
            app._register_commands = fault

        try:
            bench.run("recipes", before=before, patience=0.5 if fault is _hang else None)
            bench.check_clean()
        except Broken:
            return
        raise Broken(f"{name} would not be found")

    return Case(f"selfcheck/{name}", act)


def _fail() -> None:
    raise ValueError("x")


def _hang() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.monotonic()


def _fill() -> None:
    filled = [bytearray(MEMORY // 4) for _ in range(5)]
    raise AssertionError(len(filled))


def _fill_and_say() -> None:
    raise MemoryError


def _leave() -> None:
    Path(tempfile.mkdtemp()).rmdir()
    Path(".x.1234").touch()


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
