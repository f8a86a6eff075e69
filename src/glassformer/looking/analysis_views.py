"""Views of what analyses find: the logit lens, why a word was written, what each part adds, roles, rollout.

T places, L layers, N tokens that were read
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from glassformer.looking.analyses.attention import Rollout, rollout
from glassformer.looking.analyses.attribution import Attribution
from glassformer.looking.analyses.lens import Lens, logit_lens
from glassformer.looking.analyses.residual import LogitAttribution, logit_attribution
from glassformer.looking.analyses.roles import Roles, roles
from glassformer.looking.analyses.why import output_of, why
from glassformer.looking.plots.choosing import kind_of, name, names
from glassformer.looking.plots.grids import lens_names, speaks, spread
from glassformer.looking.points import layer_of, points
from glassformer.looking.terminal import bars_text, cells_text, matrix_text
from glassformer.looking.trace import Trace
from glassformer.looking.view import Choice, Row, View, matching

STREAM = ("logits", "0.before", "after")  # of Transformers alone
ADDED = ("embedding", "positions", "output", "heads")
WORDS = frozenset({"word", "instead"})


# --- the logit lens


def lens_of(run: Any, item: Any, choice: Choice | None = None) -> Lens:
    """What a run would say after each layer, while it works on a text."""
    return logit_lens(run, run.look(item, keep=["logits", "before", "after"]))


def _lens_text(found: Lens, choice: Choice) -> str:
    places, texts, sure = names(found.tokens), found.texts(), found.probabilities.amax(dim=-1)
    wide = max(len(name(text)) for row in texts for text in row) + 2
    room = (choice.width - max(map(len, places)) - 3) // max(wide, len("layer 00"))
    shown = spread(len(texts), max(2, room))
    cells = [[(name(texts[at][row]), float(sure[at, row])) for at in shown] for row in range(len(places))]
    title = "What the model would say after each layer, the brighter the surer; a row for each place."
    return f"{title}\n\n{cells_text(cells, places, lens_names(found, shown))}"


def _lens_rows(found: Lens, choice: Choice) -> Iterator[Row]:
    yield ("point", "place", "place_text", "token", "token_text", "probability")
    best, texts, sure = found.top()[..., 0].tolist(), found.texts(), found.probabilities.amax(dim=-1).tolist()
    for row, point in enumerate(found.points):
        for place, text in enumerate(found.tokens):
            yield (point, place, text, best[row][place], texts[row][place], f"{sure[row][place]:.6g}")


# --- why this word


def _why_of(run: Any, item: Any, choice: Choice) -> Attribution:
    return why(run, item, choice.word, choice.instead)


def _why_text(found: Attribution, choice: Choice) -> str:
    kept = [column for column in range(len(found.columns)) if speaks(found, column)]
    columns = names([found.columns[column] for column in kept])
    against = f' and not "{found.against}"' if found.against is not None else ""
    if len(found.rows) > 1:
        title = f"A row for each word{against}: the fuller, the more its logit loses without the word above."
        most = max(float(found.values[:, kept].max()), 0.0) or 1.0  # where nothing is lost, all is empty
        hint = "[grey58]One word, and instead of which: --word WORD --instead OTHER[/]"
        drawn = matrix_text(found.values[:, kept], names(found.rows), columns, choice.width, most)
        return f"{title}\n\n{drawn}\n\n{hint}"
    unit = "difference of logits" if against else "logit"
    title = f'Why "{found.rows[0]}"{against}: how much the {unit} ({float(found.outputs[0]):.2f}) loses without a word.'
    return f"{title}\n\n{bars_text(found.values[0, kept].tolist(), columns, choice.width)}"


def _why_rows(found: Attribution, choice: Choice) -> Iterator[Row]:
    yield ("output", "instead", "stack", "token", "token_text", "value")
    for output, values in zip(found.rows, found.values.tolist(), strict=True):
        for column, value in enumerate(values):
            which = (found.stacks[column], column, found.columns[column])
            yield (output, found.against or "", *which, f"{value:.6g}")


# --- what each part adds


def parts_of(run: Any, item: Any, choice: Choice) -> LogitAttribution:
    """What each part of a run's model adds to the logit of a word, or of the first word."""
    trace = run.look(item, keep=_there(run, (*STREAM, *ADDED)))
    written = None if trace.origin is None else trace.origin.written
    output = output_of(run, item, choice.word, choice.instead, written)
    place = 0 if output.place is None else output.place
    return logit_attribution(run, trace, output.tokens[0], place, output.against)


