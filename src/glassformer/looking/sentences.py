"""Traces of several texts as one, and one text of such a trace.

B sentences, H heads, T tokens, S keys
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.recording import padded
from glassformer.looking.trace import SHARED, Description, Stored, Trace


def joined(traces: Sequence[Trace], names: Sequence[str], dtype: torch.dtype) -> Trace:
    """Some points of traces of one text each, as one trace of all texts; what is shorter is filled up with zeros.

    The input and the output have a line for each text.
    """
    first = traces[0]
    tensors = {name: [padded([trace[name][0].to(dtype) for trace in traces], 0)] for name in names}
    axes, heads = ({name: of(name) for name in names} for of in (first.kept.axes_of, first.kept.heads_of))
    stacks = [stack for stack in first.about.tokens if stack not in (*SHARED, "beams")]
    about = Description(
        "\n".join(_line(trace.input) for trace in traces),
        "\n".join(_line(trace.output) for trace in traces),
        first.about.shows,
        {stack: [row for trace in traces for row in trace.about.tokens[stack]] for stack in stacks},
        {stack: [row for trace in traces for row in trace.about.words[stack]] for stack in first.about.words},
    )
    return Trace(Stored(tensors, axes, heads), about)  # type: ignore[arg-type]


def sentence_of(trace: Trace, number: int) -> Trace:
    """One text of a trace that was joined from several."""
    count = len(trace[trace.names[0]])
    if not 0 <= number < count:
        raise InputError(f"there is no text {number}: the trace has {count}")
    tensors: dict[str, list[Tensor]] = {name: [trace[name][number : number + 1]] for name in trace.names}
    axes, heads = ({name: of(name) for name in tensors} for of in (trace.kept.axes_of, trace.kept.heads_of))
    about = replace(
        trace.about,
        input=trace.input.split("\n")[number],
        output=trace.output.split("\n")[number],
        tokens={stack: rows[number : number + 1] for stack, rows in trace.about.tokens.items()},
        words={stack: rows[number : number + 1] for stack, rows in trace.about.words.items()},
    )
    return Trace(Stored(tensors, axes, heads), about)  # type: ignore[arg-type]


def _line(text: str) -> str:
    return " ".join(text.split())
