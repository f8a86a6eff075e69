"""One style for all charts: colours that everybody can tell apart, quiet axes, letters large enough to read.

The colours are those of Okabe and Ito, chosen for eyes that do not tell red from green. Lines differ in their markers
too, so that a chart survives a grey printer.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.writing import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
SKY, YELLOW, BLACK, GREY = "#56B4E9", "#E69F00", "#000000", "#8A8A8A"
INK = "#111111"  # of letters on a bright colour; what is BLACK is light on a dark page
COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, YELLOW, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
MAP = "viridis"  # from little to much
HEAT = "Blues"  # the same for attention: paper where there is none, so that a slide or a printed page stays light
TWO_SIDED = "RdBu"  # from below zero, red, to above, blue as in HEAT

DARK = 0.7  # of the fullest colour of HEAT and TWO_SIDED: where white letters and INK are equally easy to read


def ink_on(ratio: float) -> str:
    """The colour of letters on a cell that has so much of the fullest colour, 0 to 1."""
    return "white" if ratio > DARK else INK


@contextmanager
def chart_style(texts: Iterable[str] = ()) -> Iterator[None]:
    """Charts that are drawn inside this context have the common style, and fonts with the letters of some texts."""
    import matplotlib as mpl
    from cycler import cycler

    from glassformer.looking.fonts import families

    settings: dict[Any, Any] = {
        "axes.prop_cycle": cycler(color=COLOURS, marker=MARKERS),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": 9.5,
        "figure.constrained_layout.w_pad": 0.1,
        "font.family": families(texts),
        "font.size": 9.5,
        "grid.alpha": 0.25,
        "image.cmap": MAP,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "lines.linewidth": 1.8,
        "lines.markersize": 4.5,
    }
    _show_in_notebooks()
    with mpl.rc_context(settings):
        yield


def _show_in_notebooks() -> None:
    """Let a notebook show figures as pictures, as it does once pyplot was imported, which our figures do not need."""
    if "IPython" not in sys.modules:
        return
    from IPython import get_ipython
    from IPython.core.pylabtools import select_figure_formats
    from matplotlib.figure import Figure

    shell: Any = get_ipython()
    if hasattr(shell, "kernel"):
        try:
            shell.display_formatter.formatters["image/png"].lookup_by_type(Figure)
        except KeyError:
            select_figure_formats(shell, {"png"})  # type: ignore[no-untyped-call]


def save(figure: Figure, path: Path) -> None:
    """Write the picture at once; letters that no installed font has are boxes in it, without a warning.

    An SVG holds no date and no identifier by chance, so that the same figure is the same file.
    """
    import matplotlib as mpl

    ending = path.suffix[1:] or "png"
    with warnings.catch_warnings(), replacing(path) as new, mpl.rc_context({"svg.hashsalt": "glassformer"}):
        warnings.filterwarnings("ignore", message=".*(Glyph|Matplotlib currently does not support)")
        figure.savefig(new, dpi=150, format=ending, metadata={"Date": None} if ending == "svg" else None)


def save_and_tell(figure: Figure, path: Path) -> None:
    """Write a picture that was asked for: one sentence warns of letters that are boxes in it."""
    from matplotlib.text import Text

    from glassformer.looking.fonts import missing

    save(figure, path)
    if sentence := missing(text.get_text() for text in figure.findobj(Text)):
        warnings.warn(sentence, stacklevel=2)
