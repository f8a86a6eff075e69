"""Views: each has a figure, a text and a table, and all say the same."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.text import Text

import glassformer as gf
from glassformer.errors import ConfigurationError, InputError
from glassformer.looking.exporting import check_ending, export, page, table
from glassformer.looking.trace import Trace
from glassformer.looking.views import VIEWS, Choice, fitting, view_of

from .test_plots import READ, WRITTEN, cross


@pytest.fixture(scope="module")
def trace() -> Trace:
    return gf.load("en-de").look("Where is the old station?")


def plain(markup: str) -> str:
    return Text.from_markup(markup).plain


def rows(name: str, thing: Any, choice: Choice | None = None) -> list[list[str]]:
    return list(csv.reader(io.StringIO(table(VIEWS[name], thing, choice or Choice()))))


def test_a_wide_map_becomes_lines_of_text() -> None:
    view = view_of("attention")
    assert plain(view.text(cross(), Choice())).splitlines()[2].split() == READ
    narrow = plain(view.text(cross(), Choice(width=10))).splitlines()
    assert narrow[3].split() == ["alte", "←", "old", "1.00"]


def test_small_maps_stand_side_by_side_as_far_as_they_fit() -> None:
    text = plain(view_of("heads").text(cross(), Choice(width=40))).splitlines()
    assert text[0] == "layer 0"
    assert text[1].split() == ["head", "0", "head", "1"]
    assert [line.split() for line in text if line.startswith("  head")] == [["head", "0", "head", "1"]] * 2
    last = text[text.index("layer 1") + 2 :]
    assert [line[2:5] for line in last[:4]] == ["█  ", " █ ", "  █", "  █"]
    under = plain(view_of("heads").text(cross(), Choice(width=12))).splitlines()
    assert under[1].split() == ["head", "0"]


def test_a_table_has_every_weight_or_those_of_a_head() -> None:
    found = rows("attention", cross())
    assert found[0] == ["kind", "layer", "head", "token", "token_text", "key", "key_text", "weight"]
    assert len(found) == 1 + 2 * 2 * len(WRITTEN) * len(READ)
    assert ["decoder.cross", "1", "0", "1", "alte", "1", "old", "1"] in found
    assert len(rows("attention", cross(), Choice(layer=1, head=0))) == 1 + len(WRITTEN) * len(READ)
    assert rows("alignment", cross())[2] == ["1", "alte", "1", "old", "1"]
    with pytest.raises(InputError, match="there is no head 9"):
        rows("attention", cross(), Choice(head=9))


def test_a_tree_is_told_to_its_forks_with_what_became_of_each_branch(trace: Trace) -> None:
    lines = plain(view_of("beam").text(trace, Choice())).splitlines()
    best = next(line for line in lines if line.rstrip().endswith("finished"))
    assert "<end>" in best
    assert any(line.rstrip().endswith("pruned") for line in lines)
    found = rows("beam", trace)
    assert len(found) == 1 + len(trace.beams[0].nodes)
    assert {row[-1] for row in found[1:]} == {"kept", "pruned", "finished"}


@pytest.mark.parametrize("name", ["attention", "heads", "lines", "alignment", "beam", "positions", "embeddings"])
@pytest.mark.parametrize("ending", ["svg", "html", "csv", "trace"])
def test_every_view_of_a_translator_is_written(name: str, ending: str, trace: Trace, tmp_path: Path) -> None:
    file = tmp_path / f"x.{ending}"
    export(file, VIEWS[name], trace, Choice())
    assert file.stat().st_size > 200
    assert plain(VIEWS[name].text(trace, Choice()))


def test_a_page_has_the_view_and_all_heads_and_refers_to_nothing(trace: Trace) -> None:
    text = page(VIEWS["lines"], trace.words(), Choice(), "Where is the old station?")
    assert text.count("<figure>") == 4  # and the heads of three kinds of attention
    assert "Bahnhof" in text
    assert "http" not in text.replace("http://www.w3.org", "")
    assert "<script" not in text


def test_which_views_a_model_has_follows_from_its_points(trace: Trace) -> None:
    assert fitting(trace.names, searches=True) == [
        *("attention", "heads", "lines", "alignment", "beam", "positions", "embeddings", "patching"),
    ]
    assert "beam" not in fitting(trace.names, searches=False)
    lstm = ["encoder.tokens", "encoder.embedding", "encoder.0.gates.forget", "encoder.0.state", "logits"]
    assert fitting(lstm, searches=False) == ["embeddings", "gates", "patching"]


def test_names_and_ends_that_do_not_exist_are_sentences() -> None:
    with pytest.raises(InputError, match="did you mean attention"):
        view_of("atention")
    with pytest.raises(InputError, match="it is one of attention, heads"):
        view_of("xyz")
    with pytest.raises(ConfigurationError, match=r"x\.gif: what it is to hold is told by its end"):
        check_ending(Path("x.gif"))


def test_patching_compares_with_another_text(tmp_path: Path) -> None:
    run, view = gf.load("en-de"), view_of("patching")
    assert view.make is not None
    with pytest.raises(InputError, match="--against TEXT"):
        view.make(run, "The man is old.", Choice())
    found = view.make(run, "The man is old.", Choice(against="The girl is old."))
    assert found.best[1] == 1  # the word that differs
    assert torch.isfinite(found.effects).all()
    assert plain(view.text(found, Choice())).splitlines()[2].split()[1] == "·man/·girl"
    export(tmp_path / "x.csv", view, found, Choice())
    assert len((tmp_path / "x.csv").read_text(encoding="utf-8").splitlines()) == 1 + found.effects.numel()
    with pytest.raises(InputError, match="patching is no trace"):
        export(tmp_path / "x.trace", view, found, Choice())
