"""Tokenising: texts to flat files of tokens, by several processes at once.

Each worker is a Python of its own (see `main`) that reads a stretch of the texts and
writes the tokens straight to files; so it needs nothing of the program that started it, be that a script or a notebook.

N pairs, P pieces of pairs
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
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from glassformer.data.store import Place, read_texts
from glassformer.errors import TrainingError
from glassformer.text import Tokenizer

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

    def file(self, ending: str) -> Path:
        """The file of this stretch's tokens, lengths or counts."""
        return Path(self.folder) / f"{self.name}.{ending}.{self.part}"


def pieces(lengths: NDArray[np.int64], limit: int, long: str) -> NDArray[np.int64]:
    """Which stretches of which pairs are kept, (P, 5): the pair, then from and to on its source and its target.

    A pair within the limit is one piece; a longer one is none (drop), its beginning (truncate), or several, both sides
    cut in step (split).
    """
    count = len(lengths)
    whole = np.zeros((count, 5), np.int64)
    whole[:, 0], whole[:, 2], whole[:, 4] = np.arange(count), lengths[:, 0], lengths[:, 1]
    if long == "truncate":
        whole[:, [2, 4]] = np.minimum(lengths, limit)
        return whole
    over = (lengths > limit).any(axis=1)
    rows = np.flatnonzero(over).tolist() if long == "split" else []
    found = np.concatenate([whole[~over], *(_steps(row, lengths[row], limit) for row in rows)])
    return found[np.argsort(found[:, 0], kind="stable")]


def _steps(row: int, lengths: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """The pieces of a long pair: as few as will do, equally long."""
    count = -(-int(lengths.max()) // limit)
    cuts = lengths * np.arange(count + 1)[:, None] // count  # (P + 1, 2)
    sides = (cuts[:-1, 0], cuts[1:, 0], cuts[:-1, 1], cuts[1:, 1])
    return np.stack((np.full(count, row), *sides), axis=1)


def stretches(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places start, start + 1, … of each stretch, one stretch after another."""
    ends = np.cumsum(lengths)
    places: NDArray[np.int64] = np.arange(int(lengths.sum())) + np.repeat(starts - (ends - lengths), lengths)
    return places


def encode(tokenizer: Tokenizer, texts: list[str], whole: bool) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The ids of texts end to end, and their counts; if all must be kept, a text without tokens is an unknown one."""
    ids, sizes = tokenizer.encode_flat(texts)
    if whole and not sizes.all():
        ids = np.insert(ids, (np.cumsum(sizes) - sizes)[sizes == 0], tokenizer.unknown)
        sizes = np.maximum(sizes, 1)
    return ids, sizes


def work(job: Job, source: Tokenizer, target: Tokenizer, tick: Callable[[int], None]) -> None:
    """Do a job; `tick` hears how many pairs of it are done."""
    counts: Counter[str] = Counter()
    folder, done = Path(job.folder), 0
    with job.file("tokens").open("wb") as tokens, job.file("lengths").open("wb") as lengths:
        for first, last in pairwise(job.places):
            texts = read_texts(folder, job.name, first, last)
            sides = [encode(each, text, job.whole) for each, text in zip((source, target), texts, strict=True)]
            both = np.stack([sizes for _, sizes in sides], axis=1)  # (N, 2)
            found = pieces(both, job.max_tokens, job.long)
            if over := int((both > job.max_tokens).any(axis=1).sum()):
                counts[job.long] += over
            sizes = found[:, [2, 4]] - found[:, [1, 3]]  # (P, 2)
            full = sizes.all(axis=1)
            if not full.all():
                counts["empty"] += int((~full).sum())
                found, sizes = found[full], sizes[full]
            starts = np.cumsum(both, axis=0)[found[:, 0]] - both[found[:, 0]] + found[:, [1, 3]]  # (P, 2)
            starts[:, 1] += len(sides[0][0])
            flat = np.concatenate([ids for ids, _ in sides])[stretches(starts.ravel(), sizes.ravel())]
            lengths.write(sizes.astype(np.int32).tobytes())
            tokens.write(flat.astype(job.dtype).tobytes())
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
    source = Tokenizer.load(path.parent / "source.json")
    target = Tokenizer.load(path.parent / "target.json") if (path.parent / "target.json").exists() else source

    def tick(done: int) -> None:
        sys.stdout.write(f"{done}\n")
        sys.stdout.flush()

    try:
        work(job, source, target, tick)
    except OSError as error:
        sys.exit(f"glassformer: {error.filename or path.parent}: {error.strerror}")
