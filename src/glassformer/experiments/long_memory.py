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
from glassformer.experiments.charts import line, log_ticks, mark_level, panels
from glassformer.experiments.finding import Finding, Rows
from glassformer.experiments.measures import accuracy, logits, parameters
from glassformer.experiments.small import language_model
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLUE, GREEN, ORANGE, PINK
from glassformer.tasks.gathering import TokenBatch, token_loss

CLAIM = "Information from long ago is hard to reach for a model that reads step by step."
ORDER = 30  # in the story

SYMBOLS, RATE = 8, 1e-2
QUESTION, GUESS = SYMBOLS, 1 / SYMBOLS
KNOWN = 0.9  # of the answers right: then the symbol is remembered
WIDTHS = {"RNN": 96, "GRU": 56, "LSTM": 48, "Transformer": 28}  # 19,000 to 20,000 parameters each
COLOURS = {"RNN": ORANGE, "GRU": PINK, "LSTM": GREEN, "Transformer": BLUE}


def run(trial: Trial, steps: int = 200, distances: Sequence[int] = (3, 6, 12, 24, 48)) -> Finding:
    """For each distance each model learns from the beginning, and is asked about new texts."""
    rows = Rows()
    for name, width in WIDTHS.items():
        for distance in distances:
            model, draw = trial.begin(language_model, name, SYMBOLS + 1, width), partial(_recall, distance=distance)
            trial.learn(f"{name}, {distance} steps back", model, draw, token_loss, steps, RATE)
            new = trial.new(draw, count=500)
            right = accuracy(logits(model, new.text)[:, -1], new.labels[:, -1])
            rows.append({"model": name, "parameters": parameters(model), "distance": distance, "accuracy": right})
    reach = {name: _reach(rows.where(model=name)) for name in WIDTHS}
    at = rows.values("accuracy", by=("model", "distance"))
    far = max(distances)
    facts: dict[str, float] = {
        "parameters_least": min(rows.column("parameters")),
        "parameters_most": max(rows.column("parameters")),
        **{f"reach {name}": steps_back for name, steps_back in reach.items()},
        **{f"far {name}": at[name, far] for name in WIDTHS},
    }
    return Finding(
        method=f"Texts of one of {SYMBOLS} symbols to remember, more symbols drawn at random, and a question at the "
        f"end, {' or '.join(map(str, distances))} steps after the first. For each distance a language model of each "
        f"kind, all with {facts['parameters_least']:,.0f} to {facts['parameters_most']:,.0f} parameters, learned for "
        f"{steps} steps of 32 new texts by AdamW at the rate {RATE:g}, and answered 500 others. A symbol counts as "
        f"remembered where {KNOWN:.0%} of the answers are right.",
        measured=f"With as many parameters and steps, the RNN remembers a symbol over {reach['RNN']} steps, the LSTM "
        f"over {reach['LSTM']}, the GRU over {reach['GRU']}, the Transformer over {reach['Transformer']}; {far} is the "
        f"farthest that was tried. There the RNN is right in {at['RNN', far]:.0%}, the LSTM in "
        f"{at['LSTM', far]:.0%}, the GRU in {at['GRU', far]:.0%} and the Transformer in "
        f"{at['Transformer', far]:.0%} of the texts; a guess in {GUESS:.0%}.",
        holds=reach["Transformer"] == far
        and reach["RNN"] < far
        and at["RNN", far] < 3 * GUESS
        and reach["RNN"] <= min(reach["LSTM"], reach["GRU"]),
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, distances),
    )


def _recall(rng: Rng, distance: int, count: int = 32) -> TokenBatch:
    """Symbols with the question as the last token, (B, T); it alone is to be answered, with the first symbol."""
    batch = repeating(rng, SYMBOLS, distance + 1, distance, count)
    batch.text[:, -1] = QUESTION
    return batch


def _reach(rows: Rows) -> int:
    """The farthest distance up to which everything is remembered; 0: none."""
    known = takewhile(lambda row: row["accuracy"] >= KNOWN, rows)
    return max((row["distance"] for row in known), default=0)


def _draw(rows: Rows, distances: Sequence[int]) -> Figure:
    figure, axes = panels(1, 7.5, 3.8)
    for name, colour in COLOURS.items():
        own = rows.where(model=name)
        label = f"{name}, {own[0]['parameters']:,} parameters"
        line(axes, own.column("distance"), own.column("accuracy"), colour, label, markersize=7)
    mark_level(axes, GUESS, "guessing", below=True)
    log_ticks(axes, distances)
    axes.set(title="Which symbol came first?", xlabel="steps between the symbol and the question (log)")
    axes.set(ylabel="right answers on new texts", ylim=(0, 1.05))
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
