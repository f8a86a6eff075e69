"""Kernels for a CPU in C (`cpu_kernels.c`), of decoding steps and of the loss: many numbers, nothing written twice.

PyTorch has a kernel for each step of a formula, and each reads and writes all numbers. For a step of five beams these
take longer than the products. Here attention skips the slots that a beam does not descend from, logits are read twice
for the likeliest tokens, and vectors in 8 bits are multiplied, scaled and shifted at once. In training, logits become
their loss's slope where they are.

The code is compiled when it is first used (`glassformer.compiled`), and has to give what PyTorch gives before it is
trusted. Without a compiler PyTorch's kernels do the same work.

B sentences, k beams, H heads, G key-value heads, N slots, K head width, D inputs, F outputs, C candidates, V vocabulary
"""

from __future__ import annotations

import ctypes
import functools
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.compiled import library
from glassformer.errors import InputError
from glassformer.parts.masks import Mask

SOURCE = Path(__file__).with_suffix(".c")
MOST_BEAMS = 32  # queries of a sentence: of more, PyTorch makes a product of matrices
MOST_SLOTS, WIDEST = 4096, 256  # as in the source
WRONG_TOKEN = 2  # what `smoothed` says in the source
FOUR = 4  # inputs that are multiplied at once
_POINTER, _LONG = ctypes.c_void_p, ctypes.c_long
_state = {"wanted": True}


def use_compiled(wanted: bool) -> None:
    """Use kernels in C from now on, where they can be compiled, or do not; a quantised model keeps those it has."""
    _state["wanted"] = wanted


@contextmanager
def by_pytorch() -> Iterator[None]:
    """Within this context PyTorch's kernels do all, so that results are those of a machine without a compiler."""
    before, _state["wanted"] = _state["wanted"], False
    try:
        yield
    finally:
        _state["wanted"] = before


def compiled() -> bool:
    """Whether kernels in C are used."""
    return _state["wanted"] and _right()


def multiplies() -> bool:
    """Whether there is a product in 8 bits among them."""
    return compiled() and _found().outputs_of_a_tile() > 0


def suits(x: Tensor) -> bool:
    """Whether kernels in C may read these numbers: of a model in use, in 32 bits, on a CPU."""
    used = _has_numbers(x) and x.dtype == torch.float32 and torch.is_inference_mode_enabled()
    return used and not _followed() and compiled()


def _has_numbers(x: Tensor) -> bool:
    """Whether a tensor's numbers are in this machine's memory: not those of one that only says what it would be."""
    return type(x) in (Tensor, nn.Parameter) and x.is_cpu


def _followed() -> bool:
    """Whether somebody follows each operation of PyTorch, such as a compiler, and would not see what is done in C."""
    following = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
    return following or torch._C._are_functorch_transforms_active()


# --- attention


def suits_beams(query: Tensor, key: Tensor, value: Tensor, mask: Mask) -> bool:
    """Whether `attend` may take over: few queries, and a mask that is a table alone."""
    (sentences, heads, beams, width), (_, groups, slots, _) = query.shape, key.shape
    return (
        beams <= MOST_BEAMS
        and not mask.causal
        and mask.window is None
        and mask.spans is None
        and (mask.allowed is None or _is_table(mask.allowed, sentences, beams, slots))
        and slots <= MOST_SLOTS
        and width % 16 == 0
        and width <= WIDEST
        and key.shape == value.shape == (sentences, groups, slots, width)
        and heads % groups == 0
        and all(x.stride(3) == 1 and x.dtype == torch.float32 for x in (query, key, value))
        and suits(query)
    )


def _is_table(allowed: Tensor, sentences: int, beams: int, slots: int) -> bool:
    """Whether a mask is (B or 1, 1, k or 1, N)."""
    if allowed.dim() != 4 or allowed.dtype != torch.bool:
        return False
    rows, tables, queries, keys = allowed.shape
    return tables == 1 and keys == slots and rows in (1, sentences) and queries in (1, beams)


