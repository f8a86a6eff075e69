"""The server of the Studio's page: the page itself, and one address for all questions.

    GET  /                  the page; what was recorded before is inside, so that there is something to see at once
    GET  /studio.js, .css   its script and its style
    POST /api/ask/{view}    {"run": …, "options": {…}}; the answer is binary (looking/answer.py)
    POST /api/save          {"asked": […], "state": …}; the answer is a page that opens from disk

Everything that is refused is {"error": "a sentence"}.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from glassformer.scripts import script
from glassformer.studio.guards import Endpoint, Guards
from glassformer.studio.opening import opening
from glassformer.studio.owner import Owner
from glassformer.studio.refusals import Refused, refusal_of
from glassformer.studio.responder import Responder
from glassformer.studio.run_pool import RunPool

LARGEST = 8 << 20  # bytes of a question: an image may be in it
CLOSED = 499  # as nginx says it: the browser has gone, and nobody reads this
TAB = "x-studio-tab"


def create_app(pool: RunPool, endpoint: Endpoint) -> Guards:
    """The Studio for some runs, as an ASGI application."""
    responder = Responder(pool)
    owner = Owner(responder.begin)
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.state.owner = owner

    async def body_of(request: Request) -> bytes:
        try:
            return await request.body()
        except ClientDisconnect:
            raise Refused(CLOSED, "nobody waits for this any more") from None

    async def done(request: Request, key: Hashable, work: Callable[[], Any]) -> Any:
        """What comes of some work; whatever goes wrong is a refusal."""
        try:
            return await owner.do(key, work, request.is_disconnected)
        except asyncio.CancelledError:
            raise Refused(CLOSED, "nobody waits for this any more") from None
        except Exception as error:
            raise refusal_of(error) from None

    @app.get("/")
    async def page() -> Response:
        return HTMLResponse(opening(pool))

    @app.get("/studio.js")
    async def code() -> Response:
        return Response(script("studio"), media_type="text/javascript")

    @app.get("/studio.css")
    async def style() -> Response:
        return Response(script("studio", "css"), media_type="text/css")

    @app.post("/api/ask/{view}")
    async def ask(view: str, request: Request) -> Response:
        body, tab = await body_of(request), request.headers.get(TAB, "")[:64]
        key = (tab, view) if tab else object()
        packed = await done(request, key, lambda: responder.answer(view, body))
        return Response(packed, media_type="application/octet-stream")

    @app.post("/api/save")
    async def save(request: Request) -> Response:
        body = await body_of(request)
        return HTMLResponse(await done(request, object(), lambda: responder.save(body)))

    _answer_errors(app)
    return Guards(app, endpoint, LARGEST)


def _answer_errors(app: FastAPI) -> None:
    """Every error is a sentence."""

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Any) -> Response:
        return JSONResponse({"error": error.sentence}, error.status)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: Any) -> Response:
        what = {404: "there is nothing at this address", 405: "this address is not asked in this way"}
        sentence = what.get(error.status_code, "this cannot be read")
        return JSONResponse({"error": sentence}, error.status_code)
