"""Names: one table between our weights and the ecosystem's, read in both directions.

A line of the table says that `theirs` is `ours`: a module (its weight and bias go along) or a single tensor. `*` stands
for the number of a block. Where they keep several of our matrices as one (GPT-2's query, key and value), the line names
them all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from glassformer.errors import ConfigurationError, InputError

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Line:
    """`theirs` holds what `ours` holds: stacked where there are several, transposed if they keep matrices so."""

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False
    row: bool = False  # they keep our vector (V) as a matrix (1, V)

    def there(self, tensors: Sequence[Tensor]) -> Tensor:
        """Our tensors as their one."""
        tensor = torch.cat(tuple(tensors)) if len(tensors) > 1 else tensors[0]
        if self.row:
            tensor = tensor[None]
        return tensor.T if self.transposed and tensor.dim() == 2 else tensor

    def here(self, tensor: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
        """Their tensor as ours, which have these numbers of rows."""
        if self.transposed and tensor.dim() == 2:
            tensor = tensor.T
        if self.row and tensor.dim() == 2 and len(tensor) == 1:
            tensor = tensor[0]
        if len(sizes) == 1:
            return [tensor]
        fits = tensor.dim() > 0 and sum(sizes) == len(tensor)
        return torch.split(tensor, list(sizes)) if fits else [tensor] * len(sizes)


def line(theirs: str, *ours: str, transposed: bool = False, row: bool = False) -> Line:
    """A line of the table."""
    return Line(theirs, ours, transposed, row)


@dataclass(frozen=True)
class Table:
    """All lines of a family, and the tensors of theirs that say nothing new.

    `copies` maps a name of theirs to the other that it must equal (tied weights, saved twice); `unused` are those that
    we compute ourselves (position tables, masks) or that this model has no use for. `base` begins the names of the
    stack in a model with a head; a stack that was saved alone lacks it.
    """

    lines: Sequence[Line]
    copies: Mapping[str, str] = field(default_factory=dict)
    unused: Sequence[str] = ()
    base: str = ""

    def to_ours(self, theirs: Tensors, wanted: Tensors, where: str) -> Tensors:
        """Their tensors under our names, each of the shape that `wanted` has; all that does not fit is listed."""
        found: Tensors = {}
        surplus, wrong = [], []
        today = {name: self._today(name) for name in theirs}
        theirs = {name if new in theirs else new: theirs[name] for name, new in today.items()}
        for name, tensor in theirs.items():
            if any(_match(pattern, name) for pattern in self.unused):
                continue
            if name in self.copies:
                other = theirs.get(self.copies[name])
                if other is not None and not torch.equal(other, tensor):
                    wrong.append(f"{name} differs from {self.copies[name]}, with which it is tied")
                if other is not None:
                    continue
            names, held = self._ours(self.copies.get(name, name), wanted)
            if held is None:
                surplus.append(name)
                continue
            parts = held.here(tensor, [len(wanted[own]) for own in names])
            for own, part in zip(names, parts, strict=True):
                if part.shape != wanted[own].shape:
                    shapes = " and ".join(str(tuple(shape)) for shape in (tensor.shape, wanted[own].shape))
                    wrong.append(f"{name} (for {own}) has the wrong shape: {shapes}")
                found[own] = part
        missing = dict.fromkeys(self.theirs(own) or own for own in wanted if own not in found)
        problems = [
            *([f"missing: {', '.join(missing)}"] if missing else []),
            *([f"surplus: {', '.join(surplus)}"] if surplus else []),
            *wrong,
        ]
        if problems:
            raise InputError(f"{where} does not hold the weights of this model; " + "; ".join(problems))
        return found

    def to_theirs(self, ours: Tensors) -> Tensors:
        """Our tensors under their names."""
        result: Tensors = {}
        for name in ours:
            held, block, suffix = self._held(name)
            theirs = _fill(held.theirs, block) + suffix
            if theirs not in result:
                result[theirs] = held.there([ours[_fill(own, block) + suffix] for own in held.ours]).contiguous()
        return result

    def theirs(self, own: str) -> str | None:
        """Their name of one of our tensors."""
        try:
            held, block, suffix = self._held(own)
        except ConfigurationError:
            return None
        return _fill(held.theirs, block) + suffix

    def module(self, own: str) -> tuple[str, list[str]]:
        """Their name of a linear part of ours, and our names of all that they keep as one with it."""
        held, block, suffix = self._held(f"{own}.weight")
        theirs, *ours = ((_fill(name, block) + suffix).removesuffix(".weight") for name in (held.theirs, *held.ours))
        return theirs, ours

    def in_module(self, own: str) -> bool:
        """Whether one of our tensors is the weight or the bias of a module of theirs, and not a tensor by itself."""
        try:
            return bool(self._held(own)[2])
        except ConfigurationError:
            return False

    def _today(self, name: str) -> str:
        """How a tensor is called now: norms once had a gamma and a beta, and the stack is told from its head."""
        name = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
        known = [each.theirs for each in self.lines] + [*self.copies, *self.unused]
        spellings = (name, self.base + name, name.removeprefix(self.base))
        return next((each for each in spellings if any(_match(pattern, each) for pattern in known)), name)

    def _ours(self, name: str, wanted: Tensors) -> tuple[list[str], Line | None]:
        """Our names of one of their tensors, and the line that says so."""
        for each in self.lines:
            if (match := _match(each.theirs, name)) is not None:
                names = [_fill(own, match[0]) + match[1] for own in each.ours]
                if all(own in wanted for own in names):
                    return names, each
        return [], None

    def _held(self, own: str) -> tuple[Line, str, str]:
        """The line of one of our tensors, its block, and whether it is a weight or a bias."""
        for each in self.lines:
            for pattern in each.ours:
                if (match := _match(pattern, own)) is not None:
                    return each, *match
        raise ConfigurationError(f"{own} has no name in that format: this model cannot be written in it")


def _match(pattern: str, name: str) -> tuple[str, str] | None:
    """The block number and the suffix (".weight", ".bias" or nothing) of a name that fits a pattern."""
    regex = re.escape(pattern).replace(r"\*", r"(?P<block>\d+)", 1)
    match = re.fullmatch(rf"{regex}(?P<suffix>\.weight|\.bias)?", name)
    return None if match is None else (match.groupdict().get("block") or "", match["suffix"] or "")


def _fill(pattern: str, block: str) -> str:
    return pattern.replace("*", block, 1)
