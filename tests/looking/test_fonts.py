"""Letters of all scripts: a font is found, or a sentence says which letters none has."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from glassformer.looking import fonts
from glassformer.looking.fonts import FIRST, families, missing
from glassformer.looking.plots.choosing import END, ISOLATE, LEFT, heading, isolated, wrapped
from glassformer.looking.style import chart_style, save_and_tell
from glassformer.looking.trace import Description, Stored, Trace


def test_right_to_left_text_needs_no_other_font() -> None:
    assert families(["Where", "שלום", "سلام", "где"]) == [FIRST]
    assert missing(["Where", "שלום", "سلام", "где", "▁·←↵"]) == ""


def test_a_letter_that_no_font_has_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    fonts._beside.cache_clear()
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [])
    try:
        sentence = missing(["日本語 is", "中文"])
        assert sentence.startswith("no installed font has the letters 中 文 日 and 2 more, which are drawn as boxes: ")
        assert families(["日本語"]) == [FIRST]
    finally:
        fonts._beside.cache_clear()


def test_a_picture_with_boxes_that_was_asked_for_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fonts._beside.cache_clear()
    own = [each for each in font_manager.fontManager.ttflist if each.name.startswith("DejaVu")]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    figure = Figure(figsize=(1, 1))
    figure.text(0, 0, "日本")
    try:
        with pytest.warns(UserWarning, match="^no installed font has the letters 日 本, which are drawn") as told:
            save_and_tell(figure, tmp_path / "x.png")
        assert len(told) == 1  # and nothing of each glyph
    finally:
        fonts._beside.cache_clear()


def test_a_font_of_boxes_has_no_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """matplotlib's own "Last Resort" has a box for each letter: it would be found before any real font."""
    fonts._beside.cache_clear()
    own = [each for each in font_manager.fontManager.ttflist if each.name.startswith("Last Resort")]
    assert own, "matplotlib brings it along"
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    try:
        assert missing(["日本"]).startswith("no installed font has the letters 日 本, which are drawn as boxes")
        assert families(["日本"]) == [FIRST]
    finally:
        fonts._beside.cache_clear()


def test_a_font_that_has_a_letter_is_used_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    fonts._beside.cache_clear()
    installed = font_manager.fontManager.ttflist  # in any order, with oblique ones among them
    with_all = [each for each in installed if each.name == "DejaVu Sans Mono" and each.style == "normal"][:1]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", with_all)
    monkeypatch.setattr(fonts, "_known", lambda file, letters: letters if "Mono" in file else frozenset())
    try:
        assert families(["日本"]) == [FIRST, "DejaVu Sans Mono"]
        with chart_style(["日本"]):
            text = Figure().text(0, 0, "日本")
        assert text.get_fontfamily() == [FIRST, "DejaVu Sans Mono"]
    finally:
        fonts._beside.cache_clear()


def test_right_to_left_text_is_drawn_from_right_to_left() -> None:
    """The first letter of a Hebrew word stands at its right end: the picture is that of its letters turned round."""

    def ink(text: str) -> Any:
        figure = Figure(figsize=(2, 1))
        canvas = FigureCanvasAgg(figure)
        figure.text(0.1, 0.4, text, fontsize=20)
        canvas.draw()  # type: ignore[no-untyped-call]
        return np.asarray(canvas.buffer_rgba())[..., 0] < 128  # type: ignore[no-untyped-call]

    marked = ink("אא|")  # ends at the left
    columns = np.flatnonzero(marked.any(axis=0))
    middle = (columns[0] + columns[-1]) / 2
    tall = np.flatnonzero(marked.sum(axis=0) == marked.sum(axis=0).max())  # the bar
    assert tall.mean() < middle


@pytest.mark.parametrize(
    ("source", "target"),
    [("البنك رفع أسعار الفائدة.", "הבנק העלה את הריבית."), ("البنك رفع أسعار الفائدة.", "The bank.")],
)
def test_an_arrow_points_from_what_is_read_to_what_is_written(source: str, target: str) -> None:
    """What is read stands left of the arrow, whatever its own direction; without marks it would stand right of it."""

    def right_half(text: str) -> Any:
        figure = Figure(figsize=(8, 1))
        canvas = FigureCanvasAgg(figure)
        figure.text(0.99, 0.4, text, fontsize=14, ha="right")
        canvas.draw()  # type: ignore[no-untyped-call]
        columns = np.asarray(canvas.buffer_rgba())[..., 0].min(axis=0)  # type: ignore[no-untyped-call]
        return columns[-60:].tolist()

    trace = Trace(Stored({}, {}, {}, []), Description(source, target, "", {}, {}))
    assert right_half(heading(trace)) == right_half(target)
    assert right_half(f"{source} → {target}") != right_half(target)


def test_a_text_from_left_to_right_needs_no_marks() -> None:
    assert isolated("Where? 東京 где") == "Where? 東京 где"
    assert wrapped(isolated("one two three"), 8) == "one two\nthree"
    first, second = wrapped(isolated("שלום עולם טוב"), 10).split("\n")
    assert first.startswith(LEFT + LEFT + ISOLATE)
    assert second.startswith(LEFT + ISOLATE)
    assert second.endswith(END)
