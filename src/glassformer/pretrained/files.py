"""Files: checkpoints in the layout of Hugging Face, from a folder or from the hub.

config.json                         what the model is
model.safetensors                   its weights, or
model.safetensors.index.json        which of several files holds which
"""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from glassformer.errors import InputError
from glassformer.pretrained.names import Tensors
from glassformer.writing import replacing

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
PACKAGE = "package:"  # before the name of an installed package that carries a checkpoint
HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")  # whose it is, what it is called
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.ckpt")
WANTED = ["*.json", "*.safetensors", "*.txt", "*.model"]


def find(source: str | Path, place: str = "") -> Path:
    """The folder of a checkpoint: on this machine, in an installed package, or fetched from the hub and kept.

    `place` begins a complaint: where the source was named.
    """
    folder, name = Path(source), str(source)
    if folder.is_dir():
        return folder
    if name.startswith(PACKAGE):
        return _packaged(name.removeprefix(PACKAGE), place)
    if folder.exists():
        raise InputError(f"{place}{source} is a file: name the folder that it is in")
    if not HUB_NAME.fullmatch(name):
        hint = "; a name on the hub is OWNER/NAME" if folder.name == name else ""
        raise InputError(f"{place}{source}: there is no such folder{hint}")
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    except ImportError:
        raise InputError(
            f"{place}{source} is no folder here; to fetch it from the hub, install: pip install 'glassformer[interop]'"
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=WANTED))
    except HFValidationError:
        raise InputError(f"{place}{source}: there is no such folder, and no hub name is spelled so") from None
    except LocalEntryNotFoundError:
        raise InputError(
            f"{place}{source} is no folder here, and the hub cannot be reached: is there a network?"
        ) from None
    except (HfHubHTTPError, OSError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"{place}{source} is no folder here, and cannot be fetched from the hub: {first}") from None


def _packaged(name: str, place: str) -> Path:
    """The folder of the checkpoint in an installed package, which is only looked at, not imported."""
    spec = find_spec(name) if name.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        hint = f"pip install {name.replace('_', '-')}"
        raise InputError(f"{place}{PACKAGE}{name}: there is no package {name!r} on this machine: {hint}")
    found = [path.parent for place in spec.submodule_search_locations for path in sorted(Path(place).rglob(CONFIG))]
    with_weights = [folder for folder in found if any((folder / weights).is_file() for weights in (WEIGHTS, INDEX))]
    if not with_weights:
        raise InputError(f"{place}{PACKAGE}{name}: the package holds no {CONFIG} with a {WEIGHTS} beside it")
    return with_weights[0]


def read_config(folder: Path) -> dict[str, Any]:
    """A checkpoint's config.json."""
    return read_object(folder / CONFIG, "it is no checkpoint in Hugging Face's layout")


def read_object(path: Path, without: str) -> dict[str, Any]:
    """An object in JSON; `without` says what it means that the file is not there."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path.parent} holds no {path.name}: {without}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    if not isinstance(config, dict):
        raise InputError(f"{path} must hold an object, not {type(config).__name__}")
    return config


def read_tensors(folder: Path) -> Tensors:
    """All weights of a checkpoint, from one file or several. Pickled ones are never opened."""
    tensors: Tensors = {}
    for path in _weight_files(folder):
        try:
            tensors |= load_file(path)
        except FileNotFoundError:
            raise InputError(f"{folder / INDEX} names {path.name}, which is not there") from None
        except (OSError, SafetensorError) as error:
            raise InputError(f"{path} is damaged: {error}") from None
    return tensors


def _weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        try:
            places = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
            return sorted({folder / Path(name).name for name in places.values()})
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise InputError(f"{folder / INDEX} is damaged: {error}") from None
    pickled = [name for name in PICKLED if (folder / name).exists()]
    if pickled:
        raise InputError(
            f"{folder} has its weights only as {pickled[0]}, a pickle, which may run any program when it is opened: "
            "convert it to safetensors first (with transformers: load it, then save_pretrained)"
        )
    raise InputError(f"{folder} holds no {WEIGHTS}: weights of another format are converted by transformers' own tools")


def write(folder: Path, config: dict[str, Any], tensors: Tensors, names: tuple[str, str] = (CONFIG, WEIGHTS)) -> None:
    """Write a checkpoint that `transformers` loads, or the like under other names."""
    held = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / names[1]) as new:
            save_file(held, new, metadata={"format": "pt"})
        with replacing(folder / names[0]) as new:
            new.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except (OSError, SafetensorError) as error:
        raise InputError(f"{folder} cannot be written: {error}") from None
