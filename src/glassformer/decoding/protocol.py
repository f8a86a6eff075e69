"""The interfaces of decoding: what a model must provide, and what a search returns.

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

NOT_FINITE = (
    "sentence {}: the model's outputs are not finite numbers: its weights are damaged or its training diverged; "
    "use another checkpoint, or train again with a lower train.lr"
)


class Generator(Protocol):
    """A model that generates one token after another, for k beams of each of B sentences.

    Its state is what it keeps between steps, such as a key-value cache. `state.select(beams, sentences)` keeps only
    these beams (B', k') of these sentences (B'); None: of all sentences.
    """

    def start(self, *inputs: Any) -> Any:
        """Read the inputs and return the state before the first token."""
        ...

    def step(self, state: Any, tokens: Tensor) -> tuple[Tensor, Any]:
        """Logits (B, k, V) of the token after `tokens` (B, k), and the next state."""
        ...


@dataclass(frozen=True)
class Hypothesis:
    """One output: its tokens without start and end token, and their log-probabilities.

    `log_probabilities` has one number per token, and one for the end token if the output is `finished`;
    `log_probability` is their sum. `score` is the sum with the length penalty, by which the search ranks. Limits with a
    repetition penalty, forced tokens or `renormalise` change all of them.
    """

    tokens: list[int]
    score: float
    log_probability: float
    log_probabilities: list[float]
    finished: bool


def first_of(inputs: tuple[Any, ...]) -> Tensor:
    """The first input of a model: it has one row for each sentence."""
    if not inputs or not isinstance(inputs[0], Tensor):
        found = f"the first one is a {type(inputs[0]).__name__}" if inputs else "there are none"
        raise InputError(f"decoding needs the model's inputs as tensors, the source first, but {found}")
    return inputs[0]


def first_tokens(state: Any, start: int | None, sentences: int, device: torch.device) -> Tensor:
    """The input of the first step, (B, 1): the last token of the prompt (`state.first`), or the start token."""
    prompt_end: Tensor | None = getattr(state, "first", None)
    if prompt_end is not None:
        return prompt_end
    if start is None:
        raise ConfigurationError("this model has no prompt: Limits.start must be a token id, not None")
    return torch.full((sentences, 1), start, device=device)


def parts_of(model: Any) -> list[nn.Module]:
    """All modules of a model; an empty list if it is not an nn.Module."""
    return list(model.modules()) if isinstance(model, nn.Module) else []


@contextmanager
def evaluating(parts: list[nn.Module]) -> Iterator[None]:
    """Set modules to evaluation mode; those that were in training mode return to it afterwards."""
    training = [part for part in parts if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
