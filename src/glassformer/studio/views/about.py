"""About a run: what it is, what it reads, which views it has, and texts to try. A page asks this first."""

from __future__ import annotations

from typing import Any

from glassformer.looking import points
from glassformer.looking.answer import Answer
from glassformer.studio.examples import examples_of
from glassformer.studio.views.view import Options, View


class About(Options):
    """Nothing more is asked."""


def answer(run: Any, options: About) -> Answer:
    """What a run is."""
    from glassformer.studio.views import VIEWS  # which holds this one

    decode = getattr(run.recipe, "decode", None)
    return Answer(
        {
            "task": run.task.kind,
            "title": run.recipe.title,
            "family": getattr(run.recipe.model, "family", ""),
            "fields": run.fields,
            "examples": examples_of(run),
            "searches": run.searches,
            "extends": run.extends,
            "points": list(points(run)),
            "parameters": sum(each.numel() for each in run.model.parameters()),
            "decode": {} if decode is None else {"beam": decode.beam, "length_penalty": decode.length_penalty},
            "views": [name for name, view in VIEWS.items() if view is not VIEW and view.fits(run)],
        }
    )


def without(why: str) -> Answer:
    """What is known of a run that cannot be loaded, such as one whose training has just begun."""
    from glassformer.studio.views import VIEWS

    nothing = {"task": "", "title": "", "family": "", "searches": False, "extends": False, "parameters": 0}
    lists: dict[str, Any] = {"fields": [], "examples": [], "points": [], "decode": {}}
    return Answer({**nothing, **lists, "why": why, "views": [name for name, view in VIEWS.items() if view.folders]})


VIEW = View("about", About, answer, without=without)
