"""lora: B begins at zero, so an adapted model begins as its base; and how much rank it takes to learn something new.

    y = W x + s · B A x

A model that has learned to repeat what it reads is taught to write it backwards: by all of its weights, or by A and B
alone, at several ranks.

B sentences, S source length, T target length
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch

from glassformer.experiments.finding import Finding, Progress, Row, silent
from glassformer.experiments.learning import Dice, held_out, learn, mean_loss, pairs, right_share
from glassformer.looking.style import BLUE, GREY, ORANGE
from glassformer.models import EncoderDecoder, transformer
from glassformer.parts.lora import adapt
from glassformer.tasks import PairBatch, translation_loss

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LETTERS, LENGTH, START, END = 12, 6, 12, 13
TARGETS = ("query", "key", "value", "output", "expand")


def run(
    seed: int = 0,
    progress: Progress = silent,
    first: int = 400,
    steps: int = 150,
    ranks: Sequence[int] = (1, 2, 4, 8, 16),
    width: int = 48,
) -> Finding:
    """A base that copies learns to reverse, with adapters of several ranks, and as a whole."""
    base = transformer(LETTERS + 2, width=width, heads=4, layers=1, hidden=2 * width, dropout=0.0)
    learn(base, _copied, translation_loss, first, 5e-3, seed, progress, "training the base to copy")
    new: PairBatch = held_out(partial(_reversed, count=300), seed)
    total = sum(parameter.numel() for parameter in base.parameters())
    copies = _right(base, held_out(partial(_copied, count=300), seed))
    rows: list[Row] = [{"what": "base", "rank": 0, "trained": 0, "right": _right(base, new)}]
    begun = 0.0
    for rank in ranks:
        model = adapt(copy.deepcopy(base), rank=rank, alpha=2.0 * rank, targets=TARGETS)
        begun = max(begun, _difference(base, model, new))
        rows.append({"what": "LoRA", "rank": rank, **_taught(model, steps, seed, progress, f"rank {rank}", new)})
    whole = _taught(copy.deepcopy(base), steps, seed, progress, "all weights", new)
    rows.append({"what": "all weights", "rank": width, **whole})
    learned = [row for row in rows if row["what"] == "LoRA"]
    facts = {
        "difference_at_step_0": begun,
        "copies": copies,
        "base": rows[0]["right"],
        "lowest": learned[0]["right"],
        "highest": learned[-1]["right"],
        "all": whole["right"],
        "lowest_share": learned[0]["trained"] / total,
        "highest_share": learned[-1]["trained"] / total,
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
        holds=begun == 0 and facts["highest"] > facts["all"] - 0.1 and facts["highest"] > facts["base"] + 0.3,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows),
    )


def _strings(dice: Dice, count: int) -> torch.Tensor:
    return torch.from_numpy(dice.integers(LETTERS, size=(count, LENGTH)))  # (B, S)


def _copied(dice: Dice, count: int = 32) -> PairBatch:
    source = _strings(dice, count)
    return pairs(source, source, START, END)


def _reversed(dice: Dice, count: int = 32) -> PairBatch:
    source = _strings(dice, count)
    return pairs(source, source.flip(1), START, END)


def _taught(
    model: EncoderDecoder, steps: int, seed: int, progress: Progress, name: str, new: PairBatch
) -> dict[str, float]:
    """How well a model reverses after some steps, and how many of its numbers learned it."""
    learn(model, _reversed, translation_loss, steps, 5e-3, seed + 1, progress, f"learning to reverse: {name}")
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return {"trained": trained, "right": _right(model, new), "loss": mean_loss(model, new, translation_loss)}


@torch.no_grad()
def _right(model: EncoderDecoder, batch: PairBatch) -> float:
    return right_share(model.eval()(batch.source, batch.target_in), batch.target_out)


@torch.no_grad()
def _difference(base: EncoderDecoder, model: EncoderDecoder, batch: PairBatch) -> float:
    """The largest difference between two models' logits."""
    inputs = batch.source, batch.target_in
    difference: float = (base.eval()(*inputs) - model.eval()(*inputs)).abs().max().item()
    return difference


def _draw(rows: list[Row]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 3.6), layout="constrained")
    by_rank, by_size = figure.subplots(1, 2, sharey=True)
    (base,), learned, (whole,) = (
        [row for row in rows if row["what"] == what] for what in ("base", "LoRA", "all weights")
    )
    ranks, right = [row["rank"] for row in learned], [row["right"] for row in learned]
    by_rank.plot(ranks, right, color=BLUE, label="LoRA")
    by_size.plot([row["trained"] for row in learned], right, color=BLUE, label="LoRA")
    by_size.plot([whole["trained"]], [whole["right"]], color=ORANGE, marker="s", linestyle="", label="all weights")
    by_rank.axhline(whole["right"], color=ORANGE, linestyle="--", label="all weights")
    for axes in (by_rank, by_size):
        axes.axhline(base["right"], color=GREY, linestyle=":", label="base, which only copies (LoRA at step 0)")
        axes.set(xscale="log", ylim=(0, 1.05))
    by_rank.set(title="Rank against quality", xlabel="rank of the adapters", ylabel="right tokens, reversing")
    by_rank.set_xticks(ranks, ranks)
    by_rank.minorticks_off()
    by_rank.legend(loc="lower right")
    by_size.set(title="What it costs", xlabel="numbers that learn")
    sizes = [row["trained"] for row in (*learned, whole)]
    by_size.set_xticks(sizes, [f"{size / 1000:.1f}k" for size in sizes])
    by_size.minorticks_off()
    return figure
