"""long-memory: information from long ago is hard to reach for a model that reads step by step.

A text begins with the symbol to remember, goes on with others that do not matter, and ends with the question. A
recurrent model has carried the answer through every step between; a Transformer looks it up. All have as many
parameters. What is hard to reach is not learned at all, or takes much longer to learn.

B texts, T length
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import takewhile

from matplotlib.figure import Figure

from glassformer.experiments.batches import Rng, repeating
from glassformer.experiments.charts import band, legend_below, log_ticks, mark_level, panels
from glassformer.experiments.finding import Finding, Row, Rows, Spread
from glassformer.experiments.measures import accuracy, logits, mean_loss, parameters
from glassformer.experiments.small import CELLS, language_model
from glassformer.experiments.trial import Trial, told_rates
from glassformer.looking.style import BLUE, GREEN, ORANGE, PINK
from glassformer.tasks.gathering import TokenBatch, token_loss

CLAIM = "Information from long ago is hard to reach for a model that reads step by step."
ORDER = 30  # in the story

SYMBOLS, RATES = 8, (3e-3, 1e-2)
QUESTION, GUESS = SYMBOLS, 1 / SYMBOLS
KNOWN = 0.9  # of the answers right: then the symbol is remembered
LEARNED = 0.1 * math.log(SYMBOLS)  # nats: a tenth of the loss of a guess
TRANSFORMER = "Transformer"
WIDTHS = {"RNN": 96, "GRU": 56, "LSTM": 48, TRANSFORMER: 28}  # 19,000 to 20,000 parameters each
COLOURS = {"RNN": ORANGE, "GRU": PINK, "LSTM": GREEN, TRANSFORMER: BLUE}
HARD = 4  # times as many steps as a Transformer needs: then a symbol is hard to reach, though it is reached
PATIENCE = 2  # times as many steps beyond the nearest distance, so that there is time to need so many more
Setting = tuple[str, int, int]  # model, distance, steps


def run(trial: Trial, steps: int = 200, distances: Sequence[int] = (4, 12, 36)) -> Finding:
    """For each distance each model learns from the beginning, and is asked about new texts."""
    near, far = min(distances), max(distances)
    most = PATIENCE * steps
    settings: list[Setting] = [
        (name, distance, most if name in CELLS and distance > near else steps)
        for name in WIDTHS
        for distance in distances
    ]
    tuned = trial.tuned("learning to remember", _learned, settings, RATES)
    rows = Rows(row | {"rate": each.rate} for each in tuned.values() for row in each.results)
    at, needed = (rows.spreads(column, by=("model", "distance")) for column in ("accuracy", "needed"))
    reach = {name: _reach({distance: at[name, distance] for distance in distances}) for name in WIDTHS}
    hard = {(name, distance): _hard(at, needed, name, distance) for name in CELLS for distance in (near, far)}
    facts: dict[str, float] = {
        "parameters_least": min(rows.column("parameters")),
        "parameters_most": max(rows.column("parameters")),
        **{f"reach {name}": steps_back for name, steps_back in reach.items()},
        **{f"near {name}": at[name, near] for name in WIDTHS},
        **{f"far {name}": at[name, far] for name in WIDTHS},
        **{f"steps near {name}": needed[name, near] for name in WIDTHS},
        **{f"steps far {name}": needed[name, far] for name in WIDTHS},
    }
    easy = [name for name in CELLS if not all(hard[name, far])]
    exception = f" So being far is not hard for every model that reads step by step: not for {' and '.join(easy)}."
    return Finding(
        method=f"Texts of one of {SYMBOLS} symbols to remember, more symbols drawn at random, and a question at the "
        f"end, {' or '.join(map(str, distances))} steps after the first. For each distance a language model of each "
        f"kind, all with {facts['parameters_least']:,.0f} to {facts['parameters_most']:,.0f} parameters, learned for "
        f"{steps} steps of 32 new texts, recurrent ones beyond {near} steps back for {most}, {told_rates(RATES)}, and "
        f"answered 500 others. A symbol counts as remembered where {KNOWN:.0%} of the answers are right, and as "
        f"learned at the step at which the training loss is a tenth of that of a guess. It is hard to reach where it "
        f"is not remembered, or where that takes {HARD} times as many steps as the Transformer needs.",
        measured=f"{far} steps back, the farthest that was tried, "
        + "; ".join(f"the {name} is right in {at[name, far]:.0%}, {_told(needed[name, far], most)}" for name in WIDTHS)
        + f"; a guess is right in {GUESS:.0%}. {near} steps back it is "
        + ", ".join(f"{_told(needed[name, near], steps)} by the {name}" for name in WIDTHS)
        + ". At every seed "
        + ", ".join(f"the {name} remembers a symbol over {reach[name]} steps" for name in WIDTHS)
        + "."
        + (exception if easy else ""),
        holds=at[TRANSFORMER, far].low >= KNOWN
        and not easy
        and not any(one for name in CELLS for one in hard[name, near]),
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, distances, most),
        seeds=[each.seed for each in trial.seeds()],
    )


def _hard(at: dict[tuple[str, int], Spread], needed: dict[tuple[str, int], Spread], name: str, back: int) -> list[bool]:
    """Whether a symbol so far back is hard to reach for a model, seed by seed."""
    pairs = zip(needed[name, back].values, needed[TRANSFORMER, back].values, strict=True)
    return [
        right < KNOWN or steps >= HARD * others
        for right, (steps, others) in zip(at[name, back].values, pairs, strict=True)
    ]


def _told(needed: Spread, most: int) -> str:
    """After how many steps a symbol is learned; `most` stands for never."""
    if needed.low >= most:
        return f"not learned within {most} steps"
    return f"learned after {needed:.0f} steps" + (f" ({most}: never)" if needed.high >= most else "")


def _learned(trial: Trial, setting: Setting, rate: float) -> tuple[float, Row]:
    """The validation loss of a model, how often it remembers, and after how many steps it has learned to."""
    name, distance, steps = setting
    model, draw = trial.begin(language_model, name, SYMBOLS + 1, WIDTHS[name]), partial(_recall, distance=distance)
    losses = trial.learn("", model, draw, token_loss, steps, rate)
    new, held = (part(draw, count=500) for part in (trial.new, trial.held_out))
    row: Row = {"model": name, "seed": trial.seed, "parameters": parameters(model), "distance": distance}
    row["accuracy"] = accuracy(logits(model, new.text)[:, -1], new.labels[:, -1])
    row["needed"] = next((step for step, loss in losses if loss < LEARNED), steps)
    return mean_loss(model, held, token_loss), row


def _recall(rng: Rng, distance: int, count: int = 32) -> TokenBatch:
    """Symbols with the question as the last token, (B, T); it alone is to be answered, with the first symbol."""
    batch = repeating(rng, SYMBOLS, distance + 1, distance, count)
    batch.text[:, -1] = QUESTION
    return batch


def _reach(right: dict[int, Spread]) -> int:
    """The farthest distance up to which everything is remembered at every seed; 0: none."""
    return max(takewhile(lambda distance: right[distance].low >= KNOWN, right), default=0)


def _draw(rows: Rows, distances: Sequence[int], most: int) -> Figure:
    figure, (told, learned) = panels(2, 10, 3.8)
    for name, colour in COLOURS.items():
        own = rows.where(model=name)
        label = f"{name}, {own[0]['parameters']:,} parameters"
        for axes, column in ((told, "accuracy"), (learned, "needed")):
            found = own.spreads(column, by="distance")
            band(axes, [*found], [*found.values()], colour, label, markersize=7)
    mark_level(told, GUESS, "guessing", below=True)
    told.set(title="Which symbol came first?", ylabel="right answers on new texts", ylim=(0, 1.05))
    mark_level(learned, most, "never")
    learned.set(title="How long it takes to learn", ylabel="steps of training", ylim=(0, 1.15 * most))
    for axes in (told, learned):
        log_ticks(axes, distances)
        axes.set_xlabel("steps between the symbol and the question (log)")
    legend_below(figure, told, columns=2)
    return figure
