"""heads: different heads attend to different relations, and a relation is lost with its head.

A small language has three things to look up: what comes after "Stratford upon" follows from the token before, a verb
agrees with its subject across another noun, and a rare name comes back at the end.

B sentences, T length, L layers, H heads, D model width, K head width
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from glassformer.experiments.batches import Rng, windows
from glassformer.experiments.charts import MARKER, heat, panels
from glassformer.experiments.finding import Finding, Row, Rows, Spread
from glassformer.experiments.measures import logits, mean_loss
from glassformer.experiments.small import Small
from glassformer.experiments.trial import Trial, told_rates
from glassformer.looking import intervene, record
from glassformer.looking.style import BLUE, GREEN, ORANGE
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
RATES = (3e-3, 6e-3)
PREVIOUS, SUBJECT, RARE = RELATIONS = ("previous token", "subject of the verb", "rare name")
MEASURED = ["entropy", "distance", "loss", *(f"{what}: {each}" for each in RELATIONS for what in ("attends", "loss"))]


@dataclass(frozen=True)
class Looked:
    """Sentences as a batch, and for each relation from where (B) to where (B) it reaches."""

    batch: TokenBatch
    reach: dict[str, tuple[Tensor, Tensor]]


def run(trial: Trial, steps: int = 400, count: int = 200) -> Finding:
    """A language model learns the small language; then its heads are watched, and taken away one by one."""
    seeds = [each.seed for each in trial.seeds()]
    work = partial(_learned, steps=steps, count=count)
    tuned = trial.tuned("learning a language", work, ["decoder"], RATES)["decoder"]
    rows = Rows(row for result, _ in tuned.results for row in result)
    known = {relation: Spread(before[f"loss: {relation}"] for _, before in tuned.results) for relation in RELATIONS}
    facts: dict[str, float] = {"largest": max(rows.column("loss")), "smallest": min(rows.column("loss"))}
    best: dict[str, list[str]] = {relation: [] for relation in RELATIONS}
    needed: dict[str, list[str]] = {relation: [] for relation in RELATIONS}
    looked: dict[str, list[float]] = {}
    for relation in RELATIONS:
        strongest, lost, chance = [], [], []
        for seed in seeds:
            own = rows.where(seed=seed)
            attends, rises = own.values(f"attends: {relation}", by="head"), own.values(f"loss: {relation}", by="head")
            best[relation].append(max(attends, key=attends.__getitem__))
            needed[relation].append(max(rises, key=rises.__getitem__))
            strongest.append(max(attends.values()))
            lost.append(max(rises.values()))
            chance.append(float(np.median([*attends.values()])))
        looked[relation] = strongest
        facts |= {f"known {relation}": known[relation], f"attends {relation}": Spread(strongest)}
        facts |= {f"lost {relation}": Spread(lost), f"chance {relation}": Spread(chance)}
        facts[f"found {relation}"] = sum(a == n for a, n in zip(best[relation], needed[relation], strict=True))
    apart = Spread(len({best[relation][number] for relation in RELATIONS}) for number in range(len(seeds)))
    facts["different"], found = apart, sum(facts[f"found {relation}"] for relation in RELATIONS)
    total = len(seeds) * len(RELATIONS)
    return Finding(
        method=f"A decoder of {LAYERS} layers with {HEADS} heads each learned for {steps} steps, {told_rates(RATES)}, "
        'sentences such as "Zork says the old dogs near the cat bark in Stratford upon Avon. Zork": a rare name comes '
        "back, the verb agrees with its subject, the end of a city follows from its beginning; adjectives vary the "
        f"distances. On {count} new sentences its attention was recorded from the place where each of these is "
        "predicted, and each head was taken away in turn, by zeros in its part of the output matrix. The loss shows "
        "which head attends to a relation if the loss there rises most without the head that attends to it most.",
        measured=" ".join(
            f"The {relation} gets {facts[f'attends {relation}']:.0%} of the attention of one head (of the median head: "
            f"{facts[f'chance {relation}']:.0%}); its loss rises by {facts[f'lost {relation}']:.2f} nats without the "
            f"head that it needs most, which is the head that attends to it most at "
            f"{facts[f'found {relation}']:.0f} of {len(seeds)} seeds."
            for relation in RELATIONS
        )
        + f" The three relations have {apart:.0f} different heads"
        + (
            ", and the loss shows which."
            if found == total
            else f"; the loss shows which in {found:.0f} of {total} cases: attention shows where a head looks, not "
            "whether what it finds is needed."
        ),
        holds=apart.low == len(RELATIONS)
        and all(min(attention) > 0.5 for attention in looked.values())
        and found == total,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows.where(seed=seeds[0]), rows, seeds),
        seeds=seeds,
    )


def _learned(
    trial: Trial, kind: str, rate: float, steps: int, count: int
) -> tuple[float, tuple[list[Row], dict[str, float]]]:
    """The validation loss of a model; what each of its heads looks at and is good for; and its losses with all."""
    model = trial.begin(Small(VOCABULARY, WIDTH, HEADS, LAYERS, rotary).language_model)
    trial.learn("", model, lambda rng: _sentences(rng).batch, token_loss, steps, rate)
    new: Looked = trial.new(_sentences, count=count)
    watched, before = _watch(model, new), _losses(model, new)
    rows: list[Row] = []
    for layer, head in product(range(LAYERS), range(HEADS)):
        with intervene(model) as edit:  # what this head finds goes nowhere
            edit.zero(f"decoder.{layer}.self.heads", heads=head)
            after = _losses(model, new)
        numbers = {name: table[layer, head].item() for name, table in watched.items()}
        numbers |= {name: after[name] - before[name] for name in before}
        name = {"head": f"{layer + 1}.{head + 1}", "seed": trial.seed}
        rows.append({**name, **{name: numbers[name] for name in MEASURED}})
    held: Looked = trial.held_out(_sentences, count=count)
    return mean_loss(model, held.batch, token_loss), (rows, before)


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


def _draw(rows: Rows, every: Rows, seeds: Sequence[int]) -> Figure:
    figure, (attends, loses, same) = panels(3, 10.5, 4, width_ratios=[1, 1, 1.1])
    for axes, kind, title, label in (
        (attends, "attends", f"Where heads look (seed {seeds[0]})", "attention"),
        (loses, "loss", f"Without the head (seed {seeds[0]})", "rise of the loss there (nats)"),
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
    for relation, colour in zip(RELATIONS, (BLUE, ORANGE, GREEN), strict=True):
        x, y = every.column(f"attends: {relation}"), every.column(f"loss: {relation}")
        same.scatter(x, y, color=colour, marker=MARKER[colour], label=relation, alpha=0.7)
    same.set(
        title=f"All heads of {len(seeds)} seeds", xlabel="attention to the relation", ylabel="rise of its loss (nats)"
    )
    same.legend(loc="upper left")
    return figure
