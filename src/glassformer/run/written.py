"""What runs that write have in common: texts become tokens, tokens texts, and outputs have limits.

B texts, T length
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

from glassformer.data import normalise
from glassformer.decoding import Hypothesis, Limits, Written
from glassformer.errors import InputError
from glassformer.models import Made
from glassformer.parts import pad
from glassformer.recipe import Data
from glassformer.run.held_out import device_of
from glassformer.text import Habits, Tokenizer


@dataclass(frozen=True)
class Translation:
    """One output: its text, the score it was ranked by, and its tokens."""

    text: str
    score: float
    tokens: list[str]
    ids: list[int] = field(default_factory=list)
    log_probability: float = 0.0
    finished: bool = True
    cut: bool = False  # whether only the beginning of the text was read


def tokens_of(text: str, tokenizer: Tokenizer, data: Data) -> list[int]:
    """A text as tokens, all of it, normalised as in training."""
    try:
        text.encode()
    except (AttributeError, UnicodeEncodeError):
        raise InputError(f"{text!r} is no text") from None
    return tokenizer.encode(normalise(text, data))


def inputs(rows: Sequence[Sequence[int]], habits: Habits, model: nn.Module) -> tuple[Tensor, Tensor]:
    """Rows of tokens where the model is, (B, T), and which of them are real, (B, T)."""
    tokens, keep = pad(rows, habits.pad)
    return tokens.to(device_of(model)), keep.to(device_of(model))


def translation(found: Hypothesis, tokenizer: Tokenizer, prompt: Sequence[int] = ()) -> Translation:
    """What was written, after the prompt that it goes on with."""
    return Translation(
        tokenizer.decode([*prompt, *found.tokens]),
        found.score,
        tokenizer.tokens(found.tokens),
        found.tokens,
        found.log_probability,
        found.finished,
    )


def pieces(written: Iterable[Written], tokenizer: Tokenizer, prompt: Sequence[int] = ()) -> Iterator[str]:
    """The prompt and what is written after it as text, piece by piece."""
    tokens = list(prompt)
    shown = whole = ""
    for event in written:
        tokens.append(event.token)
        whole = tokenizer.decode(tokens)
        if whole != shown and not whole.endswith("\ufffd"):  # a letter of which only some bytes are there yet
            yield whole[len(shown) :]
            shown = whole
    if whole != shown:
        yield whole[len(shown) :]


def places(model: nn.Module) -> int | None:
    """How many positions a model was made for, where it has such a limit."""
    made = getattr(model, "made", None)
    return made.arguments.get("length") if isinstance(made, Made) else None


def limits(habits: Habits, tokenizer: Tokenizer, vocabulary: int, length: int, start: int | None) -> Limits:
    """What outputs of so many tokens at most may look like: rows that only fill the vocabulary's table are no words."""
    nameless = range(tokenizer.size, vocabulary)
    return Limits(start, habits.end, max_length=length, suppress=[*habits.never, *nameless])
