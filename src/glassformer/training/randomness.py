"""Randomness: the state of the generators that draw dropout and samples, as text, so that a resumed run draws on."""

from __future__ import annotations

import torch
from torch import Tensor

from glassformer.training.distribution import Distribution


def seed(seed: int, distribution: Distribution) -> None:
    """Begin anew; every rank draws its own numbers."""
    torch.manual_seed(seed * 1_000_003 + distribution.rank)


def state(distribution: Distribution) -> list[str]:
    """The generators of every rank, in hexadecimal: the CPU's, then the device's where that is another."""
    own = [torch.get_rng_state()]
    if distribution.device.type != "cpu":
        own.append(torch.get_device_module(distribution.device).get_rng_state())
    return [bytes(everyone.tolist()).hex() for everyone in distribution.gather(torch.cat(own))]


def load(saved: list[str], seed_: int, distribution: Distribution) -> None:
    """Go on from `state`; a rank that had none, or another kind of device, begins anew."""
    size, kind = torch.get_rng_state().numel(), distribution.device.type
    both = _tensor(saved[distribution.rank]) if distribution.rank < len(saved) else torch.empty(0, dtype=torch.uint8)
    rest = both[size:]
    if len(both) < size or (kind == "cpu") != (len(rest) == 0):
        seed(seed_, distribution)
        return
    torch.set_rng_state(both[:size])
    if kind != "cpu":
        torch.get_device_module(distribution.device).set_rng_state(rest)


def _tensor(text: str) -> Tensor:
    return torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8)
