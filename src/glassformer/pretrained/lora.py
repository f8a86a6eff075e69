"""LoRA files: an adapter alone, a few hundred kilobytes beside its base, in the layout of Hugging Face's `peft`.

adapter_config.json             its numbers, and which parts it stands beside
adapter_model.safetensors       A and B of each part, and the weights of what else has learned: a new head
base.json                       of ours: some numbers of the base, to know it by

Families with a counterpart go by the counterpart's names, so that `peft` and we read each other's files; others go by
ours. Where they keep several of our matrices as one (GPT-2's query, key and value), theirs is read as one A for all and
a slice of B for each; ours is written as all A one below the other and a B of blocks: the same function, exactly.

D inputs, F outputs, R rank
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from glassformer.errors import ConfigurationError, InputError
from glassformer.models import Made
from glassformer.parts import Embedding, LoRA, using
from glassformer.parts.linears import LinearPart, linears, matrix
from glassformer.parts.lora import DEFAULT, LowRank, attach, lora_parts
from glassformer.pretrained import files
from glassformer.pretrained.adapter import Config, made_of
from glassformer.pretrained.bases import check_base, write_base
from glassformer.pretrained.families import counterpart
from glassformer.pretrained.names import Table, Tensors, line

Model = TypeVar("Model", bound=nn.Module)
CONFIG, WEIGHTS, PICKLED = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
PREFIX = "base_model.model."  # before every name in their files
UNKNOWN = (  # what changes the function, and is not plain LoRA
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "layer_replication",
    "lora_bias",
    "monteclora_config",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
)


class Thin(NamedTuple):
    """An adapter of one part: A (R, D), B (F, R), and its numbers."""

    down: Tensor
    up: Tensor
    lora: LoRA


def save_lora(
    model: nn.Module, folder: str | Path, name: str | None = None, also: Collection[str] | None = None
) -> None:
    """Write an adapter, the one in use unless named, as files that `peft` loads onto the same base.

    What else has learned goes along: the parameters whose names fit a pattern of `also`, or those that learn now.
    """
    name = using(model) if name is None else name
    if name is None:
        raise ConfigurationError("no adapter is in use: name the one to save")
    parts = _adapter(model, name)
    if not parts:
        raise ConfigurationError(f'no adapter of this model is named "{name}"')
    table = _tables(model)[0]
    modules = _modules(model, table)
    if unnamed := parts.keys() - {own for ours in modules.values() for own in ours}:
        raise ConfigurationError(f"{min(unnamed)} has no name in that format: its adapter cannot be written in it")
    rows = {own: len(matrix(part)[0]) for own, part in linears(model).items()}
    thin = {
        theirs: _joined([parts.get(own) for own in ours], [rows[own] for own in ours])
        for theirs, ours in modules.items()
        if parts.keys() & set(ours)
    }
    others = _others(model, table, also)
    tensors = {f"{theirs}.lora_A.weight": each.down for theirs, each in thin.items()}
    tensors |= {f"{theirs}.lora_B.weight": each.up for theirs, each in thin.items()} | others
    config = _config(thin, modules, others, table)
    files.write(Path(folder), config, {PREFIX + key: tensors[key] for key in sorted(tensors)}, (CONFIG, WEIGHTS))
    write_base(model, parts, Path(folder))


def load_lora(model: Model, source: str | Path, name: str = DEFAULT) -> Model:
    """The model with the adapter of a folder (or of the hub), which is in use then, and what else the files hold.

    Where something does not fit, nothing is changed.
    """
    folder = files.find(source)
    config, tensors = _read_config(folder), _read_tensors(folder)
    table = _spelled(model, tensors)
    modules = _modules(model, table)
    weights = {each: tensor for each, tensor in model.named_parameters() if not _in_adapter(each)}
    named = {each: table.theirs(each) for each in weights}
    thin, others = _sorted_out(tensors, {*modules, *named.values()}, table.base)
    wholly = {each.rpartition(".")[0] for each in others}
    free = {theirs: own for theirs, own in modules.items() if theirs not in wholly}
    loras = _here(thin, config, free, model, folder)
    ours = table.to_ours(others, {own: weights[own] for own in weights if named[own] in others}, str(folder))
    check_base(model, folder)
    model = attach(model, {own: each.lora for own, each in loras.items()}, name)
    with torch.no_grad():
        for own, part in _adapter(model, name).items():
            part.down.copy_(loras[own].down)
            part.up.copy_(loras[own].up)
        for own, tensor in ours.items():
            weights[own].requires_grad_(True).copy_(tensor)
    return model


def _tables(model: nn.Module) -> list[Table]:
    """Between our names and those in the files: the family's, or our own for both.

    `peft` goes by the names of modules. Where these were others before, and still are in checkpoints, there are two.
    """
    if isinstance(getattr(model, "made", None), Made):
        made = made_of(model)
        if (family := counterpart(made)) is not None:
            return [table(made) for table in (family.alive, family.table) if table is not None]
    holders = [name for name, part in model.named_modules() if any(True for _ in part.parameters(recurse=False))]
    return [Table([line(name, name) for name in dict.fromkeys([*holders, *linears(model)]) if name])]


def _spelled(model: nn.Module, tensors: Tensors) -> Table:
    """The table by whose names an adapter goes: the one that knows most of them."""
    keys = [key.removeprefix(PREFIX) for key in tensors]

    def known(table: Table) -> int:
        modules = tuple(f"{theirs.removeprefix(table.base)}." for theirs in _modules(model, table))
        return sum(key.removeprefix(table.base).startswith(modules) for key in keys)

    return max(_tables(model), key=known)


def _modules(model: nn.Module, table: Table) -> dict[str, list[str]]:
    """The linear parts by their names there: ours, of which they may keep several as one."""
    tables = {id(part.weight) for part in model.modules() if isinstance(part, Embedding)}
    heads = [name.removesuffix(".weight") for name in table.copies if "embed" not in name and name.endswith(".weight")]
    modules: dict[str, list[str]] = {}
    for own, part in linears(model).items():
        if table.theirs(f"{own}.weight") is not None:
            theirs, ours = table.module(own)
            modules[theirs] = ours
        elif heads and id(matrix(part)[0]) in tables:  # tied, so that the table has no line for it
            modules[heads[0]] = [own]
    return modules


def _adapter(model: nn.Module, name: str) -> dict[str, LowRank]:
    """The adapter of this name: A and B of each part that it stands beside."""
    parts = {own: part.adapters[name] for own, part in lora_parts(model).items() if name in part.adapters}
    return cast(dict[str, LowRank], parts)


def _in_adapter(name: str) -> bool:
    return ".adapters." in f".{name}"


# --- ours as theirs


def _joined(parts: Sequence[LowRank | None], rows: Sequence[int]) -> Thin:
    """The adapters of parts that they keep as one, of so many rows each, as one."""
    held = [part for part in parts if part is not None]
    first, lora = held[0], held[0].lora
    if len(parts) == 1:
        return Thin(first.down, first.up, lora)
    if all(part.lora == lora and torch.equal(part.down, first.down) for part in held):  # as it was read
        ups = [
            first.up.new_zeros(size, lora.rank) if part is None else part.up
            for part, size in zip(parts, rows, strict=True)
        ]
        return Thin(first.down, torch.cat(ups), lora)
    down = torch.cat([part.down for part in held])
    blocks = [
        first.up.new_zeros(size, 0) if part is None else part.up * (part.lora.scale / lora.scale)
        for part, size in zip(parts, rows, strict=True)
    ]
    up = torch.block_diag(*blocks)  # type: ignore[no-untyped-call]
    return Thin(down, up, _ranked(lora, len(down), lora.rank_stabilised))


def _ranked(lora: LoRA, rank: int, stabilised: bool) -> LoRA:
    """The numbers that give the same scale at another rank."""
    return LoRA(rank, lora.scale * (math.sqrt(rank) if stabilised else rank), lora.dropout, stabilised)


def _others(model: nn.Module, table: Table, also: Collection[str] | None) -> Tensors:
    """What else has learned, module by module, under their names."""
    weights = {name: tensor for name, tensor in model.named_parameters() if not _in_adapter(name)}
    modules, adapted = set(), lora_parts(model)
    for name, tensor in weights.items():
        if not (tensor.requires_grad if also is None else any(fnmatchcase(name, pattern) for pattern in also)):
            continue
        if name.rpartition(".")[0] in adapted:
            raise ConfigurationError(f"{name} learns too, beside its adapter: merge them, and save the whole model")
        if not table.in_module(name):
            raise ConfigurationError(f"{name} learns too, but is no module in that format: it cannot go along")
        modules.add(_module(table, name))
    return table.to_theirs({name: weights[name] for name in weights if _module(table, name) in modules})


def _module(table: Table, name: str) -> str:
    return (table.theirs(name) or "").rpartition(".")[0]


def _config(thin: dict[str, Thin], modules: Collection[str], others: Tensors, table: Table) -> Config:
    """What `peft` wants to know; numbers of single parts that differ from most are listed by name."""
    stabilised = all(each.lora.rank_stabilised for each in thin.values())
    loras = {theirs: _ranked(each.lora, each.lora.rank, stabilised) for theirs, each in thin.items()}
    ((usual, _),) = Counter(loras.values()).most_common(1)
    return {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": usual.rank,
        "lora_alpha": usual.alpha,
        "lora_dropout": max(each.lora.dropout for each in thin.values()),
        "use_rslora": stabilised,
        "rank_pattern": {theirs: each.rank for theirs, each in loras.items() if each.rank != usual.rank},
        "alpha_pattern": {theirs: each.alpha for theirs, each in loras.items() if each.alpha != usual.alpha},
        "target_modules": _targets(thin.keys(), modules, table.unused),
        "modules_to_save": sorted({name.rpartition(".")[0] for name in others}) or None,
        "fan_in_fan_out": any(each.transposed for each in table.lines),
        "bias": "none",
        "init_lora_weights": True,
    }


def _targets(chosen: Collection[str], modules: Collection[str], unused: Sequence[str]) -> list[str]:
    """The ends of the names, where these mean no other module; else the names."""
    ends = {name.rpartition(".")[2] for name in chosen}
    others = [*(set(modules) - set(chosen)), *unused]
    return sorted(chosen if ends & {name.rpartition(".")[2] for name in others} else ends)


# --- theirs as ours


def _read_config(folder: Path) -> Config:
    """The config of a plain LoRA adapter."""
    path = folder / CONFIG
    config = files.read_object(path, "it is no adapter in peft's layout")
    kind = config.get("peft_type")
    if kind != "LORA":
        raise InputError(f"{path} describes an adapter of the kind {kind}: only LORA can be read")
    for key in UNKNOWN:
        if config.get(key):
            raise InputError(f"{path} asks for {key}: only plain LoRA can be read")
    if config.get("bias", "none") != "none":
        raise InputError(f'{path} says that biases have learned ("bias": {config["bias"]!r}): only "none" can be read')
    try:
        for name in ("", *config.get("rank_pattern", {}), *config.get("alpha_pattern", {})):
            _numbers(config, name)
            re.compile(name)
        _targeted(config, "")
    except (ConfigurationError, AttributeError, TypeError, ValueError, re.error) as error:
        raise InputError(f"{path} is damaged: {error}") from None
    return config


def _read_tensors(folder: Path) -> Tensors:
    path = folder / WEIGHTS
    try:
        return load_file(path)
    except FileNotFoundError:
        refused = f"its {PICKLED} is a pickle, which may run any program when it is opened"
        raise InputError(
            f"{folder} holds no {WEIGHTS}: {refused if (folder / PICKLED).exists() else 'it is no adapter'}"
        ) from None
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} is damaged: {error}") from None


def _sorted_out(
    tensors: Tensors, known: Collection[str | None], base: str
) -> tuple[dict[str, dict[str, Tensor]], Tensors]:
    """A and B by module, and the tensors of what else has learned, with or without the stack's prefix, as is known.

    Beside the adapter of a head they keep the head itself, under "base_layer".
    """
    thin: dict[str, dict[str, Tensor]] = {}
    others: Tensors = {}

    def today(name: str) -> str:
        return next((each for each in (name, base + name, name.removeprefix(base)) if each in known), name)

    for key, tensor in tensors.items():
        name = key.removeprefix(PREFIX)
        match = re.fullmatch(r"(.+)\.(lora_A|lora_B|base_layer)\.weight", name)
        if match is None:
            others[today(name)] = tensor
        else:
            thin.setdefault(today(match[1]), {})[match[2].removeprefix("lora_")] = tensor
    return thin, others


def _here(
    thin: dict[str, dict[str, Tensor]], config: Config, modules: dict[str, list[str]], model: nn.Module, folder: Path
) -> dict[str, Thin]:
    """The adapters of our parts; all that does not fit is listed by name."""
    parts = linears(model)
    shapes = {own: matrix(part)[0].shape for own, part in parts.items()}
    expected = [theirs for theirs in modules if theirs in thin or _targeted(config, theirs)]
    letters = [(theirs, each) for theirs in expected for each in "AB"]
    missing = [f"{theirs}.lora_{each}.weight" for theirs, each in letters if each not in thin.get(theirs, {})]
    surplus = [theirs for theirs in thin if theirs not in modules]
    wrong: list[str] = []
    found: dict[str, Thin] = {}
    for theirs in [] if missing else expected:
        if (base := thin[theirs].get("base_layer")) is not None and not _alike(base, parts[modules[theirs][0]]):
            wrong.append(f"{theirs} is another there than in this model")
        ours, lora = modules[theirs], _numbers(config, theirs)
        rows = [shapes[own][0] for own in ours]
        fits = {"A": (lora.rank, shapes[ours[0]][1]), "B": (sum(rows), lora.rank)}
        shaped = {each: tuple(thin[theirs][each].shape) for each in "AB"}
        wrong += [
            f"{theirs}.lora_{each}.weight has the wrong shape: {shaped[each]} and {fits[each]}"
            for each in "AB"
            if shaped[each] != fits[each]
        ]
        if shaped == fits:
            slices = torch.split(thin[theirs]["B"], rows)
            found |= {own: Thin(thin[theirs]["A"], up, lora) for own, up in zip(ours, slices, strict=True)}
    problems = [
        *([f"missing: {', '.join(missing)}"] if missing else []),
        *([f"surplus: {', '.join(surplus)}"] if surplus else []),
        *wrong,
    ]
    if problems or not found:
        raise InputError(f"{folder} is no adapter for this model; " + ("; ".join(problems) or "it holds no A and B"))
    return found


def _alike(tensor: Tensor, part: LinearPart) -> bool:
    """Whether a tensor is the weight of a part, up to the rounding of 16 bits."""
    weight = matrix(part)[0]
    return tensor.shape == weight.shape and torch.allclose(tensor.to(weight), weight, rtol=0.01, atol=1e-6)


def _numbers(config: Config, theirs: str) -> LoRA:
    """Rank, alpha and the rest for one of their modules."""

    def of(patterns: str, usual: str) -> Any:
        listed = config.get(patterns) or {}
        return next((listed[each] for each in listed if re.fullmatch(rf"(.*\.)?({each})", theirs)), config[usual])

    if "r" not in config or "lora_alpha" not in config:
        raise ConfigurationError("it says no r or no lora_alpha")
    rank, alpha = of("rank_pattern", "r"), float(of("alpha_pattern", "lora_alpha"))
    return LoRA(rank, alpha, float(config.get("lora_dropout") or 0.0), bool(config.get("use_rslora")))


def _targeted(config: Config, theirs: str) -> bool:
    """Whether the config asks for an adapter on one of their modules; False where it does not say exactly."""
    targets = config.get("target_modules") or []
    if config.get("layers_to_transform") is not None or config.get("exclude_modules") or targets == "all-linear":
        return False
    if isinstance(targets, str):
        return re.fullmatch(targets, theirs) is not None
    return any(theirs == each or theirs.endswith(f".{each}") for each in targets)
