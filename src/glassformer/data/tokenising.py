"""Tokenising: texts to flat files of tokens, by several processes at once.

Each worker is a Python of its own (see `main`) that reads a stretch of the texts and
writes the tokens straight to files; so it needs nothing of the program that started it, be that a script or a notebook.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from glassformer.data.encoding import Encode, LabelEncoder, PairEncoder, document_encoder
from glassformer.data.store import Place, read_texts
from glassformer.data.windows import AnswerEncoder, Windows
from glassformer.data.words import TagEncoder, Words
from glassformer.errors import TrainingError
from glassformer.text import Habits, Tokenizer
from glassformer.usual import DOCUMENTS

WORTHWHILE = 50_000  # pairs below which no worker is started


@dataclass(frozen=True)
class Job:
    """A stretch of texts to be tokenised, and the files its tokens go to."""

    folder: str
    name: str  # of the split
    part: int  # the number of the stretch
    places: list[Place]  # where its blocks begin, and where the last ends
    dtype: str
    max_tokens: int
    long: str  # drop, truncate, split
    whole: bool  # keep every pair, also one without tokens
    task: dict[str, Any] = field(default_factory=lambda: {"kind": "translation"})  # the recipe's section
    labels: list[str] = field(default_factory=list)
    habits: dict[str, Any] | None = None  # the special tokens of a checkpoint that writes
    complete: bool = True  # whether the tokenizers' special tokens are ours to add

    def file(self, ending: str) -> Path:
        """The file of this stretch's tokens, lengths or counts."""
        return Path(self.folder) / f"{self.name}.{ending}.{self.part}"


def encoder(job: Job, source: Tokenizer, target: Tokenizer) -> Encode:
    """What makes rows of the job's texts."""
    if job.task["kind"] == "classification":
        return LabelEncoder(source, job.labels, job.max_tokens)
    if job.task["kind"] == "tagging":
        return TagEncoder(Words(source, job.max_tokens), job.labels)
    if job.task["kind"] == "answering":
        windows = Windows(source, job.max_tokens, job.task["stride"], job.task["max_question"])
        return AnswerEncoder(windows, job.task["unanswerable"])
    if job.task["kind"] in DOCUMENTS:
        return document_encoder(job.task["kind"], source, job.max_tokens)
    habits = None if job.habits is None else Habits(**job.habits)
    return PairEncoder(source, target, job.max_tokens, job.long, job.whole, habits)


def work(job: Job, source: Tokenizer, target: Tokenizer, tick: Callable[[int], None]) -> None:
    """Do a job; `tick` hears how many examples of it are done."""
    counts: Counter[str] = Counter()
    folder, done, encode = Path(job.folder), 0, encoder(job, source, target)
    with job.file("tokens").open("wb") as tokens, job.file("lengths").open("wb") as lengths:
        for first, last in pairwise(job.places):
            rows = encode(*read_texts(folder, job.name, first, last))
            lengths.write(rows.lengths.astype(np.int32).tobytes())
            tokens.write(rows.flat.astype(job.dtype).tobytes())
            counts.update(rows.counts)
            done += last[0] - first[0]
            tick(done)
    job.file("counts").write_text(json.dumps(counts), encoding="utf-8")


def tokenise(jobs: list[Job], tokenizers: tuple[Tokenizer, Tokenizer], tick: Callable[[int], None]) -> Counter[str]:
    """Do the jobs of a split, each in a process of its own if there are several; join what they wrote."""
    if len(jobs) == 1:
        work(jobs[0], *tokenizers, tick)
    else:
        _in_processes(jobs, tick)
    counts: Counter[str] = Counter()
    for job in jobs:
        counts.update(json.loads(job.file("counts").read_text(encoding="utf-8")))
        job.file("counts").unlink()
    for ending in ("tokens", "lengths"):
        whole = Path(jobs[0].folder) / f"{jobs[0].name}.{ending}"
        jobs[0].file(ending).rename(whole)
        with whole.open("ab") as file:
            for job in jobs[1:]:
                with job.file(ending).open("rb") as part:
                    while block := part.read(1 << 24):
                        file.write(block)
                job.file(ending).unlink()
    return counts


def _in_processes(jobs: list[Job], tick: Callable[[int], None]) -> None:
    """Start a worker for each job and listen to all of them."""
    workers, heard = list[subprocess.Popen[str]](), SimpleQueue[tuple[int, int | None]]()
    try:
        for number, job in enumerate(jobs):
            workers.append(_start(job))
            threading.Thread(target=_listen, args=(workers[-1], number, heard), daemon=True).start()
        done, ended = [0] * len(jobs), 0
        while ended < len(jobs):
            number, count = heard.get()
            if count is None:
                ended += 1
            else:
                done[number] = count
                tick(sum(done))
        for job, worker in zip(jobs, workers, strict=True):
            if worker.wait():
                raise TrainingError(f"a process that tokenised {job.name} ended with code {worker.returncode}")
            job.file("job").unlink()
    finally:
        for worker in workers:
            worker.kill()  # does nothing to one that has ended
            worker.wait()


def _start(job: Job) -> subprocess.Popen[str]:
    path = job.file("job")
    path.write_text(json.dumps(asdict(job)), encoding="utf-8")
    command = [sys.executable, "-c", f"from {__name__} import main; main({str(path)!r})"]
    search = os.pathsep.join(filter(None, sys.path))
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": search}
    return subprocess.Popen(  # noqa: S603  # our own Python
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=environment
    )


def _listen(worker: subprocess.Popen[str], number: int, heard: SimpleQueue[tuple[int, int | None]]) -> None:
    """Pass on how far a worker is, and that it has ended."""
    if worker.stdout is not None:
        with worker.stdout as lines:
            for line in lines:
                heard.put((number, int(line)))
    heard.put((number, None))


def main(name: str) -> None:
    """Do the job in a file, and write to standard output how far it is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it hears Ctrl-C too, and ends it
    path = Path(name)
    values = json.loads(path.read_text(encoding="utf-8"))
    job = Job(**values | {"places": [(pairs, size) for pairs, size in values["places"]]})
    source = Tokenizer.load(path.parent / "source.json", job.complete)
    other = path.parent / "target.json"
    target = Tokenizer.load(other, job.complete) if other.exists() else source

    def tick(done: int) -> None:
        sys.stdout.write(f"{done}\n")
        sys.stdout.flush()

    try:
        work(job, source, target, tick)
    except OSError as error:
        sys.exit(f"glassformer: {error.filename or path.parent}: {error.strerror}")
