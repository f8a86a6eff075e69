"""Rounded weights: matrices as whole numbers of 8 bits and a scale for each row, a quarter of the size on disk.

w ≈ scale · q,  q = round(w / scale) from -127 to 127,  scale = the largest |w| of the row / 127
"""

from __future__ import annotations

import torch
from torch import Tensor

SCALE = ".scale"  # the end of the name of a matrix's scales


def rounded(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same weights with all matrices rounded."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.ndim != 2 or not tensor.is_floating_point():
            found[name] = tensor
            continue
        scale = tensor.float().abs().amax(dim=1).div(127).clamp_min(torch.finfo(torch.float32).tiny)  # (rows)
        found[name] = (tensor.float() / scale[:, None]).round().to(torch.int8)
        found[name + SCALE] = scale
    return found


def restored(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights as they are used, in floating point, of those that may be rounded."""
    scales = {name.removesuffix(SCALE) for name in tensors if name.endswith(SCALE)}
    scales = {name for name in scales if name in tensors and tensors[name].dtype == torch.int8}
    return {
        name: tensor.float() * tensors[name + SCALE][:, None] if name in scales else tensor
        for name, tensor in tensors.items()
        if name.removesuffix(SCALE) not in scales or name in scales
    }
