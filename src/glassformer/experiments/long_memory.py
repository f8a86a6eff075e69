"""long-memory: information from long ago is hard to reach for a model that reads step by step.

A text begins with the symbol to remember, goes on with others that do not matter, and ends with the question. A
recurrent model has carried the answer through every step between; a Transformer looks it up. All have as many
parameters.

B texts, T length
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import takewhile

from matplotlib.figure import Figure

from glassformer.experiments.batches import Rng, repeating
from glassformer.experiments.charts import band, log_ticks, mark_level, panels
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
WIDTHS = {"RNN": 96, "GRU": 56, "LSTM": 48, "Transformer": 28}  # 19,000 to 20,000 parameters each
COLOURS = {"RNN": ORANGE, "GRU": PINK, "LSTM": GREEN, "Transformer": BLUE}


def run(trial: Trial, steps: int = 200, distances: Sequence[int] = (4, 12, 36)) -> Finding:
    """For each distance each model learns from the beginning, and is asked about new texts."""
    settings = [(name, distance) for name in WIDTHS for distance in distances]
    tuned = trial.tuned("learning to remember", partial(_learned, steps=steps), settings, RATES)
    rows = Rows(row | {"rate": each.rate} for each in tuned.values() for row in each.results)
    at = rows.spreads("accuracy", by=("model", "distance"))
    near, far = min(distances), max(distances)
    reach = {name: _reach({distance: at[name, distance] for distance in distances}) for name in WIDTHS}
    facts: dict[str, float] = {
        "parameters_least": min(rows.column("parameters")),
        "parameters_most": max(rows.column("parameters")),
        **{f"reach {name}": steps_back for name, steps_back in reach.items()},
        **{f"near {name}": at[name, near] for name in WIDTHS},
        **{f"far {name}": at[name, far] for name in WIDTHS},
    }
    known = [name for name in CELLS if at[name, far].low >= KNOWN]
    exception = f" So being far is not hard for every model that reads step by step: not for {' and '.join(known)}."
    return Finding(
        method=f"Texts of one of {SYMBOLS} symbols to remember, more symbols drawn at random, and a question at the "
        f"end, {' or '.join(map(str, distances))} steps after the first. For each distance a language model of each "
        f"kind, all with {facts['parameters_least']:,.0f} to {facts['parameters_most']:,.0f} parameters, learned for "
        f"{steps} steps of 32 new texts {told_rates(RATES)}, and answered 500 others. A symbol counts as remembered "
        f"where {KNOWN:.0%} of the answers are right at every seed, and as hard to reach where they are not.",
        measured="With as many parameters and steps, at every seed "
        + ", ".join(f"the {name} remembers a symbol over {reach[name]} steps" for name in WIDTHS)
        + f"; {far} is the farthest that was tried. There "
        + ", ".join(f"the {name} is right in {at[name, far]:.0%}" for name in WIDTHS)
        + f" of the texts, a guess in {GUESS:.0%}; {near} steps back these are "
        + ", ".join(f"{at[name, near]:.0%}" for name in WIDTHS)
        + "."
        + (exception if known else ""),
        holds=at["Transformer", far].low >= KNOWN
        and all(at[name, near].low >= KNOWN and at[name, far].high < KNOWN for name in CELLS),
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, distances),
        seeds=[each.seed for each in trial.seeds()],
    )


def _learned(trial: Trial, setting: tuple[str, int], rate: float, steps: int) -> tuple[float, Row]:
    """The validation loss of a model, and how often it remembers."""
    name, distance = setting
    model, draw = trial.begin(language_model, name, SYMBOLS + 1, WIDTHS[name]), partial(_recall, distance=distance)
    trial.learn("", model, draw, token_loss, steps, rate)
    new, held = (part(draw, count=500) for part in (trial.new, trial.held_out))
    row: Row = {"model": name, "seed": trial.seed, "parameters": parameters(model), "distance": distance}
    row["accuracy"] = accuracy(logits(model, new.text)[:, -1], new.labels[:, -1])
    return mean_loss(model, held, token_loss), row


def _recall(rng: Rng, distance: int, count: int = 32) -> TokenBatch:
    """Symbols with the question as the last token, (B, T); it alone is to be answered, with the first symbol."""
    batch = repeating(rng, SYMBOLS, distance + 1, distance, count)
    batch.text[:, -1] = QUESTION
    return batch


def _reach(right: dict[int, Spread]) -> int:
    """The farthest distance up to which everything is remembered at every seed; 0: none."""
    return max(takewhile(lambda distance: right[distance].low >= KNOWN, right), default=0)


def _draw(rows: Rows, distances: Sequence[int]) -> Figure:
    figure, axes = panels(1, 7.5, 3.8)
    for name, colour in COLOURS.items():
        own = rows.where(model=name)
        label, right = f"{name}, {own[0]['parameters']:,} parameters", own.spreads("accuracy", by="distance")
        band(axes, [*right], [*right.values()], colour, label, markersize=7)
    mark_level(axes, GUESS, "guessing", below=True)
    log_ticks(axes, distances)
    axes.set(title="Which symbol came first?", xlabel="steps between the symbol and the question (log)")
    axes.set(ylabel="right answers on new texts", ylim=(0, 1.05))
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
