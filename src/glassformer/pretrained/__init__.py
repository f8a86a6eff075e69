"""Pretrained: checkpoints of the ecosystem in and out, to the same numbers.

model = gf.pretrained.load("path/to/folder")        # or the name of a model on the Hugging Face hub
gf.pretrained.save(model, "another/folder")         # `transformers` loads it
gf.pretrained.load_lora(model, "path/to/adapter")   # one of `peft`'s, or ours
gf.pretrained.save_lora(model, "another/adapter")   # `peft` loads it
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

import torch
from torch import nn

from glassformer.errors import ConfigurationError, InputError
from glassformer.parts import adapters, merged
from glassformer.pretrained import files
from glassformer.pretrained.adapter import made_of
from glassformer.pretrained.families import ADAPTERS, ARCHITECTURES, counterpart
from glassformer.pretrained.lora import load_lora, save_lora
from glassformer.pretrained.names import Tensors


def load(source: str | Path) -> nn.Module:
    """The model of a checkpoint in Hugging Face's layout, with the head that it names, in float32, ready for use.

    `source` is a folder (config.json, model.safetensors or its shards) or the name of a model on the hub.
    """
    folder = files.find(source)
    config = files.read_config(folder)
    architecture = _architecture(config, folder)
    tensors = files.read_tensors(folder)
    adapter = ARCHITECTURES[architecture]
    model = adapter.build(config, architecture, tensors.keys())
    ours = adapter.table(made_of(model)).to_ours(tensors, _weights(model), str(folder))
    with torch.no_grad():
        for name, tensor in _weights(model).items():
            tensor.copy_(ours[name])
    return model.eval()


def save(model: nn.Module, folder: str | Path) -> None:
    """Write a model as a checkpoint that `transformers` loads to the same numbers; an adapter in use is merged."""
    model = merged(model) if adapters(model) else model
    made = made_of(model)
    adapter = counterpart(made)
    if adapter is None:
        known = ", ".join(sorted(each.family.__name__ for each in ADAPTERS))
        raise ConfigurationError(f'the family "{made.family}" has no counterpart there: these have: {known}')
    files.write(Path(folder), adapter.config(made), adapter.table(made).to_theirs(_weights(model)))


def _weights(model: nn.Module) -> Tensors:
    """All that a checkpoint must hold, once each; a part that cannot be saved (a quantised one) says so here."""
    held = model.state_dict()
    return {name: held[name] for name, _ in model.named_parameters()}


def _architecture(config: dict[str, object], folder: Path) -> str:
    named = config.get("architectures")
    if not isinstance(named, list) or not named:
        raise InputError(f"{folder / files.CONFIG} names no architecture: which model it is cannot be told")
    architecture = str(named[0])
    if architecture not in ARCHITECTURES:
        near = get_close_matches(architecture, ARCHITECTURES, n=1)
        hint = f"; the nearest is {near[0]}" if near else ""
        raise InputError(f"{architecture} is not among the architectures that can be read{hint}")
    return architecture


__all__ = ["ARCHITECTURES", "load", "load_lora", "save", "save_lora"]
