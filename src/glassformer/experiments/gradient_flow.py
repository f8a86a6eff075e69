"""gradient-flow: gradients vanish or explode through an RNN; gates slow that down, attention is a short way round.

What an output owes to an input d steps earlier passes through d times the same matrix and as many slopes of tanh:

    ∂h_t / ∂x_{t-d} = (Π W_h · diag(1 - h²)) W_x

A product of d numbers below 1 goes to 0, of d numbers above 1 to infinity. An LSTM's cell is multiplied by its forget
gates, which begin near 1. In a Transformer the way is one attention long, whatever the distance.

B texts, T length, D model width
"""

from __future__ import annotations

import math
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

from glassformer.experiments.batches import repeating
from glassformer.experiments.charts import line, mark_level, note, panels
from glassformer.experiments.finding import Finding, Rows
from glassformer.experiments.small import language_model
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLACK, BLUE, GREEN, GREY, ORANGE, PINK
from glassformer.models import DecoderOnly
from glassformer.tasks.gathering import token_loss

CLAIM = (
    "Gradients vanish or explode on their way back through an RNN; gates mitigate that, "
    "attention gives a short way round it."
)
ORDER = 20  # in the story

WIDTH, VOCABULARY, RATE = 64, 8, 1e-2
LARGE = 4.0  # times as large as usual: the recurrent matrix that makes gradients explode
NEAR, FAR = 1, 50  # distances that are compared
LOWEST = 1e-14  # that is worth a picture
READ, BACK = 50, 20  # tokens of a text where gradients explode, and how far back is asked where they vanish
GUESS = math.log(VOCABULARY)
TRANSFORMER, GATED, UPDATED, PLAIN, LARGER = "Transformer", "LSTM", "GRU", "RNN", f"RNN, W_h {LARGE:g} times as large"
COLOURS = {TRANSFORMER: BLUE, GATED: GREEN, UPDATED: PINK, PLAIN: ORANGE, LARGER: BLACK}


def run(trial: Trial, steps: int = 150, length: int = 101, count: int = 32) -> Finding:
    """Gradients of the last output by every input before training; then training with and without clipping."""
    rows = Rows()
    tokens = torch.randint(VOCABULARY, (count, length))
    for name in trial.each("following gradients", [*COLOURS]):
        flow = _flow(trial.begin(_model, name), tokens)
        rows += [{"part": "flow", "model": name, "distance": d, "gradient": flow[d].item()} for d in range(1, length)]
    for name, clip in ((LARGER, 0.0), (LARGER, 1.0), (PLAIN, 0.0), (PLAIN, 1.0), (TRANSFORMER, 1.0)):
        back, read = (1, READ) if name == LARGER else (BACK, BACK + 1)
        draw = partial(repeating, vocabulary=VOCABULARY, length=read, back=back, count=16)
        told, model = f"{name}, {'clipped' if clip else 'not clipped'}", trial.begin(_model, name)
        losses = trial.learn(told, model, draw, token_loss, steps, RATE, every=5, clip=clip)
        rows += [{"part": "training", "model": name, "clip": clip, "step": step, "loss": loss} for step, loss in losses]
    at = rows.where(part="flow").values("gradient", by=("model", "distance"))
    left = {name: at[name, FAR] / at[name, NEAR] for name in COLOURS}
    last = rows.where(part="training").values("loss", by=("model", "clip"))
    facts = {
        "rnn_left": left[PLAIN],
        "gru_left": left[UPDATED],
        "lstm_left": left[GATED],
        "transformer_left": left[TRANSFORMER],
        "large_rnn_left": left[LARGER],
        "lstm_to_rnn": at[GATED, FAR] / at[PLAIN, FAR],
        "gru_to_rnn": at[UPDATED, FAR] / at[PLAIN, FAR],
        "exploding_open": last[LARGER, 0.0],
        "exploding_clipped": last[LARGER, 1.0],
        "vanished_open": last[PLAIN, 0.0],
        "vanished_clipped": last[PLAIN, 1.0],
        "attended": last[TRANSFORMER, 1.0],
    }
    return Finding(
        method=f"Language models of width {WIDTH} (one recurrent layer, or two Transformer blocks) before training "
        f"read {count} random texts of {length} tokens in double precision. The gradient of the last output, in a "
        "random direction, by the embedding of each input is measured: its length, root mean square over the texts. "
        f"Then RNNs learned for {steps} steps, by AdamW at the rate {RATE:g}, with gradients clipped to the length 1 "
        f"and without: one whose W_h begins {LARGE:g} times as large, to repeat the token before each of {READ} random "
        f"ones; and one that begins as usual, to say at the end which token came {BACK} steps before. A Transformer "
        "learned that too.",
        measured=f"At distance {FAR} an RNN has {facts['rnn_left']:.0e} of its gradient at distance {NEAR}, a GRU "
        f"{facts['gru_left']:.0e}, an LSTM {facts['lstm_left']:.0e}, a Transformer {facts['transformer_left']:.1f}; "
        f"with a W_h {LARGE:g} times as large the RNN's is {facts['large_rnn_left']:,.0f} times as long. Gates slow "
        f"the vanishing (the LSTM's gradient is {facts['lstm_to_rnn']:.0e} times the RNN's) and do not end it. "
        f"Clipping helps where gradients explode (loss {facts['exploding_clipped']:.2f} instead of "
        f"{facts['exploding_open']:.2f} nats) and not where they vanish ({facts['vanished_clipped']:.2f} and "
        f"{facts['vanished_open']:.2f}, where a guess is {GUESS:.2f} and a Transformer reaches "
        f"{facts['attended']:.2f}): it shortens the gradients of all distances by the same factor.",
        holds=facts["rnn_left"] < 0.01
        and min(facts["lstm_to_rnn"], facts["gru_to_rnn"]) > 10
        and facts["transformer_left"] > 0.1
        and facts["large_rnn_left"] > 10
        and facts["exploding_clipped"] < 0.5 * facts["exploding_open"]
        and min(facts["vanished_open"], facts["vanished_clipped"]) > 0.9 * GUESS
        and facts["attended"] < 0.75 * GUESS,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows),
    )


