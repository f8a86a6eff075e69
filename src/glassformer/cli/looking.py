"""What `look` does: record, choose a view, and show it in the terminal or write it to a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassformer.cli.choosing import find_run
from glassformer.cli.items import notice
from glassformer.cli.showing import out, say
from glassformer.errors import ConfigurationError, InputError
from glassformer.looking import load_trace, points
from glassformer.looking.exporting import MAPS, PICTURES, POINTED, check_ending, export, title_of
from glassformer.looking.plots import born
from glassformer.looking.plots.choosing import head_of, visible
from glassformer.looking.points import layer_of, tells_numbers
from glassformer.looking.sentences import sentence_of
from glassformer.looking.style import save_and_tell
from glassformer.looking.terminal import born_text
from glassformer.looking.trace import Trace
from glassformer.looking.view import Choice, View
from glassformer.looking.views import VIEWS, fitting, view_of
from glassformer.runs import load
from glassformer.runs.looks import read_looks
from glassformer.runs.shipping import shipped
from glassformer.tasks.showing import one_line
from glassformer.writing import write_text

BEAM = 4  # of a search that is looked at, where the recipe has none
FIRST = ("patches", "attention", "gates")  # what is shown if nothing is named


@dataclass(frozen=True)
class Asked:
    """What was asked for."""

    what: str | None
    layer: int | None
    head: int | None
    kind: str | None
    words: bool | None
    against: str | None
    word: str | None
    instead: str | None
    beam: int | None
    file: Path | None

    def view(self, known: list[str]) -> View:
        """The view that is asked for, or the first of those that there is something for."""
        view = view_of(self.what or next((name for name in FIRST if name in known), known[0] if known else FIRST[1]))
        for option in ("layer", "head", "kind", "against", "word", "instead", "beam"):
            if getattr(self, option) is not None and option not in view.options:
                others = [name for name, each in VIEWS.items() if option in each.options]
                raise ConfigurationError(f"--{option} has no effect on {view.name}: it is for {', '.join(others)}")
        return view

    def choice(self, against: Any = None, image: Any = None) -> Choice:
        """The same, as views take it."""
        words = self.words is not False
        return Choice(self.layer, self.head, self.kind, against, self.word, self.instead, image, out.width, words)

    @property
    def ending(self) -> str:
        """What kind of file is asked for; empty, if none is."""
        return "" if self.file is None else self.file.suffix.lower()

    def keep(self, view: View, names: list[str]) -> list[str] | None:
        """The points to record: everything for a trace of which no view is named, and candidates for a page."""
        if self.what is None and self.ending == ".trace":
            return None
        found = view.keep(names)
        weighs = any(name.endswith(".weights") for name in found)
        return [*found, "logits"] if self.ending == ".html" and weighs and "logits" not in found else found


def show_run(folder: Sequence[Path] | None, text: str, asked: Asked, options: dict[str, Any]) -> None:
    """Record what a run does with a text, and show it."""
    if asked.file is not None:
        check_ending(asked.file)
    if asked.what is not None:
        view_of(asked.what)
    run = load(find_run(folder, "look", or_shipped=True), **options)
    item, names = run.item(text), points(run)
    scored = [name for name in names if name != "logits"] if tells_numbers(run) else names
    known = fitting(scored, run.searches)
    view = asked.view(known)
    if view.name not in known:
        raise InputError(f"{_name(run)} has nothing to show of {view.name}: it has {', '.join(known) or 'nothing'}")
    if run.cuts(item):
        notice(
            f"the text is longer than the {run.recipe.data.max_tokens:,} tokens that the model reads: the rest is cut"
        )
    choice = asked.choice(
        None if asked.against is None else run.item(asked.against), item if run.reads_images else None
    )
    if view.make is not None:
        _show(view, view.make(run, item, choice), choice, asked)
        return
    if asked.file is not None and asked.ending == ".html" and view.name in POINTED:
        page = _studio(run, item, asked)
        if page is not None:
            write_text(asked.file, page)
            say(f"{asked.file} is written.")
            return
    beam = {} if asked.beam is None else {"beam": asked.beam}
    if view.name == "beam" and asked.beam is None and run.recipe.decode.beam == 1:
        beam = {"beam": BEAM}
    found = run.look(item, keep=asked.keep(view, names), **beam)
    _show(view, found, choice, asked)


def _studio(run: Any, text: Any, asked: Asked) -> str | None:
    """The Studio in one file, with what a run does with a text; None, if it was not built, or the text is none."""
    from glassformer.scripts import script
    from glassformer.studio.saving import page_for

    if script("studio") is None or not isinstance(text, str):
        return None
    kind = asked.kind or run.attention_kind
    state = {
        "kind": kind,
        "form": "matrix" if asked.what in MAPS else "lines",
        "reading": "pieces" if asked.words is False else "words",
    }
    if any(each is not None for each in (asked.kind, asked.layer, asked.head)):
        found = head_of(run.look(text, keep="weights"), asked.layer, asked.head, kind, 0)  # refuses what is not there
        state["heads"] = json.dumps({kind: {"layer": layer_of(found.name) or 0, "head": found.head}})
    return page_for(run, _label(run), text, state, {} if asked.beam is None else {"beam": asked.beam})


def _label(run: Any) -> str:
    return "run" if run.path is None else run.path.resolve().name


def show_trace(path: Path, asked: Asked) -> None:
    """Show a trace that was kept."""
    if asked.file is not None:
        check_ending(asked.file)
    found = load_trace(path)
    known = [name for name in fitting(found.names, bool(found.beams)) if VIEWS[name].make is None]
    view = asked.view(known)
    if view.make is not None:
        raise InputError(f"{view.name} works with the model, which a trace does not hold: name a run and a text")
    if view.name not in known:
        raise InputError(f"{path} has nothing to show of {view.name}: it has {', '.join(known) or 'nothing'}")
    _show(view, found, asked.choice(), asked)


def _name(run: Any) -> str:
    """How a sentence calls a run: one that ships by its name, not by where it is installed."""
    if run.path is None:
        return "this run"
    return next((name for name, model in shipped().items() if model.folder == run.path), str(run.path))


def _show(view: View, thing: Any, choice: Choice, asked: Asked) -> None:
    """Show a view in the terminal, or write it."""
    if isinstance(thing, Trace) and asked.ending != ".trace" and asked.words is not False:
        merged = _in_words(thing, view, asked.words is True)
        thing = thing if asked.ending == ".html" else merged  # a page shows both
    if asked.file is None:
        picture = view.text(thing, choice)
        if isinstance(thing, Trace) and (thing.input or thing.output):
            say(" → ".join(visible(one_line(part)) for part in (thing.input, thing.output) if part))
        out.print(picture, soft_wrap=True)
        return
    export(asked.file, view, thing, choice, title_of(thing))
    say(f"{asked.file} is written.")


def _in_words(trace: Trace, view: View, wanted: bool) -> Trace:
    """The trace with whole words, where it knows them and the view can use them."""
    if view.merges and trace.about.words:
        return trace.words()
    if wanted:
        why = f"{view.name} is of tokens" if not view.merges else "it is not known which tokens are words"
        raise InputError(f"there are no words to show: {why}; leave out --words")
    return trace


def show_born(folder: Sequence[Path] | None, text: str | None, asked: Asked) -> None:
    """Show how attention came to be: one head at the steps that were looked at while the run was trained."""
    if asked.file is not None:
        check_ending(asked.file, PICTURES)
    for option in ("what", "layer", "head", "against", "word", "instead", "beam"):
        if getattr(asked, option) is not None:
            raise ConfigurationError(
                f"--{option} has no effect with --born, which shows the head that ends the sharpest"
            )
    place = find_run(folder, "look")
    looks = read_looks(place)
    texts = looks[-1][1].input.split("\n")
    if text is not None and text not in texts:
        raise InputError(f"{place} was looked at with other texts: {' | '.join(texts)}")
    number = texts.index(text) if text is not None else 0
    some = [(step, sentence_of(trace, number)) for step, trace in looks]
    if asked.words is not False:
        some = [(step, trace.words() if trace.about.words else trace) for step, trace in some]
    if asked.file is None:
        picture = born_text(some, asked.kind)
        say(visible(texts[number]))
        out.print(picture, soft_wrap=True)
        return
    save_and_tell(born(some, asked.kind), asked.file)
    say(f"{asked.file} is written.")
