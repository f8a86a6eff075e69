"""Tokenising: examples to flat files of rows, by several processes at once.

Each worker is a Python process of its own (see `main`) that reads some blocks of examples and writes rows straight to
files; so it needs nothing of the program that started it, be that a script or a notebook.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from glassformer.data.assets import Assets, read_tokenizers
from glassformer.data.encoding import Context, Encoded
from glassformer.data.store import Block, read_block
from glassformer.errors import TrainingError
from glassformer.recipe import Recipe, make_recipe
from glassformer.text import SpecialTokens

WORTHWHILE = 50_000  # examples below which no worker is started
SIDES = ("source", "target")


@dataclass(frozen=True)
class Job:
    """Some blocks of examples to be encoded, and the files that the rows go to."""

    folder: str
    name: str  # of the split
    part: int  # the number of the job
    blocks: list[Block]  # where its blocks begin, and where the last ends
    dtype: str
    recipe: str  # as TOML
    modules: list[str] = field(default_factory=list)  # whose import makes the recipe's classes known
    labels: list[str] = field(default_factory=list)
    special_tokens: dict[str, Any] | None = None  # of a checkpoint that writes
    complete: bool = True  # whether special tokens that the tokenizers lack are added

    def file(self, ending: str) -> Path:
        """The file of this job's numbers, lengths or counts."""
        return Path(self.folder) / f"{self.name}.{ending}.{self.part}"


def work(job: Job, recipe: Recipe, assets: Assets, tick: Callable[[int], None]) -> None:
    """Do a job; `tick` is called with the number of examples done."""
    counts: Counter[str] = Counter()
    folder, done = Path(job.folder), 0
    training = job.name == "train"
    found = _views(assets, recipe) if training else [assets]
    encoders = [recipe.task.encoder(Context(recipe, each, keep_all=not training)) for each in found]
    with job.file("tokens").open("wb") as tokens, job.file("lengths").open("wb") as lengths:
        for first, last in pairwise(job.blocks):
            examples = read_block(folder, job.name, first, last, recipe.task.Example)
            for view, encode in enumerate(encoders):
                rows = encode([recipe.task.varied(each, view) for each in examples] if training else examples)
                lengths.write(rows.lengths.astype(np.int32).tobytes())
                tokens.write(rows.flat.astype(job.dtype).tobytes())
                counts.update(rows.counts)
                counts.update(unknown_tokens(rows, assets, recipe.task.tokenizers))
                done += len(examples)
                tick(done)
    job.file("counts").write_text(json.dumps(counts), encoding="utf-8")


def unknown_tokens(rows: Encoded, assets: Assets, sides: int) -> Counter[str]:
    """How many tokens the sides of some rows have that are texts, source and target, and how many are unknown."""
    found: Counter[str] = Counter()
    side_of = np.repeat(np.tile((0, 1), len(rows.lengths)), rows.lengths.ravel())
    for side, name, tokenizer in zip(range(sides), SIDES, assets.tokenizers, strict=False):
        tokens = rows.flat[side_of == side]
        found[f"{name} tokens"] = len(tokens)
        found[f"{name} unknown"] = int((tokens == tokenizer.unknown).sum()) if tokenizer.has_unknown else 0
    return found


def _views(assets: Assets, recipe: Recipe) -> list[Assets]:
    """The assets for each view of the training examples: tokenizers that leave out merges draw segmentations."""
    views, rate = recipe.data.views, recipe.tokenizer.dropout
    if not rate:
        return [assets] * views
    drawing = {tokenizer: tokenizer.with_dropout(rate, views) for tokenizer in dict.fromkeys(assets.tokenizers)}
    return [
        replace(assets, tokenizers=tuple(drawing[tokenizer][view] for tokenizer in assets.tokenizers))
        for view in range(views)
    ]


def tokenise(jobs: list[Job], recipe: Recipe, assets: Assets, tick: Callable[[int], None]) -> Counter[str]:
    """Do the jobs of a split, each in a process of its own if there are several; join what they wrote."""
    if len(jobs) == 1:
        work(jobs[0], recipe, assets, tick)
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
    """Do the job in a file, and write to standard output how many examples are done."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one gets Ctrl-C too, and ends it
    path = Path(name)
    values = json.loads(path.read_text(encoding="utf-8"))
    job = Job(**values | {"blocks": [(examples, size) for examples, size in values["blocks"]]})
    for module in job.modules:
        import_module(module)
    special = None if job.special_tokens is None else SpecialTokens(**job.special_tokens)
    assets = Assets(read_tokenizers(path.parent, job.complete), job.labels, special)

    def tick(done: int) -> None:
        sys.stdout.write(f"{done}\n")
        sys.stdout.flush()

    try:
        work(job, make_recipe(tomllib.loads(job.recipe)), assets, tick)
    except OSError as error:
        sys.exit(f"glassformer: {error.filename or path.parent}: {error.strerror}")
