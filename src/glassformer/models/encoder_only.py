"""The encoder alone: it reads a text both ways, or an image, and a head says what it makes of it.

B batch, T length, D model width, V vocabulary, C classes
"""

from __future__ import annotations

from torch import Tensor, nn

from glassformer.parts.blocks import Encoder
from glassformer.parts.checks import check_keep
from glassformer.parts.masks import padding
from glassformer.parts.recurrent_stacks import RecurrentEncoder


class EncoderOnly(nn.Module):
    """An encoder, and a head on top of its vectors; without a head the vectors themselves are the answer.

    A `pooler` goes along for those who want one vector of them: `model.pooler(model(tokens))`.
    """

    def __init__(
        self, encoder: Encoder | RecurrentEncoder, head: nn.Module | None = None, pooler: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.encoder: Encoder = encoder  # type: ignore[assignment]  # or what else reads
        self.head, self.pooler = nn.Identity() if head is None else head, pooler

    def forward(self, tokens: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """What the head makes of tokens (B, T): classes (B, C), scores of words (B, T, V), or vectors (B, T, D).

        `mask` (B, T) is True where a token is real, `segments` (B, T) says which sentence it is from.
        """
        return self.head(self.hidden(tokens, mask, segments))  # type: ignore[no-any-return]

    def hidden(self, tokens: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """What the head reads: vectors in context (B, T, D)."""
        self.encoder.embedding.check(tokens)
        if mask is not None:
            check_keep(mask, tokens, "mask")
        details = {} if segments is None else {"segments": segments}
        return self.encoder(tokens, None if mask is None else padding(mask), **details)  # type: ignore[no-any-return]
