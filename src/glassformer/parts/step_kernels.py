"""The Triton kernel of attention in a decoding step; `step_attention` says what it is for.

One program for each sentence and head. It reads only the slots that are filled, and writes the new keys and values
itself, so that a step needs one launch instead of five. No program reads a slot that is written in the same launch: a
beam's own key and value come from where the model has put them. Scores, the softmax and its sums are in float32.

B sentences, k beams, H heads, G key-value heads, N slots, K head width
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64  # slots that are read at a time


@triton.jit
def _attend(
    query, key, value, seen, filled, new_key, new_value, output,
    query_sentence, query_head, query_beam, new_sentence, new_head, new_beam, value_sentence, value_head, value_beam,
    seen_sentence, seen_beam, slots, scale,
    BEAMS: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, SHARING: tl.constexpr,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, OWN: tl.constexpr,
):  # fmt: skip
    """What the beams of one sentence take in, in one head, with a softmax that goes along as slots come."""
    sentence = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    group = head // SHARING
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    count = tl.load(filled)
    inside = (rows < BEAMS)[:, None] & (columns < WIDTH)[None, :]
    q = tl.load(
        query + sentence * query_sentence + head * query_head + rows[:, None] * query_beam + columns[None, :],
        mask=inside,
        other=0.0,
    )
    store = (sentence * (HEADS // SHARING) + group) * slots * WIDTH
    if OWN:
        own = sentence * new_sentence + group * new_head + rows[:, None] * new_beam + columns[None, :]
        own_key = tl.load(new_key + own, mask=inside, other=0.0)
        own = sentence * value_sentence + group * value_head + rows[:, None] * value_beam + columns[None, :]
        own_value = tl.load(new_value + own, mask=inside, other=0.0)
        if head % SHARING == 0:
            slot = store + (count + rows[:, None]) * WIDTH + columns[None, :]
            free = inside & (count + rows < slots)[:, None]
            tl.store(key + slot, own_key, mask=free)
            tl.store(value + slot, own_value, mask=free)
        highest = tl.sum(q.to(tl.float32) * own_key.to(tl.float32), 1) * scale
        total = tl.full((ROWS,), 1.0, tl.float32)
        taken = own_value.to(tl.float32)
    else:
        highest = tl.full((ROWS,), -1e30, tl.float32)  # finite: -inf - -inf is not a number
        total = tl.zeros((ROWS,), tl.float32)
        taken = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, count, BLOCK):
        places = start + tl.arange(0, BLOCK)
        there = places < count
        k = tl.load(
            key + store + places[None, :] * WIDTH + columns[:, None],
            mask=there[None, :] & (columns < WIDTH)[:, None],
            other=0.0,
        )
        scores = tl.dot(q, k, input_precision="ieee") * scale
        allowed = tl.load(
            seen + sentence * seen_sentence + rows[:, None] * seen_beam + places[None, :],
            mask=(rows < BEAMS)[:, None] & there[None, :],
            other=0,
        )
        scores = tl.where(allowed != 0, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp(scores - higher[:, None])
        kept = tl.exp(highest - higher)
        v = tl.load(
            value + store + places[:, None] * WIDTH + columns[None, :],
            mask=there[:, None] & (columns < WIDTH)[None, :],
            other=0.0,
        )
        total = total * kept + tl.sum(weights, 1)
        taken = taken * kept[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        highest = higher
    taken = taken / tl.maximum(total, 1e-30)[:, None]
    to = ((sentence * BEAMS + rows[:, None]) * HEADS + head) * WIDTH + columns[None, :]
    tl.store(output + to, taken.to(output.dtype.element_ty), mask=inside)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor,
    filled: Tensor,
    scale: float,
    new: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """Attention of queries (B, H, k, K) over slots (B, G, N, K); `seen` is (B, k or 1, N), `filled` is (1)."""
    sentences, heads, beams, width = query.shape
    output = query.new_empty(sentences, beams, heads, width)
    given = (query, key, value) if new is None else (query, *new)
    query, new_key, new_value = (x if x.stride(3) == 1 else x.contiguous() for x in given)
    seen = seen if seen.stride(2) == 1 else seen.contiguous()
    sizes: dict[str, Any] = {
        "BEAMS": beams,
        "ROWS": max(16, triton.next_power_of_2(beams)),
        "HEADS": heads,
        "SHARING": heads // key.shape[1],
        "WIDTH": width,
        "COLUMNS": max(16, triton.next_power_of_2(width)),
        "BLOCK": BLOCK,
        "OWN": new is not None,
    }
    _attend[(sentences, heads)](
        query, key, value, seen.view(torch.uint8), filled, new_key, new_value, output,
        *query.stride()[:3], *new_key.stride()[:3], *new_value.stride()[:3],
        seen.stride(0), seen.stride(1) if seen.shape[1] > 1 else 0, key.shape[2], scale, **sizes, num_warps=4,
    )  # fmt: skip
    return output.transpose(1, 2)  # (B, H, k, K)
