"""Files of LoRA adapters in the layout of Hugging Face's `peft`: an adapter alone, some hundred kilobytes.

adapter_config.json             its settings, and the modules that it adapts
adapter_model.safetensors       A and B of each module, and the weights of other trained modules, such as a new head
base.json                       our addition, which `peft` does not read: the first numbers of each adapted matrix,
                                since another base model of the same shape would accept the adapter, and give nonsense

Families that `transformers` has use its names, so that `peft` and we read each other's files; others use ours.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigurationError, InputError
from glassformer.files import SETTINGS, regular
from glassformer.interop import checkpoints
from glassformer.interop.converter import Config
from glassformer.interop.names import Table, Tensors
from glassformer.interop.peft_modules import (
    LowRankWeights,
    adapter_of,
    base_weights,
    join_parts,
    modules_of,
    same_scale,
    same_weight,
    split_modules,
    tables_of,
    trained_weights,
)
from glassformer.parts import LoRA, using
from glassformer.parts.linears import Model, linears
from glassformer.parts.lora import DEFAULT, attach
from glassformer.text.limits import check_pattern
from glassformer.writing import write_text

CONFIG, WEIGHTS, PICKLED = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
BASE, COUNT = "base.json", 8  # numbers of each matrix
PREFIX = "base_model.model."  # starts every name in their files
READ = """peft_type r lora_alpha lora_dropout use_rslora rank_pattern alpha_pattern target_modules exclude_modules
    layers_to_transform bias init_lora_weights"""
NO_EFFECT = """task_type auto_mapping peft_version base_model_name_or_path revision inference_mode modules_to_save
    fan_in_fan_out layers_pattern loftq_config eva_config corda_config lora_ga_config megatron_config megatron_core
    runtime_config qalora_group_size ensure_weight_tying"""  # what an adapter computes is in its tensors
KNOWN = frozenset((READ + " " + NO_EFFECT).split())
BEGUN_AS = (True, False, None, "gaussian", "orthogonal", "eva")  # initial weights that leave the base model as it is
REPEATS, MOST_REPEATS = re.compile(r"(?<!\\)[*+{]"), 5  # in a pattern of names: each makes it slower by a factor


def save_lora(
    model: nn.Module, folder: str | Path, name: str | None = None, also: Collection[str] | None = None
) -> None:
    """Write an adapter, the one in use unless named, as files that `peft` loads onto the same base model.

    Other trained weights are written too: the parameters whose names fit a pattern of `also`, by default those that
    require gradients.
    """
    name = using(model) if name is None else name
    if name is None:
        raise ConfigurationError("no adapter is in use: name the one to save")
    parts = adapter_of(model, name)
    if not parts:
        raise ConfigurationError(f'no adapter of this model is named "{name}"')
    table = tables_of(model)[0]
    modules = modules_of(model, table)
    joined = join_parts(model, parts, modules)
    others = trained_weights(model, table, also)
    tensors = {f"{theirs}.lora_A.weight": each.down for theirs, each in joined.items()}
    tensors |= {f"{theirs}.lora_B.weight": each.up for theirs, each in joined.items()} | others
    named = {PREFIX + key: tensors[key] for key in sorted(tensors)}
    checkpoints.write(Path(folder), _config(joined, modules, others, table), named, (CONFIG, WEIGHTS))
    numbers = {own: _first_numbers(model, own).tolist() for own in sorted(parts)}
    write_text(Path(folder) / BASE, json.dumps(numbers, indent=1) + "\n")


def load_lora(model: Model, source: str | Path, name: str = DEFAULT) -> Model:
    """The model with the adapter of a folder (or of the hub) in use, and the other weights that its files hold.

    Where something does not fit, the model is left unchanged.
    """
    folder = checkpoints.find(source)
    config, tensors = _read_config(folder), _read_tensors(folder)
    table = max(tables_of(model), key=lambda table: _known_names(model, table, tensors))
    modules, weights = modules_of(model, table), base_weights(model)
    theirs = {own: table.theirs(own) for own in weights}
    found, others = _sort_out(tensors, {*modules, *theirs.values()}, table.prefix)
    replaced = {each.rpartition(".")[0] for each in others}
    free = {module: ours for module, ours in modules.items() if module not in replaced}
    settings = {module: _settings(config, module) for module in free if module in found or _targets(config, module)}
    parts, problems = split_modules(model, found, settings, free)
    if problems:
        raise InputError(f"{folder} is no adapter for this model; {problems}")
    ours = table.to_ours(others, {own: weights[own] for own in weights if theirs[own] in others}, str(folder))
    _check_base(model, folder)
    model = attach(model, {own: each.lora for own, each in parts.items()}, name)
    with torch.no_grad():
        for own, part in adapter_of(model, name).items():
            part.down.copy_(parts[own].down)
            part.up.copy_(parts[own].up)
        for own, tensor in ours.items():
            weights[own].requires_grad_(True).copy_(tensor)
    return model


def _first_numbers(model: nn.Module, name: str) -> Tensor:
    part = linears(model).get(name)
    return torch.zeros(0) if part is None else part.weight.detach().flatten()[:COUNT].float().cpu()


def _check_base(model: nn.Module, folder: Path) -> None:
    """Refuse an adapter that was trained on another base model than this one; those of `peft` are not checked."""
    try:
        values: dict[str, list[float]] = json.loads(regular(folder / BASE, SETTINGS).read_text("utf-8"))
        expected = {name: torch.tensor(numbers) for name, numbers in values.items()}
    except FileNotFoundError:
        return
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{folder / BASE} is damaged: {error}") from None
    for name, numbers in expected.items():
        if not same_weight(_first_numbers(model, name), numbers):
            raise InputError(f"{folder} was trained on another base model: {name} has other weights in this model")


def _config(joined: Mapping[str, LowRankWeights], modules: Collection[str], others: Tensors, table: Table) -> Config:
    """The settings for `peft`: those of most modules, then by name those of modules that differ."""
    stabilised = all(each.lora.rank_stabilised for each in joined.values())
    loras = {theirs: same_scale(each.lora, each.lora.rank, stabilised) for theirs, each in joined.items()}
    ((common, _),) = Counter(loras.values()).most_common(1)
    return {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": common.rank,
        "lora_alpha": common.alpha,
        "lora_dropout": max(each.lora.dropout for each in joined.values()),
        "use_rslora": stabilised,
        "rank_pattern": {theirs: each.rank for theirs, each in loras.items() if each.rank != common.rank},
        "alpha_pattern": {theirs: each.alpha for theirs, each in loras.items() if each.alpha != common.alpha},
        "target_modules": _short_names(joined, modules, table.unused),
        "modules_to_save": sorted({name.rpartition(".")[0] for name in others}) or None,
        "fan_in_fan_out": any(each.transposed for each in table.lines),
        "bias": "none",
        "init_lora_weights": True,
    }


def _short_names(adapted: Collection[str], modules: Collection[str], unused: Sequence[str]) -> list[str]:
    """The last words of the names, where they name no other module; otherwise the names."""
    words = {name.rpartition(".")[2] for name in adapted}
    others = [*(set(modules) - set(adapted)), *unused]
    return sorted(adapted if words & {name.rpartition(".")[2] for name in others} else words)


def _read_config(folder: Path) -> Config:
    """The config of a plain LoRA adapter."""
    path = folder / CONFIG
    config = checkpoints.read_object(path, "it is no adapter in peft's layout")
    kind = config.get("peft_type")
    if kind != "LORA":
        raise InputError(f"{path} describes an adapter of the kind {kind}: only LORA can be read")
    for key, value in config.items():
        if key not in KNOWN and value:
            hint = "delete the key if this adapter does not depend on it"
            raise InputError(f"{path} asks for {key}: only plain LoRA can be read; {hint}")
    if (begun := config.get("init_lora_weights")) not in BEGUN_AS:
        changed = (
            "changes the base model: with peft, convert it to plain LoRA (path_initial_model_for_weight_conversion)"
        )
        raise InputError(f"{path} says that init_lora_weights was {begun!r}, which {changed}")
    if config.get("bias", "none") != "none":
        raise InputError(f'{path} says that biases were trained ("bias": {config["bias"]!r}): only "none" can be read')
    try:
        for name in ("", *config.get("rank_pattern", {}), *config.get("alpha_pattern", {})):
            _check_pattern(name)
            _settings(config, name)
        if isinstance(targets := config.get("target_modules"), str):
            _check_pattern(targets)
        _targets(config, "")
    except (ConfigurationError, AttributeError, TypeError, ValueError, re.error) as error:
        raise InputError(f"{path} is damaged: {error}") from None
    return config


def _check_pattern(pattern: str) -> None:
    """Refuse a pattern of names, by a ValueError, that is none or may take very long."""
    re.compile(pattern)
    check_pattern(pattern)
    if len(REPEATS.findall(pattern)) > MOST_REPEATS:
        raise ValueError(f"its pattern {pattern[:80]!r} has more than {MOST_REPEATS} repetitions")


def _read_tensors(folder: Path) -> Tensors:
    if not (folder / WEIGHTS).exists():
        pickled = f"its {PICKLED} is a pickle, which may run any program when it is opened"
        reason = pickled if (folder / PICKLED).exists() else "it is no adapter"
        raise InputError(f"{folder} holds no {WEIGHTS}: {reason}")
    return checkpoints.read_weights(folder / WEIGHTS)


def _known_names(model: nn.Module, table: Table, tensors: Tensors) -> int:
    """How many tensors of an adapter have a name that a table knows."""
    modules = tuple(f"{theirs.removeprefix(table.prefix)}." for theirs in modules_of(model, table))
    return sum(key.removeprefix(PREFIX).removeprefix(table.prefix).startswith(modules) for key in tensors)


def _sort_out(tensors: Tensors, known: Collection[str | None], prefix: str) -> tuple[dict[str, Tensors], Tensors]:
    """The tensors A and B by module, and the other weights, under known names: with or without the prefix.

    Beside the adapter of a head, `peft` saves the head itself, as "base_layer".
    """
    adapted: dict[str, Tensors] = {}
    others: Tensors = {}

    def current(name: str) -> str:
        return next((each for each in (name, prefix + name, name.removeprefix(prefix)) if each in known), name)

    for key, tensor in tensors.items():
        name = key.removeprefix(PREFIX)
        match = re.fullmatch(r"(.+)\.(lora_A|lora_B|base_layer)\.weight", name)
        if match is None:
            others[current(name)] = tensor
        else:
            adapted.setdefault(current(match[1]), {})[match[2].removeprefix("lora_")] = tensor
    return adapted, others


def _settings(config: Config, module: str) -> LoRA:
    """Rank, alpha and the other settings for one of their modules."""

    def value(patterns: str, common: str) -> Any:
        listed = config.get(patterns) or {}
        return next((listed[each] for each in listed if re.fullmatch(rf"(.*\.)?({each})", module)), config[common])

    if "r" not in config or "lora_alpha" not in config:
        raise ConfigurationError("it names no r or no lora_alpha")
    rank, alpha = value("rank_pattern", "r"), float(value("alpha_pattern", "lora_alpha"))
    return LoRA(rank, alpha, float(config.get("lora_dropout") or 0.0), bool(config.get("use_rslora")))


def _targets(config: Config, module: str) -> bool:
    """Whether the config asks for an adapter of one of their modules; False where it does not name modules exactly."""
    targets = config.get("target_modules") or []
    if config.get("layers_to_transform") is not None or config.get("exclude_modules") or targets == "all-linear":
        return False
    if isinstance(targets, str):
        return re.fullmatch(targets, module) is not None
    return any(module == each or module.endswith(f".{each}") for each in targets)
