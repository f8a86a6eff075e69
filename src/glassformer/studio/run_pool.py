"""The runs that were named at the start, and no others. Each is loaded when it is first asked for."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.errors import RunError
from glassformer.studio.refusals import Refused
from glassformer.writing import is_run

if TYPE_CHECKING:
    from glassformer.tasks.run import Run

ASSETS = Path(__file__).parents[1] / "assets"  # the models that ship
SHIPPED = "en-de"
OPEN = 3  # runs that are kept in memory
SMALL = 100_000_000  # parameters


class RunPool:
    """The runs that a page may use, by name: the name of a folder or of a model that ships."""

    def __init__(self, runs: Sequence[str | Path] = (), device: str = "auto") -> None:
        self.device = device
        self.folders: dict[str, Path] = {}
        for given in runs or [SHIPPED]:
            folder = _folder_of(Path(given))
            if folder not in self.folders.values():
                self.folders[self._free_name(folder)] = folder
        self._open: OrderedDict[str, Run] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def names(self) -> list[str]:
        """The names of all runs, the first that was given first."""
        return list(self.folders)

    def folder(self, name: str) -> Path:
        """The folder of a run; a name that was not given at the start is refused."""
        if name not in self.folders:
            raise Refused(404, f'there is no run "{name}": this Studio was opened with {", ".join(self.names)}')
        return self.folders[name]

    def run(self, name: str) -> Run:
        """A run, loaded; those that were not used for the longest time are let go."""
        folder = self.folder(name)
        with self._lock:
            if name not in self._open:
                from glassformer.runs import load

                self._open[name] = load(folder, self.device)
            self._open.move_to_end(name)
            _set_threads(self._open[name])
            while len(self._open) > OPEN:
                self._open.popitem(last=False)
            return self._open[name]

    def _free_name(self, folder: Path) -> str:
        """A name that no other run has: that of its folder, with those above it as far as needed."""
        parts = folder.resolve().parts
        for count in range(1, len(parts) + 1):
            name = "/".join(parts[-count:]).strip("/")
            if name not in self.folders:
                return name
        return str(folder)


def _set_threads(run: Run) -> None:
    """Let a small model work in one thread: its steps are so short that threads would mostly wait for each other.

    On a machine with other things to do, two threads took 30 times as long as one for a sentence of the model that
    ships.
    """
    import torch

    size = sum(each.numel() for each in run.model.parameters())
    torch.set_num_threads(1 if size < SMALL else os.cpu_count() or 1)


def _folder_of(given: Path) -> Path:
    """The folder of a run: as it was given, or that of a model that ships."""
    if not given.exists() and len(given.parts) == 1 and is_run(ASSETS / given):
        return ASSETS / given
    if not is_run(given):
        what = "is no run: it has no recipe.toml and config.json" if given.is_dir() else "is not there"
        raise RunError(f"{given} {what}; name the folder that glassformer train has written")
    return given
