"""Patching: finds the places that carry what makes the difference between two texts.

A model reads a clean text and a corrupt one. Then it reads the corrupt text again and again, each time with what passed
one place while it read the clean text. Where the answer comes back, the difference is carried:

    effect = (metric(patched) - metric(corrupt)) / (metric(clean) - metric(corrupt))

It is 0 where nothing comes back, and 1 where all does.

L points, P positions or heads, T tokens, V vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.editing import intervene
from glassformer.looking.points import Names, find_all, points_of, stack_of
from glassformer.looking.recording import record
from glassformer.looking.trace import Groups, Texts, Trace, optional
from glassformer.parts.values import NumberHead

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Metric = Callable[[Tensor], Any]  # logits of one text, (T, V) or (V), to a number
Over = Literal["positions", "heads"]


class Looked(Protocol):
    """A run that says what its model takes for a text."""

    model: Any

    def forced(self, text: Any, written: Sequence[int] | None = None) -> Forced:
        """What the model takes for a text, with what it is to have written."""


@dataclass(frozen=True)
class Forced:
    """What a model takes to read one text, and to write something given: its inputs, and labels for tokens."""

    inputs: tuple[Any, ...]
    tokens: Mapping[str, Texts]  # by stack, as in a trace
    words: Mapping[str, Groups]
    written: list[int] | None = None  # the tokens; None: it writes nothing


@dataclass(frozen=True)
class Effects:
    """How much of the clean answer comes back by a patch at each point and position, or each point and head."""

    effects: Tensor  # (L, P)
    points: list[str]  # L
    labels: list[str]  # P, tokens or numbers of heads
    over: Over
    clean: float
    corrupt: float

    @property
    def best(self) -> tuple[str, int]:
        """Where most comes back: the point, and the number of the position or the head."""
        row, column = divmod(int(self.effects.argmax()), self.effects.shape[1])
        return self.points[row], column

    def figure(self) -> Figure:
        """A heat map of how much of the clean answer comes back, over points and positions or heads."""
        from glassformer.looking.plots import grids

        return grids.effects(self)

    def pandas(self) -> Any:
        """The effects as a DataFrame: a row for each point, a column for each position or head."""
        return optional("pandas").DataFrame(self.effects.numpy(), index=self.points, columns=self.labels)


def patching(
    run: Looked,
    clean: Any,
    corrupt: Any,
    metric: Metric,
    over: Over = "positions",
    points: Names | None = None,
    written: Sequence[int] | None = None,
) -> Effects:
    """The effect of each place on a metric of the logits, by patching what passes while a clean text is read.

    Over positions, `points` are the blocks of the stack that reads the text ("encoder.*.after"); over heads, what the
    heads take in ("*.heads"). A run that writes is given the tokens `written`, or else what it writes for the clean
    text.
    """
    if over not in ("positions", "heads"):
        raise InputError(f'patching goes over "positions" or "heads", not {over!r}')
    written = run.forced(clean).written if written is None else written
    one, two = (run.forced(text, written) for text in (clean, corrupt))  # alike also where the output was cut
    names = points_to_patch(run, points, over)
    with record(run.model, keep=[*names, "logits"]) as trace:
        best = _measured(metric, _logits(run, one))
    worst = _measured(metric, _logits(run, two))
    if best == worst:
        raise InputError("the metric is the same for both texts: choose texts or a metric that differ")
    labels = _labels(run, trace, names, one, two, over)
    rows = []
    for name in names:
        row = []
        for number in range(len(labels)):
            with intervene(run.model) as edit:
                edit.patch(name, trace, **{over: number})
                row.append(_measured(metric, _logits(run, two)))
        rows.append(row)
    effects = (torch.tensor(rows, dtype=torch.float64) - worst) / (best - worst)
    return Effects(effects.float(), names, labels, over, best, worst)


def answer_metric(run: Any, clean: Any, written: Sequence[int] | None = None) -> tuple[Metric, Sequence[int] | None]:
    """A metric for patching: the log-probability of what a run answers to the clean text; and what it wrote.

    What is written, a label, tags, or the likeliest token after the text. Numbers have no probability.
    """
    if "logits" not in points_of(run.model) or isinstance(getattr(run.model, "head", None), NumberHead):
        raise InputError("this run answers with numbers, which have no probability: name a metric")
    forced = run.forced(clean, written)
    with torch.inference_mode():
        logits = run.model(*forced.inputs)[0].float().cpu()
    if forced.written is not None:
        right = torch.tensor([*forced.written, run.special.end])[: len(logits)]
    elif logits.dim() == 1:
        return (lambda found: found.log_softmax(-1)[int(logits.argmax())]), None
    elif run.attention_kind == "decoder.self":
        return (lambda found: found[-1].log_softmax(-1)[int(logits[-1].argmax())]), None
    else:
        right = logits.argmax(dim=-1)
    return (lambda found: found.log_softmax(-1).gather(-1, right[:, None]).sum()), forced.written


def preference(token: int, position: int | None = None, against: int | None = None) -> Metric:
    """A metric: the log-probability of a token or label at a position, or how far its logit is above another's.

    Of one answer for a whole text, there is no position.
    """

    def metric(logits: Tensor) -> Tensor:
        row = logits if position is None else logits[position]  # (V)
        return row.log_softmax(dim=-1)[token] if against is None else row[token] - row[against]

    return metric


def points_to_patch(run: Looked, given: Names | None, over: Over) -> list[str]:
    """The points to patch, if none are given: what leaves each layer of the stack that reads the text, or all heads."""
    known = points_of(run.model)
    axis = "head" if over == "heads" else "token"
    if given is None:
        first = next(stack_of(name) for name in known if name != "logits")
        ending = ".heads" if over == "heads" else ".after"
        blocks = [name for name in known if name.endswith(ending) and (over == "heads" or _is_block(name, first))]
        states = [name for name in known if name.startswith(f"{first}.") and name.endswith(".state")]
        given = blocks or (states if over == "positions" else [])
    if not given:
        raise InputError("this model has no attention, so it has no heads to patch: go over positions")
    names = find_all(given, known)
    if wrong := [name for name in names if axis not in known[name].axes]:
        raise InputError(f"{wrong[0]} has no {over}: choose other points")
    return names


def _is_block(name: str, stack: str) -> bool:
    """Whether a point is what leaves a block of a stack."""
    return name.startswith(f"{stack}.") and name.count(".") == 2


def _labels(run: Looked, trace: Trace, names: list[str], one: Forced, two: Forced, over: Over) -> list[str]:
    """What the columns of the effects are."""
    stacks = {_text_of(name, one) for name in names}
    for stack in stacks:
        texts, others = one.tokens[stack][0], two.tokens[stack][0]
        if len(texts) != len(others):
            raise InputError(
                f"the clean text has {len(texts)} tokens and the corrupt one {len(others)}: choose texts of the same "
                "length"
            )
    if over == "heads":
        counts = {trace[name].shape[1] for name in names}
        if len(counts) > 1:
            raise InputError("the points have different numbers of heads: patch them in turn")
        return [str(head) for head in range(counts.pop())]
    if len(stacks) > 1:
        raise InputError("the points are in several stacks, whose positions are of different texts: patch them in turn")
    return [a if a == b else f"{a}/{b}" for a, b in zip(texts, others, strict=True)]


def _text_of(name: str, forced: Forced) -> str:
    """The stack whose tokens the positions of a point are; logits are of what the last stack reads."""
    stack = stack_of(name)
    return stack if stack in forced.tokens else [each for each in ("encoder", "decoder") if each in forced.tokens][-1]


@torch.inference_mode()
def _logits(run: Looked, forced: Forced) -> Tensor:
    """The logits of one text, (T, V) or (V)."""
    return run.model(*forced.inputs)[0].float().cpu()  # type: ignore[no-any-return]


def _measured(metric: Metric, logits: Tensor) -> float:
    given = metric(logits)
    try:
        found = float(given)
    except (TypeError, ValueError, RuntimeError):
        what = f"a tensor {tuple(given.shape)}" if isinstance(given, Tensor) else f"a {type(given).__name__}"
        raise InputError(f"the metric gave {what}: expected one number for the logits of a text") from None
    if not math.isfinite(found):
        raise InputError(f"the metric is {found}: expected a finite number")
    return found
