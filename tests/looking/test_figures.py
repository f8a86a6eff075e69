"""Figures show what they say, the right way round."""

import re
import struct
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.figure
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.text import Text

from glassformer.errors import InputError
from glassformer.looking.figures import SHADES, attention_figure, attention_text, loss_figure
from glassformer.looking.sharpest import sharpest
from glassformer.looking.style import save
from glassformer.looking.trace import Description, Stored, Trace
from glassformer.parts.observing import axes as axes_of

WRITTEN, READ = ["le", "chat", "end"], ["the", "cat"]
WEIGHTS = torch.tensor([[1.0, 0.0], [0.25, 0.75], [0.5, 0.5]])  # (T, S)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were saved."""
    figures: list[Figure] = []
    save = matplotlib.figure.Figure.savefig

    def keep(self: Figure, *words: Any, **more: Any) -> None:
        figures.append(self)
        save(self, *words, **more)

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", keep)
    return figures


def size_of_png(path: Path) -> tuple[int, int]:
    """Width and height, from a PNG's own header."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert data.endswith(b"IEND\xaeB`\x82")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def labels(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def curves(axes: Axes) -> list[tuple[Any, Any]]:
    return [(line.get_label(), line.get_xydata().tolist()) for line in axes.lines]  # type: ignore[union-attr]


def main_axes(figure: Figure) -> Axes:
    return figure.axes[0]


def test_rows_are_written_and_columns_are_read(tmp_path: Path, drawn: list[Figure]) -> None:
    save(attention_figure(WEIGHTS, WRITTEN, READ, "the cat → le chat"), tmp_path / "a.png")
    axes = main_axes(drawn[0])
    (image,) = axes.images
    shown = image.get_array()
    assert shown is not None
    assert shown.tolist() == WEIGHTS.tolist()  # a row of the matrix is a row of the picture
    assert image.origin == "upper"  # the first token written is the top row
    assert labels(axes.yaxis) == WRITTEN
    assert labels(axes.xaxis) == READ
    assert axes.get_ylabel().startswith("written")
    assert axes.get_xlabel().startswith("read")
    assert image.get_clim() == (0, 1)
    assert size_of_png(tmp_path / "a.png") >= (200, 200)


def test_more_tokens_need_more_room(tmp_path: Path) -> None:
    save(attention_figure(torch.rand(3, 30), WRITTEN, [str(i) for i in range(30)]), tmp_path / "wide.png")
    save(attention_figure(torch.rand(30, 2), [str(i) for i in range(30)], READ), tmp_path / "high.png")
    (width, low), (narrow, height) = size_of_png(tmp_path / "wide.png"), size_of_png(tmp_path / "high.png")
    assert width > 2 * narrow
    assert height > 2 * low


@pytest.mark.parametrize("title", ["$x$ and $", r"$\frac$", "सोमवार, 5 अगस्त → 2013", "東京"])
def test_any_text_can_be_shown(tmp_path: Path, title: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a letter that no font has is no reason to complain
        save(attention_figure(torch.ones(1, 2) / 2, [title], ["$", title], title), tmp_path / "a.png")
        save(loss_figure([{"step": 1, "loss": 2.0}], title), tmp_path / "b.png")
    assert size_of_png(tmp_path / "a.png")
    assert size_of_png(tmp_path / "b.png")


def test_weights_that_do_not_fit_the_tokens_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"shape \(2, 3\) do not fit 3 written and 2 read"):
        save(attention_figure(WEIGHTS.T, WRITTEN, READ), tmp_path / "a.png")
    with pytest.raises(InputError, match=r"shape \(2, 3\) do not fit 3 written and 2 read"):
        attention_text(WEIGHTS.T, WRITTEN, READ)
    assert not (tmp_path / "a.png").exists()


def test_the_text_has_a_line_for_each_written_and_a_column_for_each_read() -> None:
    head, *lines = Text.from_markup(attention_text(WEIGHTS, WRITTEN, READ)).plain.splitlines()
    assert head.split() == READ
    assert [line.split()[0] for line in lines] == WRITTEN
    places = [head.index(token) for token in READ]
    found = [[line[place] for place in places] for line in lines]
    full, none, half = SHADES[4], SHADES[0], SHADES[2]
    assert found == [[full, none], [SHADES[1], SHADES[3]], [half, half]]


def test_brighter_is_more() -> None:
    (_, bright), (_, dark) = (attention_text(torch.tensor([[w]]), ["a"], ["b"]).splitlines() for w in (0.9, 0.3))
    assert int(bright.split("grey")[1][:2]) > int(dark.split("grey")[1][:2])


def test_tokens_are_not_taken_for_markup() -> None:
    head, line = Text.from_markup(attention_text(torch.ones(1, 1), ["[/]"], ["[bold]"])).plain.splitlines()
    assert head.split() == ["[bold]"]
    assert line.startswith("[/]")


def test_columns_stay_in_line_under_wide_letters() -> None:
    text = Text.from_markup(attention_text(torch.tensor([[1.0, 1.0], [1.0, 1.0]]), ["東京", "a"], ["日本語", "b"]))
    _, first, second = text.split()
    assert first.cell_len == second.cell_len


def test_the_loss_figure_compares_like_with_like(tmp_path: Path, drawn: list[Figure]) -> None:
    records: list[dict[str, Any]] = [
        {"step": 1, "loss": 3.0},
        {"step": 2, "loss": None},
        {"step": 3, "loss": float("nan")},
        {"step": 4, "loss": 1.0},
        {
            "step": 4,
            "valid_loss": 1.5,
            "valid_perplexity": 4.5,
            "valid_bleu": 10,
            "valid_exact": 0.5,
            "valid_edits": 140.0,
            "train_loss": 0.9,
        },
    ]
    save(loss_figure(records, "a title"), tmp_path / "loss.png")
    axes, scores, errors = drawn[0].axes
    assert curves(axes) == [
        ("training loss with dropout and smoothing", [[1, 3], [4, 1]]),
        ("training examples", [[4, 0.9]]),
        ("validation examples", [[4, 1.5]]),
    ]
    assert axes.lines[0].get_linewidth() < axes.lines[1].get_linewidth()
    assert curves(scores) == [("bleu", [[4, 10]]), ("exact (%)", [[4, 50]])]
    assert curves(errors) == [("edits", [[4, 140]])]
    assert "lower is better" in errors.get_ylabel()
    assert axes.get_xlabel() == "step"
    assert axes.get_ylabel() == "loss (nats)"
    assert axes.get_title(loc="left") == "a title"
    assert size_of_png(tmp_path / "loss.png")


@pytest.mark.parametrize(("least", "most"), [(1.4, 2.3), (0.04, 6.0), (3.0, 31.0)])
def test_losses_have_ticks_that_can_be_read(tmp_path: Path, drawn: list[Figure], least: float, most: float) -> None:
    save(loss_figure([{"step": 1, "loss": most}, {"step": 9, "loss": least}]), tmp_path / "loss.png")
    (axes,) = drawn[0].axes
    low, high = axes.get_ylim()
    seen = [text for text, place in zip(labels(axes.yaxis), axes.get_yticks(), strict=True) if low <= place <= high]
    assert len(seen) >= 3
    assert all(re.fullmatch(r"[\d.]+", text) for text in seen)  # 0.2, and not 2 x 10⁻¹


def test_the_sharpest_head_aligns_what_is_written_and_does_not_only_stare() -> None:
    diagonal, stare, even = torch.eye(4) * 0.8 + 0.05, torch.zeros(4, 4), torch.full((4, 4), 0.25)
    stare[:, 0] = 1.0
    best = sharpest(attending(torch.stack((even, diagonal.roll(1, 0), diagonal, stare)).view(2, 1, 2, 4, 4)))
    assert best.weights.equal(diagonal)
    assert best.title == "cross attention of layer 1, head 0, the sharpest of 2 in the upper layers"
    assert (best.name, best.head) == ("decoder.1.cross.weights", 0)
    assert (best.rows, best.columns) == (list("abcd"), list("wxyz"))
    assert sharpest(attending(torch.ones(1, 1, 1, 1, 1))).title == "cross attention"


def test_only_words_say_which_head_is_the_sharpest() -> None:
    written, source = ["2025", "-", "13", "end"], ["dom", ",", "13", "2025"]
    rests = torch.tensor([0.0, 0.0, 0.0, 1.0])  # at a hyphen and at the end it reads the year once more
    aligns = torch.stack((rests, rests, torch.tensor([0.0, 0.0, 1.0, 0.0]), rests))
    wanders = torch.tensor([[0.8, 0.1, 0.05, 0.05], [0.1, 0.8, 0.05, 0.05], [0.0, 0.0, 1.0, 0.0], [0.2, 0.0, 0.0, 0.8]])
    best = sharpest(attending(torch.stack((wanders, aligns)).view(1, 1, 2, 4, 4), source, written))
    assert best.head == 1
    signs = sharpest(attending(torch.stack((aligns, wanders)).view(1, 1, 2, 4, 4), list(".,;:"), list("-+*/")))
    assert signs.head == 1  # all count, where there is no word


def attending(layers: torch.Tensor, source: Sequence[str] = "wxyz", written: Sequence[str] = "abcd") -> Trace:
    """A trace of cross-attention (L, B, H, T, S)."""
    names = [f"decoder.{layer}.cross.weights" for layer in range(len(layers))]
    kept = Stored(
        {name: [each] for name, each in zip(names, layers, strict=True)},
        dict.fromkeys(names, axes_of(head=2, token=None, key=None)),
        {},
    )
    texts = {"encoder": [list(source)], "written": [list(written)]}
    return Trace(kept, Description(shows="decoder.cross", tokens=texts))


def test_a_run_without_measurements_has_an_empty_figure(tmp_path: Path) -> None:
    save(loss_figure([]), tmp_path / "loss.png")
    assert size_of_png(tmp_path / "loss.png")
