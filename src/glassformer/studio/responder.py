"""The responder: a question is read and checked, a view answers it, the answer is packed. It works in one thread.

Answers that were given last are kept, so that going back costs nothing.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from glassformer.errors import GlassformerError, InputError
from glassformer.studio.refusals import Refused, check_size
from glassformer.studio.run_pool import RunPool

if TYPE_CHECKING:
    from glassformer.studio.views.view import Options, View

KEPT = 64 << 20  # bytes of answers


class Responder:
    """Works for one Studio, in one thread."""

    def __init__(self, pool: RunPool) -> None:
        self.pool = pool
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def begin(self) -> None:
        """Import what views need, and load the first run, before anybody asks."""
        from glassformer.studio.views import VIEWS  # noqa: F401

        self.pool.run(self.pool.names[0])

    def answer(self, view: str, body: bytes) -> bytes:
        """The packed answer to a question, {"run": …, "options": {…}} in JSON."""
        from glassformer.studio.views import VIEWS

        if view in VIEWS:
            check_size(len(body), VIEWS[view].body)
        asked = _read(body)
        return self.ask(view, asked["run"], asked["options"])

    def save(self, body: bytes) -> str:
        """A page in one file with some answers, {"asked": [{"view", "run", "options"} …], "state": …} in JSON."""
        from glassformer.studio.saving import Saving, page_of, recorded

        wanted = Saving.model_validate_json(body)
        answers = []
        for each in wanted.asked:
            try:
                answers.append(recorded(each, self.ask(each.view, each.run, each.options)))
            except InputError:  # a text that one of the views cannot show: the file has the others
                continue
        return page_of(answers, wanted.state)

    def ask(self, view: str, run: str, options: Mapping[str, Any]) -> bytes:
        """The packed answer of a view."""
        from glassformer.studio.views import VIEWS

        if view not in VIEWS:
            raise Refused(404, f'there is no view "{view}": there are {", ".join(VIEWS)}')
        self.pool.folder(run)  # which refuses runs that were not named
        found = VIEWS[view]
        checked = found.Options.model_validate(options)
        key = json.dumps([view, run, checked.model_dump(mode="json")], sort_keys=True)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        packed, keeps = self._made(found, run, checked)
        if keeps:
            self._keep(key, packed)
        return packed

    def _made(self, view: View, run: str, options: Options) -> tuple[bytes, bool]:
        """The packed answer of a view, and whether it stays as it is."""
        if view.folders:
            folders = {name: self.pool.folder(name) for name in getattr(options, view.folders)}
            return view.answer(folders, options).packed(), view.keeps
        try:
            loaded = self.pool.run(run)
        except GlassformerError as error:
            if view.without is None:
                raise
            return view.without(str(error)).packed(), False
        if not view.fits(loaded):  # above all, a text is never taken for the name of a file
            raise Refused(400, f'the run "{run}" has no view "{view.name}"')
        others = {name: self.pool.run(getattr(options, name)) for name in view.others}
        return view.answer(loaded, options, **others).packed(), view.keeps

    def _keep(self, key: str, packed: bytes) -> None:
        self._kept[key] = packed
        while sum(map(len, self._kept.values())) > KEPT:
            self._kept.popitem(last=False)


def _read(body: bytes) -> dict[str, Any]:
    """A question; what is none is refused."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, "the question is no JSON") from None
    if not (
        isinstance(asked, dict)
        and asked.keys() == {"run", "options"}
        and isinstance(asked["run"], str)
        and isinstance(asked["options"], dict)
    ):
        raise Refused(400, 'a question is {"run": a name, "options": {…}}')
    return asked
