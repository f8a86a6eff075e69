"""A trace packed for the interactive view: its tokens and candidates as a header, and the weights of all heads.

The array `words decoder.cross`, for example, has the weights of this attention between words: of each head T x S
integers of 16 bits (8 where there are many). A weight is the integer divided by the largest one. Where there are too
many to send, there are small maps of all heads instead (`words decoder.cross small`), and `weights_of` has those of one
head. What attention mixes through all layers is in `words decoder.cross rollout`.

L layers, H heads, T tokens that look, S tokens that are looked at, k candidates
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.analyses import entropy, rollout
from glassformer.looking.answer import Answer, Array, fractions
from glassformer.looking.plots.choosing import called, head_of, kind_of, name
from glassformer.looking.points import layer_of, stack_of
from glassformer.looking.trace import WRITTEN, Trace
from glassformer.looking.windows import longest, window

VERSION = 3
MOST = 512  # tokens on a side
LARGE = 1 << 21  # weights from which 8 bits have to do
CANDIDATES = 5  # for each step
WHOLE = 1 << 22  # weights of all heads that are sent at once to a page that can ask for more
SMALL = 64  # pixels of a side of a small map


@dataclass(frozen=True)
class First:
    """What the view shows when it opens; what is not said is chosen: the sharpest head, words where they are known."""

    kind: str | None = None
    layer: int | None = None
    head: int | None = None
    matrix: bool = False  # in place of lines
    words: bool = True
    row: int | None = None  # the token that is pointed at; None: a long word


def pack(trace: Trace, first: First | None = None, sentence: int = 0) -> bytes:
    """One sentence of a trace for the interactive view, as bytes."""
    return answer_of(trace, first, sentence).packed()


def answer_of(trace: Trace, first: First | None = None, sentence: int = 0) -> Answer:
    """One sentence of a trace for the interactive view: its attention by pieces and by words, and the candidates."""
    trace.check_sentence(sentence)
    _check_size(trace, sentence)
    return _answer(trace, first or First(), sentence, whole=True)


def window_of(trace: Trace, start: int = 0, first: First | None = None) -> Answer:
    """The same for a page that can ask for more: of a long text some tokens, and of many weights small maps."""
    count, shown = longest(trace), trace
    if count > MOST:
        start = max(0, min(start, count - MOST))
        shown = window(trace, start, MOST)
    found = _answer(shown, first or First(), 0, whole=2 * _count(shown) < WHOLE, rolls=shown is trace)
    more = None if count <= MOST else {"start": start, "length": MOST, "tokens": count}
    return Answer({**found.header, "window": more}, found.arrays)


def weights_of(trace: Trace, reading: str, kind: str, layer: int | None, head: int | None, start: int = 0) -> Answer:
    """The weights of one head, of the mean of a layer or of all heads, as `window_of` has the others."""
    shown = window(trace, start, MOST) if longest(trace) > MOST else trace
    if reading == "words" and shown.about.words:
        shown = shown.words()
    kind = kind_of(shown, kind)
    if layer is not None or head is not None:
        head_of(shown, layer, head, kind, 0)  # which refuses what does not exist
    points = [point for point in shown.attentions(kind) if layer in (None, layer_of(point) or 0)]
    rows, columns = map(len, _texts(shown, points[0], 0))
    found = [shown[point][0, :, :rows, :columns].float() for point in points]
    if head is not None:
        weights = found[0][shown.axes(points[0])["head"].index(head)]
    else:
        weights = sum((each.mean(dim=0) for each in found), start=found[0].new_zeros(rows, columns)) / len(found)
    return Answer({}, {"weights": fractions(weights, 8 if weights.numel() > MOST * SMALL else 16)})


def _count(trace: Trace) -> int:
    """How many weights all heads have."""
    return sum(trace[name].numel() for kind in trace.kinds for name in trace.attentions(kind))


def _answer(trace: Trace, first: First, sentence: int, whole: bool, rolls: bool = True) -> Answer:
    """Tokens, heads and candidates; `whole`: all weights, not small maps; `rolls`: what mixes through all layers."""
    kind = kind_of(trace, first.kind)
    head_of(trace, first.layer, first.head, kind, sentence)  # which refuses what does not exist
    bits = 16 if _count(trace) < LARGE else 8
    readings, arrays = {}, dict[str, Array]()
    for reading, shown, at in _readings(trace, sentence):
        readings[reading] = [_kind(shown, each, at, trace, sentence, first) for each in shown.kinds]
        for each in shown.kinds:
            weights = _weights(shown, each, at)
            if whole:
                arrays[f"{reading} {each}"] = fractions(weights, bits)
            else:
                arrays[f"{reading} {each} small"] = fractions(_small(weights), 8)
            if rolls and (rolled := _rolled(trace, each, sentence, reading)) is not None:
                arrays[f"{reading} {each} rollout"] = fractions(rolled, bits)
    header = {
        "version": VERSION,
        "input": trace.input,
        "output": trace.output,
        "first": {**asdict(first), "kind": kind, "words": first.words and "words" in readings},
        "readings": readings,
        "candidates": _candidates(trace, sentence),
        "words": {stack: rows[sentence] for stack, rows in trace.about.words.items() if sentence < len(rows)},
    }
    return Answer(header, arrays)


def _readings(trace: Trace, sentence: int) -> list[tuple[str, Trace, int]]:
    """The trace by pieces and, where it knows them, by words; and which of its sentences it is."""
    words = [("words", trace.words(sentence), 0)] if trace.about.words else []
    return [("pieces", trace, sentence), *words]


def _kind(shown: Trace, kind: str, at: int, trace: Trace, sentence: int, first: First) -> dict[str, Any]:
    """What is said of one kind of attention; its weights follow in the order of `heads`."""
    points, scores = shown.attentions(kind), entropy(shown, kind, at)
    chosen = (first.layer, first.head) if kind_of(trace, first.kind) == kind else (None, None)
    sharp = head_of(shown, *chosen, kind, at)
    rows, columns = _texts(shown, points[0], at)
    pieces = _texts(trace, points[0], sentence)[0]
    return {
        "name": kind,
        "title": called(kind),
        "written": WRITTEN in trace.about.tokens and kind.endswith("cross"),
        "rows": rows,
        "columns": columns,
        "heads": [
            {"layer": layer_of(point) or 0, "head": head, "entropy": round(float(bits), 4)}
            for point, some in zip(points, scores.values, strict=True)
            for head, bits in zip(scores.heads, some, strict=True)
        ],
        "sharpest": [layer_of(sharp.name) or 0, sharp.head],
        "steps": _steps(shown, trace, points[0], sentence, len(pieces)),
    }


def _texts(trace: Trace, point: str, sentence: int) -> tuple[list[str], list[str]]:
    """The tokens that look and those that are looked at, as they are shown."""
    axes = trace.axes(point, sentence)
    rows, columns = ([str(each) for each in axes[axis]] for axis in ("token", "key"))
    return [name(each) for each in _real(rows)], [name(each) for each in _real(columns)]


def _real(labels: Sequence[str]) -> Sequence[str]:
    """The tokens that a sentence has: those after them have no name."""
    return labels[: max((place + 1 for place, label in enumerate(labels) if label), default=len(labels))]


def _steps(shown: Trace, trace: Trace, point: str, sentence: int, pieces: int) -> list[list[int]] | None:
    """Of each row, the places of its candidates; nothing, if the rows are not those of the logits."""
    if not _has_candidates(trace) or stack_of(point) != _stack(trace):
        return None
    if shown is trace:
        return [[place] for place in range(pieces)]
    return trace.about.words[WRITTEN if ".cross." in point and WRITTEN in trace.about.words else stack_of(point)][
        sentence
    ]


def _stack(trace: Trace) -> str:
    """The stack whose tokens the logits are of."""
    return "decoder" if trace.tokens("decoder") else "encoder"


def _has_candidates(trace: Trace) -> bool:
    """Whether there are logits for each token, of a vocabulary or of labels with names."""
    axes = trace.kept.axes_of("logits") if "logits" in trace.names else {}
    return "token" in axes and ("vocabulary" in axes or ("label" in axes and "label" in trace.about.tokens))


def _candidates(trace: Trace, sentence: int) -> list[list[dict[str, Any]]]:
    """The likeliest tokens at each place with their probabilities, and the one that follows, if that is known."""
    if not _has_candidates(trace):
        return []
    logits, (*_, spelled) = trace["logits"][sentence].float(), trace.axes("logits", sentence).values()
    follows: list[int] = []
    if _stack(trace) == "decoder" and "decoder.tokens" in trace.names:
        follows = [token for token in trace["decoder.tokens"][sentence].tolist() if token >= 0][1:]
    found = []
    for place, some in enumerate(logits.softmax(dim=-1)):  # (V,)
        chosen = follows[place] if place < len(follows) else None
        best = some.topk(min(CANDIDATES, len(some))).indices.tolist()
        best += [chosen] if chosen is not None and chosen not in best else []
        found.append(
            [
                {
                    "token": each,
                    "text": name(spelled[each]),
                    "probability": round(float(some[each]), 5),
                    "chosen": each == chosen,
                }
                for each in best
            ]
        )
    return found


def _weights(trace: Trace, kind: str, sentence: int) -> Tensor:
    """The weights of all heads of one kind, (L * H, T, S)."""
    rows, columns = map(len, _texts(trace, trace.attentions(kind)[0], sentence))
    return trace.attention(kind)[:, sentence, :, :rows, :columns].flatten(0, 1).float()


def _small(weights: Tensor) -> Tensor:
    """Maps (L * H, T, S) made smaller so that what stands out still does: a pixel is the largest weight under it."""
    rows, columns = (min(SMALL, size) for size in weights.shape[1:])
    return F.adaptive_max_pool2d(weights[None], (rows, columns))[0]


def _rolled(trace: Trace, kind: str, sentence: int, reading: str) -> Tensor | None:
    """What attention mixes through all layers, (T, S), by pieces or by words; None, where that is not known."""
    try:
        found = rollout(trace, kind, sentence).values
    except InputError:
        return None
    point = trace.attentions(kind)[0]
    if reading == "pieces":
        rows, columns = map(len, _texts(trace, point, sentence))
        return found[:rows, :columns]
    words = trace.about.words
    looking = WRITTEN if ".cross." in point and WRITTEN in words else stack_of(point)
    read = "encoder" if ".cross." in point else stack_of(point)
    if looking in words:
        found = torch.stack([found[word].mean(dim=0) for word in words[looking][sentence]])
    if read in words:  # the patches of an image are none
        found = torch.stack([found[:, word].sum(dim=1) for word in words[read][sentence]], dim=1)
    return found


def _check_size(trace: Trace, sentence: int) -> None:
    sides = [len(texts) for kind in trace.kinds for texts in _texts(trace, trace.attentions(kind)[0], sentence)]
    if max(sides) > MOST:
        raise InputError(
            f"there are {max(sides):,} tokens, and the interactive view has room for {MOST}: take a shorter text, or "
            "keep the numbers as .csv or .trace"
        )
