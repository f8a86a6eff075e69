"""Starting the Studio: what is missing, or taken, is a sentence."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import sys

import numpy as np
import pytest
from starlette.testclient import TestClient

import glassformer
from glassformer.cli.commands import studio as command
from glassformer.errors import ConfigurationError
from glassformer.looking.answer import unpacked
from glassformer.studio import run_pool
from glassformer.studio.opening import RECORDED
from glassformer.studio.starting import PORT, listen

from .test_views import ask


def test_where_scripts_were_not_built_the_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.scripts.script", lambda name: None)
    with pytest.raises(ConfigurationError, match="the Studio cannot be shown: its scripts were not built"):
        command.studio()


@pytest.mark.parametrize("library", ["fastapi", "uvicorn"])
def test_without_the_libraries_the_command_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setattr("glassformer.scripts.script", lambda name: "built")
    monkeypatch.setattr(glassformer, "studio", sys.modules["glassformer.studio"])  # which the import below replaces
    for name in [each for each in sys.modules if each.startswith("glassformer.studio")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    said = rf'{library}, which is not installed: pip install "glassformer\[studio\]"'
    with pytest.raises(ConfigurationError, match=said):
        command.studio()


def test_a_port_that_is_taken_is_a_sentence_or_another_is_found() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        said = f"cannot listen at 127.0.0.1, port {port}: .*; choose another --port"
        with pytest.raises(ConfigurationError, match=said):
            listen("127.0.0.1", port)
    with listen("127.0.0.1", None) as first, listen("127.0.0.1", None) as second:  # before either serves
        assert second.getsockname()[1] not in (PORT, first.getsockname()[1], 0)
    with pytest.raises(ConfigurationError, match=r"--host nowhere\.invalid"):
        listen("nowhere.invalid", None)
    with pytest.raises(ConfigurationError, match=r"--host x{64}: not the name of a host"):
        listen("x" * 64, None)
    assert socket.getdefaulttimeout() is None


def test_the_studio_is_for_this_machine_unless_a_host_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[str] = []
    monkeypatch.setattr("glassformer.scripts.script", lambda name: "built")
    starting = sys.modules["glassformer.studio.starting"]
    monkeypatch.setattr(starting, "serve", lambda pool, host, *others: served.append(host))
    command.studio()
    command.studio(host="0.0.0.0")  # noqa: S104
    assert served == ["127.0.0.1", "0.0.0.0"]  # noqa: S104


def test_what_is_imported_with_the_server_needs_no_torch() -> None:
    code = "import sys, glassformer.studio.starting; print('torch' in sys.modules, 'numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert found.stdout.split() == ["False", "False"]


def test_what_was_recorded_is_what_the_model_answers(client: TestClient) -> None:
    """If this fails, the model or the view has changed: python tools/studio_example.py."""
    answers = json.loads((run_pool.ASSETS / "en-de" / RECORDED).read_text("utf-8"))
    assert [each["view"] for each in answers] == ["about", "read"]
    about, read = (unpacked(base64.b64decode(each["packed"])) for each in answers)
    live = ask(client, "about", "en-de").header
    assert {**about.header, "views": 0} == {**live, "views": 0}
    now = ask(client, "read", "en-de", **answers[1]["options"])
    assert read.header["output"] == now.header["output"]
    assert read.header["readings"].keys() == now.header["readings"].keys()
    assert read.arrays.keys() == now.arrays.keys()
    for name, array in read.arrays.items():
        np.testing.assert_allclose(array / 65535, now.arrays[name] / 65535, atol=2e-3)
