"""The objective: a model and its task's loss, as one module.

B batch, T target length, D model width
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from glassformer.parts.norms import PaddingAware
from glassformer.tasks.losses import Chunk, smoothed
from glassformer.tasks.protocol import Batch, Loss
from glassformer.tasks.translation import translation_loss


class Objective(nn.Module):
    """A model and its loss as one module, so that distribution and compilation have one thing to wrap.

    The loss asks it for `hidden`, which may be compiled, `head`, and how to `smooth` and compute a `chunk` of words.
    """

    def __init__(self, model: nn.Module, smoothing: float = 0.0, loss: Loss = translation_loss) -> None:
        super().__init__()
        self.model, self.smoothing, self.loss = model, smoothing, loss
        self.blocks = [block for part in model.modules() if isinstance(part, nn.ModuleList) for block in part]
        self.hidden: Callable[..., Tensor] = model.hidden  # type: ignore[assignment]
        self.chunk: Chunk = smoothed
        self.aware = any(isinstance(part, PaddingAware) for part in model.modules())

    @property
    def head(self) -> nn.Module:
        """What reads the answer off the hidden vectors."""
        return self.model.head  # type: ignore[return-value]

    def compile_parts(self, whole: bool = True) -> None:
        """Let PyTorch compile what takes the time, for batches of any shape.

        As a whole the model runs fastest. Where its blocks are sharded, each is compiled by itself; as they are all
        alike, the first one's code serves the others.
        """
        self.chunk = torch.compile(smoothed, dynamic=True)
        if whole:
            self.hidden = torch.compile(self.hidden, dynamic=True)
        else:
            for block in self.blocks:
                block.compile(dynamic=True)

    def forward(self, batch: Batch) -> Tensor:
        """The summed loss of a batch."""
        return self.loss(self, batch)
