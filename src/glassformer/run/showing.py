"""Showing what a run looked at while it wrote."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from glassformer.looking import record
from glassformer.run.run import Run
from glassformer.run.written import Translation


@dataclass(frozen=True)
class Look:
    """One translation, and where it looked: the cross-attention of every layer and head, if it has any."""

    source: list[str]  # S tokens, read
    target: list[str]  # T tokens, written, with the end
    weights: Tensor  # (L, H, T, S); no layers where it never looks
    translation: Translation

    @property
    def mean(self) -> Tensor:
        """The mean over the heads of all layers, (T, S)."""
        return self.weights.mean(dim=(0, 1))


def look(run: Run, text: str, beam: int | None = None) -> Look:
    """Translate a text, then run the model over the result once more with its eyes open."""
    best = run.translate([text], beam=beam)[0]
    source = run.encode(text)
    with record(run.model) as trace, torch.inference_mode():
        tokens = torch.tensor([source], device=run.device)
        run.model(tokens, torch.tensor([[run.habits.start, *best.ids]], device=run.device))
    layers = [trace.attention("cross", layer)[0].cpu() for layer in range(trace.layers("cross"))]
    written = [*best.tokens, "end"]
    weights = torch.stack(layers) if layers else torch.zeros(0, 1, len(written), len(source))
    return Look(run.source.tokens(source), written, weights, best)
