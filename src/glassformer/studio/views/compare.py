"""Compare: two runs on one text. What each writes, how likely that is for both, and where their models part."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from pydantic import Field

from glassformer.errors import InputError
from glassformer.looking.answer import Answer, Array, fractions
from glassformer.looking.comparing import compare_items
from glassformer.looking.plots.choosing import called, name
from glassformer.looking.trace import WRITTEN, Description
from glassformer.studio.items import item_of
from glassformer.studio.views.view import IMAGE, Given, Options, View
from glassformer.tasks.showing import differences

MOST = 1 << 24  # weights that are sent: of longer texts, only how far heads are from each other is shown


class Compare(Options):
    """The text, and the name of the run to compare with."""

    text: Given
    other: Annotated[str, Field(max_length=1000)]


def answer(run: Any, options: Compare, other: Any) -> Answer:
    """Outputs with their differences marked, scores, streams and heads; and the weights of all heads of both."""
    if run.fields != other.fields:
        reads = [" and ".join(each.fields) for each in (run, other)]
        raise InputError(f'this run reads {reads[0]}, but "{options.other}" {reads[1]}: they cannot be compared')
    found = compare_items(run, other, (item_of(run, options.text), item_of(other, options.text)), "")
    outputs = (differences(*found.outputs), differences(*found.outputs[::-1]))
    about = found.traces[0].about if found.traces else Description()
    kinds, arrays = list[dict[str, Any]](), dict[str, Array]()
    small = sum(trace.attention(kind).numel() for trace in found.traces or () for kind in trace.kinds) <= MOST
    for kind in dict.fromkeys(pair.kind for pair in found.heads):
        for side, trace in zip("ab", found.traces or (), strict=False):
            axes = trace.axes(trace.attentions(kind)[0])
            if small:
                arrays[f"{side} {kind}"] = fractions(trace.attention(kind)[:, 0], bits=8)  # (L, H, T, S)
        rows, columns = ([name(text) for text in axes[axis]] for axis in ("token", "key"))
        written = kind.endswith("cross") and WRITTEN in about.tokens
        kinds.append({"name": kind, "title": called(kind), "rows": rows, "columns": columns, "written": written})
    return Answer(
        {
            "outputs": outputs,
            "tokens": [[name(text) for text in some] for some in found.tokens],
            "scores": [asdict(each) for each in found.scores],
            "streams": [asdict(each) for each in found.streams],
            "diverges": found.diverges.point if found.diverges else None,
            "heads": [asdict(each) for each in found.heads],
            "kinds": kinds,
            "words": {stack: rows[0] for stack, rows in about.words.items() if rows},
            "notes": found.notes,
        },
        arrays,
    )


VIEW = View("compare", Compare, answer, others=("other",), body=IMAGE)
