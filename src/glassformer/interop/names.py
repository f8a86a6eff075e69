"""Names of weights: one table between ours and those of `transformers`, read in both directions.

A line of the table says that `theirs` holds `ours`: a module (its weight and bias) or a single tensor. `*` stands for
the number of a block. Where they store several of our matrices as one (GPT-2's query, key and value), the line names
them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from glassformer.errors import ConfigurationError, InputError

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Line:
    """`theirs` holds what `ours` hold: concatenated where there are several, `transposed` if they store it so.

    With `row`, their matrix (1, V) is our vector (V).
    """

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False
    row: bool = False

    def to_theirs(self, tensors: Sequence[Tensor]) -> Tensor:
        """Our tensors as their one tensor."""
        tensor = torch.cat(tuple(tensors)) if len(tensors) > 1 else tensors[0]
        if self.row:
            tensor = tensor[None]
        return tensor.T if self.transposed and tensor.dim() == 2 else tensor

    def to_ours(self, tensor: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
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


def lines(theirs: str, ours: str, names: Mapping[str, str]) -> list[Line]:
    """Lines whose names start alike; `names` maps the rest of their names to the rest of ours."""
    return [line(theirs + their_end, ours + our_end) for their_end, our_end in names.items()]


@dataclass(frozen=True)
class Table:
    """All lines of a family, and their tensors that no line needs.

    `copies` maps a name of theirs to the name of the tensor that it must equal (tied weights, saved twice). `unused`
    are tensors that we compute (masks) or that this model does not have. `computed` are tables that we compute too, but
    that may hold something else: a function makes their rows, of which they may have any number. `zeros` are tensors of
    ours that are zero where theirs are missing. `prefix` starts the names of the base model in a model with a head; a
    base model that was saved alone lacks it.
    """

    lines: Sequence[Line]
    copies: Mapping[str, str] = field(default_factory=dict)
    unused: Sequence[str] = ()
    prefix: str = ""
    computed: Mapping[str, Callable[[int], Tensor]] = field(default_factory=dict)
    zeros: Collection[str] = ()

    def to_ours(self, theirs: Tensors, wanted: Tensors, place: str) -> Tensors:
        """Their tensors under our names, with the shapes of `wanted`; an error at `place` lists all that do not fit."""
        found: Tensors = {}
        surplus, wrong = [], []
        current = {name: self._current_name(name) for name in theirs}
        theirs = {name if new in theirs else new: theirs[name] for name, new in current.items()}
        for name, tensor in theirs.items():
            if any(_match(pattern, name) for pattern in self.unused):
                continue
            if not tensor.is_floating_point():
                wrong.append(f"{name} holds whole numbers ({tensor.dtype}): quantised weights are not supported")
                continue
            if name in self.computed:
                if not _equals(tensor, self.computed[name](len(tensor))):
                    wrong.append(f"{name} holds other numbers than the table that this family computes")
                continue
            if (original := theirs.get(self.copies.get(name, ""))) is not None:
                if not torch.equal(original, tensor):
                    wrong.append(f"{name} differs from {self.copies[name]}, with which it is tied")
                continue
            names, used = self._line_of_theirs(self.copies.get(name, name), wanted)
            if used is None:
                surplus.append(name)
                continue
            parts = used.to_ours(tensor, [len(wanted[own]) for own in names])
            for own, part in zip(names, parts, strict=True):
                if part.shape != wanted[own].shape:
                    wrong.append(wrong_shape(f"{name} (for {own})", part.shape, wanted[own].shape))
                found[own] = part
        found |= {own: torch.zeros_like(wanted[own]) for own in self.zeros if own in wanted and own not in found}
        missing = dict.fromkeys(self.theirs(own) or own for own in wanted if own not in found)
        if listed := listed_problems(missing, surplus, wrong):
            raise InputError(f"{place} does not hold the weights of this model; {listed}")
        return found

    def to_theirs(self, ours: Tensors) -> Tensors:
        """Our tensors under their names."""
        result: Tensors = {}
        for name in ours:
            if (found := self._find(name)) is None:
                raise ConfigurationError(f"{name} has no name in that format: this model cannot be written in it")
            used, module, parts, suffix = found
            if (theirs := module + suffix) not in result:
                result[theirs] = used.to_theirs([ours[part + suffix] for part in parts]).contiguous()
        return result

    def theirs(self, own: str) -> str | None:
        """Their name of one of our tensors; None: they have no such tensor."""
        found = self._find(own)
        return None if found is None else found[1] + found[3]

    def module(self, part: str) -> tuple[str, list[str]] | None:
        """Their name of one of our linear parts, and our names of all parts that this module of theirs holds."""
        if (found := self._find(f"{part}.weight")) is None:
            return None
        _, theirs, ours, _ = found
        return theirs.removesuffix(".weight"), [own.removesuffix(".weight") for own in ours]

    def owner(self, own: str) -> str | None:
        """The module of theirs whose weight or bias one of our tensors is; None: it is a tensor by itself."""
        found = self._find(own)
        return found[1] if found is not None and found[3] else None

    def _current_name(self, name: str) -> str:
        """The current name of a tensor: norms once had gamma and beta, and the prefix may be missing."""
        name = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
        known = [each.theirs for each in self.lines] + [*self.copies, *self.unused, *self.computed]
        spellings = (name, self.prefix + name, name.removeprefix(self.prefix))
        return next((each for each in spellings if any(_match(pattern, each) for pattern in known)), name)

    def _line_of_theirs(self, name: str, wanted: Tensors) -> tuple[list[str], Line | None]:
        """Our names of one of their tensors, and its line; None: no line whose tensors are all wanted."""
        for each in self.lines:
            if (match := _match(each.theirs, name)) is not None:
                names = [_fill(own, match[0]) + match[1] for own in each.ours]
                if all(own in wanted for own in names):
                    return names, each
        return [], None

    def _find(self, own: str) -> tuple[Line, str, list[str], str] | None:
        """The line of one of our tensors, their name and ours for its block, and the suffix of the tensor."""
        for each in self.lines:
            for pattern in each.ours:
                if (match := _match(pattern, own)) is not None:
                    block, suffix = match
                    return each, _fill(each.theirs, block), [_fill(one, block) for one in each.ours], suffix
        return None


def wrong_shape(name: str, found: Sequence[int], expected: Sequence[int]) -> str:
    """What an error says of a tensor whose shape does not fit."""
    return f"{name} has the wrong shape: {tuple(found)}, expected {tuple(expected)}"


def listed_problems(missing: Collection[str], surplus: Collection[str], wrong: Sequence[str]) -> str:
    """All that does not fit, in the words of an error; nothing where all fits."""
    lists = {"missing": missing, "surplus": surplus}
    return "; ".join([*(f"{kind}: {', '.join(names)}" for kind, names in lists.items() if names), *wrong])


def _equals(tensor: Tensor, expected: Tensor) -> bool:
    """Whether a tensor holds the expected numbers, as exactly as its type can."""
    if tensor.shape != expected.shape or not tensor.is_floating_point():
        return False
    return torch.allclose(tensor.float(), expected, rtol=0.0, atol=max(1e-5, torch.finfo(tensor.dtype).eps))


def _match(pattern: str, name: str) -> tuple[str, str] | None:
    """The block number and the suffix (".weight", ".bias" or nothing) of a name that fits a pattern."""
    regex = re.escape(pattern).replace(r"\*", r"(?P<block>\d+)", 1)
    match = re.fullmatch(rf"{regex}(?P<suffix>\.weight|\.bias)?", name)
    return None if match is None else (match.groupdict().get("block") or "", match["suffix"] or "")


def _fill(pattern: str, block: str) -> str:
    return pattern.replace("*", block, 1)
