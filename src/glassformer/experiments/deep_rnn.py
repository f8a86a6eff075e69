"""deep-rnn: what the layers of a deep recurrent network hold: the last token, the last word, the topic of long ago.

A text begins with its topic, and goes on in words of three letters. The second letter follows from the first (a short
pattern), the third from the first and the topic (a long one). What a layer holds is what a linear classifier can read
off its state; how slowly it changes, how like its state is to that of some steps before.

B texts, T length, D width, L layers
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from glassformer.experiments.batches import Rng, windows
from glassformer.experiments.charts import bands, panels
from glassformer.experiments.finding import Finding, Rows, Spread
from glassformer.experiments.measures import mean_loss
from glassformer.experiments.small import CELLS
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLUE, GREEN, ORANGE, PINK
from glassformer.models import recurrent
from glassformer.tasks.gathering import TokenBatch, token_loss

CLAIM = "In a deep RNN the bottom layers capture short-term patterns and the higher layers long-term patterns."
ORDER = 36  # in the story

TOPICS, FIRSTS, WORDS = 4, 6, 8  # topics, first letters, words of a text
LENGTH = 3 * WORDS + 1
A, B, C = TOPICS, TOPICS + FIRSTS, TOPICS + 2 * FIRSTS  # where each kind of letter begins
THIRDS = 12
VOCABULARY = C + THIRDS
WIDTH, LAYERS = 32, 3
RATES = (3e-3, 1e-2)
LAST, WORD_BEFORE, TOPIC = "the letter just read", "the word before", "the topic"
HELD = {LAST: BLUE, WORD_BEFORE: GREEN, TOPIC: ORANGE}
KINDS = {"GRU": GREEN, "LSTM": PINK}
RIDGE = 1.0
LAG = 3  # steps over which states are compared: a word


def run(trial: Trial, steps: int = 400) -> Finding:
    """Stacks of three layers learn the texts; then each layer's states are read."""
    seeds = [each.seed for each in trial.seeds()]
    tuned = trial.tuned("learning", partial(_learned, steps=steps), [*KINDS], RATES)
    rows = Rows(
        {"cell": cell, "rate": found.rate, "seed": seed, **row}
        for cell, found in tuned.items()
        for seed, result in zip(seeds, found.results, strict=True)
        for row in result
    )
    held = rows.where(part="held").spreads("value", by=("cell", "what", "layer"))
    stays = rows.where(part="stays").spreads("value", by=("cell", "layer"))
    right = rows.where(part="right").spreads("value", by=("cell", "what"))
    facts: dict[str, float] = {f"{cell}, {what}, layer {layer}": value for (cell, what, layer), value in held.items()}
    facts |= {f"stays {cell}, layer {layer}": value for (cell, layer), value in stays.items()}
    facts |= {f"right {cell}, {what}": value for (cell, what), value in right.items()}

    def rises(cell: str, what: str) -> Spread:
        """By how much more the top layer holds than the bottom, seed by seed."""
        top, bottom = held[cell, what, LAYERS].values, held[cell, what, 1].values
        return Spread(one - other for one, other in zip(top, bottom, strict=True))

    gains = {(cell, what): rises(cell, what) for cell in KINDS for what in HELD}
    facts |= {f"top minus bottom {cell}, {what}": value for (cell, what), value in gains.items()}
    sentences = []
    for cell in KINDS:
        each = "; ".join(
            f"{what} in {' → '.join(f'{float(held[cell, what, layer]):.0%}' for layer in range(1, LAYERS + 1))}"
            for what in HELD
        )
        kept = " → ".join(f"{float(stays[cell, layer]):.2f}" for layer in range(1, LAYERS + 1))
        sentences.append(
            f"From the layers of the {cell}, bottom to top, a linear classifier reads {each}; the state is like that "
            f"of {LAG} steps before with a correlation of {kept}."
        )
    short = all(gains[cell, LAST].high < -0.02 for cell in KINDS)
    long = all(gains[cell, TOPIC].low > 0.02 for cell in KINDS)
    return Finding(
        method=f"Texts of a topic and {WORDS} words of three letters, the second of which follows from the first, the "
        f"third from the first and the topic. Language models of {LAYERS} recurrent layers, {WIDTH} wide, learned "
        f"them for {steps} steps, three times each, at the better of the rates {RATES[0]:g} and {RATES[1]:g}. A "
        "linear classifier (ridge regression) was fitted on the states of each layer in 300 texts, at all places of "
        "the last three words, and tested on 300 others. The correlation is the mean cosine of the states, less their "
        "mean, at both places.",
        measured=" ".join(sentences)
        + f" The third letter, which needs the topic, is right in {right['GRU', 'third letter']:.0%} (GRU) and "
        f"{right['LSTM', 'third letter']:.0%} (LSTM). "
        + ("The bottom holds the present best" if short else "The bottom does not hold the present best in all of them")
        + (", and the top the topic." if long else ", and the topic is not held better the higher the layer."),
        holds=short and long and min(value.low for value in right.values()) > 0.9,
        facts=facts | {"short": float(short), "long": float(long)},
        rows=rows,
        draw=lambda: _draw(rows),
        seeds=seeds,
    )


