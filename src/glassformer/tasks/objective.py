"""The objective: a model and the loss of its task, as one module.

B batch, T target length, D model width
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.parts.short_attention import TRITON
from glassformer.tasks.losses import Chunk, smoothed
from glassformer.tasks.protocol import Batch, Loss


class Objective(nn.Module):
    """A model and its loss as one module, so that distribution and compilation wrap a single module.

    The loss uses `hidden` (which may be compiled), `head`, the label `smoothing`, `chunk`, a loss of some targets, and
    `consistency`, the weight of the divergence between two passes.
    """

    def __init__(self, model: nn.Module, loss: Loss, smoothing: float = 0.0, consistency: float = 0.0) -> None:
        super().__init__()
        self.model, self.smoothing, self.consistency, self.loss = model, smoothing, consistency, loss
        self.blocks = [block for part in model.modules() if isinstance(part, nn.ModuleList) for block in part]
        self.hidden: Callable[..., Tensor] = model.hidden  # type: ignore[assignment]
        self.chunk: Chunk = smoothed
        self._compiled: list[tuple[nn.Module, Callable[..., Any]]] = []

    @property
    def head(self) -> nn.Module:
        """The module that turns hidden vectors into logits."""
        return self.model.head  # type: ignore[return-value]

    def compile_parts(self, whole: bool = True, dynamic: bool = True) -> None:
        """Let PyTorch compile the model and the loss, for batches of any shape, or not `dynamic`: for those that come.

        Compiled as a whole, the model is fastest on a CPU. Blocks are compiled one by one on a GPU and where they are
        sharded: all have the same structure, so the code of the first is used for the others, and starting takes
        seconds instead of minutes. Only what learns calls compiled code; whoever validates or looks gets the model.
        """
        if not (TRITON and next(self.model.parameters()).is_cuda):  # which have a kernel for the loss
            self.chunk = torch.compile(smoothed, dynamic=True)
        if whole:
            self.hidden = torch.compile(self.hidden, dynamic=True)
        else:
            self._compiled = [(block, torch.compile(block._call_impl, dynamic=dynamic)) for block in self.blocks]

    def forward(self, batch: Batch) -> Tensor:
        """The summed loss of a batch."""
        for block, compiled in self._compiled:
            block._compiled_call_impl = compiled
        try:
            return self.loss(self, batch)
        finally:
            for block, _ in self._compiled:
                block._compiled_call_impl = None
