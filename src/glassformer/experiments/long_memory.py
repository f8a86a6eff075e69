"""long-memory: information from long ago is hard to reach for a model that reads step by step.

A text begins with the symbol to remember, goes on with others that do not matter, and ends with the question. A
recurrent model has carried the answer through every step between; a Transformer looks it up. All have as many
parameters.

B texts, T length
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import torch

from glassformer.experiments.finding import Finding, Progress, Row, silent
from glassformer.experiments.learning import Dice, held_out, learn, right_share
from glassformer.experiments.small import Scheme, Small
from glassformer.looking.style import BLUE, GREEN, GREY, ORANGE, PINK
from glassformer.models import DecoderOnly, recurrent
from glassformer.parts.positions import Sinusoidal
from glassformer.parts.recurrent import GRU, LSTM, RNN, Cell
from glassformer.tasks import WindowBatch, language_loss

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SYMBOLS = 8
QUESTION = SYMBOLS
GUESS = 1 / SYMBOLS
RATE = 1e-2
KNOWN = 0.9  # of the answers right: then the symbol is remembered
CELLS: dict[str, type[Cell]] = {"RNN": RNN, "GRU": GRU, "LSTM": LSTM}
WIDTHS = {"RNN": 96, "GRU": 56, "LSTM": 48, "Transformer": 28}  # 19,000 to 20,000 parameters each
LOOKS = {"RNN": (ORANGE, "s"), "GRU": (PINK, "D"), "LSTM": (GREEN, "^"), "Transformer": (BLUE, "o")}


def run(
    seed: int = 0, progress: Progress = silent, steps: int = 200, distances: Sequence[int] = (3, 6, 12, 24, 48)
) -> Finding:
    """For each distance each model learns from the beginning, and is asked about new texts."""
    rows: list[Row] = []
    for name in WIDTHS:
        for distance in distances:
            model, draw = _model(name, seed), partial(_recall, distance=distance)
            learn(model, draw, language_loss, steps, RATE, seed, progress, f"{name}, {distance} steps back")
            parameters = sum(each.numel() for each in model.parameters())
            accuracy = _accuracy(model, held_out(partial(draw, count=500), seed))
            rows.append({"model": name, "parameters": parameters, "distance": distance, "accuracy": accuracy})
    reach = {name: _reach([row for row in rows if row["model"] == name]) for name in WIDTHS}
    at = {(row["model"], row["distance"]): row["accuracy"] for row in rows}
    far = max(distances)
    facts: dict[str, float] = {
        "parameters_least": min(row["parameters"] for row in rows),
        "parameters_most": max(row["parameters"] for row in rows),
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
        draw=lambda: _draw(rows),
    )


def _model(name: str, seed: int) -> DecoderOnly:
    """A language model of a kind, as it begins."""
    torch.manual_seed(seed)
    width = WIDTHS[name]
    if name in CELLS:
        return cast(DecoderOnly, recurrent(SYMBOLS + 1, width, dropout=0.0, answer="next", cell=CELLS[name]))
    return Small(SYMBOLS + 1, width, scheme=Scheme(embedding=Sinusoidal(width))).language_model()


def _recall(dice: Dice, distance: int, count: int = 32) -> WindowBatch:
    """Symbols with the question as the last token, (B, T); it alone is to be answered, with the first symbol."""
    text = torch.from_numpy(dice.integers(SYMBOLS, size=(count, distance + 1)))
    text[:, -1] = QUESTION
    asked = (torch.arange(distance + 1) == distance).expand_as(text)
    return WindowBatch(text, text.roll(distance, dims=1), asked, None, text.numel(), count)


@torch.no_grad()
def _accuracy(model: DecoderOnly, batch: WindowBatch) -> float:
    """How often the question is answered right."""
    return right_share(model.eval()(batch.text)[:, -1], batch.right[:, -1])


def _reach(own: list[Row]) -> int:
    """The farthest distance up to which everything is remembered; 0: none."""
    reach = 0
    for row in own:
        if row["accuracy"] < KNOWN:
            break
        reach = row["distance"]
    return reach


def _draw(rows: list[Row]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 3.8), layout="constrained")
    axes = figure.subplots()
    for name, (colour, marker) in LOOKS.items():
        own = [row for row in rows if row["model"] == name]
        label = f"{name}, {own[0]['parameters']:,} parameters"
        points = [(row["distance"], row["accuracy"]) for row in own]
        axes.plot(*zip(*points, strict=True), color=colour, marker=marker, markersize=7, label=label)
    axes.axhline(GUESS, color=GREY, linestyle=":")
    first = min(row["distance"] for row in rows)
    axes.annotate("guessing", (first, GUESS), xytext=(0, -4), textcoords="offset points", va="top", color="0.3")
    axes.set(title="Which symbol came first?", xlabel="steps between the symbol and the question (log)")
    axes.set(ylabel="right answers on new texts", ylim=(0, 1.05), xscale="log")
    distances = sorted({row["distance"] for row in rows})
    axes.set_xticks(distances, distances)
    axes.minorticks_off()
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
