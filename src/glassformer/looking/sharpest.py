"""The sharpest head: the one whose attention is the most like an alignment, each token to one of its own.

L layers, H heads, T tokens that look, S tokens that are looked at
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from glassformer.looking.trace import Trace

SPECIAL = re.compile(r"start|end|<.+>|\[[A-Z]+\]")


@dataclass(frozen=True)
class Head:
    """The attention of one head over one text, and which head it is."""

    weights: Tensor  # (T, S)
    rows: list[str]  # T
    columns: list[str]  # S
    name: str  # of the point
    head: int
    title: str  # which head it is, in words, counted from 0 as in names


def sharpest(trace: Trace, kind: str | None = None, sentence: int = 0) -> Head:
    """The head of one kind of attention that aligns best; without a kind, of that which the task shows first.

    It is the head with the largest product of two means: of the largest weight in each row (each token looks at one),
    and of the largest weight in each column (each is looked at, so not all look at the same). What is no word is left
    out: a full stop or an end is aligned with nothing. So is the lower half of the layers: heads there align the token
    written last, as the next is not known yet.
    """
    trace.check_sentence(sentence)
    kind = kind or trace.shows
    weights = trace.attention(kind)[:, sentence]  # (L, H, T, S)
    layers, heads = weights.shape[:2]
    places = trace.axes(trace.attentions(kind)[0], sentence)
    among = weights[:, :, _words(places["token"])][..., _words(places["key"])]  # of words, by words
    scores = among.amax(dim=3).mean(dim=2) * among.amax(dim=2).mean(dim=2)  # (L, H)
    scores[: layers // 2] = -1
    layer, head = divmod(int(scores.argmax()), heads)
    name = trace.attentions(kind)[layer]
    axes = trace.axes(name, sentence)
    title = f"{kind.replace('.', ' ')}-attention" if kind.endswith("self") else f"{kind.partition('.')[2]} attention"
    if layers * heads > 1:
        others = f"{layers * heads}" if layers == 1 else f"{(layers - layers // 2) * heads} in the upper layers"
        title += f" of layer {layer}, head {axes['head'][head]}, the sharpest of {others}"
    return Head(weights[layer, head], axes["token"], axes["key"], name, axes["head"][head], title)


def _words(tokens: Sequence[object]) -> list[int]:
    """The places of tokens that are words, or parts of words; of all, if none is."""
    texts = [str(token) for token in tokens]
    found = [place for place, text in enumerate(texts) if re.search(r"\w", text) and not SPECIAL.fullmatch(text)]
    return found or list(range(len(texts)))
