"""Traces as files: one safetensors file, whose header holds the labels as JSON.

The header has the keys `glassformer` ("trace"), `version`, `trace`, which is the JSON, and `sha256`, the checksum of
the JSON and all tensors. A tensor of a point that was passed in several calls is called `NAME#CALL`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from glassformer.decoding.tree import BeamTree, Fate, Node
from glassformer.errors import InputError
from glassformer.looking.trace import Description, Stored, Trace
from glassformer.writing import replacing

KIND, VERSION, CHECKSUM = "trace", "1", "sha256"
UNKNOWN = "0" * 64  # stands for the checksum until it is known
BLOCK = 1 << 20  # bytes that are read at once


class Header(BaseModel):
    """The JSON of a trace's header."""

    model_config = ConfigDict(extra="forbid", strict=True)

    input: str
    output: str
    shows: str
    tokens: dict[str, list[list[str]]]
    words: dict[str, list[list[list[int]]]]
    axes: dict[str, dict[str, int | None]]
    heads: dict[str, list[int] | None]
    beams: list[list[tuple[int, int, int, int, float, float, float, Fate]]]


def save(trace: Trace, path: Path) -> Path:
    """Write a trace; an existing file is replaced at once."""
    names, kept, about = trace.names, trace.kept, trace.about
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {path.parent}")
    if not names:
        raise InputError("nothing was recorded, so there is no trace to save: run the model inside record()")
    tensors = {name if not call else f"{name}#{call}": x for name in names for call, x in enumerate(trace.calls(name))}
    header = Header(
        input=about.input,
        output=about.output,
        shows=about.shows,
        tokens={stack: [list(row) for row in texts] for stack, texts in about.tokens.items()},
        words={stack: [[list(word) for word in row] for row in rows] for stack, rows in about.words.items()},
        axes={name: kept.axes_of(name) for name in names},
        heads={name: kept.heads_of(name) for name in names},
        beams=[[tuple(asdict(node).values()) for node in tree.nodes] for tree in kept.trees()],
    )
    metadata = {"glassformer": KIND, "version": VERSION, KIND: header.model_dump_json(), CHECKSUM: UNKNOWN}
    try:
        with replacing(path) as new:
            save_file({name: x.contiguous() for name, x in tensors.items()}, new, metadata)
            _complete(new)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} cannot be written: {getattr(error, 'strerror', None) or _reason(error)}") from None
    return path


def _complete(path: Path) -> None:
    """Put the checksum in the header, and its keys in order, which are written in any: a trace is always the same file.

    Both leave the header as long as it was, so that the tensors stay where they are.
    """
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        text = file.read(length)
        table = json.loads(text)
        metadata = table["__metadata__"]
        table["__metadata__"] = dict(sorted(metadata.items()))
        ordered = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode().ljust(length)
        text = ordered if len(ordered) == length else text
        field = f'"{CHECKSUM}":"{{}}"'
        file.seek(8)
        checksum = _checksum(path, metadata[KIND])
        file.write(text.replace(field.format(UNKNOWN).encode(), field.format(checksum).encode(), 1))


def _checksum(path: Path, header: str) -> str:
    """The SHA-256 of the JSON of a header and of all that stands behind the header."""
    digest = hashlib.sha256(header.encode())
    with path.open("rb") as file:
        file.seek(8 + int.from_bytes(file.read(8), "little"))
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def load_trace(path: str | Path) -> Trace:
    """A trace from a file that `trace.save` wrote; it needs no model."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder: name the file of a trace")
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        with safe_open(path, framework="pt") as file:
            metadata, names = file.metadata() or {}, list(file.keys())
            if metadata.get("glassformer") != KIND:
                raise InputError(f"{path} is no trace: expected a file that trace.save() wrote")
            if metadata.get("version") != VERSION:
                raise InputError(
                    f"{path} is a trace of version {metadata.get('version')}: this Glassformer reads version {VERSION}"
                )
            header = Header.model_validate_json(metadata.get(KIND, ""))
            tensors = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, ValidationError, OSError) as error:
        if isinstance(error, SafetensorError) and not _begins_as_one(path):
            raise InputError(f"{path} is no trace: expected a file that trace.save() wrote") from None
        raise InputError(f"{path} is damaged: {_reason(error)}") from None
    kept = _stored(header, tensors, path)
    if metadata.get(CHECKSUM) not in (None, _checksum(path, metadata[KIND])):  # early traces have none
        raise InputError(f"{path} is damaged: its checksum is another")
    return Trace(kept, _description(header))


def _begins_as_one(path: Path) -> bool:
    """Whether a file begins as safetensors files do: eight bytes of a length, then JSON."""
    with path.open("rb") as file:
        return file.read(9)[8:] == b"{"


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"its header is wrong at {'.'.join(map(str, first['loc'])) or 'the beginning'}"
    return str(error).partition("\n")[0]


def _stored(header: Header, tensors: dict[str, Tensor], path: Path) -> Stored:
    """The tensors by point, in the order of the model, checked against the header."""
    found: dict[str, list[Tensor]] = {name: [] for name in header.axes}
    for name in sorted(tensors, key=_call):
        point = name.partition("#")[0]
        if point not in found or tensors[name].dim() != len(header.axes[point]):
            raise InputError(f"{path} is damaged: its header does not fit the tensor {name}")
        found[point].append(tensors[name])
    if missing := [name for name, calls in found.items() if not calls]:
        raise InputError(f"{path} is damaged: the tensor {missing[0]} is missing")
    trees = [BeamTree([Node(*node) for node in nodes]) for nodes in header.beams]
    return Stored(found, header.axes, header.heads, trees)


def _call(name: str) -> int:
    number = name.partition("#")[2]
    return int(number) if number.isdecimal() else 0


def _description(header: Header) -> Description:
    return Description(header.input, header.output, header.shows, header.tokens, header.words)
