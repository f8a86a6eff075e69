"""What a model must be able to do to be decoded, and what decoding gives back.

B sentences, k beams, V vocabulary
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigurationError, InputError


class State(Protocol):
    """What a model remembers between steps."""

    def select(self, beams: Tensor, sentences: Tensor | None = None) -> None:
        """Go on with some beams (B', k') of some sentences (B'), or of all sentences where that is None."""
        ...


class Generator(Protocol):
    """Anything that writes one token after another, for k beams of each of B sentences at once."""

    def start(self, *inputs: Any) -> Any:
        """Read the inputs, and be ready to write: the state before the first token."""
        ...

    def step(self, state: Any, tokens: Tensor) -> tuple[Tensor, Any]:
        """Logits (B, k, V) of the token after `tokens` (B, k), and the state to go on with."""
        ...


@dataclass(frozen=True)
class Hypothesis:
    """One output: its tokens (without start and end), and how likely the model finds them.

    `log_probabilities` has one number a token, and one for the end where it was reached (`finished`);
    `log_probability` is their sum. `score` is what the search ranked by: that sum under its length penalty.
    """

    tokens: list[int]
    score: float
    log_probability: float
    log_probabilities: list[float]
    finished: bool


def first_of(inputs: tuple[Any, ...]) -> Tensor:
    """The first of a model's inputs: it has a row for each sentence."""
    if not inputs or not isinstance(inputs[0], Tensor):
        found = f"but the first one is a {type(inputs[0]).__name__}" if inputs else "but there are none"
        raise InputError(f"decoding needs the model's inputs as tensors, the source first, {found}")
    return inputs[0]


def first_tokens(state: Any, start: int | None, sentences: int, device: torch.device) -> Tensor:
    """What the first step reads, (B, 1): the last token of a prompt (`state.first`), or else the start token."""
    begun: Tensor | None = getattr(state, "first", None)
    if begun is not None:
        return begun
    if start is None:
        raise ConfigurationError("this model reads no prompt: its limits need a start token")
    return torch.full((sentences, 1), start, device=device)


def parts_of(model: Any) -> list[nn.Module]:
    """All parts of a model; none where it is not made of them."""
    return list(model.modules()) if isinstance(model, nn.Module) else []


@contextmanager
def evaluating(parts: list[nn.Module]) -> Iterator[None]:
    """Dropout off while decoding; the parts that were in training go back to it afterwards."""
    learning = [part for part in parts if part.training]
    for part in learning:
        part.training = False
    try:
        yield
    finally:
        for part in learning:
            part.training = True
