"""Which base an adapter was learned over: a few numbers of each adapted matrix, in a file beside the adapter.

Another base of the same shape would take the adapter without a word, and answer nonsense. `peft` does not read the
file, and its own adapters bring none: then nothing can be told.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import torch
from torch import nn

from glassformer.errors import InputError
from glassformer.parts.linears import linears, matrix
from glassformer.writing import replacing

BASE = "base.json"
NUMBERS = 8  # of each matrix


def write_base(model: nn.Module, parts: Collection[str], folder: Path) -> None:
    """Write the first numbers of the matrices of some linear parts."""
    with replacing(folder / BASE) as new:
        new.write_text(
            json.dumps({name: _first(model, name) for name in sorted(parts)}, indent=1) + "\n", encoding="utf-8"
        )


def check_base(model: nn.Module, folder: Path) -> None:
    """Refuse an adapter that was learned over another base than this model, up to the rounding of 16 bits."""
    try:
        told: dict[str, list[float]] = json.loads((folder / BASE).read_text(encoding="utf-8"))
        known = {name: torch.tensor(numbers) for name, numbers in told.items()}
    except FileNotFoundError:
        return
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{folder / BASE} is damaged: {error}") from None
    names = linears(model)
    for name, numbers in known.items():
        here = torch.tensor(_first(model, name)) if name in names else torch.zeros(0)
        if here.shape != numbers.shape or not torch.allclose(here, numbers, rtol=0.01, atol=1e-6):
            raise InputError(f"{folder} was learned over another base: {name} has other weights than in this model")


def _first(model: nn.Module, name: str) -> list[float]:
    weight = matrix(linears(model)[name])[0].detach()
    return [float(number) for number in weight.flatten()[:NUMBERS].float()]
