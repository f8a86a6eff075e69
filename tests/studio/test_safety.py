"""Who may ask the Studio, and how much: each refusal is a status and a sentence."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from glassformer.errors import RunError
from glassformer.studio.guards import Endpoint, Guards
from glassformer.studio.owner import Owner
from glassformer.studio.refusals import Refused, refusal_of
from glassformer.studio.responder import Responder
from glassformer.studio.run_pool import RunPool
from glassformer.studio.server import LARGEST, create_app
from glassformer.tasks.translation import Translator

from .conftest import HOST, PORT

READ = {"run": "copy", "options": {"text": "a b"}}


def refused(response: Any, status: int, *words: str) -> None:
    assert response.status_code == status, response.text
    sentence = response.json()["error"]
    assert all(word in sentence for word in words), sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, ("no JSON",)),
        (b"[" * 100_000, 400, ("no JSON",)),
        (b'"text"', 400, ("a question is",)),
        (b'{"run": 3, "options": {}}', 400, ("a question is",)),
        (b'{"run": "copy", "options": {}, "more": 1}', 400, ("a question is",)),
        (json.dumps({"run": "../../etc", "options": {}}).encode(), 404, ("there is no run", "en-de, copy")),
        (json.dumps({"run": "copy", "options": {}}).encode(), 422, ("text", "required")),
        (json.dumps({"run": "copy", "options": {"text": ""}}).encode(), 422, ("text", "at least 1")),
        (json.dumps({"run": "copy", "options": {"text": " "}}).encode(), 400, ("nothing to look at",)),
        (json.dumps({"run": "copy", "options": {"text": "a" * 20_001}}).encode(), 400, ("20,000 are read at most",)),
        (json.dumps({"run": "copy", "options": {"text": "a", "x": 1}}).encode(), 422, ("x", "not permitted")),
        (json.dumps({"run": "copy", "options": {"text": "a", "beam": 1000}}).encode(), 422, ("beam", "20")),
        (json.dumps({"run": "copy", "options": {"text": "a", "beam": 1e400}}).encode(), 422, ("beam",)),
        (json.dumps({"run": "copy", "options": {"text": "a", "prefix": [99999]}}).encode(), 400, ("prefix", "99999")),
        (
            json.dumps(
                {"run": "copy", "options": {"text": "a", "off": [{"kind": "decoder.cross", "layer": 7, "head": 0}]}}
            ).encode(),
            400,
            ("there is no head 0 in layer 7",),
        ),
        (b'{"run": "copy", "options": {"text": "\\ud800"}}', 422, ()),
    ],
)
def test_a_bad_question_is_refused_in_a_sentence(
    client: TestClient, body: bytes, status: int, words: tuple[str, ...]
) -> None:
    refused(client.post("/api/ask/read", content=body, headers={"content-type": "application/json"}), status, *words)


def test_unknown_views_and_addresses_are_not_found(client: TestClient) -> None:
    refused(client.post("/api/ask/secrets", json=READ), 404, "there is no view")
    for address in ("/etc/passwd", "/studio.js.map", "/docs", "/openapi.json", "/api/ask/read/more", "/..%2f..%2fx"):
        refused(client.get(address), 404, "nothing at this address")
    refused(client.get("/api/ask/read"), 405, "not asked in this way")


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1:1", "127.0.0.1", f"127.0.0.1.evil.example:{PORT}", ""]
)
def test_a_name_of_somebody_elses_that_points_here_is_refused(client: TestClient, host: str) -> None:
    for response in (
        client.get("/", headers={"host": host}),
        client.post("/api/ask/read", json=READ, headers={"host": host}),
    ):
        refused(response, 421, "this Studio is at http://127.0.0.1:8417/")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_another_page_may_not_ask(client: TestClient, headers: dict[str, str]) -> None:
    refused(client.post("/api/ask/read", json=READ, headers=headers), 403, "another page")
    assert (
        client.post("/api/ask/read", json=READ, headers={"origin": HOST, "sec-fetch-site": "same-origin"}).status_code
        == 200
    )


def test_a_form_of_another_page_cannot_ask(client: TestClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        response = client.post("/api/ask/read", content=json.dumps(READ), headers={"content-type": kind})
        refused(response, 415, "application/json")


def test_too_large_a_question_is_refused_before_it_is_read(client: TestClient) -> None:
    headers = {"content-type": "application/json"}
    refused(client.post("/api/ask/read", content=b" " * (LARGEST + 1), headers=headers), 413, "at most 8,388,608")

    def pieces() -> Any:
        yield from (b" " * (1 << 20) for _ in range(9))

    refused(client.post("/api/ask/read", content=pieces(), headers=headers), 413, "at most 8,388,608")
    large = json.dumps({"run": "copy", "options": {"text": "a", "x": "y" * (1 << 20)}})
    refused(client.post("/api/ask/about", content=large, headers=headers), 413, "at most 1,048,576")


def test_every_answer_tells_the_browser_what_it_may_do(client: TestClient) -> None:
    for response in (
        client.get("/"),
        client.get("/studio.js"),
        client.get("/nothing"),
        client.get("/", headers={"host": "x"}),
    ):
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in response.headers


def test_beyond_this_machine_a_token_is_needed(trained: Translator) -> None:
    assert trained.path is not None
    endpoint = Endpoint.at("0.0.0.0", PORT)  # noqa: S104
    assert endpoint.token is not None
    assert len(endpoint.token) >= 32
    assert Endpoint.at("localhost", PORT).token is None
    app = create_app(RunPool([trained.path], "cpu"), endpoint)
    with TestClient(app, base_url=f"http://10.0.0.1:{PORT}") as others:
        refused(others.get("/"), 401, "needs its token")
        refused(others.get("/?token=wrong"), 401, "needs its token")
        refused(others.post("/api/ask/about", json={"run": "copy", "options": {}}), 401, "needs its token")
        refused(others.get("/", headers={"host": f"evil.example:{PORT}"}), 421, "this Studio is at")
        opened = others.get(f"/?token={endpoint.token}")
        assert opened.status_code == 200
        assert "SameSite=Strict" in opened.headers["set-cookie"]
        assert "HttpOnly" in opened.headers["set-cookie"]
        assert others.post("/api/ask/about", json={"run": "copy", "options": {}}).status_code == 200


def test_only_runs_that_were_named_are_read(trained: Translator, tmp_path: Path) -> None:
    assert trained.path is not None
    with pytest.raises(RunError, match="is no run"):
        RunPool([tmp_path])
    with pytest.raises(RunError, match="is not there"):
        RunPool([tmp_path / "none"])
    other = tmp_path / "copy"
    other.symlink_to(trained.path)
    pool = RunPool([trained.path, other, trained.path, "en-de"])
    assert pool.names[0] == "copy"
    assert len(pool.names) == len(set(pool.names))
    with pytest.raises(Refused, match='there is no run "/"'):
        pool.run("/")


def test_what_goes_wrong_inside_is_logged_without_the_text(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        try:
            raise KeyError("the secret text")
        except KeyError as error:
            said = refusal_of(error)
    assert said.status == 500
    assert "secret" not in said.sentence + caplog.text
    assert "KeyError" in caplog.text
    assert refusal_of(MemoryError()).status == 503


def test_text_is_never_html(client: TestClient, trained: Translator) -> None:
    bad = "</script><script>alert(1)</script>"
    asked = [{"view": "about", "run": "copy", "options": {}}]
    page = client.post("/api/save", json={"asked": asked, "state": f"text={bad}"})
    assert page.status_code == 200
    assert bad not in page.text
    assert page.text.count("</script>") == 2
    refused(
        client.post("/api/save", json={"asked": [{"view": "x", "run": "copy", "options": {}}], "state": ""}), 404, "x"
    )


# --- the owner


def apart(work: Any) -> Any:
    """What comes of a coroutine, in a thread of its own: tests in a browser leave a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def waiting(work: Callable[[Owner], Any]) -> Any:
    """What comes of some questions to an owner that is busy until all are asked."""
    owner, free = Owner(), threading.Event()

    async def go() -> Any:
        busy = asyncio.ensure_future(owner.do("busy", free.wait))
        await asyncio.sleep(0.05)
        asked = asyncio.ensure_future(work(owner))
        await asyncio.sleep(0.1)
        free.set()
        await busy
        return await asked

    try:
        return apart(go())
    finally:
        owner.end()


