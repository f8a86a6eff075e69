"""`glassformer train` as a command, for benchmarks: typed, watched by the lines of its metrics.jsonl, and stopped."""

from __future__ import annotations

import gzip
import itertools
import json
import lzma
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SHOWN = 15  # lines of the output of what failed
Settings = dict[str, Any]
WAYS: dict[str, bool | str] = {"captured": "auto", "compiled": True}  # train.compile, by what it makes of a step
TOY: Settings = {
    "model.width": 32,
    "model.heads": 2,
    "model.layers": 1,
    "model.hidden": 32,
    "train.steps": 12,
    "train.warmup": 4,
    "train.batch_tokens": 256,
    "train.log_every": 2,
    "train.precision": "float32",
    "tokenizer.vocabulary": 300,
    "decode.max_length": 8,
}


class CommandError(Exception):
    """A command ended badly: the end of what it printed."""


@dataclass
class Command:
    """One `glassformer train` under way, with its output in a file."""

    process: subprocess.Popen[bytes]
    folder: Path
    log: Path
    began: float
    first: float | None = None  # seconds until the first line of metrics.jsonl

    @property
    def seconds(self) -> float:
        """Seconds since the command was typed."""
        return time.perf_counter() - self.began

    @property
    def output(self) -> str:
        """All that it has printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def rows(self) -> list[dict[str, Any]]:
        """The measurements of training so far."""
        path = self.folder / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        read = [json.loads(line) for line in lines if line.endswith("\n")]
        return [row for row in read if "tokens_per_s" in row]

    def wait(self, step: int | None = None) -> None:
        """Wait for its end, or for the line of a step, after which it is told to stop."""
        told = False
        while self.process.poll() is None:
            if (not told and step is not None) or self.first is None:
                rows = self.rows()
                if rows and self.first is None:
                    self.first = self.seconds
                if rows and step is not None and rows[-1]["step"] >= step and not told:
                    told = True
                    self.process.send_signal(signal.SIGTERM)
            time.sleep(0.02)
        if self.process.returncode and not told:
            raise CommandError(
                f"exit status {self.process.returncode}\n" + "\n".join(self.output.splitlines()[-SHOWN:])
            )


@dataclass
class Bench:
    """Where data, runs and caches are, and what all commands have in common."""

    data: Path
    work: Path
    device: str
    toy: bool
    vocabulary: int
    changes: list[str]
    ways: Mapping[str, bool | str] = field(default_factory=lambda: WAYS)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def start(
        self,
        recipe: str,
        *settings: Settings,
        into: Path | None = None,
        resume: Path | None = None,
        caches: str = "caches",
    ) -> Command:
        """Type a command; later settings count more than earlier ones, and those of the command line most."""
        given: Settings = {"train.device": self.device}
        for some in (*settings, {**TOY, "model.decoder_layers": None} if self.toy else {}):
            given |= some
        folder = resume or into or self.work / f"run{next(self.numbers)}"
        typed = [sys.executable, "-m", "glassformer", "train", recipe, "--out", str(folder)]
        typed += ["--resume"] if resume is not None else []
        texts = [f"{key}={json.dumps(value)}" for key, value in given.items() if value is not None]
        typed += [part for text in (*texts, *self.changes) for part in ("--set", text)]
        log = folder.with_suffix(".resumed.log" if resume is not None else ".log")
        began = time.perf_counter()
        with log.open("wb") as output:
            process = subprocess.Popen(typed, stdout=output, stderr=output, env=self.environment(caches), cwd=self.work)  # noqa: S603
        return Command(process, folder, log, began)

    def environment(self, caches: str) -> dict[str, str]:
        """With this repository's package, and with everything that is kept between starts in a folder of this name."""
        here = self.work / caches
        paths = [str(ROOT / "src"), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        return os.environ | {
            "PYTHONPATH": os.pathsep.join(str(Path(path).resolve()) for path in paths),
            "GLASSFORMER_CACHE": str(self.work / "prepared"),
            "TORCHINDUCTOR_CACHE_DIR": str(here / "inductor"),
            "TRITON_CACHE_DIR": str(here / "triton"),
            "COLUMNS": "200",
        }


def speed(command: Command, warm: int) -> dict[str, Any]:
    """What the lines of a run say about steps after the first `warm`."""
    rows = command.rows()
    rates, seconds, tokens = [], 0.0, 0.0
    for before, row in itertools.pairwise(rows):
        if row["step"] > warm:
            took = row["elapsed"] - before["elapsed"]
            rates.append(row["tokens_per_s"])
            seconds, tokens = seconds + took, tokens + took * row["tokens_per_s"]
    return {
        "tokens_per_s": round(tokens / seconds) if seconds else None,
        "median": round(statistics.median(rates)) if rates else None,
        "best": round(max(rates)) if rates else None,
        "padding": round(statistics.mean(row["padding"] for row in rows), 4),
        "first_steps": rows[0]["step"],
        "first_steps_s": round(rows[0]["elapsed"], 2),  # since the training began
        "typed_to_first_steps_s": round(command.first or 0.0, 2),
        "steps": rows[-1]["step"],
        "loss": round(rows[-1]["loss"], 4),
        "memory_gb": round(rows[-1]["memory"] / 1e9, 2),
    }


@contextmanager
def folder(kept: Path | None) -> Iterator[Path]:
    """A folder to work in: the one that was named, or one that is removed in the end."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        yield Path(made)


def small(data: Path, place: Path, rows: int = 300) -> Path:
    """The beginning of all files, in another folder."""
    for path in [*data.glob("multi30k/tok.*.gz"), *data.glob("tatoeba-eng-deu/*.xz")]:
        copy = place / "data" / path.relative_to(data)
        copy.parent.mkdir(parents=True, exist_ok=True)
        opened: Any = gzip.open if path.suffix == ".gz" else lzma.open
        with opened(path, "rt", encoding="utf-8") as source, opened(copy, "wt", encoding="utf-8") as target:
            target.writelines(itertools.islice(source, rows))
    return place / "data"
