"""Families: which of ours have a counterpart in the ecosystem, and what it is called there."""

from __future__ import annotations

from glassformer.models import Made
from glassformer.pretrained import bart, bert, gpt2, llama, t5, vit
from glassformer.pretrained.adapter import Adapter

ADAPTERS: list[Adapter] = [
    bart.BART,
    bart.MARIAN,
    bert.BERT,
    bert.ROBERTA,
    gpt2.ADAPTER,
    llama.ADAPTER,
    t5.ADAPTER,
    vit.CAPTIONER,
    vit.VIT,
]
ARCHITECTURES = {architecture: adapter for adapter in ADAPTERS for architecture in adapter.architectures}


def counterpart(made: Made) -> Adapter | None:
    """How a family is called elsewhere; None: it has no counterpart there."""
    return next((each for each in ADAPTERS if each.family.__name__ == made.family), None)
