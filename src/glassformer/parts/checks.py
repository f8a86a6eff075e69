"""Checks that turn a cryptic index error or a NaN into a sentence.

Values are looked at only where that costs nothing: on the CPU, outside `torch.compile`. Looking at values on an
accelerator would stop it in the middle of training; decoding, which starts once a batch, asks for it (`anywhere=True`).

B batch, T length
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from glassformer.errors import ConfigurationError, InputError

_now = threading.local()


def check_positive(**numbers: int) -> None:
    """Refuse sizes below one, by their names."""
    for name, number in numbers.items():
        if not isinstance(number, int):
            raise ConfigurationError(f"{name} must be a whole number, not {number!r}")
        if number < 1:
            raise ConfigurationError(f"{name} must be at least 1, not {number}")


def check_fraction(**fractions: float) -> None:
    """Refuse probabilities outside [0, 1), by their names."""
    for name, fraction in fractions.items():
        if not 0.0 <= fraction < 1.0:
            raise ConfigurationError(f"{name} must be at least 0 and below 1, not {fraction}")


def check_width(x: Tensor, width: int, what: str) -> None:
    """Refuse vectors of another width than the part was built for."""
    if x.shape[-1] != width:
        raise InputError(f"{what} has vectors of width {x.shape[-1]}, but this part was built for width {width}")


def check_tokens(tokens: Tensor, vocabulary: int, what: str = "tokens", anywhere: bool = False) -> None:
    """Refuse anything but a non-empty (B, T) table of whole numbers from 0 to vocabulary - 1."""
    if tokens.dim() != 2:
        raise InputError(f"{what} must have the shape (batch, length), not {tuple(tokens.shape)}")
    if tokens.shape[0] == 0:
        raise InputError(f"{what} is an empty batch: it has no sentence")
    if tokens.shape[1] == 0:
        raise InputError(f"{what} is empty: every sentence needs at least one token")
    if tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise InputError(f"{what} must hold whole numbers (token ids), not {tokens.dtype}")
    if not readable(tokens, anywhere):
        return
    lowest, highest = (int(bound) for bound in tokens.long().aminmax())
    if lowest < 0 or highest >= vocabulary:
        wrong = lowest if lowest < 0 else highest
        raise InputError(f"{what} holds the id {wrong}, but the vocabulary has the ids 0 to {vocabulary - 1}")


def check_keep(keep: Tensor, tokens: Tensor, what: str = "source_mask", anywhere: bool = False) -> None:
    """Refuse a padding mask of another shape than its tokens, or a sentence that is padding only."""
    if keep.dtype != torch.bool:
        raise InputError(f"{what} must be boolean (True = a real token), not {keep.dtype}")
    if keep.shape != tokens.shape[:2]:
        raise InputError(f"{what} has the shape {tuple(keep.shape)}, but its tokens have {tuple(tokens.shape[:2])}")
    if not readable(keep, anywhere):
        return
    empty = (~keep.any(dim=1)).nonzero()
    if len(empty):
        raise InputError(f"sentence {int(empty[0])} of the batch is padding only: it has no token to read")


def readable(values: Tensor, anywhere: bool = False) -> bool:
    """Whether values may be looked at: on the CPU, where that costs nothing, or on request."""
    here = values.device.type == "cpu" or (anywhere and values.device.type != "meta")
    return here and not unread() and not torch.compiler.is_compiling()


@contextmanager
def reading_nothing() -> Iterator[None]:
    """Look at no values meanwhile, in this thread: who captures a CUDA graph has checked them before."""
    before, _now.unread = unread(), True
    try:
        yield
    finally:
        _now.unread = before


def unread() -> bool:
    """Whether no values may be looked at."""
    return getattr(_now, "unread", False)
