"""The decoder alone: a language model, which reads what was written so far and scores what comes next.

B batch, T length, D model width, V vocabulary, k beams
"""

from __future__ import annotations

from torch import Tensor, nn

from glassformer.parts.blocks import Decoder
from glassformer.parts.cache import DecoderState
from glassformer.parts.checks import check_keep
from glassformer.parts.masks import padding
from glassformer.parts.recurrent_stacks import RecurrentDecoder


class DecoderOnly(nn.Module):
    """A decoder without a source, and a head that scores the next token."""

    def __init__(self, decoder: Decoder | RecurrentDecoder, head: nn.Module) -> None:
        super().__init__()
        self.decoder: Decoder = decoder  # type: ignore[assignment]  # or what else writes word by word
        self.head = head

    def forward(self, tokens: Tensor, mask: Tensor | None = None, documents: Tensor | None = None) -> Tensor:
        """Logits (B, T, V) of the token after each of `tokens` (B, T).

        `mask` (B, T) is True where a token is real; padding comes last, since positions count from the first column.
        `documents` (B, T) says which document each token is from, where several are packed into a row: each is read
        as if it stood alone.
        """
        return self.head(self.hidden(tokens, mask, documents))  # type: ignore[no-any-return]

    def hidden(self, tokens: Tensor, mask: Tensor | None = None, documents: Tensor | None = None) -> Tensor:
        """What the head scores: the decoder's vectors (B, T, D)."""
        self.decoder.embedding.check(tokens)
        if mask is not None:
            check_keep(mask, tokens, "mask")
        seen = None if mask is None else padding(mask)
        return self.decoder(tokens, mask=seen, documents=documents)  # type: ignore[no-any-return]

    def start(self, prompt: Tensor, mask: Tensor | None = None) -> DecoderState:
        """Read a prompt (B, T), and be ready to write what follows its last real token."""
        self.decoder.embedding.check(prompt, "the prompt", anywhere=True)
        if mask is not None:
            check_keep(mask, prompt, "mask", anywhere=True)
        return self.decoder.read(prompt, mask)

    def step(self, state: DecoderState, tokens: Tensor) -> tuple[Tensor, DecoderState]:
        """Read one more token for each beam, (B, k); logits (B, k, V) of the one after it."""
        x, state = self.decoder.step(state, tokens)
        return self.head(x), state
