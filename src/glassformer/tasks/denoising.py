"""Denoising, as BART learns first: a text is damaged, and the target is the whole text.

    text      Thank you for inviting me. The party was fine.
    source    The party <mask> fine. Thank you <mask> me.
    target    Thank you for inviting me. The party was fine.

Spans of any length become one mask each, so the model must find out how much is missing; sentences change places.

N spans, S sentences
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from glassformer.recipe.values import Fraction, Number, Switch
from glassformer.tasks.corruption import Corrupt, CorruptionTask, Denoiser, draw_spans
from glassformer.tasks.documents import defaults_with
from glassformer.tasks.run import Run
from glassformer.tasks.showing import one_line
from glassformer.text import MASKS, SpecialTokens, Tokenizer

ENDS = (".", "!", "?", "…", "。", "！", "？", "\n", "⏎")  # how a token ends that ends a sentence; ⏎ is a line's end


def infilled(tokens: Sequence[int], spans: Any, mask: int) -> list[int]:
    """A text in which each of some spans, (N, 2) as `draw_spans` gives them, is one mask."""
    found, at = list[int](), 0
    for kept, hidden in spans.tolist():
        found += [*tokens[at : at + kept], mask]
        at += kept + hidden
    return found + list(tokens[at:])


def permuted(tokens: Sequence[int], ends: set[int], rng: np.random.Generator) -> list[int]:
    """A text whose sentences stand in any order; a sentence ends with one of the tokens `ends`, or with the text."""
    sentences: list[list[int]] = [[]]
    for token in tokens:
        sentences[-1].append(token)
        if token in ends:
            sentences.append([])
    whole = [sentence for sentence in sentences if sentence]
    return [token for number in rng.permutation(len(whole)) for token in whole[number]]


class Restorer(Denoiser):
    """A trained model that writes a damaged text anew: `run.restore(["Thank you <mask> me."])`."""

    exports: ClassVar[dict[str, Any]] = {"splits_special": False, "mask": True}
    gap: ClassVar[str] = MASKS[0]

    @property
    def special(self) -> SpecialTokens:
        """The special tokens of what it writes: a mask is never written."""
        special = super().special
        return replace(special, suppressed=sorted({*special.suppressed, self.tokenizer.mask}))

    @property
    def names(self) -> dict[str, int]:
        return dict.fromkeys(reversed(MASKS), self.tokenizer.mask)

    def _filled(self, text: str, ids: list[int], written: list[int]) -> list[str]:
        """The whole text is written anew."""
        return ["", self.tokenizer.decode(written)]

    def next_commands(self, examples: Sequence[tuple[Any, ...]]) -> list[str]:
        text = next((line for line in map(one_line, self.gapped(examples)) if self.gap in line), self.gap)
        return [
            f"fill --run RUN {shlex.quote(text)}",
            "recipes summarise > my.toml",
            "train my.toml --set model.pretrained=RUN",
        ]


class DenoisingTask(CorruptionTask):
    """From a damaged text to the whole of it, as BART learns first."""

    kind: Literal["denoising"] = "denoising"  # type: ignore[assignment]
    mask_ratio: Annotated[Fraction, Field(gt=0)] = Field(0.3, description="fraction of the tokens that are hidden")
    mean_span: Annotated[Number, Field(ge=1)] = Field(3.0, description="tokens behind a mask, on average")
    permute: Switch = Field(True, description="sentences stand in any order in the source")

    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = defaults_with("bart")
    drawn: ClassVar[set[str]] = {"mask_ratio", "mean_span", "permute"}
    Run: ClassVar[type[Run]] = Restorer

    def add_special_tokens(self, tokenizer: Tokenizer) -> None:
        tokenizer.add_mask()

    def corruption(self, tokenizer: Tokenizer) -> Corrupt:
        """What makes source and target of a text: masks for spans, sentences in another order, and the end."""
        mask, closing = tokenizer.mask, tokenizer.framed("")
        ends = {number for number, name in enumerate(tokenizer.vocabulary) if name.endswith(ENDS)} - tokenizer.special

        def corrupt(tokens: Sequence[int], rng: np.random.Generator) -> tuple[list[int], list[int]]:
            moved = permuted(tokens, ends, rng) if self.permute else list(tokens)
            spans = draw_spans(len(moved), self.mask_ratio, self.mean_span, len(moved), rng)
            return [*infilled(moved, spans, mask), *closing], list(tokens)

        return corrupt
