"""The check of pinned versions: what it asks, what it says, and that it says so when it cannot ask."""

import subprocess
import sys
from http.client import IncompleteRead
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from audit import PINS, audit, main, pins  # noqa: E402


def test_every_version_that_is_pinned_is_asked_for() -> None:
    asked: list[Any] = []

    def ask(query: dict[str, Any]) -> dict[str, Any]:
        asked.extend(query["queries"])
        return {"results": [{} for _ in query["queries"]]}

    assert audit(pins(PINS.read_text(encoding="utf-8")), ask) == []
    lines = [line for line in PINS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert [f"{each['package']['name']}=={each['version']}" for each in asked] == lines
    assert {each["package"]["ecosystem"] for each in asked} == {"PyPI"}


def test_what_is_known_is_told_and_fails(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("# made by hand\na==1.0\nb-c==2.0rc1  # new\n", encoding="utf-8")
    assert (
        main(lambda query: {"results": [{}, {"vulns": [{"id": "GHSA-1"}, {"id": "PYSEC-2"}]}]}, tmp_path / "c.txt") == 1
    )
    first, second, last = capsys.readouterr().out.splitlines()
    assert first == "b-c 2.0rc1: GHSA-1 (https://osv.dev/vulnerability/GHSA-1)"
    assert second.startswith("b-c 2.0rc1: PYSEC-2")
    assert last == "2 pinned versions, 2 known vulnerabilities"
    assert main(lambda query: {"results": [{}, {}]}, tmp_path / "c.txt") == 0


def test_without_a_network_there_is_a_sentence(tmp_path: Path) -> None:
    def ask(query: dict[str, Any]) -> dict[str, Any]:
        raise URLError("no network")

    assert main(ask) == (
        "audit: no network: the versions were not checked, which needs https://api.osv.dev/v1/querybatch"
    )
    assert "not checked" in str(main(lambda query: {"results": []}))  # not an answer for each
    (tmp_path / "c.txt").write_text("a>=1\n", encoding="utf-8")
    assert main(ask, tmp_path / "c.txt") == "audit: the versions were not checked: line 1 pins no version: a>=1"


def test_an_answer_in_pages_is_read_to_its_end(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("a==1.0\nb==2.0\n", encoding="utf-8")
    pages: list[list[Any]] = [
        [{"next_page_token": "more"}, {"vulns": [{"id": "PYSEC-2"}]}],  # the first has no name of any yet
        [{"vulns": [{"id": "GHSA-1"}], "next_page_token": "last"}],
        [{"vulns": [{"id": "GHSA-3"}]}],
    ]
    asked: list[list[tuple[str, str]]] = []

    def ask(query: dict[str, Any]) -> dict[str, Any]:
        asked.append([(each["package"]["name"], each.get("page_token", "")) for each in query["queries"]])
        return {"results": pages[len(asked) - 1]}

    assert main(ask, tmp_path / "c.txt") == 1
    found = [line.partition(" (")[0] for line in capsys.readouterr().out.splitlines()]
    assert found == ["a 1.0: GHSA-1", "a 1.0: GHSA-3", "b 2.0: PYSEC-2", "2 pinned versions, 3 known vulnerabilities"]
    assert asked == [[("a", ""), ("b", "")], [("a", "more")], [("a", "last")]]
    endless = main(lambda query: {"results": [{"next_page_token": "x"} for _ in query["queries"]]}, tmp_path / "c.txt")
    assert endless == "audit: the versions were not checked: the answer has more than 100 pages"


def test_an_answer_that_is_cut_off_is_told() -> None:
    def ask(query: dict[str, Any]) -> dict[str, Any]:
        raise IncompleteRead(b"{")

    assert str(main(ask)).startswith("audit: the versions were not checked: IncompleteRead")


def test_a_proxy_that_is_none_ends_it_with_1() -> None:
    command = [sys.executable, str(ROOT / "tools" / "audit.py")]
    ended = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=False, env={"https_proxy": "http://127.0.0.1:9", "PATH": ""}
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("audit: ")
    assert len(ended.stderr.splitlines()) == 1
