"""Batches made ahead, by a thread of their own, while the device computes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import Any

from glassformer.tasks.protocol import Batch
from glassformer.training.protocols import Batches

DEPTH = 24  # batches: to plan an epoch takes as long as some steps


@dataclass(frozen=True)
class Place:
    """Where batches stand."""

    state: dict[str, Any]
    epoch: int
    tokens: int

    @classmethod
    def of(cls, batches: Batches) -> Place:
        """The place after the last batch that was made."""
        return cls(batches.state_dict(), batches.epoch, batches.tokens)


class Ahead(Batches):
    """The batches of others, each changed by `prepare`, made up to `depth` ahead of those that are handed out.

    The place is that of the batches which were handed out: what was made ahead is made again after a resume.
    """

    def __init__(self, batches: Batches, prepare: Callable[[Batch], Batch], depth: int = DEPTH) -> None:
        self._batches, self._prepare, self._depth = batches, prepare, depth
        self._place = Place.of(batches)
        self._stop = threading.Event()
        self._work: threading.Thread | None = None

    @property
    def epoch(self) -> int:
        return self._place.epoch

    @property
    def tokens(self) -> int:
        return self._place.tokens

    def for_rank(self, rank: int, ranks: int) -> Iterator[Batch]:
        stop = self._stop = threading.Event()
        made: Queue[tuple[Batch | None, Place | BaseException]] = Queue(self._depth)
        work = self._work = threading.Thread(
            target=self._make, args=(rank, ranks, made, stop), daemon=True, name="batches"
        )
        work.start()
        try:
            while True:
                try:
                    batch, place = made.get(timeout=0.1)
                except Empty:
                    if stop.is_set():
                        return
                    continue
                if isinstance(place, BaseException):
                    raise place
                if batch is None:
                    return
                self._place = place
                yield batch
        finally:
            stop.set()
            while work.is_alive():
                _take(made)
                work.join(0.01)

    def _make(self, rank: int, ranks: int, made: Queue[Any], stop: threading.Event) -> None:
        try:
            for batch in self._batches.for_rank(rank, ranks):
                if not _put(made, (self._prepare(batch), Place.of(self._batches)), stop):
                    return
            _put(made, (None, self._place), stop)
        except BaseException as error:  # whose turn it is to know waits for a batch
            _put(made, (None, error), stop)

    def state_dict(self) -> dict[str, Any]:
        return self._place.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a place; batches that were made ahead are not handed out any more."""
        self._stop.set()
        if self._work is not None:
            self._work.join()  # it puts nothing more, and must not move on what is loaded now
        self._batches.load_state_dict(state)
        self._place = Place.of(self._batches)


def _put(made: Queue[Any], item: Any, stop: threading.Event) -> bool:
    """Put an item into a queue as soon as there is room, unless nobody waits for it any more."""
    while not stop.is_set():
        try:
            made.put(item, timeout=0.1)
        except Full:
            continue
        return True
    return False


def _take(made: Queue[Any]) -> None:
    try:
        made.get_nowait()
    except Empty:
        return
