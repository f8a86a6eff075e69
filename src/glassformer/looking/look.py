"""A look: the attention of every layer and head over one text, with the tokens on its axes.

L layers, H heads, T queries, S keys
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.looking.record import Trace


@dataclass(frozen=True)
class Look:
    """Which tokens looked at which: the attention of one kind (encoder, decoder, cross) in every layer and head."""

    kind: str
    rows: list[str]  # T tokens that look: written, or read
    columns: list[str]  # S tokens that are looked at
    weights: Tensor  # (L, H, T, S); no layers in a model without such attention
    output: str = ""  # what the run made of the text
    input: str = ""  # the text, where the task says it

    @property
    def mean(self) -> Tensor:
        """The mean over the heads of all layers, (T, S)."""
        return self.weights.mean(dim=(0, 1))

    @property
    def sharpest(self) -> tuple[Tensor, str]:
        """The attention (T, S) of the head that aligns best, and which head that is, in words.

        It is the head with the largest product of two means: of the largest weight in each row (each token looks at
        one), and of the largest weight in each column (each is looked at, so not all look at the same). The lower
        half of the layers is left out: heads there align the token written last, as the next is not known yet.
        """
        layers, heads = self.weights.shape[:2]
        scores = self.weights.amax(dim=3).mean(dim=2) * self.weights.amax(dim=2).mean(dim=2)  # (L, H)
        scores[: layers // 2] = -1
        layer, head = divmod(int(scores.argmax()), heads)
        others = f"{layers * heads}" if layers == 1 else f"{(layers - layers // 2) * heads} in the upper layers"
        which = f"layer {layer + 1}, head {head + 1}, the sharpest of {others}"
        return self.weights[layer, head], f"{self.kind} attention" + (f" of {which}" if layers * heads > 1 else "")


def look_of(trace: Trace, kind: str, rows: list[str], columns: list[str], output: str = "") -> Look:
    """The look that a recording of one text holds."""
    layers = [trace.attention(kind, layer)[0].cpu() for layer in range(trace.layers(kind))]
    weights = torch.stack(layers) if layers else torch.zeros(0, 1, len(rows), len(columns))
    return Look(kind, rows, columns, weights, output)
