"""heads: different heads attend to different relations, and a relation is lost with its head.

A small language has three things to look up: what comes after "Stratford upon" follows from the token before, a verb
agrees with its subject across another noun, and a rare name comes back at the end.

B sentences, T length, L layers, H heads, D model width, K head width
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from glassformer.experiments.finding import Finding, Progress, Row, silent
from glassformer.experiments.learning import Dice, held_out, learn, mean_loss, windows
from glassformer.experiments.small import Scheme, Small
from glassformer.looking import record
from glassformer.looking.style import BLUE, SKY
from glassformer.models import DecoderOnly
from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.positions import Rotary
from glassformer.tasks import WindowBatch, language_loss

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOUNS, VERBS, CITIES, NAMES, ADJECTIVES = 6, 6, 8, 24, 4
PLACES = dict(
    zip(
        ("singular", "plural", "verb", "verbs", "first", "second", "name", "adjective", "other"),
        np.cumsum([0, NOUNS, NOUNS, VERBS, VERBS, CITIES, CITIES, NAMES, ADJECTIVES]).tolist(),
        strict=True,
    )
)
START, THE, NEAR, IN, UPON, SAYS, FULL_STOP = range(PLACES["other"], PLACES["other"] + 7)
VOCABULARY = FULL_STOP + 1
LONGEST = 18
WIDTH, HEADS, LAYERS = 64, 4, 2
PREVIOUS, SUBJECT, RARE = "previous token", "subject of the verb", "rare name"
UNHEARD = (
    " The head that looks hardest is not always the one that is missed: attention shows where a head looks, not "
    "whether anybody listens."
)
RELATIONS = (PREVIOUS, SUBJECT, RARE)


@dataclass(frozen=True)
class Looked:
    """Sentences as a batch, and for each relation from where (B) to where (B) it reaches."""

    batch: WindowBatch
    reach: dict[str, tuple[Tensor, Tensor]]


def run(seed: int = 0, progress: Progress = silent, steps: int = 500, count: int = 200) -> Finding:
    """A language model learns the small language; then its heads are watched, and taken away one by one."""
    small = Small(VOCABULARY, WIDTH, HEADS, LAYERS, Scheme(attention=Rotary(WIDTH // HEADS)))
    model = small.language_model()
    learn(model, lambda dice: _sentences(dice).batch, language_loss, steps, 4e-3, seed, progress, "learning a language")
    new: Looked = held_out(partial(_sentences, count=count), seed)
    attention, entropy, distance = _watch(model, new)
    before = {relation: _loss(model, new, relation) for relation in RELATIONS}
    whole = mean_loss(model, new.batch, language_loss)
    rows: list[Row] = []
    for layer in range(LAYERS):
        for head in range(HEADS):
            row: Row = {"head": f"{layer + 1}.{head + 1}", "entropy": entropy[layer, head].item()}
            row["distance"] = distance[layer, head].item()
            with _without(model, layer, head):
                row["loss"] = mean_loss(model, new.batch, language_loss) - whole
                for relation in RELATIONS:
                    row[f"attends: {relation}"] = attention[relation][layer, head].item()
                    row[f"loss: {relation}"] = _loss(model, new, relation) - before[relation]
            rows.append(row)
            progress("taking heads away", len(rows), LAYERS * HEADS)
    facts: dict[str, float] = {
        "largest": max(row["loss"] for row in rows),
        "smallest": min(row["loss"] for row in rows),
    }
    best, needed = {}, {}
    for relation in RELATIONS:
        top = max(rows, key=lambda row: row[f"attends: {relation}"])
        worst = max(rows, key=lambda row: row[f"loss: {relation}"])
        best[relation], needed[relation] = top["head"], worst["head"]
        facts[f"known {relation}"] = before[relation]
        facts[f"attends {relation}"] = top[f"attends: {relation}"]
        facts[f"lost {relation}"] = worst[f"loss: {relation}"]
        facts[f"chance {relation}"] = float(np.median([row[f"attends: {relation}"] for row in rows]))
    facts["different"] = float(len({*needed.values()}))
    return Finding(
        method=f"A decoder of {LAYERS} layers with {HEADS} heads each learned for {steps} steps sentences such as "
        '"Zork says the old dogs near the cat bark in Stratford upon Avon. Zork": a rare name comes back, the verb '
        "agrees with its subject, the end of a city follows from its beginning; adjectives vary the distances. On "
        f"{count} new sentences its attention was recorded from the place where each of these is predicted, and each "
        "head was taken away in turn, by zeros in its part of the output matrix.",
        measured=" ".join(
            f"The {relation} gets {facts[f'attends {relation}']:.0%} of the attention of head {best[relation]} (of the "
            f"median head: {facts[f'chance {relation}']:.0%}), and its loss rises most, by "
            f"{facts[f'lost {relation}']:.2f} nats, without head {needed[relation]}."
            for relation in RELATIONS
        )
        + f" Over all tokens the loss rises by {facts['smallest']:.2f} to {facts['largest']:.2f} nats, by which head "
        "is taken away." + (UNHEARD if best != needed else ""),
        holds=facts["different"] >= 2
        and all(facts[f"attends {relation}"] > 0.5 for relation in RELATIONS)
        and all(facts[f"lost {relation}"] > 0.05 for relation in RELATIONS)
        and max(facts[f"lost {relation}"] for relation in RELATIONS) > 0.5,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows),
    )


def _sentences(dice: Dice, count: int = 32) -> Looked:
    """Sentences of the small language, filled up with full stops that nobody is asked for."""
    rows, asked = np.full((count, LONGEST + 1), FULL_STOP), np.zeros((count, LONGEST), dtype=bool)
    places: list[list[int]] = []
    for row, wanted in zip(rows, asked, strict=True):
        name, city, many = PLACES["name"] + dice.integers(NAMES), dice.integers(CITIES), dice.integers(2)
        subject = PLACES["plural" if many else "singular"] + dice.integers(NOUNS)
        other = dice.integers(2 * NOUNS)  # of any number
        verb = PLACES["verbs" if many else "verb"] + dice.integers(VERBS)
        adjectives = [
            [PLACES["adjective"] + each for each in dice.integers(ADJECTIVES, size=dice.integers(3))] for _ in "12"
        ]
        words = [START, name, SAYS, THE, *adjectives[0], subject, NEAR, THE, *adjectives[1], other, verb, IN]
        words += [PLACES["first"] + city, UPON, PLACES["second"] + city, FULL_STOP, name]
        row[: len(words)], wanted[: len(words) - 1] = words, True
        places.append([len(words) - 4, words.index(verb) - 1, words.index(subject), len(words) - 2])
    city_at, before_verb, subject_at, last = torch.tensor(places).T
    reach = {PREVIOUS: (city_at, city_at - 1), SUBJECT: (before_verb, subject_at), RARE: (last, torch.ones_like(last))}
    return Looked(windows(rows, asked), reach)


@torch.no_grad()
def _watch(model: DecoderOnly, new: Looked) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """For each relation how much each head gives it (L, H); each head's entropy, and how far it looks (L, H)."""
    with record(model.eval()) as trace:
        model(new.batch.text)
    weights = torch.stack([trace.attention("decoder", layer) for layer in range(LAYERS)])  # (L, B, H, T, T)
    rows = torch.arange(len(new.batch.text))
    given = {}
    for relation, (places, reached) in new.reach.items():
        given[relation] = weights[:, rows, :, places, reached].mean(dim=0)  # (L, H)
    real = new.batch.asked
    away = torch.arange(LONGEST)[:, None] - torch.arange(LONGEST)  # (T, T)
    surprise = -(weights * weights.clamp_min(1e-12).log()).sum(dim=-1)  # (L, B, H, T)
    far = (weights * away).sum(dim=-1)  # (L, B, H, T)
    entropy, distance = (each.transpose(1, 2)[:, :, real].mean(dim=-1) for each in (surprise, far))  # (L, H)
    return given, entropy, distance


