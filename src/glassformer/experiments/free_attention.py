"""free-attention: attention without parameters against learned queries, keys and values, on the same tasks.

Without parameters each word takes in the words that are like it, itself first, whatever it is needed for; but a long
vector is like all others by their product, and lengths are learned. Two tasks ask for two different things of the same
sentences: the sense of "bank", which words of like meaning tell, and the word before each, which no likeness tells.

B sentences, T length, D model width
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from glassformer.experiments.batches import Rng
from glassformer.experiments.charts import bars, heat, mark_level
from glassformer.experiments.finding import Finding, Rows, Spread
from glassformer.experiments.measures import mean_loss
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLUE, GREEN, GREY, HEAT, ORANGE, PINK, SKY
from glassformer.parts.attention import MultiHeadAttention, attention_scores, simple_self_attention
from glassformer.parts.embeddings import Embedding
from glassformer.parts.positions import Sinusoidal
from glassformer.parts.similarity import Similarity, cosine_similarity, dot_similarity, scaled_dot_similarity
from glassformer.tasks.gathering import TokenBatch, token_loss

CLAIM = (
    "Self-attention without parameters gives every word its own highest weight (the diagonal) and learns nothing from "
    "data; a task needs learned queries, keys and values."
)
ORDER = 64  # in the story

WORDS = ("bank", "money", "loan", "cash", "credit", "river", "water", "boat", "reed", "grows", "flows", "the")
MONEY, RIVER, OTHERS = range(1, 5), range(5, 9), range(9, 12)
SENSES = 2  # labels after those of words
WIDTH, LENGTH = 32, 6
SENSE, BEFORE = "sense of bank", "word before"
COSINE, DOT, SCALED, LEARNED = "cosine", "dot", "scaled dot", "learned Q, K, V"
SIMILARITIES: dict[str, Similarity] = {
    COSINE: cosine_similarity,
    DOT: dot_similarity,
    SCALED: scaled_dot_similarity,
}
COLOURS = {COSINE: PINK, DOT: ORANGE, SCALED: GREEN, LEARNED: BLUE}
RATES = (1e-2, 3e-2)
OFTEN = 0.9  # of the rows: where the diagonal is the highest that often, it is "the highest"
TIMES = {"before training": GREY, f"after learning the {BEFORE}": BLUE, f"after learning the {SENSE}": SKY}


class Reader(nn.Module):
    """Words and their positions, one attention, one matrix that scores the answers; no residual that goes past it."""

    def __init__(self, attends: str) -> None:
        super().__init__()
        self.attends = attends
        self.embedding = Embedding(len(WORDS), WIDTH, WIDTH**0.5, Sinusoidal(WIDTH))
        self.attention = MultiHeadAttention(WIDTH, heads=1) if attends == LEARNED else None
        self.head = nn.Linear(WIDTH, len(WORDS) + SENSES)

    def hidden(self, text: Tensor, mask: None = None, documents: None = None) -> Tensor:
        """Words (B, T) in context, (B, T, D); there is no padding."""
        x = self.embedding(text)
        if self.attention is not None:
            return self.attention(x)  # type: ignore[no-any-return]
        return simple_self_attention(x, SIMILARITIES[self.attends])[0]

    def forward(self, text: Tensor) -> Tensor:
        """Scores of all answers, (B, T, words and senses)."""
        return self.head(self.hidden(text))  # type: ignore[no-any-return]

    @torch.no_grad()
    def weights(self, text: Tensor) -> Tensor:
        """How much each word takes in of each, (B, T, T)."""
        x = self.embedding(text)
        if self.attention is None:
            return simple_self_attention(x, SIMILARITIES[self.attends])[1]
        return attention_scores(self.attention.query(x), self.attention.key(x)).softmax(dim=-1)


def run(trial: Trial, steps: int = 300) -> Finding:
    """Each kind of attention learns both tasks; before and after, its weights are looked at."""
    seeds = [each.seed for each in trial.seeds()]
    variants = [(task, name) for task in TASKS for name in COLOURS]
    tuned = trial.tuned("learning", partial(_learned, steps=steps), variants, RATES)
    rows = Rows(
        {"task": task, "attention": name, "rate": found.rate, "seed": seed, **result["numbers"]}
        for (task, name), found in tuned.items()
        for seed, result in zip(seeds, found.results, strict=True)
    )
    right = rows.spreads("right", by=("task", "attention"))
    begins, ends = (rows.spreads(column, by=("task", "attention")) for column in ("begins", "ends"))
    facts: dict[str, float] = {f"{task}, {name}": value for (task, name), value in right.items()}
    facts |= {f"diagonal before, {name}": begins[BEFORE, name] for name in COLOURS}
    facts |= {f"diagonal after, {task}, {name}": value for (task, name), value in ends.items()}
    free = {task: max((right[task, name] for name in SIMILARITIES), key=float) for task in TASKS}
    diagonals = dict(zip(TIMES, (_of(begins, BEFORE), _of(ends, BEFORE), _of(ends, SENSE)), strict=True))
    stays = {name: all(found[name].low > OFTEN for found in diagonals.values()) for name in SIMILARITIES}
    kept = [name for name, kept in stays.items() if kept]
    told = {time: ", ".join(f"{found[name]:.0%} by {name}" for name in COLOURS) for time, found in diagonals.items()}
    return Finding(
        method=f'Sentences of {LENGTH} words with "bank" among words of money or of rivers and others. A model of '
        f"word vectors ({WIDTH} wide, which learn) with sinusoidal positions, one attention and one matrix for the "
        f'answers learned for {steps} steps to give the sense of "bank", or to give the word before each; three times '
        f"each, at the better of the rates {RATES[0]:g} and {RATES[1]:g}. Attention without parameters is "
        "`simple_self_attention(x, similarity)`; the diagonal is counted in 500 new sentences, before and after "
        f"training, and is the highest if it is in {OFTEN:.0%} of the rows, at every seed.",
        measured="A word's own weight is the highest of its row in "
        + "; ".join(f"{share}, {time}" for time, share in told.items())
        + f". So the diagonal stays the highest {'by ' + ' and '.join(kept) if kept else 'by none of them'}"
        + ("" if all(stays.values()) else ": long vectors take weight from all others, and lengths are learned")
        + f". The word before is found in {right[BEFORE, COSINE]:.0%}, "
        f"{right[BEFORE, DOT]:.0%} and {right[BEFORE, SCALED]:.0%} without parameters, and in "
        f'{right[BEFORE, LEARNED]:.0%} with learned queries, keys and values; the sense of "bank" in '
        f"{right[SENSE, COSINE]:.0%}, {right[SENSE, DOT]:.0%}, {right[SENSE, SCALED]:.0%} and "
        f"{right[SENSE, LEARNED]:.0%}.",
        holds=all(stays.values())
        and right[BEFORE, LEARNED].low > free[BEFORE].high + 0.2
        and right[SENSE, LEARNED].low > 0.95,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(right, diagonals, {name: tuned[BEFORE, name].results[0]["example"] for name in COLOURS}),
        seeds=seeds,
    )


def _of(found: dict[Any, Spread], task: str) -> dict[str, Spread]:
    """What was found of one task, by the kind of attention."""
    return {name: found[task, name] for name in COLOURS}


def _sense(rng: Rng, count: int = 64) -> TokenBatch:
    """Sentences about money or rivers, (B, T); at "bank" its sense is asked for."""
    about = rng.integers(2, size=count)
    topic = np.where(
        about[:, None] == 0, *(rng.integers(each[0], each[-1] + 1, (count, LENGTH)) for each in (MONEY, RIVER))
    )
    text = np.where(rng.random((count, LENGTH)) < 0.3, topic, rng.integers(OTHERS[0], OTHERS[-1] + 1, (count, LENGTH)))
    places = np.argsort(rng.random((count, LENGTH)), axis=1)
    rows = np.arange(count)
    text[rows, places[:, 0]], text[rows, places[:, 1]] = WORDS.index("bank"), topic[rows, places[:, 1]]
    asked = torch.from_numpy(np.arange(LENGTH) == places[:, :1])
    labels = torch.from_numpy(np.repeat(len(WORDS) + about[:, None], LENGTH, axis=1))
    return TokenBatch(torch.from_numpy(text), labels, asked, None, text.size, count)


def _before(rng: Rng, count: int = 64) -> TokenBatch:
    """The same kind of sentences; after the first word of each, the word before is asked for."""
    text = _sense(rng, count).text
    asked = (torch.arange(LENGTH) > 0).expand_as(text)
    return TokenBatch(text, text.roll(1, dims=1), asked, None, text.numel(), int(asked.sum()))


TASKS: dict[str, Callable[..., TokenBatch]] = {SENSE: _sense, BEFORE: _before}


def _learned(trial: Trial, variant: tuple[str, str], rate: float, steps: int) -> tuple[float, dict[str, Any]]:
    """The loss on validation; right answers and the diagonal in new sentences, and the weights in one of them."""
    task, name = variant
    draw, model = TASKS[task], trial.begin(Reader, name)
    new = trial.new(draw, count=500)
    begins = _diagonal(model.weights(new.text))
    trial.learn("", model, draw, token_loss, steps, rate)
    with torch.no_grad():
        right = (model(new.text).argmax(dim=-1) == new.labels)[new.label_mask].float().mean().item()
    numbers = {"right": right, "begins": begins, "ends": _diagonal(model.weights(new.text))}
    example = torch.tensor([[WORDS.index(word) for word in ("the", "money", "bank", "grows", "the", "cash")]])
    loss = mean_loss(model, trial.held_out(draw, count=300), token_loss)
    return loss, {"numbers": numbers, "example": model.weights(example)[0].numpy()}


def _diagonal(weights: Tensor) -> float:
    """How often the own weight of a word is the highest of its row, (B, T, T)."""
    own = weights.diagonal(dim1=1, dim2=2)  # (B, T)
    return (own >= weights.amax(dim=-1) - 1e-6).float().mean().item()


def _draw(right: dict[Any, Spread], diagonals: dict[str, dict[str, Spread]], examples: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(11, 7), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=[1, 1.1])
    words = ("the", "money", "bank", "grows", "the", "cash")
    for axes, (name, table) in zip(parts[0].subplots(1, len(examples)), examples.items(), strict=True):
        heat(axes, table, vmin=0, vmax=1, cmap=HEAT)
        axes.set_title(name)
        axes.set_xticks(range(len(words)), words, rotation=60)
        axes.set_yticks(range(len(words)), words if name == COSINE else [])
    parts[0].suptitle("Weights after learning the word before (row: who takes in; column: what)", fontsize=10)
    told, diagonal = parts[1].subplots(1, 2, width_ratios=[1.6, 1])
    bars(told, [*TASKS], {name: [right[task, name] for task in TASKS] for name in COLOURS}, COLOURS)
    mark_level(told, 0.5, "guessing the sense")
    told.set(title="Trained", ylabel="right answers on new sentences", ylim=(0, 1.05))
    told.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=4)
    bars(diagonal, [*COLOURS], {time: [*found.values()] for time, found in diagonals.items()}, TIMES, lying=True)
    diagonal.set(title="Is a word's own weight the highest?", xlabel="rows in which it is", xlim=(0, 1.05))
    diagonal.legend(loc="upper center", bbox_to_anchor=(0.4, -0.16))
    return figure
