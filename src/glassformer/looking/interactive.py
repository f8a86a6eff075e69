"""The interactive view of a trace: as a part of a page, and as a widget in a notebook.

Its scripts are built from web/ when the package is built, and lie in `built/`. Where they, or the library for widgets,
are missing, a static picture takes its place.
"""

from __future__ import annotations

import base64
import io
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from glassformer.errors import InputError
from glassformer.looking.packing import First, pack
from glassformer.looking.plots.choosing import MOST
from glassformer.looking.trace import Trace
from glassformer.scripts import NO_SCRIPTS, script

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NO_WIDGETS = 'anywidget is not installed: pip install "glassformer[notebook]"'


def part(trace: Trace, first: First, sentence: int = 0) -> str:
    """The part of a page in which the script "page" shows a trace. A page has one of them."""
    packed = base64.b64encode(pack(trace, first, sentence)).decode()
    return (
        '<div id="view"></div>\n<noscript><p class="note">The interactive view needs JavaScript.</p></noscript>\n'
        f'<script type="text/plain" id="trace">{packed}</script>'
    )


def bundle(trace: Trace, first: First | None = None, sentence: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a notebook shows of a trace, by MIME type: a widget, and a picture for where widgets do not live."""
    data: dict[str, Any] = {"text/plain": repr(trace)}
    metadata: dict[str, Any] = {}
    first = first or First()
    why = _missing() if trace.kinds else "no attention was recorded"
    if why is None:
        try:
            shown = _widget()(packed=pack(trace, first, sentence))._repr_mimebundle_()
            data, metadata = {**shown[0], **data}, dict(shown[1])
        except InputError as error:
            why = str(error)
    picture = _picture(trace, first, sentence)
    if picture is not None:
        data["image/png"] = base64.b64encode(picture).decode()
    if why is not None:
        data["text/plain"] += f"\nThere is no interactive view: {why}"
    return data, metadata


def show(trace: Trace, first: First, sentence: int = 0) -> None:
    """Show a trace in the notebook that this runs in."""
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        shell = None
    else:
        shell = get_ipython()
    if not hasattr(shell, "kernel"):
        raise InputError('there is no notebook to show this in: write a page with trace.save_page("look.html")')
    if (why := _missing()) is not None:
        warnings.warn(f"a static picture is shown in place of the interactive view: {why}", stacklevel=3)
    data, metadata = bundle(trace, first, sentence)
    display(data, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]


def in_terminal() -> bool:
    """Whether this runs in IPython without a notebook, which has no use for pictures."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    shell = get_ipython()
    return shell is not None and not hasattr(shell, "kernel")


def _missing() -> str | None:
    """Why there can be no widget, in a sentence."""
    if script("widget") is None:
        return NO_SCRIPTS
    try:
        import anywidget  # noqa: F401
    except ImportError:
        return NO_WIDGETS
    return None


@lru_cache
def _widget() -> type[Any]:
    """The class of widgets, made when it is needed, since anywidget is optional."""
    import anywidget
    import traitlets

    class Look(anywidget.AnyWidget):
        """A trace in a notebook."""

        _esm = script("widget")
        packed = traitlets.Bytes().tag(sync=True)

    return Look


def _picture(trace: Trace, first: First, sentence: int) -> bytes | None:
    """What `_drawn` draws as a PNG; None: it cannot be drawn."""
    try:
        figure = _drawn(trace, first, sentence)
    except InputError:  # too long, or neither attention nor gates
        return None
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(Glyph|Matplotlib currently does not support)")
        figure.savefig(file, format="png", dpi=110)
    return file.getvalue()


def _drawn(trace: Trace, first: First, sentence: int) -> Figure:
    """The chosen head, with names where there is room for them, all heads otherwise; without attention, the gates."""
    if not trace.kinds:
        return trace.plot.gates(sentence=sentence)
    shown, at = (trace.words(sentence), 0) if first.words and trace.about.words else (trace, sentence)
    rows, columns = shown.attention(first.kind or shown.shows).shape[-2:]
    draw = shown.plot.attention if first.matrix else shown.plot.lines
    small = max(rows, columns) <= MOST
    return draw(first.layer, first.head, first.kind, at) if small else shown.plot.heads(first.kind, at)
