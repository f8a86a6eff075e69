"""The workings of a Transformer's blocks: attention, feed-forward, and the residual stream.

T tokens, S keys, D width, K head width, F hidden width
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.looking.analyses.residual import stream_before
from glassformer.looking.sums.place import Place
from glassformer.looking.sums.steps import (
    Step,
    Term,
    apply,
    linear_terms,
    linear_values,
    norm_steps,
    products,
    softmax_steps,
    step,
)
from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.feedforward import GatedFeedForward
from glassformer.parts.norms import PostNorm, PreNorm
from glassformer.parts.positions import AttentionPositions


def attention_steps(place: Place) -> list[Step]:
    """The working of one number of a multi-head attention."""
    attention: MultiHeadAttention = place.part
    match place.local:
        case "queries" | "keys" | "values":
            return _projected(place, attention)
        case "scores":
            return _score(place, attention)
        case "weights":
            scores, weights = place.vector(f"{place.path}.scores"), place.vector(place.point)
            names = place.names(place.point, "key")
            return softmax_steps(scores.masked_fill(weights == 0, -math.inf), names, place.at)
        case "heads":
            weights = place.vector(f"{place.path}.weights")
            values = place.table(f"{place.path}.values", _shared(place.head, attention))[:, place.at]
            terms = products(place.names(f"{place.path}.weights", "key"), weights, values)
            return [step("weighted sum", terms, ("weight", "value"))]
        case _:
            heads = torch.stack([place.vector(f"{place.path}.heads", head=head) for head in range(attention.heads)])
            names = [f"head {head} · {at}" for head in range(attention.heads) for at in range(attention.head_width)]
            terms = linear_terms(attention.output, heads.flatten(), place.at, names)
            return [step("W_o · heads + b", terms, ("heads", "W_o"))]


def _projected(place: Place, attention: MultiHeadAttention) -> list[Step]:
    """q, k or v: a projection, then the norm and the rotation of queries and keys, where there are any."""
    letter = place.local[0]
    projection: nn.Module = {"q": attention.query, "k": attention.key, "v": attention.value}[letter]
    crosses = place.path.endswith(".cross") and letter != "q"
    x = place.vector("encoder.output") if crosses else place.read(place.path)
    first = place.head * attention.head_width

    def projected(at: int) -> Step:
        return step(f"{letter}_{at} = W_{letter} x + b", linear_terms(projection, x, first + at), ("x", f"W_{letter}"))

    if letter == "v":
        return [projected(place.at)]
    norm = attention.query_norm if letter == "q" else attention.key_norm
    raw = linear_values(projection, x)[first : first + attention.head_width]  # (K)
    turned = _rotation(attention, place)
    used = [place.at] if turned is None else turned[:, place.at].nonzero().flatten().tolist()
    steps = [projected(at) for at in used]
    if not isinstance(norm, nn.Identity):
        for at in used:
            steps += norm_steps(norm, raw, at)
        raw = apply(norm, raw)
    if turned is not None:
        terms = [Term(f"{letter}_{at}", (float(raw[at]), float(turned[at, place.at]))) for at in used]
        steps.append(step(f"turned to position {place.token}", terms, (letter, "cos or ± sin")))
    return steps


def _rotation(attention: MultiHeadAttention, place: Place) -> Tensor | None:
    """How a query or key is turned at this token, (K, K); None: it is not."""
    if attention.positions is None or type(attention.positions).rotate is AttentionPositions.rotate:
        return None
    width = attention.head_width
    units = torch.eye(width)[None, None].to(next(attention.parameters()))  # (1, 1, K, K)
    where = torch.full((width,), place.token, device=units.device)
    with torch.no_grad():
        return attention.positions.rotate(units, where)[0, 0].double().cpu()


def _shared(head: int, attention: MultiHeadAttention) -> int:
    """The key-value head that a head shares with others of its group."""
    return head // (attention.heads // attention.key_value_heads)


def _score(place: Place, attention: MultiHeadAttention) -> list[Step]:
    """q · k, times the scale, plus the bias of positions."""
    query = place.vector(f"{place.path}.queries")
    key = place.vector(f"{place.path}.keys", place.at, _shared(place.head, attention))
    dot = step("q · k", products(range(len(query)), query, key), ("q", "k"))
    scale = 1 / math.sqrt(len(query)) if attention.scale is None else attention.scale
    bias = score_bias(attention, place.token, place.at)
    if scale == 1 and bias is None:
        return [dot]
    name, factor = ("q · k", "1") if scale == 1 else ("q · k / √d", f"1/√{len(query)}")
    factor = factor if attention.scale is None else f"{scale:g}"
    terms = [Term("q · k", (dot.value, scale))]
    if bias is not None:
        name, terms = f"{name} + bias of the distance", [*terms, Term("bias", (bias[place.head],))]
    return [dot, step(name, terms, ("q · k", factor))]


def score_bias(attention: Any, token: int, key: int) -> list[float] | None:
    """What positions add to the score of a key for a query, in each head; None: nothing."""
    if attention.positions is None:
        return None
    device = next(attention.parameters()).device
    with torch.no_grad():
        found = attention.positions.bias(*(torch.tensor([[at]], device=device) for at in (token, key)))
    return None if found is None else found[0, :, 0, 0].tolist()


def feed_forward_steps(place: Place) -> list[Step]:
    """The working of one number of a feed-forward part."""
    part: Any = place.part
    if place.local == "output":
        hidden = place.vector(f"{place.path}.hidden")
        return [step("W₂ hidden + b", linear_terms(part.output, hidden, place.at), ("hidden", "W₂"))]
    x = place.read(place.path)
    expanded = linear_terms(part.expand, x, place.at)
    if not isinstance(part, GatedFeedForward):
        return [step("f(W₁ x + b)", expanded, ("x", "W₁"), part.activation)]
    gate = step("gate f(W_g x)", linear_terms(part.gate, x, place.at), ("x", "W_g"), part.activation)
    other = step("W₁ x", expanded, ("x", "W₁"))
    return [gate, other, step("gate × W₁ x", [Term(str(place.at), (gate.value, other.value))], ("gate", "W₁ x"))]


def stream_steps(place: Place) -> list[Step]:
    """The residual stream after a part: what was there, and what the part adds; normalised where that comes last."""
    part = place.path if place.path.count(".") == 2 else f"{place.path}.ff"
    before, added = place.vector(stream_before(place.trace, f"{part}.output")), place.vector(f"{part}.output")
    terms = [Term("stream before", (float(before[place.at]),)), Term("added", (float(added[place.at]),))]
    both = step("stream + what is added", terms)
    branch = Place(place.model, place.trace, f"{part}.output", place.token, place.at).branch
    return [both, *norm_steps(branch.norm, before + added, place.at)] if isinstance(branch, PostNorm) else [both]


def read_steps(place: Place) -> list[Step]:
    """What a part reads: the stream, normalised where the norm comes first."""
    x = place.vector(stream_before(place.trace, f"{place.path}.output"))
    branch = place.branch
    if isinstance(branch, PreNorm):
        return norm_steps(branch.norm, x, place.at)
    return [step("the stream", [Term("stream", (float(x[place.at]),))])]
