"""Attention for a GPU's programs, in Triton: each takes one tile of one head of one sentence.

Made for sentences, not books: a tile holds 16 to 64 tokens, so that a sentence is one or two of them. The weights are
never written down; the way back computes them again from `level`, the log of each query's softmax denominator.

    weights = exp(Q Kᵀ scale - level),  output = weights V

B sentences, T query length, S key length, H heads, K head width; ROWS, COLUMNS, WIDTH the size of a tile
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

TILES = ((16, 2), (32, 2), (64, 4))  # tokens in a tile, and how many warps work on it


@triton.jit
def _place(tokens, length, heads: tl.constexpr, width: tl.constexpr, WIDTH: tl.constexpr):
    """Where the vectors of one head lie in (B, T, H, K), seen from the first, and which of them are there."""
    features = tl.arange(0, WIDTH)[None, :]
    return tokens[:, None] * heads * width + features, (tokens[:, None] < length) & (features < width)


@triton.jit
def _scores(q, k, keep, rows, columns, queries, keys, scale, MASKED: tl.constexpr, CAUSAL: tl.constexpr):
    """q · k times the scale, (ROWS, COLUMNS); minus infinity where a query may not attend."""
    allowed = (rows[:, None] < queries) & (columns[None, :] < keys)
    if MASKED:
        allowed = allowed & (tl.load(keep + columns, mask=columns < keys, other=0) != 0)[None, :]
    if CAUSAL:
        allowed = allowed & (columns[None, :] <= rows[:, None] + keys - queries)
    return tl.where(allowed, tl.dot(q, tl.trans(k)) * scale, float("-inf"))


@triton.jit(do_not_specialize=["queries", "keys"])  # one program for sentences of all lengths
def _forward(
    query,
    key,
    value,
    keep,
    output,
    level,
    queries,
    keys,
    scale,
    heads: tl.constexpr,
    width: tl.constexpr,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
    TILE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """What a tile of queries takes in, with a softmax that goes along as keys come."""
    sentence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    own, others = (sentence * queries * heads + head) * width, (sentence * keys * heads + head) * width
    rows = tl.program_id(2) * TILE + tl.arange(0, TILE)
    at, there = _place(rows, queries, heads, width, WIDTH)
    q = tl.load(query + own + at, mask=there, other=0.0)
    top = tl.full((TILE,), float("-inf"), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    taken = tl.zeros((TILE, WIDTH), tl.float32)
    for first in range(0, keys, TILE):
        columns = first + tl.arange(0, TILE)
        from_at, from_there = _place(columns, keys, heads, width, WIDTH)
        k = tl.load(key + others + from_at, mask=from_there, other=0.0)
        v = tl.load(value + others + from_at, mask=from_there, other=0.0)
        scores = _scores(q, k, keep + sentence * keys, rows, columns, queries, keys, scale, MASKED, CAUSAL)
        higher = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp(scores - base[:, None])
        shrink = tl.exp(top - base)
        total = total * shrink + tl.sum(weights, 1)
        taken = taken * shrink[:, None] + tl.dot(weights.to(v.dtype), v)
        top = higher
    total = tl.where(total == 0.0, 1.0, total)  # nothing to attend to: zeros
    tl.store(output + own + at, (taken / total[:, None]).to(q.dtype), mask=there)
    where = level + (sentence * heads + head) * queries + rows
    tl.store(where, tl.where(top == float("-inf"), 0.0, top) + tl.log(total), mask=rows < queries)


@triton.jit(do_not_specialize=["queries", "keys"])
def _backward(
    query,
    key,
    value,
    keep,
    output,
    level,
    slope,
    by_query,
    by_key,
    by_value,
    queries,
    keys,
    scale,
    heads: tl.constexpr,
    width: tl.constexpr,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
    TILE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """The gradient by a tile of keys and values, over all queries; then by a tile of queries, over all keys."""
    sentence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    own, others = (sentence * queries * heads + head) * width, (sentence * keys * heads + head) * width
    levels, keep = level + (sentence * heads + head) * queries, keep + sentence * keys
    mine = tl.program_id(2) * TILE + tl.arange(0, TILE)

    at, there = _place(mine, keys, heads, width, WIDTH)
    k = tl.load(key + others + at, mask=there, other=0.0)
    v = tl.load(value + others + at, mask=there, other=0.0)
    by_k, by_v = tl.zeros((TILE, WIDTH), tl.float32), tl.zeros((TILE, WIDTH), tl.float32)
    for first in range(0, queries, TILE):
        rows = first + tl.arange(0, TILE)
        from_at, from_there = _place(rows, queries, heads, width, WIDTH)
        q = tl.load(query + own + from_at, mask=from_there, other=0.0)
        d = tl.load(slope + own + from_at, mask=from_there, other=0.0)
        o = tl.load(output + own + from_at, mask=from_there, other=0.0)
        scores = _scores(q, k, keep, rows, mine, queries, keys, scale, MASKED, CAUSAL)
        weights = tl.exp(scores - tl.load(levels + rows, mask=rows < queries, other=0.0)[:, None])
        mean = tl.sum(d.to(tl.float32) * o.to(tl.float32), 1)
        by_score = weights * (tl.dot(d, tl.trans(v)) - mean[:, None]) * scale
        by_v += tl.dot(tl.trans(weights.to(d.dtype)), d)
        by_k += tl.dot(tl.trans(by_score.to(q.dtype)), q)
    tl.store(by_key + others + at, by_k.to(k.dtype), mask=there)
    tl.store(by_value + others + at, by_v.to(v.dtype), mask=there)

    at, there = _place(mine, queries, heads, width, WIDTH)
    q = tl.load(query + own + at, mask=there, other=0.0)
    d = tl.load(slope + own + at, mask=there, other=0.0)
    o = tl.load(output + own + at, mask=there, other=0.0)
    mean = tl.sum(d.to(tl.float32) * o.to(tl.float32), 1)
    height = tl.load(levels + mine, mask=mine < queries, other=0.0)
    by_q = tl.zeros((TILE, WIDTH), tl.float32)
    for first in range(0, keys, TILE):
        columns = first + tl.arange(0, TILE)
        from_at, from_there = _place(columns, keys, heads, width, WIDTH)
        k = tl.load(key + others + from_at, mask=from_there, other=0.0)
        v = tl.load(value + others + from_at, mask=from_there, other=0.0)
        scores = _scores(q, k, keep, mine, columns, queries, keys, scale, MASKED, CAUSAL)
        weights = tl.exp(scores - height[:, None])
        by_score = weights * (tl.dot(d, tl.trans(v)) - mean[:, None]) * scale
        by_q += tl.dot(by_score.to(k.dtype), k)
    tl.store(by_query + own + at, by_q.to(q.dtype), mask=there)


def _shape(query: Tensor, key: Tensor) -> tuple[int, int, int, int, int]:
    """Tile, warps, width of a tile, and how many tiles the queries and the longer side have."""
    queries, keys, width = query.shape[1], key.shape[1], query.shape[3]
    longest = max(queries, keys)
    tile, warps = next((pair for pair in TILES if longest <= pair[0]), TILES[-1])
    return tile, warps, max(16, triton.next_power_of_2(width)), triton.cdiv(queries, tile), triton.cdiv(longest, tile)


def forward(
    query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """What the queries (B, T, H, K) take in, (B, T, H, K), and the level of their softmax, (B, H, T)."""
    sentences, queries, heads, width = query.shape
    tile, warps, wide, tiles, _ = _shape(query, key)
    output = torch.empty_like(query)
    level = query.new_empty(sentences, heads, queries, dtype=torch.float32)
    _forward[(sentences, heads, tiles)](
        *(query, key, value, query if keep is None else keep, output, level),
        *(queries, key.shape[1], scale, heads, width, keep is not None, causal, tile, wide),
        num_warps=warps,
    )
    return output, level


def backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    keep: Tensor | None,
    output: Tensor,
    level: Tensor,
    slope: Tensor,
    scale: float,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient by queries, keys and values, from that by the output."""
    sentences, queries, heads, width = query.shape
    tile, warps, wide, _, tiles = _shape(query, key)
    gradients = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
    _backward[(sentences, heads, tiles)](
        *(query, key, value, query if keep is None else keep, output, level, slope, *gradients),
        *(queries, key.shape[1], scale, heads, width, keep is not None, causal, tile, wide),
        num_warps=warps,
    )
    return gradients
