"""What is looked at, as files: pictures, a page, a table of numbers, or the trace itself, by the end of the name."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from glassformer.errors import ConfigurationError, InputError
from glassformer.looking import page as pages
from glassformer.looking.interactive import part
from glassformer.looking.packing import First
from glassformer.looking.plots.choosing import kind_of
from glassformer.looking.style import save_and_tell
from glassformer.looking.trace import Trace
from glassformer.looking.view import Choice, View
from glassformer.looking.views import VIEWS
from glassformer.scripts import script
from glassformer.writing import write_text

PICTURES = (".png", ".svg", ".pdf")
ENDINGS = (*PICTURES, ".html", ".csv", ".trace")
LONGEST = 80  # letters of a title
MAPS = ("attention", "heads")  # views that the interactive one opens as a matrix
POINTED = (*MAPS, "lines", "alignment")  # views that the interactive one takes the place of


def check_ending(path: Path, endings: tuple[str, ...] = ENDINGS) -> None:
    """Refuse a file of a kind that cannot be written."""
    if path.suffix.lower() not in endings:
        raise ConfigurationError(f"{path}: what it is to hold is told by its end, which is one of {', '.join(endings)}")


def export(path: Path, view: View, thing: Any, choice: Choice, title: str = "") -> None:
    """Write what a view shows of a trace, or of what the view has made."""
    ending = path.suffix.lower()
    if ending in PICTURES:
        save_and_tell(view.draw(thing, choice), path)
    elif ending == ".csv":
        write_text(path, table(view, thing, choice))
    elif ending == ".html":
        write_text(path, page(view, thing, choice, title))
    elif isinstance(thing, Trace):
        thing.save(path)
    else:
        raise InputError(f"{view.name} is no trace that could be kept: write it as .csv, .html or a picture")


def table(view: View, thing: Any, choice: Choice) -> str:
    """The numbers of a view as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(view.rows(thing, choice))
    return text.getvalue()


def page(view: View, thing: Any, choice: Choice, title: str) -> str:
    """A page that needs no network and no other file: the chosen view, and all heads to point at.

    Where the scripts were not built, small maps of all heads take the place of what can be pointed at.
    """
    code = script("page") if isinstance(thing, Trace) and thing.kinds else None
    parts = _parts(view, thing, choice) if code is None else _interactive(view, thing, choice)
    return pages.page(title or "A look inside", parts, [] if code is None else [code])


def title_of(thing: Any) -> str:
    """The text that is looked at, or its beginning; empty, if it is not known."""
    text = thing.input if isinstance(thing, Trace) else ""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 2].rstrip()} …"


def save_page(trace: Trace, path: Path) -> Path:
    """Write a trace as a page, and give its path."""
    kind_of(trace, None)  # which refuses a trace without attention
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {path.parent}")
    write_text(path, page(VIEWS["lines"], trace, Choice(), title_of(trace)))
    return path


def _interactive(view: View, trace: Trace, choice: Choice) -> Iterator[str]:
    if view.name not in POINTED:
        yield _figure(view, _shown(view, trace, choice), choice)
    yield part(trace, First(choice.kind, choice.layer, choice.head, view.name in MAPS, choice.words))


def _parts(view: View, thing: Any, choice: Choice) -> Iterator[str]:
    if isinstance(thing, Trace) and (thing.input or thing.output):
        texts = (f'<bdi dir="auto">{escape(text)}</bdi>' for text in (thing.input, thing.output) if text)
        yield f"<p>{' → '.join(texts)}</p>"
    yield _figure(view, _shown(view, thing, choice), choice)
    if isinstance(thing, Trace):
        heads = VIEWS["heads"]
        for kind in thing.kinds if view is not heads else ():
            chosen = Choice(kind=kind, words=choice.words)
            yield _figure(heads, _shown(heads, thing, chosen), chosen, f"heads-{kind.replace('.', '-')}")


def _shown(view: View, thing: Any, choice: Choice) -> Any:
    """The thing, with words in place of pieces where that is chosen, known and possible."""
    merges = isinstance(thing, Trace) and choice.words and view.merges and thing.about.words
    return thing.words() if merges else thing


def _figure(view: View, thing: Any, choice: Choice, name: str = "") -> str:
    caption = f"{view.name}: {view.meaning}"
    picture = pages.svg(view.draw(thing, choice), name or view.name, caption)
    return f"<figure>\n{picture}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"
