"""What a notebook shows of a trace: a widget where there can be one, a picture everywhere."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import pytest
import torch
from ipywidgets import Widget

import glassformer as gf
from glassformer.errors import InputError
from glassformer.looking import interactive
from glassformer.looking.packing import pack
from glassformer.looking.trace import Stored, Trace

from .families import FAMILIES, SOURCE
from .test_plots import cross

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts that are there, whether built or not."""
    monkeypatch.setattr(interactive, "script", lambda name: "export default {}")
    interactive._widget.cache_clear()


def is_png(text: str) -> bool:
    return base64.b64decode(text).startswith(b"\x89PNG")


@pytest.mark.usefixtures("scripts")
def test_a_notebook_gets_a_widget_and_a_picture_for_where_it_is_saved() -> None:
    trace = cross()
    data, _ = trace._repr_mimebundle_()
    assert is_png(data["image/png"])
    assert data["text/plain"] == repr(trace)
    state = Widget.get_manager_state()["state"][data[WIDGET]["model_id"]]
    (sent,) = [each for each in state["buffers"] if each["path"] == ["packed"]]
    assert base64.b64decode(sent["data"]) == pack(trace)
    assert state["state"]["_esm"] == "export default {}"


@pytest.mark.usefixtures("scripts")
def test_without_the_library_a_notebook_gets_a_picture_and_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    data, _ = cross()._repr_mimebundle_()
    assert WIDGET not in data
    assert is_png(data["image/png"])
    assert data["text/plain"].endswith('anywidget is not installed: pip install "glassformer[notebook]"')


def test_without_scripts_a_notebook_gets_a_picture_and_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interactive, "script", lambda name: None)
    data, _ = cross()._repr_mimebundle_()
    assert WIDGET not in data
    assert is_png(data["image/png"])
    assert "its scripts were not built" in data["text/plain"]


def test_without_attention_a_notebook_gets_the_gates_and_a_sentence() -> None:
    model = FAMILIES["lstm-classes"].model()
    with gf.record(model) as trace, torch.no_grad():
        model(SOURCE)
    data, _ = trace._repr_mimebundle_()
    assert sorted(data) == ["image/png", "text/plain"]
    assert is_png(data["image/png"])
    assert data["text/plain"].endswith("There is no interactive view: no attention was recorded")


def test_outside_a_notebook_there_is_a_sentence() -> None:
    with pytest.raises(InputError, match=r'write a page with trace.save_page\("look.html"\)'):
        cross().show()


def test_a_trace_without_attention_is_text(tmp_path: Path) -> None:
    empty = Trace(Stored({}, {}, {}))
    data, _ = empty._repr_mimebundle_()
    assert list(data) == ["text/plain"]
    with pytest.raises(InputError, match="no attention"):
        empty.save_page(tmp_path / "x.html")
    with pytest.raises(InputError, match="there is no folder"):
        cross().save_page(tmp_path / "none" / "x.html")
