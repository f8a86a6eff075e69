"""The families: functions that assemble parts into models. They know nothing of files, devices or training."""

from collections.abc import Callable

from torch import nn

from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.transformer import transformer, transformer_base, transformer_big, transformer_tiny

FAMILIES: dict[str, Callable[..., nn.Module]] = {"transformer": transformer}

__all__ = [
    "FAMILIES",
    "EncoderDecoder",
    "transformer",
    "transformer_base",
    "transformer_big",
    "transformer_tiny",
]
