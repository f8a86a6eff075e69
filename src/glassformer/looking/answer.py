"""An answer: what a page is sent to show. A header in JSON, and arrays of numbers by name, packed into one gzip.

    bytes 0 to 3   the length of the header, little-endian
    header         JSON; `arrays` says of each array its name, type ("u1", "u2", "f4", "i4") and shape
    arrays         after each other, little-endian

Pages in a file, widgets in notebooks and the Studio's server send the same bytes; web/src/unpack.ts reads them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
TYPES = ("u1", "u2", "f4", "i4")
LEVEL = 6  # of the compression: 9 takes three times as long for 2 % less


@dataclass(frozen=True)
class Answer:
    """What a page is sent: a header, which JSON can hold, and arrays by name."""

    header: dict[str, Any]
    arrays: Mapping[str, Array] = field(default_factory=dict)

    def packed(self) -> bytes:
        """The answer as bytes."""
        arrays = {name: _little(array) for name, array in self.arrays.items()}
        said = [{"name": name, "type": each.dtype.str[1:], "shape": each.shape} for name, each in arrays.items()]
        for each in said:
            if each["type"] not in TYPES:
                raise TypeError(f"the array {each['name']} has the type {each['type']}: expected {', '.join(TYPES)}")
        text = json.dumps({**self.header, "arrays": said}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        head = text.encode("utf-8", "replace")
        data = [len(head).to_bytes(4, "little"), head, *(each.tobytes() for each in arrays.values())]
        return gzip.compress(b"".join(data), LEVEL, mtime=0)


def unpacked(data: bytes) -> Answer:
    """An answer from its bytes."""
    raw = gzip.decompress(data)
    start = 4 + int.from_bytes(raw[:4], "little")
    header = json.loads(raw[4:start])
    arrays: dict[str, Array] = {}
    for each in header.pop("arrays"):
        kind, count = np.dtype(f"<{each['type']}"), int(np.prod(each["shape"], dtype=np.int64))
        arrays[each["name"]] = np.frombuffer(raw, kind, count, start).reshape(each["shape"])
        start += count * kind.itemsize
    return Answer(header, arrays)


def fractions(values: Tensor, bits: int = 16) -> Array:
    """Numbers from 0 to 1, such as weights, as integers of 8 or 16 bits: all divided by the largest integer."""
    whole = torch.round(values.detach().float().clamp(0, 1) * (2**bits - 1)).to(torch.int32).cpu().numpy()
    return whole.astype(f"<u{bits // 8}")


def _little(array: Array) -> Array:
    """An array whose bytes are little-endian, and in the order of its shape."""
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
