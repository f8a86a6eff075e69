"""Guards: who may ask, and how much. They stand before everything else.

A browser tells which name it has asked for (Host) and which page asks (Origin, Sec-Fetch-Site). A page of somebody
else's that makes a name of its own point here, or that sends something here, is refused. Outside of this machine a
token is needed as well: it is in the address that is printed, and then in a cookie.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import secrets
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from glassformer.studio.refusals import Refused, check_size

COOKIE = "glassformer"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server at this host."""
    return host in LOOPBACK


@dataclass(frozen=True)
class Endpoint:
    """Where a Studio is: the host and the port that it listens at; open to others, it has a token."""

    host: str = "127.0.0.1"
    port: int = 80
    token: str | None = None
    names: frozenset[str] = field(default_factory=frozenset)  # that a browser may ask for, beside addresses

    @classmethod
    def at(cls, host: str, port: int) -> Endpoint:
        """The endpoint at a host: on this machine alone, or open to others with a new token."""
        if is_loopback(host):
            return cls(host, port)
        return cls(host, port, secrets.token_urlsafe(24), frozenset({host, socket.gethostname(), socket.getfqdn()}))

    @property
    def url(self) -> str:
        """The address to open."""
        shown = socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104
        name = f"[{shown}]" if ":" in shown else shown
        return f"http://{name}:{self.port}/" + (f"?token={self.token}" if self.token else "")

    def knows(self, host: str) -> bool:
        """Whether a browser that asks for this host means this server, and was not led here by a name of others."""
        name, port = _split(host)
        if port != self.port:
            return False
        if self.token is None:
            return name in LOOPBACK
        return name in LOOPBACK or name in self.names or _is_address(name)


class Guards:
    """Refuses what should not come in, and adds to every answer what keeps a browser safe."""

    def __init__(self, app: ASGIApp, endpoint: Endpoint, most: int) -> None:
        self.app, self.endpoint, self.most = app, endpoint, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        try:
            self._check(scope["method"], scope["path"], headers, given)
        except Refused as refused:
            await _refuse(refused, send)
            return
        await self.app(scope, _bounded(receive, self.most), self._safe(send, given))

    def _check(self, method: str, path: str, headers: dict[str, str], given: str) -> None:
        host = headers.get("host", "")
        if not self.endpoint.knows(host):
            raise Refused(421, f"this Studio is at {self.endpoint.url.partition('?')[0]}, not at {host[:100]!r}")
        if path != "/" and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            raise Refused(403, "another page has asked for this: only the Studio's own page may")
        if "origin" in headers and headers["origin"] not in (f"http://{host}", f"https://{host}"):
            raise Refused(403, "another page has asked for this: only the Studio's own page may")
        if method == "POST" and headers.get("content-type", "").split(";")[0].strip() != "application/json":
            raise Refused(415, "a question is sent as application/json")
        if method == "POST" and headers.get("content-length", "0").isdecimal():
            check_size(int(headers.get("content-length", "0")), self.most)
        if self.endpoint.token is not None:
            shown = given or _cookie(headers.get("cookie", ""))
            if not hmac.compare_digest(shown.encode(), self.endpoint.token.encode()):
                raise Refused(401, "this Studio needs its token: open the address that glassformer studio has printed")

    def _safe(self, send: Send, given: str) -> Send:
        added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        if self.endpoint.token is not None and given:
            cookie = f"{COOKIE}={self.endpoint.token}; HttpOnly; SameSite=Strict; Path=/"
            added.append((b"set-cookie", cookie.encode()))

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *added]}
            await send(message)

        return sending


def _bounded(receive: Receive, most: int) -> Receive:
    """What is received, as long as it is not too much."""
    read = 0

    async def receiving() -> Message:
        nonlocal read
        message = await receive()
        if message["type"] == "http.request":
            read += len(message.get("body", b""))
            check_size(read, most)
        return message

    return receiving


async def _refuse(refused: Refused, send: Send) -> None:
    body = json.dumps({"error": refused.sentence}).encode()
    headers = {**HEADERS, "content-type": "application/json", "content-length": str(len(body))}
    start = {"type": "http.response.start", "status": refused.status, "headers": _bytes(headers.items())}
    await send(start)
    await send({"type": "http.response.body", "body": body})


def _bytes(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers]


def _split(host: str) -> tuple[str, int]:
    """The name and the port of a Host header; port 80 where it says none, and -1 for what is no port."""
    name, colon, port = host.rpartition(":")
    if not colon or port.endswith("]"):
        name, port = host, "80"
    return name.strip("[]").lower(), int(port) if port.isdecimal() else -1


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _cookie(header: str) -> str:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value
