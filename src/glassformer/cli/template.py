"""The template of all commands that read texts: a text in, an answer out, in the same order.

A text that cannot be used gets an error of its own, and the others get their answers. Answers are plain lines, or
objects of JSON:

    {"input": "5 May 2031", "output": "2031-05-05", "error": null, …details of the command}
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from glassformer.cli.app import USE, app
from glassformer.cli.choosing import load_run
from glassformer.cli.items import Item, items_of, notice, notice_cut, notice_files, portions
from glassformer.cli.options import (
    Adapter,
    Checkpoint,
    Device,
    Envelopes,
    MeanName,
    RunFolder,
    RunFolders,
    TextFiles,
    Texts,
)
from glassformer.cli.showing import bar
from glassformer.errors import ConfigurationError, InputError

Checked = TypeVar("Checked")
Answer = TypeVar("Answer")
Progress = Callable[[int, int], None]
Make = Callable[..., "Template[Any, Any]"]


@dataclass(frozen=True)
class Template(Generic[Checked, Answer]):
    """What a command does with texts. `check` makes of a text what is worked with, or raises an InputError."""

    doing: str  # "translating"
    check: Callable[[str], Checked]
    work: Callable[[list[Checked], Progress | None], Sequence[Answer]]
    plain: Callable[[Item, Answer], str]  # the answer as a line
    output: Callable[[Answer], Any]
    details: Callable[[Answer], dict[str, Any]]
    things: str = "texts"
    blank: dict[str, Any] | None = None  # output and details for a text of spaces only; None: it is worked on
    was_cut: Callable[[Answer], bool] = lambda answer: False  # whether only the beginning of the text was read
    limit: int = 0  # how many tokens are read at most
    stream: Callable[[Item, Checked], Iterable[str]] | None = None  # pieces of an answer, if they are printed at once

    def answer(self, items: Iterator[Item], as_json: bool) -> None:
        """Print a line for each item; raise an InputError in the end if some items could not be used."""
        if self.stream is not None and as_json:
            raise ConfigurationError("--stream prints words as they are written: leave out --json")
        asked, failed = self._stream(items, self.stream) if self.stream else self._answer(items, as_json)
        if failed:
            raise InputError(f"{failed:,} of {asked:,} {self.things} could not be used")

    def _answer(self, items: Iterator[Item], as_json: bool) -> tuple[int, int]:
        """Answer a portion of the items at a time; how many there were, and how many could not be used."""
        asked = failed = 0
        for portion in portions(items):
            checked, errors = self._checked(portion)
            asked, failed = asked + len(portion), failed + len(errors)
            if errors and asked == 1 and not as_json:
                raise InputError(errors[0])
            with bar(self.doing, len(checked)) as progress:
                found = self.work(list(checked.values()), progress) if checked else []
            answers = dict(zip(checked, found, strict=True))
            notice_cut([portion[row].place for row, each in answers.items() if self.was_cut(each)], self.limit)
            for row, item in enumerate(portion):
                if row in errors:
                    notice(errors[row])
                if as_json:
                    details = {} if row in errors else self._details(answers[row]) if row in answers else self.blank
                    envelope = {"input": item.text, "output": None, "error": errors.get(row), **(details or {})}
                    sys.stdout.write(json.dumps(envelope, ensure_ascii=False) + "\n")
                else:
                    sys.stdout.write(f"{self.plain(item, answers[row]) if row in answers else ''}\n")
            sys.stdout.flush()
        return asked, failed

    def _stream(self, items: Iterator[Item], pieces: Callable[[Item, Checked], Iterable[str]]) -> tuple[int, int]:
        """Print the pieces of each item's answer as soon as they are there; the same counts."""
        asked = failed = 0
        for item in items:
            asked += 1
            checked, errors = self._checked([item])
            failed += len(errors)
            for error in errors.values():
                notice(error)
            for one in checked.values():
                for piece in pieces(item, one):
                    sys.stdout.write(piece)
                    sys.stdout.flush()
            sys.stdout.write("\n")
        return asked, failed

    def _checked(self, portion: list[Item]) -> tuple[dict[int, Checked], dict[int, str]]:
        """What is worked with, by row, and the errors of other rows; blank ones are in neither."""
        checked: dict[int, Checked] = {}
        errors: dict[int, str] = {}
        for row, item in enumerate(portion):
            try:
                if item.text is None:
                    raise InputError("is not UTF-8 text")
                if self.blank is None or item.text.strip():
                    checked[row] = self.check(item.text)
            except InputError as error:
                errors[row] = f"{item.place}: {error}" if item.place else str(error)
        return checked, errors

    def _details(self, answer: Answer) -> dict[str, Any]:
        return {"output": self.output(answer), **self.details(answer)}


def _shared(
    texts: Texts = None,
    file: TextFiles = None,
    run: RunFolder = None,
    as_json: Envelopes = False,
    adapter: Adapter = None,
    checkpoint: Checkpoint = None,
    device: Device = "auto",
) -> None:
    """The options that all commands have which read texts."""


def _of_several(
    texts: Texts = None,
    file: TextFiles = None,
    run: RunFolders = None,
    as_json: Envelopes = False,
    adapter: Adapter = None,
    checkpoint: Checkpoint = None,
    device: Device = "auto",
    mean: MeanName = None,
) -> None:
    """The same where several runs can do the work together."""


def reads_texts(
    verb: str, name: str | None = None, description: str | None = None, given: Any = Texts, several: bool = False
) -> Callable[[Make], Make]:
    """Register a command that reads texts, under its verb or another name, with its docstring or another description.

    `given` is the argument, for commands whose items are files. The function gets a run that can do what the verb says,
    or an ensemble of `several`, and options of its own. The command takes these options, and those that all such
    commands have.
    """

    def register(make: Make) -> Make:
        shared = inspect.signature(_of_several if several else _shared, eval_str=True).parameters
        own = list(inspect.signature(make, eval_str=True).parameters.values())[1:]  # without the run

        def command(**given: Any) -> None:
            texts, file, run, as_json, *options = (given.pop(option) for option in shared)
            items = items_of(texts, file)
            adapter, checkpoint, device, mean = options if several else [*options, None]
            loaded = load_run(run, verb, device, adapter, checkpoint, mean, several)
            if not loaded.reads_files:
                notice_files(texts)
            make(loaded, **given).answer(items, as_json)

        first, *others = shared.values()
        parameters = [first.replace(annotation=given), *own, *others]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        command.__doc__ = make.__doc__
        app.command(name or verb, help=description, rich_help_panel=USE)(command)
        return make

    return register
