"""Checkpoints in the layout of Hugging Face: find, load and save them.

config.json                         what the model is
model.safetensors                   its weights, or
model.safetensors.index.json        which of several files holds which weights
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from glassformer.errors import ConfigurationError, InputError, TrainingError
from glassformer.files import SETTINGS, regular
from glassformer.interop.converter import Config
from glassformer.interop.converters import ARCHITECTURES, CONVERTERS, EQUIVALENTS, converter_of, convertible
from glassformer.interop.names import Tensors
from glassformer.models.family import blueprint_of
from glassformer.parts import adapters, merged
from glassformer.writing import replacing, write_json

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
PACKAGE = "package:"  # starts the name of an installed package that holds a checkpoint
HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")  # OWNER/NAME
HEAD = re.compile(r"(?=For[A-Z]|LMHead|MTModel|Model|DoubleHeads)")  # where the name of a head begins
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.ckpt")
WIDTHS = ("hidden_size", "d_model", "n_embd")
SIZE = re.compile(r"(layers?$)|vocab|position|size$|dim$|inner$|heads?$|^d_|n_embd|labels$")
FREE = 1 << 26  # numbers that a model may have beyond its weights, such as tables of positions
WRITING = " cannot be written: "  # between a folder and the reason
DOWNLOADED = ["*.json", "*.safetensors", "*.txt", "*.model"]


def load(source: str | Path) -> nn.Module:
    """The model of a checkpoint, with the head that its config.json names, in float32 and in evaluation mode.

    `source` is a folder (config.json, model.safetensors or its shards), package:NAME, or a name on the hub.
    """
    folder = find(source)
    config = read_config(folder)
    architecture = _architecture(config, folder)
    tensors = {name: tensor for path in _weight_files(folder) for name, tensor in read_weights(path).items()}
    _check_sizes(config, tensors, folder / CONFIG)
    converter = ARCHITECTURES[architecture]
    try:
        model = converter.build(config, architecture, tensors.keys())
    except ConfigurationError as error:
        raise InputError(f"{folder / CONFIG}: {error}") from None
    weights = _weights(model)
    ours = converter.table(blueprint_of(model)).to_ours(tensors, weights, str(folder))
    with torch.no_grad():
        for name, tensor in weights.items():
            tensor.copy_(ours[name])
    return model.eval()


def save(model: nn.Module, folder: str | Path, notes: Mapping[str, Any] | None = None) -> None:
    """Write a model as a checkpoint that `transformers` loads to the same numbers; an adapter in use is merged.

    `notes` are further keys for its config.json.
    """
    model = convertible(merged(model) if adapters(model) else model)
    made = blueprint_of(model)
    converter = converter_of(made)
    if converter is None:
        known = ", ".join(sorted([*(each.family.__name__ for each in CONVERTERS), *EQUIVALENTS]))
        raise ConfigurationError(f'the family "{made.family}" has no counterpart in transformers: these have: {known}')
    write(Path(folder), converter.config(made, notes or {}), converter.table(made).to_theirs(_weights(model)))


def find(source: str | Path, place: str = "") -> Path:
    """The folder of a checkpoint: on this machine, in an installed package, or downloaded from the hub and cached.

    `place` starts every error: where the source was named.
    """
    folder, name = Path(source), str(source)
    if folder.is_dir():
        return folder
    if name.startswith(PACKAGE):
        return _in_package(name.removeprefix(PACKAGE), place)
    if folder.exists():
        raise InputError(f"{place}{source} is a file: name the folder that it is in")
    if not HUB_NAME.fullmatch(name):
        hint = "; a name on the hub is OWNER/NAME" if folder.name == name else ""
        raise InputError(f"{place}{source}: there is no such folder{hint}")
    absent = f"{place}{source} is no folder on this machine"
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    except ImportError:
        install = "pip install 'glassformer[interop]'"
        raise InputError(f"{absent}; to download it from the hub, install: {install}") from None
    try:
        return Path(snapshot_download(name, allow_patterns=DOWNLOADED))
    except HFValidationError:
        raise InputError(f"{absent}, and no valid name on the hub") from None
    except LocalEntryNotFoundError:
        raise InputError(f"{absent}, and the hub cannot be reached: is there a network?") from None
    except (HfHubHTTPError, OSError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise InputError(f"{absent}, and cannot be downloaded from the hub: {reason}") from None


def read_config(folder: Path) -> Config:
    """The config.json of a checkpoint."""
    return read_object(folder / CONFIG, "it is no checkpoint in Hugging Face's layout")


def checkpoint_labels(folder: Path) -> list[str]:
    """The labels of a classifier, by their numbers."""
    named = read_config(folder).get("id2label")
    try:
        numbers = {int(number): str(label) for number, label in (named or {}).items()}
    except (AttributeError, ValueError):
        raise InputError(f"{folder / CONFIG}: id2label does not name labels by numbers") from None
    labels = [numbers[number] for number in sorted(numbers)]
    if sorted(numbers) != list(range(len(numbers))) or len({*labels}) < len(labels) or not labels:
        raise InputError(f"{folder / CONFIG}: id2label does not give each number from 0 a label of its own")
    return labels


def read_object(path: Path, if_missing: str) -> Config:
    """The object in a JSON file; `if_missing` ends the error where there is no such file."""
    try:
        config = json.loads(regular(path, SETTINGS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path.parent} holds no {path.name}: {if_missing}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(config, dict):
        raise InputError(f"{path} holds no JSON object")
    return config


def read_weights(path: Path) -> Tensors:
    """The tensors in one file."""
    try:
        return load_file(regular(path))
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} is damaged: {error}") from None


def write(folder: Path, config: Config, tensors: Tensors, names: tuple[str, str] = (CONFIG, WEIGHTS)) -> None:
    """Write a config and weights, in files of these names."""
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / names[1]) as new:
            save_file(copies, new, metadata={"format": "pt"})
        write_json(folder / names[0], config)
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"{folder}{WRITING}{getattr(error, 'strerror', None) or error}") from None


def _weights(model: nn.Module) -> Tensors:
    """All parameters, once each; a part that cannot be saved (a quantised one) raises its error here."""
    tensors = model.state_dict()
    return {name: tensors[name] for name, _ in model.named_parameters()}


def _architecture(config: Config, folder: Path) -> str:
    named = config.get("architectures")
    if not isinstance(named, list) or not named:
        raise InputError(f"{folder / CONFIG} names no architecture: expected one such as GPT2LMHeadModel")
    architecture = str(named[0])
    if architecture not in ARCHITECTURES:
        kin = [each for each in ARCHITECTURES if HEAD.split(each)[0] == HEAD.split(architecture)[0]]
        hint = "if it has such a head, name that in architectures" if kin else "choose one of these"
        types = ", ".join(dict.fromkeys(each.model_type for each in CONVERTERS))
        can = f"its family can be read as {', '.join(kin)}" if kin else f"models of these types can be: {types}"
        raise InputError(f"{folder / CONFIG}: {architecture} cannot be read; {can}: {hint}")
    return architecture


def _in_package(name: str, place: str) -> Path:
    """The folder of the checkpoint in an installed package, which is searched but not imported."""
    spec = find_spec(name) if name.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        hint = f"pip install {name.replace('_', '-')}"
        raise InputError(f"{place}{PACKAGE}{name}: there is no package {name!r} on this machine: {hint}")
    configs = [path for root in spec.submodule_search_locations for path in sorted(Path(root).rglob(CONFIG))]
    for folder in (path.parent for path in configs):
        if (folder / WEIGHTS).is_file() or (folder / INDEX).is_file():
            return folder
    raise InputError(f"{place}{PACKAGE}{name}: the package holds no {CONFIG} with a {WEIGHTS} beside it")


def _weight_files(folder: Path) -> list[Path]:
    """The files with a checkpoint's weights: one or several. Pickled ones are never opened."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        try:
            names = read_object(folder / INDEX, "")["weight_map"].values()
            files = sorted({folder / Path(name).name for name in names})
        except (KeyError, AttributeError, TypeError):
            raise InputError(f"{folder / INDEX} has no weight_map from the names of weights to files") from None
        if absent := [path.name for path in files if not path.is_file()]:
            raise InputError(f"{folder / INDEX} names {absent[0]}, which is not there")
        return files
    pickled = [name for name in PICKLED if (folder / name).exists()]
    if pickled:
        raise InputError(
            f"{folder} has its weights only as {pickled[0]}, a pickle, which may run any program when it is opened: "
            "convert it to safetensors first (with transformers: load it, then save_pretrained)"
        )
    raise InputError(f"{folder} holds no {WEIGHTS}: convert other formats with transformers' own tools first")


def _check_sizes(config: Config, tensors: Tensors, path: Path) -> None:
    """Refuse a config that names sizes far beyond its weights, before memory is taken for them."""
    held = sum(tensor.numel() for tensor in tensors.values())
    width = next((config[key] for key in WIDTHS if isinstance(config.get(key), int)), 1)
    for key, value in config.items():
        if isinstance(value, dict):
            _check_sizes(value, tensors, path)
        elif isinstance(value, int) and (found := SIZE.search(key)):
            asked = value if found[1] else value * max(1, width)
            if asked > (len(tensors) if found[1] else max(held, FREE)):
                raise InputError(f"{path}: {key} is {value:,}, for which its weights are too few")
