"""What the benchmarks have in common: the sizes, the tokens, and the same Transformer in `transformers`."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

PAD, END, START, FIRST = 1, 2, 3, 4  # FIRST: the first ordinary token


@dataclass(frozen=True)
class Size:
    """The numbers of a Transformer."""

    width: int
    hidden: int
    heads: int
    layers: int
    vocabulary: int


SIZES = {
    "tiny": Size(128, 512, 4, 2, 4000),
    "small": Size(256, 1024, 4, 3, 8000),
    "base": Size(512, 2048, 8, 6, 32000),
}


def marian(size: Size) -> Any:
    """MarianMTModel of `transformers`: sinusoidal, post-norm, everything tied."""
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=size.vocabulary,
        d_model=size.width,
        encoder_ffn_dim=size.hidden,
        decoder_ffn_dim=size.hidden,
        encoder_layers=size.layers,
        decoder_layers=size.layers,
        encoder_attention_heads=size.heads,
        decoder_attention_heads=size.heads,
        dropout=0.1,
        attention_dropout=0.0,
        activation_function="relu",
        pad_token_id=PAD,
        eos_token_id=END,
        bos_token_id=START,
        decoder_start_token_id=START,
        forced_eos_token_id=None,
        max_position_embeddings=512,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
    )
    config._attn_implementation = "sdpa"
    return MarianMTModel(config)


def processor() -> str:
    """The name of this machine's processor."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
