"""Alignment: which word of the source a written word comes from, read off cross-attention, and how well that fits.

L layers, H heads, T target words, S source words
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.analyses.tables import (
    HeadScores,
    attention_names,
    frame,
    head_row,
    sentence_of,
)
from glassformer.looking.patching import Looked
from glassformer.looking.points import find
from glassformer.looking.recording import record
from glassformer.looking.sharpest import sharpest
from glassformer.looking.trace import Description, Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Links = frozenset[tuple[int, int]]  # numbers of a source word and of a target word, from 0
Row = Literal["written", "read"]
KIND = "decoder.cross"
END = "end"  # what a trace calls the end that was written
LINK = re.compile(r"(\d+)([-?])(\d+)")


@dataclass(frozen=True)
class Alignment:
    """Which source words each target word is linked to, and the attention that says so."""

    links: Links
    weights: Tensor  # (T, S)
    target: list[str]  # T
    source: list[str]  # S
    point: str
    head: int | None  # None: the mean over heads

    def __str__(self) -> str:
        return " ".join(f"{source}-{target}" for source, target in sorted(self.links))

    def figure(self) -> Figure:
        """Two lines of text with the links between them, as wide as the weight of each."""
        from glassformer.looking.plots.attention import linked
        from glassformer.looking.plots.choosing import names

        links = [(target, source, float(self.weights[target, source])) for source, target in sorted(self.links)]
        which = "mean of heads" if self.head is None else f"head {self.head}"
        title = f"Alignment by {self.point.removesuffix('.weights')}, {which}"
        return linked(names(self.target), names(self.source), links, title)

    def pandas(self) -> Any:
        """The attention between words as a DataFrame: a row for each target word."""
        return frame(self.weights, self.target, self.source)


@dataclass(frozen=True)
class Gold:
    """The links that a person wrote: sure ones, and possible ones, which the sure ones are among."""

    sure: Links
    possible: Links

    @classmethod
    def read(cls, text: str) -> Gold:
        """From "0-0 1-2 3?2": numbers of source and target words, with - for sure and ? for possible."""
        found = [LINK.fullmatch(link) for link in text.split()]
        if wrong := [link for link, match in zip(text.split(), found, strict=True) if match is None]:
            raise InputError(f'"{wrong[0]}" is no link: write 0-1 for a sure one, 0?1 for a possible one')
        links = [(int(match[1]), int(match[3]), match[2]) for match in found if match is not None]
        sure = frozenset((source, target) for source, target, sign in links if sign == "-")
        return cls(sure, frozenset((source, target) for source, target, _ in links))


def alignment(
    trace: Trace,
    point: str | None = None,
    head: int | None = None,
    row: Row = "written",
    threshold: float | None = None,
    sentence: int = 0,
) -> Alignment:
    """Links from the cross-attention of a head of a point, or the mean over its heads; without a point, the sharpest.

    Each target word is linked to the source word with the largest weight, or with a `threshold` to all with at least
    this weight. Pieces of words are merged: weights are summed over keys and averaged over tokens. `row` says which
    word's attention counts: that of the step that writes it, or of the next step, which reads it.
    """
    names = attention_names(trace, "alignment", KIND)
    if point is None:
        if head is not None:
            raise InputError(f"head {head} of which layer? Name the point, such as {names[-1]}")
        best = sharpest(trace, KIND, sentence)
        point, head = best.name, best.head
    name = find(point, names)
    weights, target, source = _word_weights(trace, name, row, sentence)  # (H, T, S)
    one = weights.mean(dim=0) if head is None else weights[head_row(trace, name, head)]
    return Alignment(_links(one, threshold), one, target, source, name, head)


def alignment_errors(
    traces: Sequence[Trace], gold: Sequence[Gold], row: Row = "written", threshold: float | None = None
) -> HeadScores:
    """The alignment error rate of every head of cross-attention over some sentences; `lowest` aligns best."""
    if len(traces) != len(gold) or not traces:
        raise InputError(f"there are {len(traces)} traces and {len(gold)} alignments: expected as many, at least one")
    names = attention_names(traces[0], "alignment_errors", KIND)
    heads = traces[0].axes(names[0])["head"]
    rows = []
    for name in names:
        weights = [_word_weights(trace, name, row, 0)[0] for trace in traces]
        rows.append([aer([_links(each[head], threshold) for each in weights], gold) for head in range(len(heads))])
    return HeadScores(torch.tensor(rows), names, heads)


def aer(found: Sequence[Iterable[tuple[int, int]]], gold: Sequence[Gold]) -> float:
    """The alignment error rate (Och and Ney, 2003): 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), counts over all sentences.

    A are the links found, S the sure and P the possible ones (S among them). 0 is perfect.
    """
    if len(found) != len(gold):
        raise InputError(f"there are {len(found)} sets of links and {len(gold)} alignments: expected as many")
    right = total = 0
    for links, wanted in zip(found, gold, strict=True):
        given = frozenset(links)
        right += len(given & wanted.sure) + len(given & wanted.possible)
        total += len(given) + len(wanted.sure)
    if not total:
        raise InputError("there are no links to compare")
    return 1 - right / total


def forced_trace(run: Looked, text: Any, written: str, keep: str | Sequence[str] = "weights") -> Trace:
    """The trace of a run that reads a text and is made to write a given translation."""
    target: Any = getattr(run, "target", None)
    if target is None:
        raise InputError("this run writes no target that could be given")
    forced = run.forced(text, target.encode(written))
    with record(run.model, keep) as trace, torch.inference_mode():
        run.model(*forced.inputs)
    return trace.described(Description(str(text), written, KIND, forced.tokens, forced.words))


def _word_weights(trace: Trace, name: str, row: Row, sentence: int) -> tuple[Tensor, list[str], list[str]]:
    """Attention between words, (H, T, S), the target's words and the source's; start and end are left out."""
    if row not in ("written", "read"):
        raise InputError(f'row is "written" or "read", not {row!r}')
    weights, stack = sentence_of(trace[name], sentence), "decoder" if row == "read" else "written"
    source, keys = _words(trace, "encoder", sentence, weights.shape[-1])
    target, tokens = _words(trace, stack, sentence, weights.shape[-2])
    if row == "read":
        target, tokens = target[1:], tokens[1:]
    elif target and target[-1] == END:
        target, tokens = target[:-1], tokens[:-1]
    weights = torch.stack([weights[..., group].sum(dim=-1) for group in keys], dim=-1)
    return torch.stack([weights[:, group].mean(dim=1) for group in tokens], dim=1), target, source


def _words(trace: Trace, stack: str, sentence: int, count: int) -> tuple[list[str], list[list[int]]]:
    """The words of a text and the tokens of each; where a trace knows no words, tokens."""
    if stack == "written" and stack not in trace.about.tokens:
        raise InputError("this trace does not know what was written: make it by run.look(text)")
    texts = trace.tokens(stack)[sentence][:count]
    groups = trace.about.words[stack][sentence] if stack in trace.about.words else [[at] for at in range(len(texts))]
    groups = [[at for at in group if at < count] for group in groups]
    groups = [group for group in groups if group]
    return ["".join(texts[at].removeprefix("##") for at in group).strip("▁") for group in groups], groups


def _links(weights: Tensor, threshold: float | None) -> Links:
    """Links from the attention between words, (T, S)."""
    if threshold is None:
        return frozenset((int(source), target) for target, source in enumerate(weights.argmax(dim=-1)))
    if not 0 < threshold <= 1:
        raise InputError(f"a threshold is above 0 and at most 1, not {threshold}")
    return frozenset((source, target) for target, source in (weights >= threshold).nonzero().tolist())
