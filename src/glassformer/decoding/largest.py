"""The largest of many numbers: a few tokens of a large vocabulary.

The vocabulary is cut into groups of 32. The c largest numbers are in the c groups with the largest maxima, so only
those groups are sorted. Sorting all groups takes four times as long, on a CPU and on a GPU.

V vocabulary, N largest, M groups
"""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 32
LEAST = 4096  # numbers: with fewer, one sort is as fast


def largest(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest of (…, V), the very largest first, and which they are: (…, N) each; as `topk`."""
    total = x.shape[-1]
    groups, rest = divmod(total, GROUP)
    if total < LEAST or 4 * count > groups:
        values, places = x.topk(min(count, total), dim=-1)
        return values, places
    maxima = x[..., : total - rest].unflatten(-1, (groups, GROUP)).amax(dim=-1)  # (…, M)
    chosen = maxima.topk(count, dim=-1, sorted=False).indices[..., None]
    places = (chosen * GROUP + torch.arange(GROUP, device=x.device)).flatten(-2)
    if rest:  # the last few form no group: all of them are looked at
        last = torch.arange(total - rest, total, device=x.device).expand(*places.shape[:-1], rest)
        places = torch.cat((places, last), dim=-1)
    values, ranks = x.gather(-1, places).topk(count, dim=-1)
    return values, places.gather(-1, ranks)
