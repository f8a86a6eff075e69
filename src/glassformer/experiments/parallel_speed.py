"""parallel-speed: an RNN reads word after word, so a long sequence is a long wait; a Transformer reads all at once.

Step t of an RNN cannot begin before step t - 1 has ended. How long the longest chain of operations is that wait for
each other can be counted in the graph that autograd keeps: that is what no machine can do at the same time.

B sequences, T length, D model width
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glassformer.experiments.finding import Finding, Progress, Row, silent
from glassformer.looking.style import BLACK, BLUE, GREEN, ORANGE
from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.blocks import EncoderBlock
from glassformer.parts.feedforward import FeedForward, gelu
from glassformer.parts.norms import LayerNorm, PreNorm
from glassformer.parts.recurrent import LSTM, RNN, Cell, Recurrent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, HEADS = 64, 4
LOOKS = {
    "RNN": (ORANGE, "s"),
    "LSTM": (GREEN, "^"),
    "LSTM, step by step in Python": (BLACK, "X"),
    "Transformer block": (BLUE, "o"),
}
SIMPLE, GATED, OPEN, BLOCK = LOOKS
Layer = Callable[[Tensor], Tensor]  # (B, T, D) to (B, T, D)


def run(
    seed: int = 0,
    progress: Progress = silent,
    lengths: Sequence[int] = (16, 32, 64, 128, 256, 512),
    count: int = 1,
    repeats: int = 7,
) -> Finding:
    """One layer of each kind: seconds of a step (forward and backward) and its longest chain, for each length."""
    torch.manual_seed(seed)
    layers = {SIMPLE: _reads(RNN), GATED: _reads(LSTM), OPEN: _reads(LSTM, watched=True), BLOCK: _block()}
    chains = {SIMPLE: _reads(RNN, watched=True), GATED: layers[OPEN], OPEN: layers[OPEN], BLOCK: layers[BLOCK]}
    rows: list[Row] = []
    for done, length in enumerate(lengths, start=1):
        x = torch.randn(count, length, WIDTH, requires_grad=True)
        chain = {name: longest_chain(chains[name](x)[:, -1].sum()) for name in LOOKS}
        seconds = _seconds(layers, x, repeats)
        rows += [{"layer": name, "length": length, "seconds": seconds[name], "chain": chain[name]} for name in LOOKS]
        progress("timing", done, len(lengths))
    at = {(row["layer"], row["length"]): row for row in rows}
    short, long = min(lengths), max(lengths)
    facts: dict[str, float] = {
        **{f"chain {name}": at[name, long]["chain"] for name in LOOKS},
        **{f"waits {name}": (at[name, long]["chain"] - at[name, short]["chain"]) / (long - short) for name in LOOKS},
        **{f"milliseconds {name}": 1000 * at[name, long]["seconds"] for name in LOOKS},
    }
    spent = {name: f"{facts[f'milliseconds {name}']:.0f} ms" for name in LOOKS}
    ahead = facts[f"milliseconds {GATED}"] < facts[f"milliseconds {BLOCK}"]
    threads = torch.get_num_threads()
    return Finding(
        method=f"One layer of width {WIDTH} each (a Transformer block has attention and feed-forward) read {count} "
        f"random sequence{'s' if count > 1 else ''} of {short} to {long} vectors, forward and backward, on {threads} "
        f"thread{'s' if threads > 1 else ''} of a CPU; the time is the shortest of {repeats}. RNN and LSTM run on "
        "PyTorch's fused kernels; one LSTM takes its steps in Python, as it does while it is recorded. The chain is "
        "the longest path through autograd's graph of the last output, with a recurrent layer's steps in the open.",
        measured=f"With every vector the longest chain of operations that wait for each other gets "
        f"{facts[f'waits {SIMPLE}']:.0f} longer in an RNN and {facts[f'waits {GATED}']:.0f} in an LSTM: it has "
        f"{facts[f'chain {SIMPLE}']:,.0f} and {facts[f'chain {GATED}']:,.0f} at {long}, and "
        f"{facts[f'chain {BLOCK}']:,.0f} at any length in a Transformer block. A step at {long} takes {spent[SIMPLE]} "
        f"with the RNN, {spent[OPEN]} with an LSTM that goes step by step, {spent[BLOCK]} with the block, though that "
        f"computes more. PyTorch's fused LSTM is {'ahead of' if ahead else 'behind'} the block with {spent[GATED]}: a "
        "CPU does little at the same time, so what it loses by waiting is little, too.",
        holds=facts[f"waits {SIMPLE}"] >= 1
        and facts[f"waits {GATED}"] >= 1
        and facts[f"waits {BLOCK}"] == 0
        and facts[f"milliseconds {OPEN}"] > facts[f"milliseconds {BLOCK}"],
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows),
    )


def _reads(cell: type[Cell], watched: bool = False) -> Layer:
    """A recurrent layer; watched, it takes its steps in the open."""
    layer = Recurrent(cell, WIDTH, WIDTH)
    if watched:
        layer.observe = lambda number, direction, phases: None
    return lambda x: layer(x)[0]


def _block() -> Layer:
    """A block of an encoder."""
    attention = PreNorm(MultiHeadAttention(WIDTH, HEADS), LayerNorm(WIDTH))
    return EncoderBlock(attention, PreNorm(FeedForward(WIDTH, 4 * WIDTH, gelu), LayerNorm(WIDTH)))


def _seconds(layers: dict[str, Layer], x: Tensor, repeats: int) -> dict[str, float]:
    """The shortest time of a step of each; they take turns, so that a busy moment hits all."""
    best = dict.fromkeys(layers, float("inf"))
    for _ in range(repeats):
        for name, layer in layers.items():
            start = perf_counter()
            torch.autograd.backward(layer(x).sum())
            best[name] = min(best[name], perf_counter() - start)
    return best


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


def _draw(rows: list[Row]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.8), layout="constrained")
    chain, time = figure.subplots(1, 2)
    for name, (colour, marker) in LOOKS.items():
        own = [row for row in rows if row["layer"] == name]
        lengths = [row["length"] for row in own]
        time.plot(lengths, [1000 * row["seconds"] for row in own], color=colour, marker=marker, label=name)
        if name != OPEN:  # the same chain as the LSTM's
            chain.plot(lengths, [row["chain"] for row in own], color=colour, marker=marker, label=name)
    for axes in (chain, time):
        axes.set(xlabel="length of the sequence", xscale="log", yscale="log")
        axes.set_xticks(lengths, lengths)
        axes.minorticks_off()
    chain.set(title="Operations that wait for each other", ylabel="longest chain")
    time.set(title="A step, forward and backward", ylabel="milliseconds (this machine)")
    figure.legend(*time.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure
