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
from glassformer.looking.style import save
from glassformer.looking.trace import Trace
from glassformer.looking.views import VIEWS, Choice, View
from glassformer.writing import write_text

PICTURES = (".png", ".svg", ".pdf")
ENDINGS = (*PICTURES, ".html", ".csv", ".trace")


def check_ending(path: Path, endings: tuple[str, ...] = ENDINGS) -> None:
    """Refuse a file of a kind that cannot be written."""
    if path.suffix.lower() not in endings:
        raise ConfigurationError(f"{path}: what it is to hold is told by its end, which is one of {', '.join(endings)}")


def export(path: Path, view: View, thing: Any, choice: Choice, title: str = "") -> None:
    """Write what a view shows of a trace, or of what the view has made."""
    ending = path.suffix.lower()
    if ending in PICTURES:
        save(view.draw(thing, choice), path)
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
    """A page with the chosen view and all heads, which needs no network and no other file."""
    return pages.page(title or "A look inside", _parts(view, thing, choice))


def _parts(view: View, thing: Any, choice: Choice) -> Iterator[str]:
    if isinstance(thing, Trace) and (thing.input or thing.output):
        yield f"<p>{escape(' → '.join(filter(None, (thing.input, thing.output))))}</p>"
    yield _figure(view, thing, choice)
    if isinstance(thing, Trace):
        for kind in thing.kinds if view.name != "heads" else ():
            yield _figure(VIEWS["heads"], thing, Choice(kind=kind), f"heads-{kind.replace('.', '-')}")


def _figure(view: View, thing: Any, choice: Choice, name: str = "") -> str:
    caption = f"{view.name}: {view.meaning}"
    picture = pages.svg(view.draw(thing, choice), name or view.name, caption)
    return f"<figure>\n{picture}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"
