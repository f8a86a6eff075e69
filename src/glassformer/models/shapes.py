"""The three shapes of a model: an encoder and a decoder, a decoder alone, an encoder alone; each with a head on top.

B batch, S source length, T target length, D model width, V vocabulary, C classes, k beams
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from glassformer.parts.blocks import Decoder, Encoder
from glassformer.parts.cache import DecodingState
from glassformer.parts.checks import check_keep
from glassformer.parts.masks import Mask, packed, padding
from glassformer.parts.observing import Axes, Observable, axes
from glassformer.parts.packing import Spans
from glassformer.parts.recurrent_stacks import RecurrentDecoder, RecurrentEncoder

AnyEncoder = Encoder | RecurrentEncoder
AnyDecoder = Decoder | RecurrentDecoder


class EncoderDecoder(Observable):
    """An encoder, a decoder that looks at what it reads all along, and a head that scores the next token."""

    def __init__(self, encoder: AnyEncoder, decoder: AnyDecoder, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder, self.head = encoder, decoder, head

    def forward(self, source: Tensor, target: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """Logits (B, T, V) of the token after each of `target`, which is what the decoder reads, shifted right.

        `source_mask` (B, S) is True where a source token is real; padding comes last, since positions count from the
        first column. The target needs none, as no token looks ahead to its padding.
        """
        return self.seen("logits", self.head(self.hidden(source, target, source_mask)))

    def points(self) -> dict[str, Axes]:
        """The scores of tokens."""
        return {"logits": axes(token=None, vocabulary=self.decoder.embedding.vocabulary)}

    def hidden(
        self, source: Tensor, target: Tensor, source_mask: Tensor | None = None, sentences: Spans | None = None
    ) -> Tensor:
        """What the head scores: the decoder's vectors (B, T, D).

        `sentences` say where each begins, where several are packed into a row of the source and one of the target:
        each is read and written as if it stood alone.
        """
        self.decoder.embedding.check(target, "the target")
        if sentences is None:
            return self.decoder(target, *self.encode(source, source_mask))  # type: ignore[no-any-return]
        read, written = sentences.keys, sentences.queries
        memory = self.encoder(source, packed(read, read), position=read.positions(source.shape[1]))
        return self.decoder(target, memory, packed(written, read), documents=written)  # type: ignore[no-any-return]

    def encode(self, source: Tensor, source_mask: Tensor | None = None, check: bool = False) -> tuple[Any, Mask | None]:
        """The source (B, S) as the decoder reads it, such as vectors (B, S, D), and the mask to attend to it with.

        `check` looks at the values of both wherever they are, also on an accelerator, which has to stop for it.
        """
        self.encoder.embedding.check(source, "the source", anywhere=check)
        mask = _padding(source_mask, source, "source_mask", anywhere=check)
        return self.encoder(source, mask), mask

    def check(self, source: Tensor, source_mask: Tensor | None = None) -> None:
        """Refuse a source that cannot be read; the values are looked at wherever they are."""
        self.encoder.embedding.check(source, "the source", anywhere=True)
        _padding(source_mask, source, "source_mask", anywhere=True)

    def start(self, source: Tensor, source_mask: Tensor | None = None) -> DecodingState:
        """Read the source (B, S), and be ready to write."""
        return self.decoder.start(*self.encode(source, source_mask, check=True))

    def step(self, state: Any, tokens: Tensor) -> tuple[Tensor, DecodingState]:
        """Read one more token for each beam, (B, k); logits (B, k, V) of the one after it."""
        x, state = self.decoder.step(state, tokens)
        return self.seen("logits", self.head(x)), state


class DecoderOnly(Observable):
    """A language model: a decoder without a source, and a head that scores the next token; or a model of series."""

    def __init__(self, decoder: AnyDecoder, head: nn.Module) -> None:
        super().__init__()
        self.decoder, self.head = decoder, head

    def forward(self, tokens: Tensor, mask: Tensor | None = None, documents: Tensor | None = None) -> Tensor:
        """Logits (B, T, V) of the token after each of `tokens` (B, T).

        `mask` (B, T) is True where a token is real; padding comes last, since positions count from the first column.
        `documents` (B, T) says which document each token is from, where several are packed into a row: each is read
        as if it stood alone.
        """
        return self.seen("logits", self.head(self.hidden(tokens, mask, documents)))

    def points(self) -> dict[str, Axes]:
        """The scores of tokens; of values, which have no vocabulary, whatever the head gives."""
        vocabulary = getattr(self.decoder.embedding, "vocabulary", None)
        scored = axes(token=None, label=None) if vocabulary is None else axes(token=None, vocabulary=vocabulary)
        return {"logits": scored}

    def hidden(self, tokens: Tensor, mask: Tensor | None = None, documents: Tensor | None = None) -> Tensor:
        """What the head scores: the decoder's vectors (B, T, D)."""
        self.decoder.embedding.check(tokens)
        return self.decoder(tokens, mask=_padding(mask, tokens), documents=documents)  # type: ignore[no-any-return]

    def start(self, prompt: Tensor, mask: Tensor | None = None) -> DecodingState:
        """Read a prompt (B, T), and be ready to write what follows its last real token."""
        self.decoder.embedding.check(prompt, "the prompt", anywhere=True)
        _padding(mask, prompt, anywhere=True)
        return self.decoder.read(prompt, mask)

    def step(self, state: Any, tokens: Tensor) -> tuple[Tensor, DecodingState]:
        """Read one more token for each beam, (B, k); logits (B, k, V) of the one after it."""
        x, state = self.decoder.step(state, tokens)
        return self.seen("logits", self.head(x)), state


class EncoderOnly(Observable):
    """An encoder, and a head on top of its vectors; without a head the vectors themselves are the answer.

    A `pooler` goes along for those who want one vector of them: `model.pooler(model(tokens))`.
    """

    def __init__(self, encoder: AnyEncoder, head: nn.Module | None = None, pooler: nn.Module | None = None) -> None:
        super().__init__()
        self.encoder, self.head, self.pooler = encoder, nn.Identity() if head is None else head, pooler

    def forward(self, tokens: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """What the head makes of tokens (B, T): classes (B, C), scores of words (B, T, V), or vectors (B, T, D).

        `mask` (B, T) is True where a token is real, `segments` (B, T) says which sentence it is from.
        """
        return self.seen("logits", self.head(self.hidden(tokens, mask, segments)))

    def points(self) -> dict[str, Axes]:
        """What the head gives, if there is one: for each token, or for the whole text without that axis."""
        return {} if isinstance(self.head, nn.Identity) else {"logits": axes(token=None, label=None)}

    def hidden(self, tokens: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """What the head reads: vectors in context (B, T, D)."""
        self.encoder.embedding.check(tokens)
        details = {} if segments is None else {"segments": segments}
        return self.encoder(tokens, _padding(mask, tokens), **details)  # type: ignore[no-any-return]


def _padding(keep: Tensor | None, tokens: Tensor, what: str = "mask", anywhere: bool = False) -> Mask | None:
    """The mask of padding, where there is any; `keep` (B, T) is True where a token is real."""
    if keep is None:
        return None
    check_keep(keep, tokens, what, anywhere)
    return padding(keep)
