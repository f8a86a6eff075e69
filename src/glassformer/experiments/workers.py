"""Workers: processes that share the trainings of an experiment; what comes out does not depend on how many there are.

Small models keep a processor busy with Python, not with arithmetic, so threads would wait for each other. Every job
runs on one thread of torch and begins with the same random numbers, in a worker or, without workers, right here.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from multiprocessing import active_children, connection, get_context, parent_process, resource_tracker
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import torch

from glassformer.parts.cpu_kernels import by_pytorch
from glassformer.stopping import at_the_end

Result = TypeVar("Result")
ROOM = 2**28  # bytes, for what workers save: some megabytes each


@contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """Random numbers from this seed, one thread of torch, and nothing compiled; afterwards all is as it was."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]), by_pytorch():
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """So many processes, which start with the first job and end with this context, or with this process."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ProcessPoolExecutor | None = None
        self._ends = ExitStack()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ends.close()

    def map(
        self, work: Callable[..., Result], jobs: Sequence[tuple[Any, ...]], seed: int, done: Callable[[int], None]
    ) -> list[Result]:
        """What `work(*job)` returns for each job, in their order; `done` hears how many are finished.

        Function, arguments and results are pickled: `work` stands at the top level of a module.
        """
        pool = self._start()
        with _without_interrupts():  # a worker inherits this: Ctrl-C is for this process
            futures: list[Future[Result]] = [pool.submit(alone, work, job, seed) for job in jobs]
        for number, future in enumerate(as_completed(futures), start=1):
            future.result()
            done(number)
        return [future.result() for future in futures]

    def _start(self) -> ProcessPoolExecutor:
        if self._pool is None:
            others = {*active_children()}
            folder = self._ends.enter_context(tempfile.TemporaryDirectory(dir=_in_memory(), ignore_cleanup_errors=True))
            _start_tracker()
            spawn = get_context("spawn")  # a fork of a process that has computed with torch may hang
            self._pool = pool = ProcessPoolExecutor(self.count, spawn, _begin, (folder,))

            def end() -> None:
                pool.shutdown(wait=False, cancel_futures=True)
                for child in {*active_children()} - others:
                    child.kill()
                    child.join()

            self._ends.enter_context(at_the_end(end))
        return self._pool


def _in_memory() -> str | None:
    """A place for files that no disk has to be waited for, where there is one: each training ends with a checkpoint."""
    shared = Path("/dev/shm")  # noqa: S108
    usable = os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > ROOM
    return str(shared) if usable else None


def _start_tracker() -> None:
    """Start the process that removes the locks of a pool whose process was stopped; it need not tell users of them."""
    before = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (before, "ignore:resource_tracker:UserWarning")))
    try:
        resource_tracker.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


def sendable(given: Result) -> Result:
    """What is given; it fails, as a worker would, if it cannot be sent to one."""
    ForkingPickler.dumps(given)
    return given


def alone(work: Callable[..., Result], job: tuple[Any, ...], seed: int) -> Result:
    """Do a job as if nothing had been done before it."""
    with reproducible(seed):
        return work(*job)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """While this context is open, Ctrl-C waits; where that is not possible (Windows), it does not."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(folder: str) -> None:
    """Of a worker: temporary files go where the parent removes them, and the worker ends with its parent."""
    tempfile.tempdir = folder
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)
