"""undo-layer-norm: the learned scale and shift give every feature a size and an offset, but no token its own back.

    LN(x) = γ ⊙ (x - μ) / σ + β

γ and β are the same for all tokens, μ and σ are each token's own. Where all tokens have the same μ and σ, γ = σ and
β = μ undo the norm to the last digit; where they differ, what told them apart is gone. Batch norm's μ and σ belong to
features, as γ and β do: there the same numbers undo it always.

B vectors, D width
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from glassformer.experiments.batches import Rng
from glassformer.experiments.charts import bars, legend_below, mark_level, panels
from glassformer.experiments.finding import Finding, Rows, Spread
from glassformer.experiments.measures import mean_loss
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLUE, GREY, ORANGE
from glassformer.parts.norms import BatchNorm, LayerNorm
from glassformer.tasks.protocol import Learner, Tensors

CLAIM = "The learned scale and shift of layer norm allow the network to undo the normalisation if the data require it."
ORDER = 94  # in the story

WIDTH = 16
LAYER, BATCH, NONE = "layer norm", "batch norm", "no norm"
NORMS: dict[str, Callable[[int], nn.Module]] = {LAYER: LayerNorm, BATCH: BatchNorm, NONE: lambda width: nn.Identity()}
COLOURS = {LAYER: ORANGE, BATCH: BLUE, NONE: GREY}
ALIKE, OFFSETS, OWN = "all tokens of one size", "features with offsets", "tokens of their own size"
SIZE, MEAN = "is it long?", "is its mean above 0?"
RATES = (1e-2, 5e-2)
CALM = (3e-3, 1e-2)  # rates of networks behind a norm: at 0.05 their loss falls for as long as the rate does


@dataclass(frozen=True)
class Vectors(Tensors):
    """Vectors (B, D) to read, and what should be said of each: a vector (B, D), or 1 or 0 (B, 1)."""

    read: Tensor
    wanted: Tensor

    @property
    def targets(self) -> int:
        """How many there are."""
        return len(self.read)

    tokens = padded_tokens = targets


class Undone(nn.Module):
    """A norm that should give back what it was given: all that learns is its scale and its shift."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.head: nn.Module = nn.Identity()

    def hidden(self, x: Tensor) -> Tensor:
        """What the norm makes of vectors (B, D)."""
        return self.norm(x[:, None])[:, 0]  # type: ignore[no-any-return]


