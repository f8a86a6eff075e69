"""heads: different heads attend to different relations, and a relation is lost with its head.

A small language has three things to look up: what comes after "Stratford upon" follows from the token before, a verb
agrees with its subject across another noun, and a rare name comes back at the end.

B sentences, T length, L layers, H heads, D model width, K head width
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from glassformer.experiments.batches import Rng, windows
from glassformer.experiments.charts import bars, heat, panels
from glassformer.experiments.finding import Finding, Rows
from glassformer.experiments.measures import logits, mean_loss
from glassformer.experiments.small import Small
from glassformer.experiments.trial import Trial
from glassformer.looking import intervene, record
from glassformer.looking.style import BLUE, SKY
from glassformer.models import DecoderOnly
from glassformer.parts.schemes import rotary
from glassformer.tasks.gathering import TokenBatch, token_loss

CLAIM = (
    "Different heads attend to different relations: the previous token, the subject of a verb, a rare word. "
    "Take a head away, and the loss shows which."
)
ORDER = 110  # in the story

KINDS = {"singular": 6, "plural": 6, "verb": 6, "verbs": 6, "first": 8, "second": 8, "name": 24, "adjective": 4}
FIRST = dict(zip([*KINDS, "other"], np.cumsum([0, *KINDS.values()]).tolist(), strict=True))  # the first of each kind
START, THE, NEAR, IN, UPON, SAYS, FULL_STOP = range(FIRST["other"], FIRST["other"] + 7)
VOCABULARY = FULL_STOP + 1
LONGEST = 18
WIDTH, HEADS, LAYERS = 64, 4, 2
PREVIOUS, SUBJECT, RARE = RELATIONS = ("previous token", "subject of the verb", "rare name")
MEASURED = ["entropy", "distance", "loss", *(f"{what}: {each}" for each in RELATIONS for what in ("attends", "loss"))]
UNHEARD = (
    " The head that looks hardest is not always the one that is missed: attention shows where a head looks, not "
    "whether anybody listens."
)


@dataclass(frozen=True)
class Looked:
    """Sentences as a batch, and for each relation from where (B) to where (B) it reaches."""

    batch: TokenBatch
    reach: dict[str, tuple[Tensor, Tensor]]


def run(trial: Trial, steps: int = 500, count: int = 200) -> Finding:
    """A language model learns the small language; then its heads are watched, and taken away one by one."""
    model = Small(VOCABULARY, WIDTH, HEADS, LAYERS, rotary).language_model()
    trial.learn("learning a language", model, lambda rng: _sentences(rng).batch, token_loss, steps, 4e-3)
    new: Looked = trial.new(_sentences, count=count)
    watched, before = _watch(model, new), _losses(model, new)
    rows = Rows()
    for layer, head in trial.each("taking heads away", [*product(range(LAYERS), range(HEADS))]):
        with intervene(model) as edit:  # what this head finds goes nowhere
            edit.zero(f"decoder.{layer}.self.heads", heads=head)
            after = _losses(model, new)
        numbers = {name: table[layer, head].item() for name, table in watched.items()}
        numbers |= {name: after[name] - before[name] for name in before}
        rows.append({"head": f"{layer + 1}.{head + 1}", **{name: numbers[name] for name in MEASURED}})
    facts: dict[str, float] = {"largest": max(rows.column("loss")), "smallest": min(rows.column("loss"))}
    best, needed = {}, {}
    for relation in RELATIONS:
        attends, lost = rows.values(f"attends: {relation}", by="head"), rows.values(f"loss: {relation}", by="head")
        best[relation], needed[relation] = max(attends, key=attends.__getitem__), max(lost, key=lost.__getitem__)
        facts[f"known {relation}"] = before[f"loss: {relation}"]
        facts[f"attends {relation}"] = max(attends.values())
        facts[f"lost {relation}"] = max(lost.values())
        facts[f"chance {relation}"] = float(np.median([*attends.values()]))
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


def _sentences(rng: Rng, count: int = 32) -> Looked:
    """Sentences of the small language, filled up with full stops that nobody is asked for."""

    def any_of(kind: str) -> int:
        return int(FIRST[kind] + rng.integers(KINDS[kind]))

    rows, asked = np.full((count, LONGEST + 1), FULL_STOP), np.zeros((count, LONGEST), dtype=bool)
    places: list[list[int]] = []
    for row, wanted in zip(rows, asked, strict=True):
        name, city, many = any_of("name"), rng.integers(KINDS["first"]), rng.integers(2)
        subject = any_of("plural" if many else "singular")
        other = rng.integers(FIRST["verb"])  # a noun of any number
        verb = any_of("verbs" if many else "verb")
        one, two = (FIRST["adjective"] + rng.integers(KINDS["adjective"], size=rng.integers(3)) for _ in range(2))
        words = [START, name, SAYS, THE, *one, subject, NEAR, THE, *two, other, verb, IN]
        words += [FIRST["first"] + city, UPON, FIRST["second"] + city, FULL_STOP, name]
        row[: len(words)], wanted[: len(words) - 1] = words, True
        places.append([len(words) - 4, words.index(verb) - 1, words.index(subject), len(words) - 2])
    city_at, before_verb, subject_at, last = torch.tensor(places).T
    reach = {PREVIOUS: (city_at, city_at - 1), SUBJECT: (before_verb, subject_at), RARE: (last, torch.ones_like(last))}
    return Looked(windows(rows, asked), reach)


def _watch(model: DecoderOnly, new: Looked) -> dict[str, Tensor]:
    """Of each head (L, H): its entropy, how far back it looks, and how much attention it gives to each relation."""
    with record(model, keep="weights") as trace:
        logits(model, new.batch.text)
    weights = trace.attention("decoder.self")  # (L, B, H, T, T)
    back = torch.arange(LONGEST)[:, None] - torch.arange(LONGEST)  # (T, T)
    entropies = -(weights * weights.clamp_min(1e-12).log()).sum(dim=-1)  # (L, B, H, T)
    distances = (weights * back).sum(dim=-1)  # (L, B, H, T)
    real, rows = new.batch.label_mask, torch.arange(len(new.batch.text))
    means = [each.transpose(1, 2)[:, :, real].mean(dim=-1) for each in (entropies, distances)]  # (L, H)
    return dict(zip(("entropy", "distance"), means, strict=True)) | {
        f"attends: {relation}": weights[:, rows, :, places, reached].mean(dim=0)
        for relation, (places, reached) in new.reach.items()
    }


def _losses(model: DecoderOnly, new: Looked) -> dict[str, float]:
    """The loss over all tokens, and at the places where each relation is wanted."""
    losses = {"loss": mean_loss(model, new.batch, token_loss)}
    for relation, (places, _) in new.reach.items():
        asked = torch.arange(LONGEST) == places[:, None]  # (B, T)
        batch = replace(new.batch, label_mask=asked, targets=len(asked))
        losses[f"loss: {relation}"] = mean_loss(model, batch, token_loss)
    return losses


def _draw(rows: Rows) -> Figure:
    figure, (attends, loses, spread) = panels(3, 10.5, 4, width_ratios=[1, 1, 1.1])
    for axes, kind, title, label in (
        (attends, "attends", "Where heads look", "attention"),
        (loses, "loss", "Without the head", "rise of the loss there (nats)"),
    ):
        table = np.array([rows.column(f"{kind}: {relation}") for relation in RELATIONS]).T
        top = 1.0 if kind == "attends" else table.max()
        heat(axes, table, bar=label, vmin=0, vmax=top, aspect="auto")
        for (row, column), value in np.ndenumerate(table):
            style = {"ha": "center", "va": "center", "fontsize": 8, "color": "white" if value < 0.6 * top else "black"}
            axes.text(column, row, f"{max(value, 0.0):.2f}", **style)
        axes.set(title=title, ylabel="layer.head")
        axes.set_xticks(range(len(RELATIONS)), ("previous\ntoken", "subject\nof verb", "rare\nname"))
        axes.set_yticks(range(len(rows)), rows.column("head"))
    entropy, distance = "entropy (nats)", "distance (tokens back)"
    widths = {entropy: rows.column("entropy"), distance: rows.column("distance")}
    bars(spread, rows.column("head"), widths, {entropy: BLUE, distance: SKY}, lying=True)
    spread.set(title="How wide, how far", xlabel="mean over all tokens")
    spread.legend(loc="upper center", bbox_to_anchor=(0.45, -0.13), ncols=2)
    return figure
