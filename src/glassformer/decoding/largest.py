"""The largest of many numbers: a few tokens of a large vocabulary.

Tokens are put into groups of 32, one of each of 32 sections of the vocabulary. The c largest numbers are in the c
groups with the largest maxima, so only those groups are sorted. Sorting everything takes longer, on a CPU and on a GPU.

V vocabulary, N largest, M groups
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from glassformer.parts.guard import guarded, usable

GROUP = 32
LEAST = 4096  # numbers: with fewer, one sort is as fast
MOST = 1 << 18  # tokens of a vocabulary that one program of a GPU reads


def largest(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest of (…, V), the very largest first, and which they are: (…, N) each; as `topk`."""
    total = x.shape[-1]
    groups, rest = divmod(total, GROUP)
    if total < LEAST or 4 * count > groups:
        values, places = x.topk(min(count, total), dim=-1)
        return values, places
    maxima = x[..., : total - rest].reshape(*x.shape[:-1], GROUP, groups).amax(dim=-2)  # (…, M)
    chosen = maxima.topk(count, dim=-1, sorted=False).indices[..., None]
    places = (chosen + groups * torch.arange(GROUP, device=x.device)).flatten(-2)
    if rest:  # the last few form no group: all of them are looked at
        last = torch.arange(total - rest, total, device=x.device).expand(*places.shape[:-1], rest)
        places = torch.cat((places, last), dim=-1)
    values, ranks = x.gather(-1, places).topk(count, dim=-1)
    return values, places.gather(-1, ranks)


def suits_groups(logits: Tensor, count: int) -> bool:
    """Whether `in_groups` may take over: on a GPU, for few tokens of a large vocabulary."""
    vocabulary = logits.shape[-1]
    return logits.is_cuda and usable() and LEAST <= vocabulary <= MOST and 4 * count * GROUP <= vocabulary


def in_groups(logits: Tensor, count: int, unwanted: Collection[int]) -> tuple[Tensor, Tensor] | None:
    """Log-probabilities and tokens, (…, N) each, among which are the `count` likeliest that are not unwanted.

    A group whose largest is unwanted may take the place of another: so there is one more for each of these groups.
    None: this machine cannot compile the kernel that reads them.
    """

    def read() -> tuple[Tensor, Tensor]:
        from glassformer.decoding import scoring_kernels

        return scoring_kernels.read(logits)

    found = guarded(read)
    if found is None:
        return None
    maxima, levels = found  # (…, M), (…, 1)
    vocabulary, groups = logits.shape[-1], maxima.shape[-1]
    spoiled = len({token % groups for token in unwanted})
    chosen = maxima.topk(min(count + spoiled, groups), dim=-1, sorted=False).indices[..., None]
    tokens = (chosen + torch.arange(0, GROUP * groups, groups, device=logits.device)).flatten(-2)  # (…, N)
    if GROUP * groups == vocabulary:
        return (logits.gather(-1, tokens) - levels).float(), tokens  # levels have 32 bits, or 64 as the logits
    there = tokens < vocabulary
    tokens = tokens.where(there, 0)
    return (logits.gather(-1, tokens) - levels).float().masked_fill(~there, -torch.inf), tokens
