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
from glassformer.experiments.charts import band, mark_level, note, panels
from glassformer.experiments.finding import Finding, Row, Rows, Spread
from glassformer.experiments.measures import mean_loss
from glassformer.experiments.small import language_model
from glassformer.experiments.trial import Trial, told_rates
from glassformer.looking.style import BLACK, BLUE, GREEN, GREY, ORANGE, PINK
from glassformer.models import DecoderOnly
from glassformer.tasks.gathering import token_loss

CLAIM = (
    "Gradients vanish or explode on their way back through an RNN; gates mitigate that, "
    "attention gives a short way round it."
)
ORDER = 20  # in the story

WIDTH, VOCABULARY, RATES = 64, 8, (3e-3, 1e-2)
LARGE = 4.0  # times as large as usual: the recurrent matrix that makes gradients explode
NEAR, FAR = 1, 50  # distances that are compared
LOWEST = 1e-14  # that is worth a picture
READ, BACK = 50, 20  # tokens of a text where gradients explode, and how far back is asked where they vanish
GUESS = math.log(VOCABULARY)
TRANSFORMER, GATED, UPDATED, PLAIN, LARGER = "Transformer", "LSTM", "GRU", "RNN", f"RNN, W_h {LARGE:g} times as large"
COLOURS = {TRANSFORMER: BLUE, GATED: GREEN, UPDATED: PINK, PLAIN: ORANGE, LARGER: BLACK}


def run(trial: Trial, steps: int = 120, length: int = 101, count: int = 32) -> Finding:
    """Gradients of the last output by every input before training; then training with and without clipping."""
    seeds = trial.seeds()
    flows = trial.map(
        "following gradients", _flows, [(each, name, length, count) for name in COLOURS for each in seeds]
    )
    rows = Rows(row for flow in flows for row in flow)
    settings = [(LARGER, 0.0), (LARGER, 1.0), (PLAIN, 0.0), (PLAIN, 1.0), (TRANSFORMER, 1.0)]
    tuned = trial.tuned("training", partial(_trained, steps=steps), settings, RATES)
    rows += [row for each in tuned.values() for result in each.results for row in result]
    at = rows.where(part="flow").values("gradient", by=("model", "distance", "seed"))
    left = {name: Spread(at[name, FAR, each.seed] / at[name, NEAR, each.seed] for each in seeds) for name in COLOURS}
    ratio = {name: Spread(at[name, FAR, each.seed] / at[PLAIN, FAR, each.seed] for each in seeds) for name in COLOURS}
    last = rows.where(part="new").spreads("loss", by=("model", "clip"))
    facts: dict[str, float] = {
        "rnn_left": left[PLAIN],
        "gru_left": left[UPDATED],
        "lstm_left": left[GATED],
        "transformer_left": left[TRANSFORMER],
        "large_rnn_left": left[LARGER],
        "lstm_to_rnn": ratio[GATED],
        "gru_to_rnn": ratio[UPDATED],
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
        f"Then RNNs learned for {steps} steps, with gradients clipped to the length 1 and without, each "
        f"{told_rates(RATES)}: one whose W_h begins {LARGE:g} times as large, to repeat the token before each of "
        f"{READ} random ones; and one that begins as usual, to say at the end which token came {BACK} steps before. A "
        "Transformer learned that too. Losses are those of new texts.",
        measured=f"At distance {FAR} an RNN has {left[PLAIN]:.0e} of its gradient at distance {NEAR}, a GRU "
        f"{left[UPDATED]:.0e}, an LSTM {left[GATED]:.0e}, a Transformer {left[TRANSFORMER]:.1f}; with a W_h {LARGE:g} "
        f"times as large the RNN's is {left[LARGER]:,.0f} times as long. Gates slow the vanishing (the LSTM's gradient "
        f"is {ratio[GATED]:.0e} times the RNN's, the GRU's {ratio[UPDATED]:.0e} times) and do not end it. Where "
        f"gradients explode, the loss after training is {last[LARGER, 1.0]:.2f} nats with clipping and "
        f"{last[LARGER, 0.0]:.2f} without; where they vanish, it is {last[PLAIN, 1.0]:.2f} and {last[PLAIN, 0.0]:.2f}, "
        f"where a guess has {GUESS:.2f} and a Transformer reaches {last[TRANSFORMER, 1.0]:.2f}: clipping shortens the "
        "gradients of all distances by the same factor.",
        holds=left[PLAIN].high < 0.01  # they vanish, or explode
        and left[LARGER].low > 10
        and min(ratio[GATED].low, ratio[UPDATED].low) > 10  # gates mitigate that
        and min(left[GATED].low, left[UPDATED].low) > 10 * left[PLAIN].high
        and left[TRANSFORMER].low > 0.1,  # attention is a short way round it
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows),
        seeds=[each.seed for each in seeds],
    )


def _flows(trial: Trial, name: str, length: int, count: int) -> list[Row]:
    """The lengths of an untrained model's gradients, by distance."""
    model = trial.begin(_model, name)
    tokens = torch.randint(VOCABULARY, (count, length), generator=torch.Generator().manual_seed(trial.seed))
    row, flow = {"part": "flow", "model": name, "seed": trial.seed}, _flow(model, tokens)
    near = flow[NEAR].item()
    lengths = {distance: flow[distance].item() for distance in range(1, length)}
    return [{**row, "distance": far, "gradient": long, "left": long / near} for far, long in lengths.items()]


def _trained(trial: Trial, setting: tuple[str, float], rate: float, steps: int) -> tuple[float, list[Row]]:
    """Validation loss; losses in training and of new texts."""
    name, clip = setting
    back, read = (1, READ) if name == LARGER else (BACK, BACK + 1)
    draw = partial(repeating, vocabulary=VOCABULARY, length=read, back=back)
    model = trial.begin(_model, name)
    losses = trial.learn("", model, partial(draw, count=16), token_loss, steps, rate, every=5, clip=clip)
    held, new = (mean_loss(model, part(draw, count=200), token_loss) for part in (trial.held_out, trial.new))
    of = {"model": name, "seed": trial.seed, "clip": clip}
    rows = [{"part": "training", **of, "step": step, "loss": loss} for step, loss in losses]
    return held, [*rows, {"part": "new", **of, "loss": new}]


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
        own = rows.where(part="flow", model=name).spreads("left", by="distance")
        ratios = [*own.values()]
        band(flow, [*own], ratios, colour, name, markevery=10)
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
        own = rows.where(part="training", model=name, clip=clip).spreads("loss", by="step")
        style = "--" if "clipped to" in label else "-"  # where both lines are one, both are seen
        band(axes, [*own], [*own.values()], colour, label, markevery=3, linestyle=style)
    for axes in (exploding, vanished):
        mark_level(axes, GUESS, "guessing", below=True)
        axes.set_xlim(left=0)
        axes.set(xlabel="step", ylabel="loss (nats)", ylim=(-0.1, 3.4))
        axes.legend(loc="upper right")
    exploding.set_title(f"Exploding: W_h {LARGE:g} times as large")
    vanished.set_title(f"Vanished: asked {BACK} steps back")
    return figure
