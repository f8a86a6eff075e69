"""What runs that write have in common: texts become tokens, tokens texts, and outputs have limits.

B texts, T length
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.decoding import Hypothesis, Limits
from glassformer.decoding import Written as Step
from glassformer.interop.special_tokens import special_keys
from glassformer.looking.look import Look
from glassformer.models.family import Blueprint, longest
from glassformer.parts import pack, pad, quantise
from glassformer.tasks.run import Run
from glassformer.text import SpecialTokens, Tokenizer, own_special_tokens


@dataclass(frozen=True)
class Output:
    """One output: its text, the score it was ranked by, and its tokens."""

    text: str
    score: float
    tokens: list[str]
    ids: list[int] = field(default_factory=list)
    log_probability: float = 0.0
    finished: bool = True
    cut: bool = False  # whether only the beginning of the input was read


class Writer(Run):
    """A run whose model writes: the model is laid out for decoding once, when it first writes."""

    _decoding: tuple[object, bool, nn.Module] | None = None  # the model, whether in 8 bits, and as it is laid out

    @property
    def target(self) -> Tokenizer:
        """The tokenizer of what it writes."""
        return self.assets.tokenizers[-1]

    @property
    def special(self) -> SpecialTokens:
        """The special tokens that the model expects."""
        return self.assets.special_tokens or own_special_tokens(self.tokenizer, self.target)

    @property
    def max_positions(self) -> int | None:
        """How many positions the model was made for, if it has such a limit."""
        blueprint = getattr(self.model, "blueprint", None)
        return longest(blueprint) if isinstance(blueprint, Blueprint) else None

    @property
    def limits(self) -> Limits:
        """The limits of outputs."""
        length = self.recipe.decode.max_length
        return self.limits_of(min(length, self.max_positions or length), self.special.start)

    def limits_of(self, length: int, start: int | None) -> Limits:
        """The limits of outputs of some length; rows of the embedding beyond the vocabulary are no tokens."""
        special, surplus = self.special, range(self.target.size, self.model.decoder.embedding.vocabulary)
        return Limits(start, special.end, max_length=length, suppress=[*special.suppressed, *surplus])

    @property
    def notes(self) -> dict[str, Any]:
        return special_keys(self.model, self.special)

    def decoding_model(self, int8: bool = False) -> nn.Module:
        """The model laid out for decoding; with `int8`, its larger matrices are rounded to 8 bits."""
        if self._decoding is None or self._decoding[0] is not self.model or self._decoding[1] != int8:
            self._decoding = (self.model, int8, quantise(self.model) if int8 else pack(self.model))
        return self._decoding[2]

    def padded(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Rows of tokens on the model's device, (B, T), and which of them are real, (B, T)."""
        tokens, keep = pad(rows, self.special.pad)
        return tokens.to(self.device), keep.to(self.device)

    def recorded_writing(self, source: list[int], written: list[int], output: str) -> Look:
        """What was written attends to in the source: the model is run over the result once more."""
        rows = [source], [[self.special.start, *written]]
        names = [*self.target.tokens(written), "end"], self.tokenizer.tokens(source)
        return self.recorded([torch.tensor(each, device=self.device) for each in rows], *names, output)


def output(found: Hypothesis, tokenizer: Tokenizer, prompt: Sequence[int] = ()) -> Output:
    """What was written, after the prompt that it continues."""
    return Output(
        tokenizer.decode([*prompt, *found.tokens]),
        found.score,
        tokenizer.tokens(found.tokens),
        found.tokens,
        found.log_probability,
        found.finished,
    )


def pieces(written: Iterable[Step], tokenizer: Tokenizer, prompt: Sequence[int] = ()) -> Iterator[str]:
    """The prompt and what is written after it as text, piece by piece."""
    tokens = list(prompt)
    shown = whole = ""
    for event in written:
        tokens.append(event.token)
        whole = tokenizer.decode(tokens)
        if whole != shown and not whole.endswith("\ufffd"):  # a letter of which some bytes are missing yet
            yield whole[len(shown) :]
            shown = whole
    if whole != shown:
        yield whole[len(shown) :]