def _model(name: str) -> DecoderOnly:
    model = language_model(PLAIN if name == LARGER else name, VOCABULARY, WIDTH)
    if name == LARGER:
        model.get_parameter("decoder.layers.fused.weight_hh_l0").data.mul_(LARGE)
    return model


def _flow(model: DecoderOnly, tokens: Tensor) -> Tensor:
    """How long the gradient of the last output by the input is, by how many steps before it stands, (T)."""
    read: list[Tensor] = []
    watch = model.double().decoder.embedding.register_forward_hook(lambda part, given, x: read.append(x))
    last = model.hidden(tokens)[:, -1]  # (B, D)
    watch.remove()
    (gradient,) = torch.autograd.grad(last, read, torch.randn_like(last))  # (B, T, D)
    return gradient.square().sum(dim=-1).mean(dim=0).sqrt().flip(0)  # (T)


def _draw(rows: Rows) -> Figure:
    figure, (flow, exploding, vanished) = panels(3, 10.5, 3.8, width_ratios=[1.5, 1, 1])
    for name, colour in COLOURS.items():
        own = rows.where(part="flow", model=name)
        ratios = [row["gradient"] / own[0]["gradient"] for row in own]
        line(flow, own.column("distance"), ratios, colour, name, markevery=10)
        end = next((place for place, value in enumerate(ratios) if value < LOWEST), len(ratios) - 1)
        apart = (-12, -10) if name in (PLAIN, UPDATED, GATED) else (0, 7)
        note(flow, name, (end, max(ratios[end], LOWEST)), apart, ha="right", color=colour, weight="bold")
    flow.axhline(0.01, color=GREY, linestyle=":")
    note(flow, "1 %", (len(own), 0.01), (0, -3), ha="right", va="top", color="0.3")
    flow.set(title="Gradient of the last output, before training", xlabel="distance (steps back)")
    flow.set(ylabel="length of the gradient (1 at distance 1)", yscale="log", ylim=(LOWEST / 30, 1e10))
    for axes, name, clip, label, colour in (
        (exploding, LARGER, 0.0, "not clipped", ORANGE),
        (exploding, LARGER, 1.0, "clipped to 1", BLACK),
        (vanished, PLAIN, 0.0, "RNN, not clipped", ORANGE),
        (vanished, PLAIN, 1.0, "RNN, clipped to 1", BLACK),
        (vanished, TRANSFORMER, 1.0, "Transformer", BLUE),
    ):
        own = rows.where(part="training", model=name, clip=clip)
        style = "--" if "clipped to" in label else "-"  # where both lines are one, both are seen
        line(axes, own.column("step"), own.column("loss"), colour, label, markevery=3, linestyle=style)
    for axes in (exploding, vanished):
        mark_level(axes, GUESS, "guessing", below=True)
        axes.set_xlim(left=0)
        axes.set(xlabel="step", ylabel="loss (nats)", ylim=(-0.1, 3.4))
        axes.legend(loc="upper right")
    exploding.set_title(f"Exploding: W_h {LARGE:g} times as large")
    vanished.set_title(f"Vanished: asked {BACK} steps back")
    return figure