def _texts(rng: Rng, count: int = 32) -> TokenBatch:
    """Topic, then words of three letters (B, T); the last two letters of each word are asked for."""
    topic, first = rng.integers(TOPICS, size=(count, 1)), rng.integers(FIRSTS, size=(count, WORDS))
    second, third = (first + 1) % FIRSTS, (first + 3 * topic) % THIRDS
    words = np.stack((A + first, B + second, C + third), axis=-1).reshape(count, -1)  # (B, 3 * words)
    rows = np.concatenate((topic, words, A + np.zeros_like(topic)), axis=1)  # (B, T + 1)
    asked = np.arange(LENGTH) % 3 != 0  # after the first and the second letter of a word
    return windows(rows, np.tile(asked, (count, 1)))


def _learned(trial: Trial, cell: str, rate: float, steps: int) -> tuple[float, list[dict[str, Any]]]:
    """The loss on validation, and what each layer holds."""
    model = trial.begin(
        partial(recurrent, layers=LAYERS, dropout=0.0, answer="next", cell=CELLS[cell]), VOCABULARY, WIDTH
    )
    trial.learn("", model, _texts, token_loss, steps, rate)
    known, new = trial.held_out(_texts, count=300), trial.new(_texts, count=300)
    rows: list[dict[str, Any]] = []
    states = [_states(model, batch.text) for batch in (known, new)]  # (L, B, T, D) each
    answers = [_answers(batch.text) for batch in (known, new)]
    late = slice(LENGTH - 9, LENGTH)
    for layer, (one, other) in enumerate(zip(*states, strict=True), start=1):
        for what in HELD:
            value = _read(one[:, late], answers[0][what][:, late], other[:, late], answers[1][what][:, late])
            rows.append({"part": "held", "layer": layer, "what": what, "value": value})
        rows.append({"part": "stays", "layer": layer, "value": _stays(other[:, late])})
    with torch.no_grad():
        found = model.eval()(new.text).argmax(dim=-1) == new.labels  # (B, T)
    for what, place in (("second letter", 1), ("third letter", 2)):
        asked = torch.arange(LENGTH) % 3 == place
        rows.append({"part": "right", "what": what, "value": found[:, asked].float().mean().item()})
    return mean_loss(model, known, token_loss), rows


@torch.no_grad()
def _states(model: nn.Module, text: Tensor) -> Tensor:
    """The state of each layer after each token, (L, B, T, D): each layer alone, as PyTorch's kernel gives the last."""
    decoder: Any = model.eval().decoder
    fused, x, found = decoder.layers.fused, decoder.embedding(text), []
    for layer in range(LAYERS):
        alone = type(fused)(WIDTH, WIDTH, batch_first=True)
        alone.load_state_dict({f"{name}_l0": getattr(fused, f"{name}_l{layer}") for name in NAMES})
        x = alone(x)[0]
        found.append(x)
    return torch.stack(found)


NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def _answers(text: Tensor) -> dict[str, Tensor]:
    """What could be read off the states after each token, as numbers (B, T)."""
    word = (torch.arange(LENGTH) - 1).clamp(min=0) // 3  # of each place
    before = (1 + 3 * (word - 1)).clamp(min=0)  # where the word before begins
    return {LAST: text, WORD_BEFORE: text[:, before], TOPIC: text[:, :1].expand_as(text)}


def _read(states: Tensor, answers: Tensor, new: Tensor, wanted: Tensor) -> float:
    """How often a linear classifier of states (B, T, D), fitted on answers (B, T), is right about new ones."""
    x, y = (torch.cat((each, torch.ones(*each.shape[:2], 1)), dim=-1).flatten(0, 1).double() for each in (states, new))
    target = nn.functional.one_hot(answers.flatten(), VOCABULARY).double()
    weights = torch.linalg.solve(x.T @ x + RIDGE * torch.eye(x.shape[1]), x.T @ target)  # (D + 1, V)
    return float(((y @ weights).argmax(dim=-1) == wanted.flatten()).double().mean())


def _stays(states: Tensor) -> float:
    """How like states (B, T, D) are to those of a word before: the mean cosine, less what all states have in common."""
    apart = states - states.mean(dim=(0, 1))
    return float(nn.functional.cosine_similarity(apart[:, LAG:], apart[:, :-LAG], dim=-1).mean())


def _draw(rows: Rows) -> Figure:
    figure, axes = panels(len(KINDS) + 1, 10.5, 3.8)
    for place, cell in zip(axes, KINDS, strict=False):
        bands(place, rows.where(part="held", cell=cell), "layer", "value", "what", HELD)
        place.set(title=f"{cell}: what can be read off a layer", ylabel="right (linear classifier)", ylim=(0, 1.05))
        place.legend(loc="center")
    bands(axes[-1], rows.where(part="stays"), "layer", "value", "cell", KINDS)
    axes[-1].set(title=f"How like the state of {LAG} steps before", ylabel="correlation")
    axes[-1].legend()
    for place in axes:
        place.set_xlabel("layer (1 reads the embeddings)")
        place.set_xticks(range(1, LAYERS + 1))
    return figure
