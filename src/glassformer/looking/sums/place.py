"""A place in a recorded model: what passed its points, and which parts stand around it.

D width, T tokens, S keys, K head width
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.looking.analyses.residual import branches, stream_before
from glassformer.looking.analyses.tables import labels, need
from glassformer.looking.points import find, points_of
from glassformer.looking.sums.steps import apply
from glassformer.looking.trace import Trace
from glassformer.parts.norms import PreNorm, ResidualBranch


@dataclass(frozen=True)
class Place:
    """One number at a point: of which token, head and feature (of scores and weights: key)."""

    model: Any
    trace: Trace
    point: str
    token: int
    at: int
    head: int = 0
    sentence: int = 0

    @property
    def local(self) -> str:
        """What passes there, without the name of the part."""
        return self.point.rpartition(".")[2]

    @property
    def path(self) -> str:
        """The name of the part."""
        return self.point.rpartition(".")[0]

    @property
    def stack(self) -> str:
        """The name of the stack."""
        return self.point.partition(".")[0]

    @property
    def part(self) -> Any:
        """The part that the point belongs to."""
        return points_of(self.model)[self.point].part

    def vector(self, point: str, token: int | None = None, head: int | None = None) -> Tensor:
        """The numbers that passed a point at one token, (D); where there are heads, those of one."""
        (x,) = need(self.trace, f"the working of {self.point}", point, keep="*")
        token = self.token if token is None else token
        axes = self.trace.kept.axes_of(find(point, self.trace.names))
        found = x[self.sentence]
        if "head" in axes:
            found = found[self.head if head is None else head]
        if not 0 <= token < len(found):
            raise InputError(f"there is no token {token} at {point}: there are {len(found)}")
        return found[token].double() if {"token", "key", "patch"} & axes.keys() else found.double()

    def table(self, point: str, head: int | None = None) -> Tensor:
        """The numbers that passed a point at all tokens, (T, D), in one head where there are heads."""
        (x,) = need(self.trace, f"the working of {self.point}", point, keep="*")
        found = x[self.sentence]
        has_heads = "head" in self.trace.kept.axes_of(find(point, self.trace.names))
        return (found[self.head if head is None else head] if has_heads else found).double()

    def names(self, point: str, axis: str) -> list[str]:
        """How the tokens or keys of a point are spelled."""
        return labels(self.trace, point, axis, self.sentence)

    @property
    def branch(self) -> ResidualBranch:
        """The residual branch that the part stands in: its part and its norm."""
        stack, layer, part, *_ = self.point.split(".")
        block = getattr(self.model, stack).blocks[int(layer)]
        found: ResidualBranch = next(branch for name, branch in branches(block) if name == part)
        return found

    def read(self, part: str, token: int | None = None) -> Tensor:
        """What a part of a block reads at a token, (D): the stream, after its norm where that comes first."""
        x = self.vector(stream_before(self.trace, f"{part}.output"), token)
        branch = self.branch
        return apply(branch.norm, x) if isinstance(branch, PreNorm) else x


def parts_in_order(part: nn.Module) -> list[nn.Module]:
    """A part, or those of a sequence, without those that change nothing."""
    found = list(part) if isinstance(part, nn.Sequential) else [part]
    return [each for each in found if not isinstance(each, nn.Identity)]
