"""feed-forward: how many of the parameters and how much of the non-linearity are in the feed-forward parts.

Attention looks around, feed-forward thinks. So two tasks: to copy the token two places before, where it is enough to
look, and to go on counting, for which what was seen has to be computed with. And models with ReLU, with GELU, with a
feed-forward that is only linear, and with none.

B sequences, T length, D model width
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from glassformer.experiments.batches import COUNTED, MODULUS, counting, repeating
from glassformer.experiments.charts import bars, mark_level
from glassformer.experiments.finding import Finding, Rows, Spread
from glassformer.experiments.measures import logits, mean_loss
from glassformer.experiments.small import Small, blocks_of
from glassformer.experiments.trial import Trial
from glassformer.looking import intervene, record
from glassformer.looking.style import BLUE, GREEN, GREY, ORANGE, PINK, SKY, YELLOW
from glassformer.models import DecoderOnly, bert, gpt2
from glassformer.models.transformer import transformer_base
from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.embeddings import Embedding
from glassformer.parts.feedforward import FeedForward, Function, gelu, relu
from glassformer.parts.schemes import learned
from glassformer.tasks.gathering import TokenBatch, token_loss

CLAIM = "The feed-forward part provides the bulk of the model's parameters and of its non-linearity, by ReLU or GELU."
ORDER = 88  # in the story

WIDTH = 32
BACK = 2  # places between a token and its copy


def as_it_is(x: Tensor) -> Tensor:
    """No activation: two matrices in a row, which are one."""
    return x


RELU, GELU, LINEAR, NONE = "ReLU", "GELU", "linear", "no feed-forward"
ACTIVATIONS: dict[str, Function | None] = {RELU: relu, GELU: gelu, LINEAR: as_it_is, NONE: None}
COLOURS = {RELU: BLUE, GELU: GREEN, LINEAR: ORANGE, NONE: PINK}
COPY, COUNT = "copy", "count"
TASKS: dict[str, Callable[..., TokenBatch]] = {
    COPY: partial(repeating, vocabulary=MODULUS, length=COUNTED, back=BACK),
    COUNT: counting,
}
PATIENCE = {COPY: 2, COUNT: 1}  # times as many steps: until curves have settled
RATES = (3e-3, 1e-2)
WHOLE, STRAIGHT, FIXED = "as trained", "feed-forward made linear", "attention made linear"
CHANGES = {WHOLE: BLUE, STRAIGHT: ORANGE, FIXED: SKY}
FAMILIES: dict[str, Callable[..., nn.Module]] = {"Transformer base": transformer_base, "BERT base": bert, "GPT-2": gpt2}
KINDS = {"feed-forward": BLUE, "attention": SKY, "embeddings": YELLOW, "others": GREY}


def run(trial: Trial, steps: int = 250) -> Finding:
    """Parameters are counted in models of full size; then small ones learn with each kind of feed-forward."""
    rows = Rows({"part": "parameters", "model": name, **_counted(make)} for name, make in FAMILIES.items())
    variants = [(task, name) for task in TASKS for name in ACTIVATIONS]
    seeds = [each.seed for each in trial.seeds()]
    for (task, name), found in trial.tuned("learning", partial(_learned, steps=steps), variants, RATES).items():
        for seed, result in zip(seeds, found.results, strict=True):
            known = {"part": "right", "task": task, "variant": name, "rate": found.rate, "seed": seed}
            rows += [{**known, "change": change, "right": value} for change, value in result.items()]
    right = rows.where(part="right").spreads("right", by=("task", "variant", "change"))
    base, by_bert, by_gpt = rows.where(part="parameters")
    facts: dict[str, float] = {
        "base_feed_forward": base["feed-forward"],
        "base_all": base["all"],
        "share_base": base["feed-forward"] / base["all"],
        "share_base_blocks": base["feed-forward"] / (base["feed-forward"] + base["attention"]),
        "share_bert": by_bert["feed-forward"] / by_bert["all"],
        "share_gpt2": by_gpt["feed-forward"] / by_gpt["all"],
        "share_gpt2_blocks": by_gpt["feed-forward"] / (by_gpt["feed-forward"] + by_gpt["attention"]),
        **{f"{task}, {name}": right[task, name, WHOLE] for task, name in variants},
        **{f"{task}, {change}": right[task, RELU, change] for task in TASKS for change in (STRAIGHT, FIXED)},
    }
    needs = {task: _needs(right, task) for task in TASKS}
    return Finding(
        method="Parameters are those of `transformer_base()`, `bert()` and `gpt2()` as they are built, none left out. "
        f"Decoders of 2 layers, {WIDTH} wide, learned, three times each and at the better of the rates {RATES[0]:g} "
        f"and {RATES[1]:g}, to copy the token {BACK} places before ({PATIENCE[COPY] * steps} steps) and to go on "
        f"counting modulo {MODULUS} ({PATIENCE[COUNT] * steps}). Then one of both non-linear parts of the trained ones "
        "(ReLU) was made linear: each feed-forward "
        "by the linear map that fits it best, each attention by the mean of its weights, the same for all texts. "
        "Right is on new texts.",
        measured=f"Feed-forward has {base['feed-forward'] / 1e6:.1f} of {base['all'] / 1e6:.1f} M parameters of the "
        f"base Transformer, {facts['share_base']:.0%} of all and {facts['share_base_blocks']:.0%} of those inside the "
        f"blocks, beside {base['attention'] / 1e6:.1f} M of attention and {base['embeddings'] / 1e6:.1f} M of "
        f"embeddings; in BERT it is {facts['share_bert']:.0%}, in GPT-2 {facts['share_gpt2']:.0%}. Counting "
        f"{'needs' if needs[COUNT] else 'does not need'} its non-linearity: {right[COUNT, RELU, WHOLE]:.0%} are right "
        f"with ReLU, {right[COUNT, GELU, WHOLE]:.0%} with GELU, {right[COUNT, LINEAR, WHOLE]:.0%} with a linear "
        f"feed-forward and {right[COUNT, NONE, WHOLE]:.0%} without; made linear after training, "
        f"{right[COUNT, RELU, STRAIGHT]:.0%} are left, and {right[COUNT, RELU, FIXED]:.0%} if attention is made "
        f"linear instead. Copying {'needs it, too' if needs[COPY] else 'does not'}: {right[COPY, RELU, WHOLE]:.0%} "
        f"with ReLU, {right[COPY, NONE, WHOLE]:.0%} without a feed-forward.",
        holds=min(facts["share_base"], facts["share_bert"], facts["share_gpt2"]) > 0.5
        and needs[COUNT]
        and right[COUNT, RELU, STRAIGHT].high < right[COUNT, RELU, FIXED].low
        and abs(right[COUNT, RELU, WHOLE] - right[COUNT, GELU, WHOLE]) < 0.05,
        facts=facts | {"needs count": float(needs[COUNT]), "needs copy": float(needs[COPY])},
        rows=rows,
        draw=lambda: _draw(rows, right),
        seeds=seeds,
    )


def _needs(right: dict[Any, Spread], task: str) -> bool:
    """Whether every model with an activation is right clearly more often than every one without."""
    without = max(right[task, name, WHOLE].high for name in (LINEAR, NONE))
    return min(right[task, name, WHOLE].low for name in (RELU, GELU)) > without + 0.05


def _counted(make: Callable[..., nn.Module]) -> dict[str, int]:
    """How many parameters a model has in parts of each kind; nothing is computed, so nothing is stored."""
    with torch.device("meta"):
        model = make()
    kinds = {"feed-forward": FeedForward, "attention": MultiHeadAttention, "embeddings": Embedding}
    counted = {
        name: sum(each.numel() for part in model.modules() if isinstance(part, kind) for each in part.parameters())
        for name, kind in kinds.items()
    }
    table = {id(part): part for part in model.modules() if isinstance(part, Embedding)}  # once, if it is shared
    counted["embeddings"] = sum(each.numel() for part in table.values() for each in part.parameters())
    whole = sum(each.numel() for each in model.parameters())
    return {**counted, "others": whole - sum(counted.values()), "all": whole}


def _model(name: str) -> DecoderOnly:
    """A small language model with this kind of feed-forward."""
    model = Small(MODULUS, WIDTH, positions=learned, length=COUNTED).language_model()
    for block in blocks_of(model):
        if ACTIVATIONS[name] is None:
            block.feed_forward = nn.Identity()
        else:
            block.feed_forward.part.activation = ACTIVATIONS[name]  # type: ignore[union-attr]
    return model


def _learned(trial: Trial, variant: tuple[str, str], rate: float, steps: int) -> tuple[float, dict[str, float]]:
    """The loss on validation, and the right answers on new texts; of ReLU also with one part made linear."""
    task, name = variant
    draw, model = TASKS[task], trial.begin(_model, name)
    trial.learn("", model, draw, token_loss, PATIENCE[task] * steps, rate)
    known, new = trial.held_out(draw, count=300), trial.new(draw, count=300)
    right = {WHOLE: _right(model, new)}
    if name == RELU:
        with record(model, keep="weights") as trace:
            logits(model, known.text)
        with intervene(model) as edit:
            for layer in range(len(blocks_of(model))):
                edit.set(f"decoder.{layer}.self.weights", trace[f"decoder.{layer}.self.weights"].mean(dim=0))
            right[FIXED] = _right(model, new)
    loss = mean_loss(model, known, token_loss)
    if name == RELU:
        for block in blocks_of(model):  # in their order: each fits what reaches it
            _straighten(model, block.feed_forward, known)
        right[STRAIGHT] = _right(model, new)
    return loss, right


def _right(model: DecoderOnly, batch: TokenBatch) -> float:
    """How often the right token is the likeliest where one is asked for."""
    found = logits(model, batch.text).argmax(dim=-1) == batch.labels  # (B, T)
    return found[batch.label_mask].float().mean().item()


@torch.no_grad()
def _straighten(model: DecoderOnly, branch: Any, batch: TokenBatch) -> None:
    """Put the linear map in a feed-forward's place that gives what it gives as nearly as one can."""
    seen: list[Tensor] = []
    hook = branch.part.register_forward_hook(lambda part, given, gave: seen.extend((given[0], gave)))
    logits(model, batch.text)
    hook.remove()
    read, gave = (each.flatten(0, 1) for each in seen)  # (B * T, D)
    ones = torch.ones(len(read), 1)
    best = torch.linalg.lstsq(torch.cat((read, ones), dim=1), gave).solution  # (D + 1, D)
    branch.part = linear = nn.Linear(*best[:-1].shape)
    linear.weight.copy_(best[:-1].T)
    linear.bias.copy_(best[-1])


