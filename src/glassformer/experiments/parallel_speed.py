"""parallel-speed: an RNN reads word after word, so a long sequence is a long wait; a Transformer reads all at once.

Step t of an RNN cannot begin before step t - 1 has ended. How long the longest chain of operations is that wait for
each other can be counted in the graph that autograd keeps: that is what no machine can do at the same time.

B sequences, T length, D model width
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from glassformer.experiments.charts import bands, legend_below, log_ticks, panels
from glassformer.experiments.finding import Finding, Row, Rows
from glassformer.experiments.measures import quickest
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLACK, BLUE, GREEN, ORANGE
from glassformer.parts.builder import BlockBuilder
from glassformer.parts.feedforward import gelu
from glassformer.parts.recurrent import LSTM, RNN, Cell, Recurrent

CLAIM = "An RNN is slow on long sequences, as each step waits for the last; a Transformer reads all at once."
ORDER = 50  # in the story

WIDTH, HEADS = 64, 4
SIMPLE, GATED, OPEN, BLOCK = "RNN", "LSTM", "LSTM, step by step in Python", "Transformer block"
COLOURS = {SIMPLE: ORANGE, GATED: GREEN, OPEN: BLACK, BLOCK: BLUE}
Layer = Callable[[Tensor], Tensor]  # (B, T, D) to (B, T, D)


def run(trial: Trial, lengths: Sequence[int] = (16, 64, 256, 1024), count: int = 1, rounds: int = 5) -> Finding:
    """One layer of each kind: seconds of a step (forward and backward) and its longest chain, for each length."""
    seeds = [each.seed for each in trial.seeds()]
    rows = Rows(row for seed in trial.each("timing", seeds) for row in _timed(seed, lengths, count, rounds))
    short, long = min(lengths), max(lengths)
    chains = rows.spreads("chain", by=("layer", "length"))
    chain, before = ({name: chains[name, length].high for name in COLOURS} for length in (long, short))
    waits = {name: (chain[name] - before[name]) / (long - short) for name in COLOURS}
    spent = rows.where(length=long).spreads("milliseconds", by="layer")
    slower = {name: spent[name].low > spent[BLOCK].high for name in (SIMPLE, GATED)}
    quick = [name for name, slow in slower.items() if not slow]
    return Finding(
        method=f"One layer of width {WIDTH} each (a Transformer block has attention and feed-forward) read {count} "
        f"random sequence{'s' if count > 1 else ''} of {short} to {long} vectors, forward and backward, on one thread "
        f"of a CPU; the time is the processor's, the shortest of {rounds} (of one, step by step). RNN and LSTM run on "
        "PyTorch's fused kernels; one LSTM takes its steps in Python, as it does while it is recorded. The chain is "
        "the longest path through autograd's graph of the last output, with a recurrent layer's steps in the open. "
        "Slow means slower than the block, at the longest length and at every seed.",
        measured=f"With every vector the longest chain of operations that wait for each other gets {waits[SIMPLE]:.0f} "
        f"longer in an RNN and {waits[GATED]:.0f} in an LSTM: it has {chain[SIMPLE]:,.0f} and {chain[GATED]:,.0f} at "
        f"{long}, and {chain[BLOCK]:,.0f} at any length in a Transformer block. A step at {long} takes "
        f"{spent[SIMPLE]:.0f} ms with the RNN, {spent[OPEN]:.0f} ms with an LSTM that goes step by step, "
        f"{spent[GATED]:.0f} ms with PyTorch's fused LSTM, and {spent[BLOCK]:.0f} ms with the block, though that "
        "computes more. "
        + (
            f"So each step waits, but that does not make the {' and the '.join(quick)} slower than the block here: one "
            "thread of a CPU does nothing at the same time, so nothing is lost by waiting."
            if quick
            else "So what waits is slower, even where nothing could be done at the same time."
        ),
        holds=min(waits[SIMPLE], waits[GATED]) >= 1
        and all(chains[BLOCK, length].high == chains[BLOCK, short].low for length in lengths)
        and not quick,
        facts={
            **{f"chain {name}": chain[name] for name in COLOURS},
            **{f"waits {name}": waits[name] for name in COLOURS},
            **{f"milliseconds {name}": spent[name] for name in COLOURS},
        },
        rows=rows,
        draw=lambda: _draw(rows, lengths),
        seeds=seeds,
    )


def _timed(seed: int, lengths: Sequence[int], count: int, rounds: int) -> list[Row]:
    """Chains and times of layers that begin with these random numbers."""
    torch.manual_seed(seed)
    block: Layer = BlockBuilder(WIDTH, HEADS, 4 * WIDTH, activation=gelu).encoder_blocks(1)[0]
    layers = {SIMPLE: _reads(RNN), GATED: _reads(LSTM), OPEN: _reads(LSTM, opened=True), BLOCK: block}
    chains = layers | {SIMPLE: _reads(RNN, opened=True), GATED: layers[OPEN]}
    rows: list[Row] = []
    for length in lengths:
        x = torch.randn(count, length, WIDTH, requires_grad=True)
        for name, layer in layers.items():
            chain = longest_chain(chains[name](x)[:, -1].sum())
            _, seconds = quickest(partial(_step, layer, x), 1 if name == OPEN else rounds)
            row: Row = {"layer": name, "seed": seed, "length": length}
            rows.append({**row, "milliseconds": 1000 * seconds, "chain": chain})
    return rows


def _step(layer: Layer, x: Tensor) -> None:
    torch.autograd.backward(layer(x).sum())


def _reads(cell: type[Cell], opened: bool = False) -> Layer:
    """A recurrent layer; opened, it takes its steps in the open."""
    layer = Recurrent(cell, WIDTH, WIDTH)
    return lambda x: (layer.opened(x) if opened else layer(x))[0]


def longest_chain(output: Tensor) -> int:
    """How many operations at most had to wait for each other until this output was there."""
    depth: dict[Any, int] = {}
    waiting: list[Any] = [output.grad_fn]
    while waiting:
        node = waiting[-1]
        before = [each for each, _ in node.next_functions if each is not None]
        missing = [each for each in before if each not in depth]
        if missing:
            waiting += missing
            continue
        depth[waiting.pop()] = 1 + max((depth[each] for each in before), default=0)
    return depth[output.grad_fn]


def _draw(rows: Rows, lengths: Sequence[int]) -> Figure:
    figure, (chain, time) = panels(2, 10, 3.8)
    others = {name: colour for name, colour in COLOURS.items() if name != OPEN}  # whose chain is that of the LSTM
    bands(chain, rows, "length", "chain", "layer", others)
    bands(time, rows, "length", "milliseconds", "layer", COLOURS)
    for axes in (chain, time):
        axes.set(xlabel="length of the sequence", yscale="log")
        log_ticks(axes, lengths)
    chain.set(title="Operations that wait for each other", ylabel="longest chain")
    time.set(title="A step, forward and backward", ylabel="milliseconds (this machine)")
    legend_below(figure, time, columns=4)
    return figure
