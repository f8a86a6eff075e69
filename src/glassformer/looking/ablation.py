"""Ablation: which heads matter. Each is switched off by itself, and what the answer loses by that is its effect.

    effect = metric(whole model) - metric(without the head)

The metric is the log-probability of what the model has answered: an effect is in nats, and above 0 if the head helps.
All heads are tried in a few passes: each row of a batch is the same text, with another head switched off.

L layers, H heads, R rows of a batch, T tokens, K width of a head
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.analyses.tables import HeadScores
from glassformer.looking.editing import intervene
from glassformer.looking.patching import answer_metric
from glassformer.looking.points import points_of
from glassformer.looking.trace import kind_of_weights

ROWS = 32  # heads that are tried together
Place = tuple[str, int]  # the point where the outputs of a layer's heads pass, and the number of a head


def head_effects(run: Any, text: Any) -> dict[str, HeadScores]:
    """What the answer to a text loses without each head, by kind of attention: (L, H) for each."""
    heads = {name: point.axes["head"] or 0 for name, point in points_of(run.model).items() if _is_heads(name)}
    if not heads:
        raise InputError("this model has no attention whose heads could be switched off")
    metric, written = answer_metric(run, text)
    forced = run.forced(text) if written is None else run.forced(text, written)
    places: list[Place | None] = [None, *((name, head) for name, count in heads.items() for head in range(count))]
    found: list[float] = []
    for first in range(0, len(places), ROWS):
        some = places[first : first + ROWS]
        inputs = [each if each is None else each.expand(len(some), *each.shape[1:]) for each in forced.inputs]
        with _without(run.model, some), torch.inference_mode():
            found += [float(metric(logits)) for logits in run.model(*inputs).float().cpu()]
    effects = iter(found[0] - value for value in found[1:])
    by_kind: dict[str, dict[str, list[float]]] = {}
    for name, count in heads.items():
        weights = f"{name.removesuffix('.heads')}.weights"
        by_kind.setdefault(kind_of_weights(weights), {})[weights] = [next(effects) for _ in range(count)]
    return {
        kind: HeadScores(torch.tensor(list(rows.values())), list(rows), list(range(len(next(iter(rows.values()))))))
        for kind, rows in by_kind.items()
    }


def _is_heads(name: str) -> bool:
    """Whether a point is where the outputs of heads pass that read tokens with weights."""
    return name.endswith(".heads")


@contextmanager
def _without(model: Any, places: list[Place | None]) -> Iterator[None]:
    """Each row of a batch without one head, or with all where there is no place."""
    rows: dict[str, list[tuple[int, int]]] = {}
    for row, place in enumerate(places):
        if place is not None:
            rows.setdefault(place[0], []).append((row, place[1]))

    def switched_off(x: Tensor, some: list[tuple[int, int]]) -> Tensor:
        """The outputs of heads, (R, H, T, K), with zeros for one head in each of some rows."""
        new = x.clone()
        for row, head in some:
            new[row, head] = 0
        return new

    with intervene(model) as edit:
        for name, some in rows.items():
            edit.apply(name, lambda x, some=some: switched_off(x, some))  # type: ignore[misc]
        yield
