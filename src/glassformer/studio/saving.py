"""A page in one file: the Studio with answers that were recorded. It opens from disk, and asks nobody for anything."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from html import escape
from typing import Annotated, Any
from urllib.parse import urlencode

from pydantic import Field

from glassformer.errors import InputError
from glassformer.looking.answer import Answer
from glassformer.looking.page import fingerprint, within_html
from glassformer.scripts import NO_SCRIPTS, script
from glassformer.studio.opening import for_page
from glassformer.studio.views import VIEWS
from glassformer.studio.views.view import Options

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="studio"></div>
<noscript>This page needs JavaScript.</noscript>
<script type="application/json" id="start">{start}</script>
<script>{code}</script>
</body>
</html>
"""


class Asked(Options):
    """One question."""

    view: Annotated[str, Field(max_length=64)]
    run: Annotated[str, Field(max_length=1000)]
    options: dict[str, Any]


class Saving(Options):
    """Which answers a page is to hold, and what it shows first, as a link says it."""

    asked: Annotated[list[Asked], Field(max_length=200)]
    state: Annotated[str, Field(max_length=100_000)]


def recorded(asked: Asked, packed: bytes) -> dict[str, Any]:
    """An answer as a page has it."""
    return {**asked.model_dump(), "packed": base64.b64encode(packed).decode()}


def page_of(answers: Sequence[dict[str, Any]], state: str, title: str = "Glassformer Studio") -> str:
    """A page with answers, which are `recorded`."""
    code, style = script("studio"), script("studio", "css")
    if code is None or style is None:
        raise InputError(f"the page cannot be made: {NO_SCRIPTS}")
    code = within_html(code)
    policy = f"default-src 'none'; script-src {fingerprint(code)}; style-src {fingerprint(style)}; img-src data: blob:"
    start = {"live": False, "runs": list(dict.fromkeys(each["run"] for each in answers)), "recorded": answers}
    return PAGE.format(
        policy=f"{policy}; base-uri 'none'; form-action 'none'",
        title=escape(title),
        style=style,
        start=for_page({**start, "state": state}),
        code=code,
    )


def page_for(run: Any, name: str, text: str, state: dict[str, Any], how: dict[str, Any]) -> str:
    """A page of what a run does with a text: how it reads and writes, and where it searches, how it decodes."""
    asked = {"text": text, **how}
    questions: list[tuple[str, dict[str, Any]]] = [("about", {}), ("read", asked)]
    if VIEWS["effects"].fits(run):
        questions.append(("effects", {"text": text}))
    if how:
        questions.append(("read", {"text": text}))
    if VIEWS["decode"].fits(run):
        brief = [{**asked, "beam": 1, "brief": True}, *([{"text": text, "brief": True}] if how else [])]
        questions += [("decode", each) for each in (asked, *brief)] + [("vocabulary", {})]
    answers = []
    for view, options in questions:
        found = VIEWS[view]
        answer = found.answer(run, found.Options.model_validate(options))
        if view == "about":  # of the views that the run has, the page shows those that it has answers of
            asked_for = {each for each, _ in questions}
            shown = [each for each in answer.header["views"] if each in asked_for]
            answer = Answer({**answer.header, "views": shown}, answer.arrays)
        answers.append(recorded(Asked(view=view, run=name, options=options), answer.packed()))
    options = {"options": json.dumps({"how": how})} if how else {}
    return page_of(answers, urlencode({"run": name, "text": text, **state, **options}), title=text)
