"""Attention for a GPU's programs, in Triton: each takes one head of one sentence, tile by tile.

Made for sentences, not books: a tile holds 16 to 64 tokens, so that a sentence is one or two of them. The weights are
never written down; the way back computes them again from `level`, the log of each query's softmax denominator.

Sentences have a row each, or are packed into rows: then `starts` say where each begins.

    weights = exp(Q Kᵀ scale - level),  output = weights V

B sentences, T query length, S key length, H heads, K head width; ROWS, COLUMNS, WIDTH the size of a tile
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


class Tile(NamedTuple):
    """How programs work on a tile of so many tokens: their warps, and the most registers of a thread, there and back.

    With fewer registers more programs run at once, each of which waits for memory most of its time.
    """

    tokens: int
    warps: int
    forward: int | None
    backward: int | None

    def options(self, registers: int | None) -> dict[str, int | None]:
        """How a program is compiled: most loops go round once, so that there is nothing to load ahead."""
        return {"num_warps": self.warps, "num_stages": 1, "maxnreg": registers}


TILES = (Tile(16, 1, 96, 128), Tile(32, 2, 128, 168), Tile(64, 4, None, None))


@triton.jit
def _place(tokens, length, step: tl.constexpr, width: tl.constexpr, WIDTH: tl.constexpr):
    """Where the vectors of one head lie, `step` numbers apart, seen from the first; and which of them are there."""
    features = tl.arange(0, WIDTH)[None, :]
    return tokens[:, None] * step + features, (tokens[:, None] < length) & (features < width)


@triton.jit
def _span(starts, number, length, sentences, PACKED: tl.constexpr):
    """Where a sentence begins among all tokens, and how many it has; the same sentences are in every packed row."""
    begin, tokens = number * length, length
    if PACKED:
        first = tl.load(starts + number % sentences)
        begin, tokens = number // sentences * length + first, tl.load(starts + number % sentences + 1) - first
    return begin, tokens


@triton.jit
def _scores(q, k, keep, rows, columns, queries, keys, scale, MASKED: tl.constexpr, CAUSAL: tl.constexpr):
    """q · k times the scale, (ROWS, COLUMNS); minus infinity where a query may not attend."""
    allowed = (rows[:, None] < queries) & (columns[None, :] < keys)
    if MASKED:
        allowed = allowed & (tl.load(keep + columns, mask=columns < keys, other=0) != 0)[None, :]
    if CAUSAL:
        allowed = allowed & (columns[None, :] <= rows[:, None] + keys - queries)
    return tl.where(allowed, tl.dot(q, tl.trans(k)) * scale, float("-inf"))


@triton.jit(do_not_specialize=["length", "key_length", "sentences", "total"])  # one program for batches of all shapes
def _forward(
    query,
    key,
    value,
    keep,
    query_starts,
    key_starts,
    output,
    level,
    length,
    key_length,
    sentences,
    total,
    scale,
    query_step: tl.constexpr,
    key_step: tl.constexpr,
    step: tl.constexpr,
    width: tl.constexpr,
    MASKED: tl.constexpr,
    PACKED: tl.constexpr,
    CAUSAL: tl.constexpr,
    TILE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """What a tile of queries takes in, with a softmax that goes along as keys come."""
    number, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin, queries = _span(query_starts, number, length, sentences, PACKED)
    key_begin, keys = _span(key_starts, number, key_length, sentences, PACKED)
    own, others = begin * query_step + head * width, key_begin * key_step + head * width
    output += begin * step + head * width
    for start in range(0, queries, TILE):
        rows = start + tl.arange(0, TILE)
        at, there = _place(rows, queries, query_step, width, WIDTH)
        q = tl.load(query + own + at, mask=there, other=0.0)
        top = tl.full((TILE,), float("-inf"), tl.float32)
        total_weight = tl.zeros((TILE,), tl.float32)
        taken = tl.zeros((TILE, WIDTH), tl.float32)
        for first in range(0, keys, TILE):
            columns = first + tl.arange(0, TILE)
            from_at, from_there = _place(columns, keys, key_step, width, WIDTH)
            k = tl.load(key + others + from_at, mask=from_there, other=0.0)
            v = tl.load(value + others + from_at, mask=from_there, other=0.0)
            scores = _scores(q, k, keep + key_begin, rows, columns, queries, keys, scale, MASKED, CAUSAL)
            higher = tl.maximum(top, tl.max(scores, 1))
            base = tl.where(higher == float("-inf"), 0.0, higher)
            weights = tl.exp(scores - base[:, None])
            shrink = tl.exp(top - base)
            total_weight = total_weight * shrink + tl.sum(weights, 1)
            taken = taken * shrink[:, None] + tl.dot(weights.to(v.dtype), v)
            top = higher
        total_weight = tl.where(total_weight == 0.0, 1.0, total_weight)  # nothing to attend to: zeros
        to, there = _place(rows, queries, step, width, WIDTH)
        tl.store(output + to, (taken / total_weight[:, None]).to(q.dtype), mask=there)
        where = level + head.to(tl.int64) * total + begin + rows
        tl.store(where, tl.where(top == float("-inf"), 0.0, top) + tl.log(total_weight), mask=rows < queries)


@triton.jit
def _slopes(
    q, k, v, d, o, height, keep, rows, columns, queries, keys, scale, MASKED: tl.constexpr, CAUSAL: tl.constexpr
):
    """The weights of a tile (ROWS, COLUMNS), and the gradient by its scores before they are scaled."""
    scores = _scores(q, k, keep, rows, columns, queries, keys, scale, MASKED, CAUSAL)
    weights = tl.exp(scores - height[:, None])
    mean = tl.sum(d.to(tl.float32) * o.to(tl.float32), 1)
    return weights, weights * (tl.dot(d, tl.trans(v)) - mean[:, None]) * scale


@triton.jit(do_not_specialize=["length", "key_length", "sentences", "total"])
def _backward(
    query,
    key,
    value,
    keep,
    query_starts,
    key_starts,
    output,
    level,
    slope,
    by_query,
    by_key,
    by_value,
    length,
    key_length,
    sentences,
    total,
    scale,
    query_step: tl.constexpr,
    key_step: tl.constexpr,
    step: tl.constexpr,
    width: tl.constexpr,
    MASKED: tl.constexpr,
    PACKED: tl.constexpr,
    CAUSAL: tl.constexpr,
    TILE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """The gradients of a sentence that fits into a tile, at once.

    Those of a longer one by a tile of keys and values, over all queries; then by a tile of queries, over all keys.
    """
    number, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin, queries = _span(query_starts, number, length, sentences, PACKED)
    key_begin, keys = _span(key_starts, number, key_length, sentences, PACKED)
    own, others = begin * query_step + head * width, key_begin * key_step + head * width
    output, slope = output + begin * step + head * width, slope + begin * step + head * width
    levels, keep = level + head.to(tl.int64) * total + begin, keep + key_begin
    if tl.maximum(queries, keys) <= TILE:
        mine = tl.arange(0, TILE)
        at, there = _place(mine, queries, query_step, width, WIDTH)
        to, there = _place(mine, queries, step, width, WIDTH)
        from_at, from_there = _place(mine, keys, key_step, width, WIDTH)
        q = tl.load(query + own + at, mask=there, other=0.0)
        k = tl.load(key + others + from_at, mask=from_there, other=0.0)
        d = tl.load(slope + to, mask=there, other=0.0)
        v = tl.load(value + others + from_at, mask=from_there, other=0.0)
        o = tl.load(output + to, mask=there, other=0.0)
        height = tl.load(levels + mine, mask=mine < queries, other=0.0)
        weights, by_score = _slopes(q, k, v, d, o, height, keep, mine, mine, queries, keys, scale, MASKED, CAUSAL)
        by_v = tl.dot(tl.trans(weights.to(d.dtype)), d)
        tl.store(by_value + others + from_at, by_v.to(v.dtype), mask=from_there)
        by_k = tl.dot(tl.trans(by_score.to(q.dtype)), q)
        tl.store(by_key + others + from_at, by_k.to(k.dtype), mask=from_there)
        by_q = tl.dot(by_score.to(k.dtype), k)
        tl.store(by_query + own + at, by_q.to(q.dtype), mask=there)
    else:
        for start in range(0, keys, TILE):
            mine = start + tl.arange(0, TILE)
            at, there = _place(mine, keys, key_step, width, WIDTH)
            k = tl.load(key + others + at, mask=there, other=0.0)
            v = tl.load(value + others + at, mask=there, other=0.0)
            by_k, by_v = tl.zeros((TILE, WIDTH), tl.float32), tl.zeros((TILE, WIDTH), tl.float32)
            for first in range(0, queries, TILE):
                rows = first + tl.arange(0, TILE)
                from_at, from_there = _place(rows, queries, query_step, width, WIDTH)
                to, from_there = _place(rows, queries, step, width, WIDTH)
                q = tl.load(query + own + from_at, mask=from_there, other=0.0)
                d = tl.load(slope + to, mask=from_there, other=0.0)
                o = tl.load(output + to, mask=from_there, other=0.0)
                height = tl.load(levels + rows, mask=rows < queries, other=0.0)
                weights, by_score = _slopes(
                    q, k, v, d, o, height, keep, rows, mine, queries, keys, scale, MASKED, CAUSAL
                )
                by_v += tl.dot(tl.trans(weights.to(d.dtype)), d)
                by_k += tl.dot(tl.trans(by_score.to(q.dtype)), q)
            tl.store(by_key + others + at, by_k.to(k.dtype), mask=there)
            tl.store(by_value + others + at, by_v.to(v.dtype), mask=there)
        for start in range(0, queries, TILE):
            mine = start + tl.arange(0, TILE)
            at, there = _place(mine, queries, query_step, width, WIDTH)
            to, there = _place(mine, queries, step, width, WIDTH)
            q = tl.load(query + own + at, mask=there, other=0.0)
            d = tl.load(slope + to, mask=there, other=0.0)
            o = tl.load(output + to, mask=there, other=0.0)
            height = tl.load(levels + mine, mask=mine < queries, other=0.0)
            by_q = tl.zeros((TILE, WIDTH), tl.float32)
            for first in range(0, keys, TILE):
                columns = first + tl.arange(0, TILE)
                from_at, from_there = _place(columns, keys, key_step, width, WIDTH)
                k = tl.load(key + others + from_at, mask=from_there, other=0.0)
                v = tl.load(value + others + from_at, mask=from_there, other=0.0)
                weights, by_score = _slopes(
                    q, k, v, d, o, height, keep, mine, columns, queries, keys, scale, MASKED, CAUSAL
                )
                by_q += tl.dot(by_score.to(k.dtype), k)
            tl.store(by_query + own + at, by_q.to(q.dtype), mask=there)


def _launch(
    query: Tensor,
    key: Tensor,
    keep: Tensor | None,
    query_starts: Tensor | None,
    key_starts: Tensor | None,
    usual: int,
    scale: float,
    causal: bool,
) -> tuple[tuple[int, int], Tile, tuple[Tensor, ...], tuple[Any, ...]]:
    """How many programs there are, their tiles, and their arguments before and after those that differ."""
    rows, length, heads, width = query.shape
    sentences = 1 if query_starts is None else len(query_starts) - 1
    tile = next((each for each in TILES if usual <= each.tokens), TILES[-1])
    packed = query_starts is not None
    given = tuple(query if each is None else each for each in (keep, query_starts, key_starts))
    sizes = length, key.shape[1], sentences, rows * length, scale, query.stride(1), key.stride(1), heads * width, width
    options = keep is not None, packed, causal, tile.tokens, max(16, triton.next_power_of_2(width))
    return (rows * sentences, heads), tile, given, (*sizes, *options)


def forward(query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None, *how: Any) -> tuple[Tensor, Tensor]:
    """What the queries (B, T, H, K) take in, (B, T, H, K), and the level of their softmax, (H, B * T).

    Queries, keys and values may be parts of wider vectors; keys and values of equally wide ones.
    """
    grid, tile, given, sizes = _launch(query, key, keep, *how)
    output = query.new_empty(query.shape)
    level = query.new_empty(query.shape[2], query.shape[0] * query.shape[1], dtype=torch.float32)
    _forward[grid](query, key, value, *given, output, level, *sizes, **tile.options(tile.forward))
    return output, level


def backward(
    parts: tuple[Tensor, Tensor, Tensor],
    gradients: tuple[Tensor, Tensor, Tensor],
    output: Tensor,
    level: Tensor,
    slope: Tensor,
    *how: Any,
) -> None:
    """Write the gradient by queries, keys and values, from that by the output; each lies as its own tensor does."""
    grid, tile, given, sizes = _launch(parts[0], parts[1], *how)
    _backward[grid](*parts, *given, output, level, slope, *gradients, *sizes, **tile.options(tile.backward))