class Judge(Undone):
    """A norm, and a small network that reads what it gives: (B, D) to (B, 1)."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__(norm)
        self.head = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))


def run(trial: Trial, steps: int = 150, judged: int = 1500) -> Finding:
    """Norms learn to give back what they read; then networks behind them learn what only size or mean tell."""
    seeds = [each.seed for each in trial.seeds()]
    undoing = [(kind, name) for kind in (ALIKE, OFFSETS, OWN) for name in (LAYER, BATCH)]
    judging = [(kind, name) for kind in (SIZE, MEAN) for name in NORMS]
    rows = Rows()
    for part, work, variants, rates in (
        ("left over", partial(_undone, steps=steps), undoing, RATES),
        ("right", partial(_judged, steps=judged), judging, CALM),
    ):
        for (kind, name), found in trial.tuned(part, work, variants, rates).items():
            rows += [
                {"part": part, "data": kind, "norm": name, "rate": found.rate, "seed": seed, part: value}
                for seed, value in zip(seeds, found.results, strict=True)
            ]
    left = rows.where(part="left over").spreads("left over", by=("data", "norm"))
    right = rows.where(part="right").spreads("right", by=("data", "norm"))
    facts: dict[str, float] = {f"left {kind}, {name}": value for (kind, name), value in left.items()}
    facts |= {f"right {kind}, {name}": value for (kind, name), value in right.items()}
    facts["lost"] = lost = Spread(_lost(each) for each in trial.seeds())
    return Finding(
        method=f"Norms over {WIDTH} features, of which only scale and shift learn, learned for {steps} steps to give "
        "back the vectors that they read: vectors that all have the same mean and variance; vectors whose features "
        "have offsets and sizes of their own; and the same, each also multiplied and shifted by numbers of its own. "
        "What is left over is the squared error by the variance of the data. Then small networks behind a norm "
        f"learned for {judged:,} steps whether a vector is longer than most, and whether its mean is above 0. Three "
        f"times each, on new vectors: norms at the better of the rates {RATES[0]:g} and {RATES[1]:g}, networks at the "
        f"better of {CALM[0]:g} and {CALM[1]:g}.",
        measured="Where all tokens have the same mean and variance, scale and shift undo layer norm: "
        f"{left[ALIKE, LAYER]:.1%} is left over. Features with offsets come back but for {left[OFFSETS, LAYER]:.0%} "
        f"(batch norm: {left[OFFSETS, BATCH]:.1%}). Where each token has its own size and mean, "
        f"{left[OWN, LAYER]:.0%} is left over (batch norm: {left[OWN, BATCH]:.1%}); the best scale and shift that "
        f"there are, by the formula, leave {lost:.0%}. Behind layer norm a network tells long from short vectors in "
        f"{right[SIZE, LAYER]:.0%} and the sign of the mean in {right[MEAN, LAYER]:.0%}, behind batch norm in "
        f"{right[SIZE, BATCH]:.0%} and {right[MEAN, BATCH]:.0%}, without a norm in {right[SIZE, NONE]:.0%} and "
        f"{right[MEAN, NONE]:.0%}; a guess is right in 50%. So a feature's offset can be restored, as the notes say, "
        "but the normalisation of a token cannot be undone.",
        holds=left[ALIKE, LAYER].high < 0.02
        and left[OFFSETS, LAYER].high < 0.1
        and left[OWN, LAYER].high < 0.1
        and min(right[SIZE, LAYER].low, right[MEAN, LAYER].low) > 0.9,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(left, right),
        seeds=seeds,
    )


def _data(rng: Rng, kind: str, count: int = 256) -> Vectors:
    """Vectors that should be given back."""
    x = rng.normal(size=(count, WIDTH))
    if kind == ALIKE:
        x = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True) * 3 + 2
    else:
        features = torch.Generator().manual_seed(7)  # the same offsets and sizes in every batch
        x = x * (0.5 + torch.rand(WIDTH, generator=features).numpy()) + torch.randn(WIDTH, generator=features).numpy()
    if kind == OWN:
        x = x * rng.lognormal(sigma=0.7, size=(count, 1)) + rng.normal(size=(count, 1))
    read = torch.from_numpy(x).float()
    return Vectors(read, read)


def _question(rng: Rng, kind: str, count: int = 128) -> Vectors:
    """Vectors of any size and mean, and whether the size, or the mean, is above the middle."""
    x = rng.normal(size=(count, WIDTH))
    x = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)
    size, mean = rng.lognormal(sigma=0.7, size=(count, 1)), rng.normal(size=(count, 1))
    x = x * size if kind == SIZE else x + mean
    wanted = size > 1 if kind == SIZE else mean > 0
    return Vectors(torch.from_numpy(x).float(), torch.from_numpy(wanted).float())


def _squared(learner: Learner, batch: Vectors) -> Tensor:
    """The squared error, summed over the vectors."""
    return (learner.hidden(batch.read) - batch.wanted).square().mean(dim=1).sum()


def _surprise(learner: Learner, batch: Vectors) -> Tensor:
    """The cross-entropy of yes and no, summed."""
    scores = learner.head(learner.hidden(batch.read))
    return nn.functional.binary_cross_entropy_with_logits(scores, batch.wanted, reduction="sum")


def _undone(trial: Trial, variant: tuple[str, str], rate: float, steps: int) -> tuple[float, float]:
    """The error on validation, and what is left over of new vectors, by their variance."""
    kind, name = variant
    draw, model = partial(_data, kind=kind), trial.begin(_with, Undone, name)
    trial.learn("", model, draw, _squared, steps, rate)
    errors = []
    with torch.no_grad():
        for batch in (trial.held_out(draw), trial.new(draw, count=2000)):
            apart = (model.eval().hidden(batch.read) - batch.wanted).square().mean()
            errors.append((apart / batch.wanted.var(dim=0, correction=0).mean()).item())
    return errors[0], errors[1]


def _judged(trial: Trial, variant: tuple[str, str], rate: float, steps: int) -> tuple[float, float]:
    """The loss on validation, and the right answers about new vectors."""
    kind, name = variant
    draw, model = partial(_question, kind=kind), trial.begin(_with, Judge, name)
    trial.learn("", model, draw, _surprise, steps, rate)
    known, new = trial.held_out(draw, count=1000), trial.new(draw, count=2000)
    with torch.no_grad():
        loss = mean_loss(model, known, _surprise)
        right = ((model.head(model.hidden(new.read)) > 0) == (new.wanted > 0)).float().mean().item()
    return loss, right


def _with(kind: type[Undone], name: str) -> Undone:
    return kind(NORMS[name](WIDTH))


def _lost(trial: Trial) -> float:
    """What the best scale and shift of layer norm leave of tokens with sizes of their own: least squares by feature."""
    x = trial.new(partial(_data, kind=OWN), count=4000).read.double()  # (B, D)
    y = LayerNorm(WIDTH).double()(x).detach()
    centred, wanted = y - y.mean(dim=0), x - x.mean(dim=0)
    scale = (centred * wanted).sum(dim=0) / centred.square().sum(dim=0)  # (D)
    return float((wanted - scale * centred).square().mean() / wanted.square().mean())


def _draw(left: dict[tuple[str, str], Spread], right: dict[tuple[str, str], Spread]) -> Figure:
    figure, (undone, judged) = panels(2, 10.5, 3.8, width_ratios=[1.3, 1])
    kinds = (ALIKE, OFFSETS, OWN)
    values = {name: [left[kind, name] for kind in kinds] for name in (LAYER, BATCH)}
    names = [kind.replace(" of ", "\nof ").replace(" with ", "\nwith ") for kind in kinds]
    bars(undone, names, values, COLOURS, form="{:.2f}")
    undone.set(title="What scale and shift cannot bring back", ylabel="left over (share of the variance)")
    questions = (SIZE, MEAN)
    bars(judged, questions, {name: [right[kind, name] for kind in questions] for name in NORMS}, COLOURS)
    mark_level(judged, 0.5, "guessing")
    judged.set(title="What a network behind the norm still knows", ylabel="right answers", ylim=(0, 1.05))
    legend_below(figure, judged, columns=3)
    return figure