def test_a_newer_question_takes_the_place_of_an_older_one() -> None:
    done: list[int] = []

    def work(number: int) -> int:
        done.append(number)
        return number

    async def ask(owner: Owner) -> list[Any]:
        same = [owner.do("tab read", partial(work, number)) for number in range(3)]
        return list(await asyncio.gather(*same, owner.do("tab decode", lambda: "other"), return_exceptions=True))

    first, second, third, other = waiting(ask)
    assert [first.status, second.status] == [409, 409]
    assert (third, other, done) == (2, "other", [2])


def test_a_question_whose_browser_has_gone_is_not_worked_on() -> None:
    done: list[str] = []

    async def gone() -> bool:
        return True

    owner, free = Owner(), threading.Event()

    def questions() -> list[Coroutine[Any, Any, Any]]:
        return [owner.do("a", lambda: done.append("a"), gone), owner.do("b", lambda: done.append("b"))]

    async def go() -> list[Any]:
        busy = asyncio.ensure_future(owner.do("busy", free.wait))
        asked = [asyncio.ensure_future(each) for each in questions()]
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)  # the one of which nobody waits is left
        free.set()
        await busy
        return await asyncio.gather(*asked, return_exceptions=True)

    first, _ = apart(go())
    owner.end()
    assert isinstance(first, asyncio.CancelledError)
    assert done == ["b"]


def test_too_many_questions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.studio.owner.MOST", 2)

    async def ask(owner: Owner) -> list[Any]:
        return list(await asyncio.gather(*(owner.do(n, lambda: n) for n in range(4)), return_exceptions=True))  # noqa: B023

    found = waiting(ask)
    assert [each.status for each in found if isinstance(each, Refused)] == [503, 503]


def test_an_error_does_not_end_the_owner() -> None:
    owner = Owner(lambda: 1 / 0)

    async def go() -> Any:
        with pytest.raises(ZeroDivisionError):
            await owner.do("a", lambda: 1 / 0)
        return await owner.do("b", lambda: "still there")

    assert apart(go()) == "still there"
    owner.end()


def test_the_page_is_there_before_the_model_is(trained: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading takes its time; nobody waits for it but who asks the model."""
    assert trained.path is not None
    asked, loaded = threading.Event(), threading.Event()

    def begin(_: Responder) -> None:
        asked.wait(60)
        loaded.set()

    monkeypatch.setattr(Responder, "begin", begin)
    app = create_app(RunPool([trained.path], "cpu"), Endpoint("127.0.0.1", PORT))
    assert isinstance(app, Guards)
    with TestClient(app, base_url=HOST) as client:
        assert client.get("/").status_code == 200
        assert not loaded.is_set()
        asked.set()
        assert client.post("/api/ask/about", json={"run": "copy", "options": {}}).status_code == 200
