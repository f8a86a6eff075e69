"""A window of a long trace: some tokens of every stack, so that they can be drawn.

B sentences, H heads, T tokens, S keys
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from glassformer.looking.trace import SHARED, Stored, Trace


def longest(trace: Trace) -> int:
    """How many tokens the longest side of a trace's attention has."""
    return max((max(trace[name].shape[-2:]) for kind in trace.kinds for name in trace.attentions(kind)), default=0)


def window(trace: Trace, start: int, length: int) -> Trace:
    """One sentence of which every stack has at most so many tokens, from `start` on; a shorter stack, its last ones.

    Words that the window cuts are left out.
    """
    tensors: dict[str, list[Tensor]] = {}
    for name in trace.names:
        x = trace[name]
        for dim, axis in enumerate(trace.kept.axes_of(name)):
            if axis in ("token", "key"):
                first = _first(x.shape[dim], start, length)
                x = x.narrow(dim, first, min(length, x.shape[dim] - first))
        tensors[name] = [x]
    axes, heads = ({name: of(name) for name in tensors} for of in (trace.kept.axes_of, trace.kept.heads_of))
    counts = {stack: len(rows[0]) for stack, rows in trace.about.tokens.items() if stack not in (*SHARED, "beams")}
    firsts = {stack: _first(count, start, length) for stack, count in counts.items()}
    tokens = {
        stack: [rows[0][firsts[stack] : firsts[stack] + length]] if stack in firsts else rows
        for stack, rows in trace.about.tokens.items()
    }
    words = {
        stack: [
            [
                [piece - firsts[stack] for piece in word]
                for word in rows[0]
                if firsts[stack] <= word[0] and word[-1] < firsts[stack] + length
            ]
        ]
        for stack, rows in trace.about.words.items()
    }
    about = replace(trace.about, tokens=tokens, words=words)
    return Trace(Stored(tensors, axes, heads, trace.beams), about)  # type: ignore[arg-type]


def _first(count: int, start: int, length: int) -> int:
    """Where the window begins in so many tokens."""
    return max(0, min(start, count - length))
