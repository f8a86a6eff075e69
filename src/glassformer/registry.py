"""Registries: what there is of a kind (families, tasks, sources, tokenizers), by name.

A thing registers itself when its module is imported. The first look-up imports every module of the room where such
things live, then the things that installed packages offer as entry points. So a package adds a family, a task or a
source without a change to Glassformer:

    [project.entry-points."glassformer.families"]
    retention = "their_package.models:retention"
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import ItemsView
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules
from typing import Any, Generic, TypeVar

from glassformer.errors import ConfigurationError

Thing = TypeVar("Thing")


class Registry(Generic[Thing]):
    """Things of one kind by name: those of a `room` (a package or a module) and those of installed packages.

    `noun` is the word for the kind in messages, `group` the entry points' group.
    """

    def __init__(self, noun: str, room: str, group: str) -> None:
        self.noun, self.room, self.group = noun, room, group
        self._things: dict[str, Thing] = {}
        self._broken: dict[str, str] = {}  # names of entry points that cannot be loaded, each with its message
        self._loaded = self._loading = False
        self._lock = threading.RLock()

    def register(self, name: str, thing: Thing) -> None:
        """Add a thing. The same thing may be added again; another thing under a taken name is refused."""
        if self._things.setdefault(name, thing) is not thing:
            raise ConfigurationError(f'the {self.noun} "{name}" exists already: choose another name')

    def __getitem__(self, name: str) -> Thing:
        self._load()
        if name in self._things:
            return self._things[name]
        if name in self._broken:
            raise ConfigurationError(self._broken[name])
        near = get_close_matches(name, self._things, n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"there are: {', '.join(self.names())}"
        raise ConfigurationError(f'unknown {self.noun} "{name}": {hint}')

    def __contains__(self, name: object) -> bool:
        self._load()
        return name in self._things

    def names(self) -> list[str]:
        """All names, in alphabetical order; entry points that cannot be loaded are left out."""
        self._load()
        return sorted(self._things)

    def items(self) -> ItemsView[str, Thing]:
        """All names with their things, in alphabetical order of the names."""
        return {name: self._things[name] for name in self.names()}.items()

    def _load(self) -> None:
        """Import the room and the entry points, once. While that lasts, look-ups see what is registered so far."""
        with self._lock:  # another thread waits here until all is loaded
            if self._loaded or self._loading:
                return
            self._loading = True
            try:
                room = import_module(self.room)
                for module in iter_modules(getattr(room, "__path__", ()), f"{self.room}."):
                    import_module(module.name)
                for entry in entry_points(group=self.group):
                    self._load_entry(entry)
                self._loaded = True
            finally:
                self._loading = False

    def _load_entry(self, entry: EntryPoint) -> None:
        try:
            self.register(entry.name, entry.load())
        except Exception as error:
            package = entry.dist.name if entry.dist else "an installed package"
            reason = str(error) or type(error).__name__
            message = f'{package}: its {self.noun} "{entry.name}" ({entry.value}) cannot be loaded: {reason}'
            self._broken[entry.name] = message
            warnings.warn(message, stacklevel=2)


FAMILIES: Registry[Any] = Registry("family", "glassformer.models", "glassformer.families")
TASKS: Registry[Any] = Registry("task", "glassformer.tasks", "glassformer.tasks")
SOURCES: Registry[Any] = Registry("source", "glassformer.data.sources", "glassformer.sources")
TOKENIZERS: Registry[Any] = Registry("tokenizer", "glassformer.text.kinds", "glassformer.tokenizers")