def attend(query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, scale: float | None = None) -> Tensor:
    """Attention of queries (B, H, k, K) over slots (B, G, N, K) that each beam has seen, (B or 1, 1, k or 1, N)."""
    sentences, heads, beams, width = query.shape
    output = query.new_empty(sentences, beams, heads, width)
    rows = (0, 0)
    if seen is not None:
        seen = seen if seen.stride(3) == 1 else seen.contiguous()
        rows = (seen.stride(0) if len(seen) > 1 else 0, seen.stride(2) if seen.shape[2] > 1 else 0)
    strides = (*query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *rows)
    _found().attend(
        query.data_ptr(),
        key.data_ptr(),
        value.data_ptr(),
        None if seen is None else seen.data_ptr(),
        output.data_ptr(),
        (ctypes.c_int64 * 6)(sentences, heads, key.shape[1], beams, key.shape[2], width),
        (ctypes.c_int64 * 11)(*strides),
        1 / math.sqrt(width) if scale is None else scale,
    )
    return output.transpose(1, 2)  # (B, H, k, K)


# --- scoring


def likeliest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest log-probabilities of logits (…, V), and the tokens that have them, (…, C) each, the largest first."""
    logits = logits.contiguous()
    values = logits.new_empty(*logits.shape[:-1], count)
    tokens = torch.empty(values.shape, dtype=torch.long, device=logits.device)
    vocabulary = logits.shape[-1]
    _found().likeliest(
        logits.data_ptr(), values.data_ptr(), tokens.data_ptr(), logits.numel() // vocabulary, vocabulary, count
    )
    return values, tokens


# --- the loss


def suits_loss(logits: Tensor) -> bool:
    """Whether `smoothed` takes these logits (C, V)."""
    plain = _has_numbers(logits) and logits.dtype in (torch.float32, torch.bfloat16) and logits.is_contiguous()
    return plain and not _followed() and compiled()


def smoothed(logits: Tensor, right: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The summed loss of logits (C, V), and its gradient by them, which takes their place; see `tasks.losses`.

    Rows whose right token is negative have neither loss nor gradient.
    """
    right = right.long().contiguous()  # a copy, if it is one, has to live as long as its address is used
    losses = torch.empty(len(logits), dtype=torch.float32, device="cpu")
    given = logits.data_ptr(), right.data_ptr(), losses.data_ptr()
    failed = _found().smoothed(*given, *logits.shape, smoothing, 8 * logits.element_size())
    if failed == WRONG_TOKEN:
        raise IndexError(f"the right token {int(right.max())} is not one of {logits.shape[1]}")
    if failed:
        raise MemoryError
    return losses.sum(), logits


# --- products in 8 bits


class Tiles(NamedTuple):
    """A matrix (F, D) in 8 bits, in the order in which the kernel reads it, and what belongs to each output."""

    weight: Tensor
    offsets: Tensor  # 128 times the sum of its weights, since vectors are whole numbers around 128
    scales: Tensor
    bias: Tensor
    inputs: int
    outputs: int


