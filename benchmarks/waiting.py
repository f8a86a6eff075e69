"""Commands alone and beside another program, by how long threads look for work before they sleep.

    python benchmarks/waiting.py --rounds 3            # on a machine with nothing else to do

`glassformer train dates` (150 steps) and `glassformer translate` (600 sentences in 8 bits, with the translator that
ships), each as it is typed: with GNU OpenMP's own 300,000 looks, with the 1,000 that commands set, and with none. The
other program keeps one core busy. The best of the rounds counts, in seconds from typing to the end, with those of the
processor. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from glassformer.cli import SPINS
from peers import processor
from translate_cpu import pairs

COPIES = 4  # of the sentences
LOOKS = {"openmp": 300_000, "commands": SPINS, "none": 0}


@contextmanager
def beside(programs: int) -> Iterator[None]:
    """While programs keep a core busy each."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(programs)]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


def took(typed: list[str], looks: int, folder: Path) -> tuple[float, float]:
    """Seconds from typing a command to its end, and the processor's."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    whole = [sys.executable, "-m", "glassformer", *typed]
    subprocess.run(whole, cwd=folder, env=os.environ | {"GOMP_SPINCOUNT": str(looks)}, check=True, capture_output=True)  # noqa: S603
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    """A line for each command, alone and beside another program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    facts = {"cpu": processor(), "threads": torch.get_num_threads(), "torch": torch.__version__}
    report: dict[str, Any] = {"benchmark": "waiting", "rounds": given.rounds, **facts}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sentences.txt").write_text(
            "".join(f"{source}\n" for source, _ in pairs()) * COPIES, encoding="utf-8"
        )
        steps = ["--set", "train.steps=150", "--set", "train.validate_every=150"]
        commands = {
            "train": ["train", "dates", *steps],
            "translate": ["translate", "--int8", "--file", "sentences.txt"],
        }
        for programs in (0, 1):
            for command, typed in commands.items():
                row: dict[str, list[tuple[float, float]]] = {each: [] for each in LOOKS}
                for turn in range(given.rounds):
                    for way, looks in LOOKS.items():
                        out = ["--out", f"{programs}-{way}-{turn}"] if command == "train" else []
                        with beside(programs):
                            row[way].append(took([*typed, *out], looks, folder))
                best = {way: rounded(*min(some)) for way, some in row.items()}
                report[f"{command}{', beside another' if programs else ''}"] = best
                print(command, "beside another program:" if programs else "alone:", best, flush=True)
    print(json.dumps(report))


def rounded(seconds: float, processor_seconds: float) -> dict[str, float]:
    """Both in tenths, by name."""
    return {"seconds": round(seconds, 1), "processor": round(processor_seconds, 1)}


if __name__ == "__main__":
    main()
