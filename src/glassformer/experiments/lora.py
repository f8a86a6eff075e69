"""lora: B begins at zero, so an adapted model begins as its base; and how much rank it takes to learn something new.

    y = W x + s · B A x

A model that has learned to repeat what it reads is taught to write it backwards: by all of its weights, or by A and B
alone, at several ranks.

B sentences, S source length, T target length
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from glassformer.experiments.batches import Rng, pairs
from glassformer.experiments.charts import band, bands, log_ticks, panels
from glassformer.experiments.finding import Finding, Row, Rows, Spread
from glassformer.experiments.measures import accuracy, logits, mean_loss, parameters
from glassformer.experiments.trial import SEEDS, Trial, told_rates
from glassformer.looking.style import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, SKY
from glassformer.models import EncoderDecoder, transformer
from glassformer.parts.lora import adapt
from glassformer.tasks.translation import PairBatch, translation_loss

CLAIM = "As B begins at 0, an adapted model begins as its base; a small rank learns nearly as well as all weights."
ORDER = 150  # in the story

LETTERS, LENGTH, START, END = 8, 5, 8, 9
TARGETS = ("query", "key", "value", "output", "expand")
BASE_RATE, RATES = 5e-3, (5e-3, 2e-2)
NEARLY = 0.05  # of the tokens: so much worse than all weights is nearly as well
Weights = dict[str, Any]  # of a base, by name


def run(
    trial: Trial, first: int = 300, steps: int = 200, ranks: Sequence[int] = (1, 2, 4, 8), width: int = 32
) -> Finding:
    """A base that copies learns to reverse, with adapters of several ranks, and as a whole."""
    seeds = trial.seeds()
    learned = trial.map("training bases to copy", _base, [(each, first, width) for each in seeds])
    bases = {each.seed: weights for each, (weights, _) in zip(seeds, learned, strict=True)}
    rows = Rows(row for _, row in learned)
    work = partial(_adapted, bases=bases, steps=steps, width=width)
    tuned = trial.tuned("learning to reverse", work, [*ranks, None], RATES)
    rows += [{**row, "rate": each.rate} for each in tuned.values() for row, _ in each.results]
    curves = Rows(row for each in tuned.values() for _, curve in each.results for row in curve)
    right = rows.spreads("right", by="rank")
    whole = rows.where(what="all weights")
    total, low = parameters(_model(width)), rows.where(what="LoRA")
    missing = {
        rank: Spread(all_ - r for all_, r in zip(right[width].values, right[rank].values, strict=True))
        for rank in ranks
    }
    enough = [rank for rank in ranks if missing[rank].high < NEARLY]
    facts: dict[str, float] = {
        "difference_at_step_0": max(low.column("difference")),
        "copies": Spread(rows.where(what="base").column("copies")),
        "base": right[0],
        "all": right[width],
        **{f"rank {rank}": right[rank] for rank in ranks},
        **{f"missing {rank}": missing[rank] for rank in ranks},
        **{f"share {rank}": low.where(rank=rank)[0]["trained"] / total for rank in ranks},
    }
    told = ", ".join(f"{facts[f'rank {rank}']:.0%} with rank {rank}" for rank in ranks)
    return Finding(
        method=f"A Transformer of 1 + 1 layers, width {width}, {total:,} parameters, learned for {first} steps to copy "
        f"{LENGTH} letters. Copies of it learned for {steps} steps to reverse them: with LoRA on every matrix inside "
        f"the blocks at rank {', '.join(map(str, ranks))} (alpha twice the rank), and with all weights; each "
        f"{told_rates(RATES)}. Right is the share of right tokens in 300 new strings, each given those before it. "
        f"Nearly as well is less than {NEARLY:.0%} of the tokens worse, at every seed.",
        measured=f"Before the first step the adapted model's logits differ from the base's by "
        f"{facts['difference_at_step_0']:g}. The base copies with {facts['copies']:.0%} right and reverses with "
        f"{facts['base']:.0%}; taught with all weights, {facts['all']:.0%} are right. With LoRA these are {told}; rank "
        f"{ranks[0]} learns {facts[f'share {ranks[0]}']:.1%} of the parameters, rank {ranks[-1]} "
        f"{facts[f'share {ranks[-1]}']:.0%}. "
        + (
            "Every rank that was tried learns nearly as well as all weights."
            if len(enough) == len(ranks)
            else f"Nearly as well as all weights learns {_ranks(enough)}, and not "
            f"{_ranks([rank for rank in ranks if rank not in enough])}."
        ),
        holds=facts["difference_at_step_0"] == 0
        and len(enough) == len(ranks)
        and right[width].low > right[0].high + 0.3
        and whole[0]["trained"] == total,
        facts=facts,
        rows=[*rows, *curves],
        draw=lambda: _draw(rows, curves, ranks),
        seeds=[each.seed for each in seeds],
    )


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}" if ranks else "no rank"


def _model(width: int) -> EncoderDecoder:
    return transformer(LETTERS + 2, width=width, heads=4, layers=1, hidden=2 * width, dropout=0.0)


def _base(trial: Trial, steps: int, width: int) -> tuple[Weights, Row]:
    """The weights of a base that copies, and how well it copies and reverses."""
    model = trial.begin(_model, width)
    trial.learn("", model, _copied, translation_loss, steps, BASE_RATE)
    new, copied = (trial.new(draw, count=300) for draw in (_reversed, _copied))
    right, copies = (accuracy(logits(model, each.source, each.target_in), each.target_out) for each in (new, copied))
    return model.state_dict(), {"what": "base", "seed": trial.seed, "rank": 0, "right": right, "copies": copies}


def _adapted(
    trial: Trial, rank: int | None, rate: float, bases: dict[int, Weights], steps: int, width: int
) -> tuple[float, tuple[Row, list[Row]]]:
    """A base that has learned to reverse, by adapters of this rank or by all of its weights; and its losses."""
    base = _model(width)
    base.load_state_dict(bases[trial.seed])
    model, new = copy.deepcopy(base), trial.new(_reversed, count=300)
    row: Row = {"what": "all weights" if rank is None else "LoRA", "seed": trial.seed, "rank": rank or width}
    if rank is not None:
        adapt(model, rank=rank, alpha=2.0 * rank, targets=TARGETS)
        before = (logits(each, new.source, new.target_in) for each in (base, model))
        row["difference"] = (next(before) - next(before)).abs().max().item()
    other = replace(trial, seed=(trial.seed + 10**6) % SEEDS)  # with other strings than the base has read
    losses = other.learn("", model, _reversed, translation_loss, steps, rate)
    row |= {"trained": parameters(model), "right": accuracy(logits(model, new.source, new.target_in), new.target_out)}
    of = {"what": "curve", "learner": row["what"] if rank is None else f"rank {rank}", "seed": trial.seed}
    curve = [{**of, "step": step, "loss": loss} for step, loss in losses]
    return mean_loss(model, trial.held_out(_reversed, count=300), translation_loss), (row, curve)


def _copied(rng: Rng, count: int = 32) -> PairBatch:
    source = rng.integers(LETTERS, size=(count, LENGTH))  # (B, S)
    return pairs(source, source, START, END)


def _reversed(rng: Rng, count: int = 32) -> PairBatch:
    source = rng.integers(LETTERS, size=(count, LENGTH))  # (B, S)
    return pairs(source, source[:, ::-1].copy(), START, END)


def _draw(rows: Rows, curves: Rows, ranks: Sequence[int]) -> Figure:
    figure, (by_rank, by_step) = panels(2, 9.5, 3.8)
    right = rows.where(what="LoRA").spreads("right", by="rank")
    band(by_rank, ranks, [right[rank] for rank in ranks], BLUE, "LoRA")
    for what, colour, style, label in (
        ("all weights", ORANGE, "--", "all weights"),
        ("base", GREY, ":", "base, which only copies (LoRA at step 0)"),
    ):
        level = Spread(rows.where(what=what).column("right"))
        by_rank.axhline(level, color=colour, linestyle=style, label=label)
        by_rank.axhspan(level.low, level.high, color=colour, alpha=0.2, linewidth=0)
    sizes = rows.where(what="LoRA").values("trained", by="rank")
    log_ticks(by_rank, ranks, [f"{rank}\n({sizes[rank] / 1000:.1f}k)" for rank in ranks])
    by_rank.set(title="Rank against quality", xlabel="rank of the adapters (numbers that learn)")
    by_rank.set(ylabel="right tokens, reversing", ylim=(0, 1.05))
    by_rank.legend(loc="lower right")
    colours = dict(zip((f"rank {rank}" for rank in ranks), (SKY, BLUE, GREEN, PINK, BLACK), strict=False))
    bands(by_step, curves, "step", "loss", "learner", {**colours, "all weights": ORANGE}, markevery=4)
    by_step.set(title="On the way there", xlabel="step", ylabel="training loss (nats)", yscale="log")
    by_step.legend()
    return figure