def tiled(weight: Tensor, scales: Tensor, bias: Tensor | None) -> Tiles:
    """A matrix (F, D) in 8 bits with a scale for each row, made ready for `multiply`; D is a multiple of 4."""
    outputs, inputs = weight.shape
    lanes = int(_found().lanes())
    tile = int(_found().outputs_of_a_tile())
    missing = -outputs % tile
    whole = F.pad(weight, (0, 0, 0, missing))
    order = whole.view(-1, tile // lanes, lanes, inputs // FOUR, FOUR).permute(0, 3, 1, 2, 4)
    sums = 128 * whole.int().sum(dim=1)
    return Tiles(
        order.contiguous(),
        sums.int(),
        F.pad(scales.float() / 127, (0, missing)),
        scales.new_zeros(len(whole)) if bias is None else F.pad(bias.detach().float(), (0, missing)),
        inputs,
        outputs,
    )


def multiply(x: Tensor, matrix: Tiles) -> Tensor:
    """Vectors (…, D) by a matrix, with its bias: (…, F). Each vector has a scale of its own in 8 bits."""
    if not _has_numbers(x) or x.shape[-1] != matrix.inputs:
        raise InputError(
            f"a part in 8 bits reads vectors of {matrix.inputs} numbers on a CPU, "
            f"not a {type(x).__name__} of shape {tuple(x.shape)} on {x.device}"
        )
    x = x.float().contiguous()
    y = x.new_empty(*x.shape[:-1], matrix.outputs)
    weight, offsets, scales, bias = (each.data_ptr() for each in matrix[:4])
    sizes = x.numel() // matrix.inputs, matrix.inputs, matrix.outputs
    if _found().multiply(x.data_ptr(), weight, offsets, scales, bias, y.data_ptr(), *sizes):
        raise MemoryError
    return y


# --- compiling, and trusting


@functools.cache
def _kernels() -> ctypes.CDLL | None:
    """The library, with its functions declared."""
    found = library(SOURCE, torch.get_num_threads)
    if found is None:
        return None
    try:
        _declare(found)
    except AttributeError as error:  # a compiler that has left them out
        warnings.warn(f"kernels in C are not used: {error}", stacklevel=2)
        return None
    return found


def _declare(found: ctypes.CDLL) -> None:
    found.attend.argtypes = [*[_POINTER] * 7, ctypes.c_float]
    found.likeliest.argtypes = [*[_POINTER] * 3, *[_LONG] * 3]
    found.attend.restype = found.likeliest.restype = None
    found.smoothed.argtypes = [*[_POINTER] * 3, *[_LONG] * 2, ctypes.c_float, _LONG]
    found.smoothed.restype = _LONG
    found.lanes.restype = found.outputs_of_a_tile.restype = _LONG
    if found.outputs_of_a_tile():
        found.multiply.argtypes = [*[_POINTER] * 6, *[_LONG] * 3]
        found.multiply.restype = _LONG


def _found() -> ctypes.CDLL:
    found = _kernels()
    if found is None:
        raise RuntimeError("there are no kernels in C: ask `compiled` first")
    return found


@functools.cache
def _right() -> bool:
    """Whether there are kernels, and each gives what PyTorch gives, for random numbers."""
    if _kernels() is None:
        return False
    wrong = [check.__name__ for check in (_attends, _scores, _learns, _multiplies) if not check()]
    if wrong:
        warnings.warn(f"kernels in C are not used: {', '.join(wrong)} gave other numbers than PyTorch", stacklevel=2)
    return not wrong


def _random(*sizes: int) -> Tensor:
    """Numbers for a check, on any machine the same; what is right is computed in 64 bits, which nothing casts."""
    source = torch.Generator("cpu").manual_seed(sum(sizes))
    return torch.randn(sizes, generator=source, device="cpu", dtype=torch.float32)


def _attends() -> bool:
    query, (key, value) = _random(2, 3, 4, 32).transpose(1, 2), _random(2, 2, 2, 21, 32).unbind()
    seen = _random(2, 1, 3, 21) > 0
    right = F.scaled_dot_product_attention(query.double(), key.double(), value.double(), seen, enable_gqa=True)
    return torch.allclose(attend(query, key, value, seen).double(), right, atol=1e-5)


def _scores() -> bool:
    logits = _random(3, 203)
    values, tokens = likeliest(logits, 9)
    right, places = logits.double().log_softmax(dim=-1).topk(9)
    return torch.equal(tokens, places) and torch.allclose(values.double(), right, atol=1e-5)


def _learns() -> bool:
    logits, right = _random(4, 53), torch.tensor([3, 0, -1, 52], device="cpu")
    counts, log_p = (right >= 0)[:, None], logits.double().log_softmax(dim=-1)
    wanted = 0.1 / 53 + 0.9 * F.one_hot(right.clamp(min=0), 53).double()
    loss, slope = -(counts * wanted * log_p).sum(), counts * (log_p.exp() - wanted)
    total, found = smoothed(logits.clone(), right, 0.1)
    return torch.allclose(total.double(), loss, atol=1e-4) and torch.allclose(found.double(), slope, atol=1e-5)


def _multiplies() -> bool:
    if not _found().outputs_of_a_tile():
        return True
    x, weight, bias = _random(7, 36), (_random(70, 36) * 40).clamp(-127, 127).to(torch.int8), _random(70)
    scales, largest = _random(70).abs(), x.abs().amax(dim=-1, keepdim=True)
    right = ((x * (127 / largest)).round().double() @ weight.double().T) * (largest / 127) * scales + bias
    return torch.allclose(multiply(x, tiled(weight, scales, bias)).double(), right, rtol=1e-5, atol=1e-4)
