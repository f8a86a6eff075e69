"""The encoder-decoder: one stack reads the source, the other writes the target, looking at the source all along.

B batch, S source length, T target length, D model width, V vocabulary, k beams
"""

from __future__ import annotations

from torch import Tensor, nn

from glassformer.parts.blocks import Decoder, Encoder
from glassformer.parts.cache import DecoderState
from glassformer.parts.checks import check_keep
from glassformer.parts.masks import Mask, padding
from glassformer.parts.recurrent_stacks import RecurrentDecoder, RecurrentEncoder


class EncoderDecoder(nn.Module):
    """An encoder, a decoder that attends to it, and a head that scores the next token."""

    def __init__(
        self, encoder: Encoder | RecurrentEncoder, decoder: Decoder | RecurrentDecoder, head: nn.Module
    ) -> None:
        super().__init__()
        self.encoder: Encoder = encoder  # type: ignore[assignment]  # or what else reads
        self.decoder: Decoder = decoder  # type: ignore[assignment]  # and what else writes what the first has read
        self.head = head

    def forward(
        self, source: Tensor, target: Tensor, source_mask: Tensor | None = None, target_mask: Tensor | None = None
    ) -> Tensor:
        """Logits (B, T, V) of the token after each of `target`, which is what the decoder reads, shifted right.

        `source_mask` (B, S) is True where a source token is real; padding comes last, since positions count from the
        first column. The target needs none, as nobody looks ahead to its padding: only batch norm wants `target_mask`.
        """
        return self.head(self.hidden(source, target, source_mask, target_mask))  # type: ignore[no-any-return]

    def hidden(
        self, source: Tensor, target: Tensor, source_mask: Tensor | None = None, target_mask: Tensor | None = None
    ) -> Tensor:
        """What the head scores: the decoder's vectors (B, T, D)."""
        self.decoder.embedding.check(target, "the target")
        if target_mask is not None:
            check_keep(target_mask, target, "target_mask")
        memory, mask = self.encode(source, source_mask)
        return self.decoder(target, memory, mask, None if target_mask is None else padding(target_mask))  # type: ignore[no-any-return]

    def encode(
        self, source: Tensor, source_mask: Tensor | None = None, check: bool = False
    ) -> tuple[Tensor, Mask | None]:
        """The source (B, S) in context, (B, S, D), and the mask with which to attend to it.

        `check` looks at the values of both wherever they are, also on an accelerator, which has to stop for it.
        """
        self.encoder.embedding.check(source, "the source", anywhere=check)
        if source_mask is not None:
            check_keep(source_mask, source, anywhere=check)
        mask = None if source_mask is None else padding(source_mask)
        return self.encoder(source, mask), mask

    def start(self, source: Tensor, source_mask: Tensor | None = None) -> DecoderState:
        """Read the source (B, S), and be ready to write."""
        return self.decoder.start(*self.encode(source, source_mask, check=True))

    def step(self, state: DecoderState, tokens: Tensor) -> tuple[Tensor, DecoderState]:
        """Read one more token for each beam, (B, k); logits (B, k, V) of the one after it."""
        x, state = self.decoder.step(state, tokens)
        return self.head(x), state
