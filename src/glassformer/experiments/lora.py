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

from matplotlib.figure import Figure

from glassformer.experiments.batches import Rng, pairs
from glassformer.experiments.charts import line, log_ticks, panels
from glassformer.experiments.finding import Finding, Rows
from glassformer.experiments.measures import accuracy, logits, mean_loss, parameters
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLUE, GREY, ORANGE
from glassformer.models import transformer
from glassformer.parts.lora import adapt
from glassformer.tasks.translation import PairBatch, translation_loss

CLAIM = "As B begins at 0, an adapted model begins as its base; a small rank learns nearly as well as all weights."
ORDER = 150  # in the story

LETTERS, LENGTH, START, END = 12, 6, 12, 13
TARGETS = ("query", "key", "value", "output", "expand")
RATE = 5e-3


def run(
    trial: Trial, first: int = 400, steps: int = 150, ranks: Sequence[int] = (1, 2, 4, 8, 16), width: int = 48
) -> Finding:
    """A base that copies learns to reverse, with adapters of several ranks, and as a whole."""
    base = transformer(LETTERS + 2, width=width, heads=4, layers=1, hidden=2 * width, dropout=0.0)
    trial.learn("training the base to copy", base, _copied, translation_loss, first, RATE)
    new, copied = (trial.new(draw, count=300) for draw in (_reversed, _copied))
    total, unchanged = parameters(base), logits(base, new.source, new.target_in)
    copies = accuracy(logits(base, copied.source, copied.target_in), copied.target_out)
    rows = Rows([{"what": "base", "rank": 0, "trained": 0, "right": accuracy(unchanged, new.target_out)}])
    difference, other = 0.0, replace(trial, seed=trial.seed + 1)  # with other strings than the base has read
    for rank in (*ranks, None):
        model, name = copy.deepcopy(base), "all weights" if rank is None else f"rank {rank}"
        if rank is not None:
            adapt(model, rank=rank, alpha=2.0 * rank, targets=TARGETS)
            difference = max(difference, (unchanged - logits(model, new.source, new.target_in)).abs().max().item())
        other.learn(f"learning to reverse: {name}", model, _reversed, translation_loss, steps, RATE)
        kind = {"what": "all weights" if rank is None else "LoRA", "rank": rank or width, "trained": parameters(model)}
        right = accuracy(logits(model, new.source, new.target_in), new.target_out)
        rows.append({**kind, "right": right, "loss": mean_loss(model, new, translation_loss)})
    lowest, highest, whole = rows[1], rows[-2], rows[-1]
    facts = {
        "difference_at_step_0": difference,
        "copies": copies,
        "base": rows[0]["right"],
        "lowest": lowest["right"],
        "highest": highest["right"],
        "all": whole["right"],
        "lowest_share": lowest["trained"] / total,
        "highest_share": highest["trained"] / total,
    }
    return Finding(
        method=f"A Transformer of 1 + 1 layers, width {width}, {total:,} parameters, learned for {first} steps to copy "
        f"{LENGTH} letters. Copies of it learned for {steps} steps to reverse them: with LoRA on every matrix inside "
        f"the blocks at rank {', '.join(map(str, ranks))} (alpha twice the rank), and with all weights; the same rate "
        f"for all. Right is the share of right tokens in 300 new strings, each given those before it.",
        measured=f"Before the first step the adapted model's logits differ from the base's by "
        f"{facts['difference_at_step_0']:g}. The base copies with {copies:.0%} right and reverses with "
        f"{facts['base']:.0%}; taught with rank {ranks[0]} ({facts['lowest_share']:.1%} of the parameters) "
        f"{facts['lowest']:.0%} are right, with rank {ranks[-1]} ({facts['highest_share']:.0%}) "
        f"{facts['highest']:.0%}, with all weights {facts['all']:.0%}.",
        holds=difference == 0 and facts["highest"] > facts["all"] - 0.1 and facts["highest"] > facts["base"] + 0.3,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows),
    )


def _copied(rng: Rng, count: int = 32) -> PairBatch:
    source = rng.integers(LETTERS, size=(count, LENGTH))  # (B, S)
    return pairs(source, source, START, END)


def _reversed(rng: Rng, count: int = 32) -> PairBatch:
    source = rng.integers(LETTERS, size=(count, LENGTH))  # (B, S)
    return pairs(source, source[:, ::-1].copy(), START, END)


def _draw(rows: Rows) -> Figure:
    figure, (by_rank, by_size) = panels(2, 9.5, 3.6, sharey=True)
    base, *adapted, whole = rows
    learned = Rows(adapted)
    right = learned.column("right")
    line(by_rank, learned.column("rank"), right, BLUE, "LoRA")
    line(by_size, learned.column("trained"), right, BLUE, "LoRA")
    line(by_size, [whole["trained"]], [whole["right"]], ORANGE, "all weights", linestyle="")
    by_rank.axhline(whole["right"], color=ORANGE, linestyle="--", label="all weights")
    for axes in (by_rank, by_size):
        axes.axhline(base["right"], color=GREY, linestyle=":", label="base, which only copies (LoRA at step 0)")
    log_ticks(by_rank, learned.column("rank"))
    by_rank.set(title="Rank against quality", xlabel="rank of the adapters", ylabel="right tokens, reversing")
    by_rank.set_ylim(0, 1.05)
    by_rank.legend(loc="lower right")
    sizes = [*learned.column("trained"), whole["trained"]]
    log_ticks(by_size, sizes, [f"{size / 1000:.1f}k" for size in sizes])
    by_size.set(title="What it costs", xlabel="numbers that learn")
    return figure
