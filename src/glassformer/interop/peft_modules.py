"""Modules of `peft`: how the adapters of our linear parts correspond to those of modules of `transformers`.

Where one module of theirs is several parts of ours (GPT-2's query, key and value), their adapter is read as the same A
for each part, and a slice of B. Ours are written as all A one below the other, and a block-diagonal B: exactly the same
function.

D inputs, F outputs, R rank
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigurationError
from glassformer.interop.converters import converter_of
from glassformer.interop.names import Table, Tensors, line, listed_problems, wrong_shape
from glassformer.models import blueprint_of
from glassformer.parts import Embedding, LoRA
from glassformer.parts.linears import linears
from glassformer.parts.lora import LowRank, lora_parts

Modules = dict[str, list[str]]  # their name of a module, and our names of its parts


class LowRankWeights(NamedTuple):
    """The adapter of one linear part or module: A (R, D), B (F, R), and its settings."""

    down: Tensor
    up: Tensor
    lora: LoRA


def tables_of(model: nn.Module) -> list[Table]:
    """The tables between our names and those of their modules; a family that `transformers` lacks has our own names.

    A family whose modules were renamed has two: the current names first, then those before.
    """
    if hasattr(model, "blueprint"):
        made = blueprint_of(model)
        if (converter := converter_of(made)) is not None:
            return [table(made) for table in (converter.module_table, converter.table) if table is not None]
    owners = [name for name, part in model.named_modules() if any(True for _ in part.parameters(recurse=False))]
    return [Table([line(name, name) for name in dict.fromkeys([*owners, *linears(model)]) if name])]


def modules_of(model: nn.Module, table: Table) -> Modules:
    """All linear parts, by the names of their modules."""
    embeddings = {id(part.weight) for part in model.modules() if isinstance(part, Embedding)}
    heads = [name.removesuffix(".weight") for name in table.copies if "embed" not in name and name.endswith(".weight")]
    modules: Modules = {}
    for own, part in linears(model).items():
        if (found := table.module(own)) is not None:
            modules[found[0]] = found[1]
        elif heads and id(part.weight) in embeddings:  # a tied head, for which the table has no line
            modules[heads[0]] = [own]
    return modules


def adapter_of(model: nn.Module, name: str) -> dict[str, LowRank]:
    """The adapter of this name: A and B of each part that has one."""
    parts = {own: part.adapters[name] for own, part in lora_parts(model).items() if name in part.adapters}
    return cast(dict[str, LowRank], parts)


def base_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are no adapter's."""
    return {name: tensor for name, tensor in model.named_parameters() if ".adapters." not in f".{name}"}


# --- ours as theirs


def join_parts(model: nn.Module, parts: Mapping[str, LowRank], modules: Modules) -> dict[str, LowRankWeights]:
    """The adapters of our parts as adapters of their modules."""
    if unnamed := parts.keys() - {own for ours in modules.values() for own in ours}:
        raise ConfigurationError(f"{min(unnamed)} has no name in that format: its adapter cannot be written in it")
    rows = {own: len(part.weight) for own, part in linears(model).items()}
    adapted = {theirs: ours for theirs, ours in modules.items() if parts.keys() & set(ours)}
    return {theirs: _joined([(parts.get(own), rows[own]) for own in ours]) for theirs, ours in adapted.items()}


def _joined(parts: list[tuple[LowRank | None, int]]) -> LowRankWeights:
    """The adapters of parts with these numbers of rows, some without one, as the adapter of one module."""
    adapted = [part for part, _ in parts if part is not None]
    first, lora = adapted[0], adapted[0].lora
    if all(part.lora == lora and torch.equal(part.down, first.down) for part in adapted):  # read from one module
        ups = [first.up.new_zeros(rows, lora.rank) if part is None else part.up for part, rows in parts]
        return LowRankWeights(first.down, torch.cat(ups), lora)
    down = torch.cat([part.down for part in adapted])
    scaled = [(part and part.up * (part.lora.scale / lora.scale), rows) for part, rows in parts]
    blocks = [first.up.new_zeros(rows, 0) if up is None else up for up, rows in scaled]
    up = torch.block_diag(*blocks)  # type: ignore[no-untyped-call]
    return LowRankWeights(down, up, same_scale(lora, len(down), lora.rank_stabilised))


def same_scale(lora: LoRA, rank: int, stabilised: bool) -> LoRA:
    """The settings that give the same scale at another rank."""
    return LoRA(rank, lora.scale * (math.sqrt(rank) if stabilised else rank), lora.dropout, stabilised)


def trained_weights(model: nn.Module, table: Table, also: Collection[str] | None) -> Tensors:
    """The weights outside the adapter that were trained, by whole modules, under their names."""
    weights, adapted = base_weights(model), lora_parts(model)
    owners = set()
    for name, tensor in weights.items():
        if not (tensor.requires_grad if also is None else any(fnmatchcase(name, pattern) for pattern in also)):
            continue
        if name.rpartition(".")[0] in adapted:
            raise ConfigurationError(
                f"{name} is trained too, and has an adapter: merge the adapter, and save the whole model"
            )
        if (owner := table.owner(name)) is None:
            raise ConfigurationError(
                f"{name} is trained too, but is no module in that format: it cannot be saved with an adapter"
            )
        owners.add(owner)
    return table.to_theirs({name: weights[name] for name in weights if table.owner(name) in owners})


# --- theirs as ours


def split_modules(
    model: nn.Module, found: Mapping[str, Tensors], settings: Mapping[str, LoRA], modules: Modules
) -> tuple[dict[str, LowRankWeights], str]:
    """The adapters of our parts, and all that does not fit, in the words of an error.

    `found` holds the tensors "A", "B" and perhaps "base_layer" of each module, `settings` has every
    module that should be adapted.
    """
    parts = linears(model)
    wanted = [(theirs, each) for theirs in settings for each in "AB"]
    missing = [f"{theirs}.lora_{each}.weight" for theirs, each in wanted if each not in found.get(theirs, {})]
    surplus = [theirs for theirs in found if theirs not in modules]
    wrong: list[str] = []
    ours: dict[str, LowRankWeights] = {}
    for theirs, lora in () if missing else settings.items():
        tensors, owns = found[theirs], modules[theirs]
        if (base := tensors.get("base_layer")) is not None and not same_weight(base, parts[owns[0]].weight):
            wrong.append(f"{theirs} has other weights in these files than in this model")
        rows = [len(parts[own].weight) for own in owns]
        shapes = {"A": (lora.rank, parts[owns[0]].weight.shape[1]), "B": (sum(rows), lora.rank)}
        misfits = [each for each in "AB" if tensors[each].shape != shapes[each]]
        wrong += [wrong_shape(f"{theirs}.lora_{each}.weight", tensors[each].shape, shapes[each]) for each in misfits]
        if not misfits:
            slices = torch.split(tensors["B"], rows)
            ours |= {own: LowRankWeights(tensors["A"], up, lora) for own, up in zip(owns, slices, strict=True)}
    return ours, listed_problems(missing, surplus, wrong) or ("" if ours else "it holds no A and B")


def same_weight(tensor: Tensor, weight: Tensor) -> bool:
    """Whether tensors are the same, up to 16-bit rounding."""
    return tensor.shape == weight.shape and torch.allclose(tensor.to(weight), weight, rtol=0.01, atol=1e-6)