def _draw(rows: Rows, right: dict[Any, Spread]) -> Figure:
    figure = Figure(figsize=(11.5, 3.9), layout="constrained")
    counted, trained, changed = figure.subplots(1, 3, width_ratios=[1.1, 1.1, 1])
    found = rows.where(part="parameters")
    left = [0.0] * len(found)
    for kind, colour in KINDS.items():
        millions = [each / 1e6 for each in found.column(kind)]
        drawn = counted.barh(range(len(found)), millions, left=left, color=colour, label=kind)
        shown = [f"{value:.1f}" if value > 4 else "" for value in millions]
        counted.bar_label(drawn, shown, label_type="center", fontsize=8)
        left = [one + other for one, other in zip(left, millions, strict=True)]
    counted.set_yticks(range(len(found)), [name.replace(" ", "\n") for name in found.column("model")])
    counted.set(title="Parameters", xlabel="millions")
    counted.invert_yaxis()
    counted.grid(visible=False, axis="y")
    counted.legend(loc="upper center", bbox_to_anchor=(0.45, -0.16), ncols=4, columnspacing=0.8, handlelength=1)
    values = {name: [right[task, name, WHOLE] for task in TASKS] for name in ACTIVATIONS}
    bars(trained, [*TASKS], values, COLOURS)
    trained.set(title="Trained with each", ylabel="right answers on new texts")
    bars(changed, [*TASKS], {name: [right[task, RELU, name] for task in TASKS] for name in CHANGES}, CHANGES)
    changed.set(title="ReLU, one part made linear afterwards")
    for axes in (trained, changed):
        axes.set_ylim(0, 1.05)
        mark_level(axes, 1 / MODULUS, "guessing")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2, columnspacing=0.8)
    return figure
