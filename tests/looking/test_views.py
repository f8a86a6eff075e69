"""Views: each has a figure, a text and a table, and all say the same."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.cells import cell_len
from rich.text import Text

import glassformer as gf
from glassformer.cli.commands.look import WHAT
from glassformer.errors import ConfigurationError, InputError
from glassformer.looking import exporting
from glassformer.looking.analyses import Attribution
from glassformer.looking.exporting import check_ending, export, page, table
from glassformer.looking.terminal import bars_text, matrix_text
from glassformer.looking.trace import Trace
from glassformer.looking.view import Choice
from glassformer.looking.views import VIEWS, fitting, view_of

from .families import FAMILIES
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
    assert narrow[0].endswith("each token, and what it looks at most.")
    assert narrow[3].split() == ["alte", "←", "old", "1.00"]


def test_a_map_in_a_terminal_is_no_wider_than_its_lines() -> None:
    """Chinese letters take two places each; numbers of any size are shaded by the largest, and told as they are."""
    names = ["車站", "在哪裡", "。"]
    values = torch.tensor([[40.0, 1.0, -3.0], [0.0, 20.0, 30.0]])
    wide = plain(matrix_text(values, ["Wo", "?"], names, 20, full=40.0)).splitlines()
    assert [line.replace(" ", "") for line in wide[1:]] == ["Wo████", "?▒▒▒▒▒▒▓▓▓"]
    assert max(map(cell_len, wide)) <= 20
    narrow = plain(matrix_text(values, ["Wo", "?"], names, 18, full=40.0)).splitlines()
    assert narrow[0].split() == ["Wo", "←", "車站", "40.00"]
    assert narrow[1].split() == ["?", "←", "。", "30.00", "在哪裡", "20.00"]
    assert narrow[3] == "The map is too large for this terminal: each row names its 3 largest."


@pytest.mark.parametrize("name", ["rollout", "positions", "embeddings"])
def test_maps_of_a_trace_keep_to_the_width(trace: Trace, name: str) -> None:
    view, longest = view_of(name), 0
    for width in (200, 30):
        lines = plain(view.text(trace, Choice(width=width))).splitlines()[2:]
        assert any("←" in line for line in lines) == (width == 30)
        longest = max(longest, *(len(line) for line in lines if "too large" not in line))
    assert longest < 200


def test_a_role_without_a_place_in_the_text_has_no_score(trace: Trace) -> None:
    text = plain(view_of("roles").text(trace, Choice(kind="encoder.self"))).splitlines()
    assert text[0].endswith("A - is a place that this text does not have.")
    assert [line.split()[7] for line in text[3:]] == ["-"] * 30  # no token is there twice
    assert "A - is" not in plain(view_of("roles").text(trace, Choice(kind="decoder.cross")))


def test_gates_of_a_long_text_run_down() -> None:
    model = FAMILIES["lstm-classes"].model()
    with gf.record(model, "gates.*") as trace, torch.no_grad():
        model(torch.full((1, 12), 3))
    across, down = (plain(view_of("gates").text(trace, Choice(width=width))).splitlines()[2:] for width in (80, 30))
    assert [line.split()[0] for line in across[1:]] == down[0].split() == ["forget", "input", "output"]
    assert len(down) == 13


def test_words_that_only_speak_against_an_output_are_empty_cells() -> None:
    zeros = torch.zeros(2)
    found = Attribution(
        torch.tensor([[-9.0, -1.0], [-2.0, -4.0]]),
        ["x", "y"],
        ["a", "b"],
        ["encoder"] * 2,
        None,
        zeros,
        zeros,
        [[0], [1]],
        "occlusion",
    )
    text = plain(view_of("why").text(found, Choice())).splitlines()
    assert [line.strip() for line in text[3:5]] == ["x", "y"]


def test_small_maps_stand_side_by_side_as_far_as_they_fit() -> None:
    text = plain(view_of("heads").text(cross(), Choice(width=40))).splitlines()
    assert text[0] == "layer 0"
    assert text[1].split() == ["head", "0", "head", "1"]
    assert [line.split() for line in text if line.startswith("  head")] == [["head", "0", "head", "1"]] * 2
    last = text[text.index("layer 1") + 2 :]
    assert [line[2:5] for line in last[:4]] == ["█  ", " █ ", "  █", "  █"]
    under = plain(view_of("heads").text(cross(), Choice(width=12))).splitlines()
    assert under[1].split() == ["head", "0"]


def test_small_maps_of_many_tokens_are_not_empty() -> None:
    """Of fifty steps in time each gets a fiftieth, which is no shade of five at all."""
    steps = [f"t-{step}" for step in reversed(range(50))]
    trace = cross(layers=1, read=steps, written=steps)
    weights = trace["decoder.0.cross.weights"]
    weights[:] = 0.02
    weights[0, 1, 7, 3] = 0.2
    lines = plain(view_of("heads").text(trace, Choice(width=200))).splitlines()
    assert lines[0] == "No weight is large: the fullest shade is 0.20."
    assert lines[1] == "layer 0"
    assert "".join(lines).count("█") == 1
    assert lines[3 + 7][2 + 50 + 3 + 3] == "█"


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


@pytest.mark.parametrize("name", [name for name in VIEWS if name not in ("gates", "patches", "patching")])
def test_every_view_of_a_translator_is_written(name: str, trace: Trace, tmp_path: Path) -> None:
    view, origin = VIEWS[name], trace.origin
    assert origin is not None
    thing = trace if view.make is None else view.make(origin.run, origin.item, Choice())
    for ending in ("svg", "html", "csv", *(["trace"] if view.make is None else [])):
        file = tmp_path / f"x.{ending}"
        export(file, view, thing, Choice())
        assert file.stat().st_size > 200
    assert plain(view.text(thing, Choice()))


def test_the_table_of_a_lens_ends_with_what_was_written(trace: Trace) -> None:
    found = VIEWS["lens"].make(trace.origin.run, trace.origin.item, Choice())  # type: ignore[misc, union-attr]
    assert [row[2] for row in rows("lens", found)[-7:]] == [row[4] for row in rows("lens", found)[-7:-1]] + ["end"]
    text = plain(VIEWS["lens"].text(found, Choice(width=30))).splitlines()
    assert text[2].split() == ["before", "layer", "2"]  # the first and the last, where there is no room for more


def test_what_each_part_adds_sums_to_the_logit_of_the_word_that_is_named(trace: Trace) -> None:
    chosen = Choice(word="Bahnhof", instead="Hund", width=60)
    found = VIEWS["parts"].make(trace.origin.run, trace.origin.item, chosen)  # type: ignore[misc, union-attr]
    table_of = rows("parts", found, chosen)
    assert {(row[0], row[1]) for row in table_of[1:]} == {("▁Bahnhof", "▁Hund")}
    assert sum(float(row[3]) for row in table_of[1:]) == pytest.approx(found.logit, abs=1e-3)
    assert 'Why "Bahnhof" and not "Hund"' in plain(VIEWS["parts"].text(found, chosen))


def test_bars_of_text_have_two_sides_where_something_is_below_zero() -> None:
    lines = plain(bars_text([2.0, -1.0], ["a", "bb"], 40)).splitlines()
    assert lines == [" a              │█████████████ +2.00", "bb        ▒▒▒▒▒▒│ -1.00"]
    assert plain(bars_text([2.0, 1.0], ["a", "b"], 21)).splitlines() == ["a │████████ +2.00", "b │████ +1.00"]


def test_without_scripts_a_page_has_the_view_and_all_heads(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "script", lambda name: None)
    text = page(VIEWS["lines"], trace, Choice(), "Where is the old station?")
    assert text.count("<figure>") == 4  # and the heads of three kinds of attention
    assert "Bahnhof" in text
    assert "http" not in text.replace("http://www.w3.org", "").replace("http-equiv", "")
    assert "<script" not in text


def test_a_page_with_scripts_runs_those_and_asks_nobody(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "let text = '</script><!--'"
    monkeypatch.setattr(exporting, "script", lambda name: code)
    text = page(VIEWS["beam"], trace, Choice(), "x")
    assert text.count("<figure>") == 1  # of the tree, which the interactive view does not show
    assert text.count("<script") == text.count("</script>") == 2  # the trace and the code
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    written = text.rpartition("<script>")[2].partition("</script>")[0]
    assert base64.b64encode(hashlib.sha256(written.encode()).digest()).decode() in policy
    assert written == r"let text = '\x3c/script>\x3c!--'"


def test_which_views_a_model_has_follows_from_its_points(trace: Trace) -> None:
    assert fitting(trace.names, searches=True) == [
        *("attention", "heads", "lines", "alignment", "beam", "positions", "embeddings", "patching"),
        *("lens", "why", "parts", "roles", "rollout"),
    ]
    assert "beam" not in fitting(trace.names, searches=False)
    lstm = ["encoder.tokens", "encoder.embedding", "encoder.0.gates.forget", "encoder.0.state", "logits"]
    assert fitting(lstm, searches=False) == ["embeddings", "gates", "patching", "why"]


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


def test_the_help_of_the_command_names_every_view() -> None:
    assert WHAT.split(", ") == list(VIEWS)