def _loss(model: DecoderOnly, new: Looked, relation: str) -> float:
    """The loss at the places where a relation is wanted."""
    asked = torch.zeros_like(new.batch.asked)
    asked[torch.arange(len(asked)), new.reach[relation][0]] = True
    return mean_loss(model, replace(new.batch, asked=asked, answers=len(asked)), language_loss)


@contextmanager
def _without(model: DecoderOnly, layer: int, head: int) -> Iterator[None]:
    """The model without one head: what it found goes nowhere."""
    part = next(part for part in model.decoder.blocks[layer].modules() if isinstance(part, MultiHeadAttention))
    output: Any = part.output.weight  # (D, H * K)
    own = slice(head * part.head_width, (head + 1) * part.head_width)
    kept = output.data[:, own].clone()
    output.data[:, own] = 0
    try:
        yield
    finally:
        output.data[:, own] = kept


def _draw(rows: list[Row]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4), layout="constrained")
    attends, loses, spread = figure.subplots(1, 3, width_ratios=[1, 1, 1.1])
    names = [row["head"] for row in rows]
    for axes, kind, title, label, top in (
        (attends, "attends", "Where heads look", "attention", 1.0),
        (loses, "loss", "Without the head", "rise of the loss there (nats)", None),
    ):
        table = np.array([[row[f"{kind}: {relation}"] for relation in RELATIONS] for row in rows])
        image = axes.imshow(table, vmin=0, vmax=top, aspect="auto")
        for (row, column), value in np.ndenumerate(table):
            dark = value < 0.6 * (table.max() if top is None else top)
            axes.text(
                column,
                row,
                f"{max(value, 0.0):.2f}",
                ha="center",
                va="center",
                color="white" if dark else "black",
                fontsize=8,
            )
        axes.set(title=title, ylabel="layer.head")
        axes.set_xticks(range(len(RELATIONS)), ("previous\ntoken", "subject\nof verb", "rare\nname"))
        axes.set_yticks(range(len(rows)), names)
        axes.grid(visible=False)
        figure.colorbar(image, ax=axes, label=label, shrink=0.9)
    places = np.arange(len(rows))
    spread.barh(places - 0.2, [row["entropy"] for row in rows], 0.38, color=BLUE, label="entropy (nats)")
    spread.barh(places + 0.2, [row["distance"] for row in rows], 0.38, color=SKY, label="distance (tokens back)")
    spread.set(title="How wide, how far", xlabel="mean over all tokens")
    spread.set_yticks(places, names)
    spread.invert_yaxis()
    spread.grid(visible=False, axis="y")
    spread.legend(loc="upper center", bbox_to_anchor=(0.45, -0.13), ncols=2)
    return figure