def _there(run: Any, patterns: Sequence[str]) -> list[str]:
    """Those patterns of which a model has points."""
    return matching(patterns, points(run))


def _parts_text(found: LogitAttribution, choice: Choice) -> str:
    against = f' and not "{found.against.strip("▁")}"' if found.against is not None else ""
    title = f'Why "{found.token.strip("▁")}"{against}: what each part adds to the logit, {found.logit:.2f} in all.'
    return f"{title}\n\n{bars_text(found.values.tolist(), found.parts, choice.width)}"


def _part_rows(found: LogitAttribution, choice: Choice) -> Iterator[Row]:
    yield ("token", "instead", "part", "value")
    for part, value in zip(found.parts, found.values.tolist(), strict=True):
        yield (found.token, found.against or "", part, f"{value:.6g}")


# --- heads


def _roles(trace: Trace, choice: Choice) -> Roles:
    return roles(trace, kind_of(trace, choice.kind))


def _roles_text(trace: Trace, choice: Choice) -> str:
    found = _roles(trace, choice)
    rows = [f"layer {layer_of(point) or 0} head {head}" for point in found.points for head in found.heads]
    there = [bool(values.any()) for values in found.values]
    cells = [
        [(f"{value:.2f}" if has_places else "-", value) for value, has_places in zip(values, there, strict=True)]
        for values in found.values.flatten(1).T.tolist()
    ]
    title = f"Where each head of {kind_of(trace, choice.kind)} looks: the mean weight that goes there."
    title += "" if all(there) else " A - is a place that this text does not have."
    return f"{title}\n\n{cells_text(cells, rows, found.roles)}"


def _role_rows(trace: Trace, choice: Choice) -> Iterator[Row]:
    yield ("role", "layer", "head", "weight")
    found = _roles(trace, choice)
    for role, layers in zip(found.roles, found.values.tolist(), strict=True):
        for point, values in zip(found.points, layers, strict=True):
            for head, value in zip(found.heads, values, strict=True):
                yield (role, layer_of(point) or 0, head, f"{value:.6g}")


def _rollout(trace: Trace, choice: Choice) -> Rollout:
    return rollout(trace, kind_of(trace, choice.kind))


def _rollout_text(trace: Trace, choice: Choice) -> str:
    found = _rollout(trace, choice)
    title = "How much of each word that was read is in each vector after all layers, the most at the fullest."
    drawn = matrix_text(found.values, names(found.rows), names(found.columns), choice.width, float(found.values.max()))
    return f"{title}\n\n{drawn}"


def _rollout_rows(trace: Trace, choice: Choice) -> Iterator[Row]:
    yield ("token", "token_text", "key", "key_text", "ratio")
    found = _rollout(trace, choice)
    for row, (text, values) in enumerate(zip(found.rows, found.values.tolist(), strict=True)):
        for column, (key, value) in enumerate(zip(found.columns, values, strict=True)):
            yield (row, text, column, key, f"{value:.6g}")


ANALYSES: tuple[View, ...] = (
    View(
        "lens",
        "what the model would say after each layer",
        lambda found, choice: found.figure(),
        _lens_text,
        _lens_rows,
        points=STREAM,
        merges=False,
        options=frozenset(),
        make=lens_of,
    ),
    View(
        "why",
        "which words speak for a word of the output: --word, and --instead of which",
        lambda found, choice: found.figure(),
        _why_text,
        _why_rows,
        points=("logits",),
        merges=False,
        options=WORDS,
        make=_why_of,
    ),
    View(
        "parts",
        "how much each part of the model adds to a word's logit: --word, --instead",
        lambda found, choice: found.figure(),
        _parts_text,
        _part_rows,
        points=STREAM,
        merges=False,
        options=WORDS,
        make=parts_of,
    ),
    View(
        "roles",
        "where each head looks: the previous word, the next, the end",
        lambda trace, choice: _roles(trace, choice).figure(),
        _roles_text,
        _role_rows,
        merges=False,
    ),
    View(
        "rollout",
        "attention multiplied through all layers",
        lambda trace, choice: _rollout(trace, choice).figure(),
        _rollout_text,
        _rollout_rows,
        points=("0.self",),
        more=("weights",),
        merges=False,
    ),
)
