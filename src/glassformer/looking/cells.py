"""The cells of a recurrent model over time, for a page: their gates, their state, and what they keep of each token.

G gates, T tokens, S tokens before, W width of a state
"""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.analyses import gates, memory
from glassformer.looking.answer import Array, fractions
from glassformer.looking.plots.choosing import name
from glassformer.looking.trace import Trace

STATE = re.compile(r"(encoder|decoder)\.(\d+)\.(backward\.)?state")
CELL = re.compile(r"(encoder|decoder)\.\d+\.(backward\.)?(state|cell|gates\.\w+)")


def cell_points(points: list[str]) -> list[str]:
    """Those of a model's points that are of recurrent cells, and must be recorded."""
    return [point for point in points if CELL.fullmatch(point)]


def cells_of(trace: Trace, sentence: int = 0) -> tuple[list[dict[str, Any]], dict[str, Array]]:
    """The layers of a recurrent model, one for each direction: what a page is told of them, and their numbers by name.

    The numbers of `encoder.0` are `encoder.0 gates` (G, T, W) and `encoder.0 kept` (T, S), from 0 to 1, where it has
    gates; and `encoder.0 state` (T, W), of which 0.5 stands for 0.
    """
    layers, arrays = list[dict[str, Any]](), dict[str, Array]()
    for point in trace.names:
        if (found := STATE.fullmatch(point)) is None:
            continue
        stack, layer, backward = found[1], int(found[2]), found[3] is not None
        place = point.removesuffix(".state")
        arrays[f"{place} state"] = fractions(_from_zero(trace[point][sentence]), bits=8)
        said: dict[str, Any] = {"name": place, "stack": stack, "layer": layer, "backward": backward, "gates": []}
        said["tokens"] = [name(text) for text in trace.axes(point, sentence)["token"]]
        try:
            opened = gates(trace, layer, stack, backward, sentence)
            held = memory(trace, layer, stack, backward, sentence)
        except InputError:  # a plain RNN, which has no gates
            layers.append(said)
            continue
        said["gates"] = opened.gates
        arrays[f"{place} gates"] = fractions(opened.values, bits=8)
        arrays[f"{place} kept"] = fractions(held.kept)
        layers.append(said)
    return layers, arrays


def _from_zero(state: Tensor) -> Tensor:
    """A state (T, W), all of it between -1 and 1, as numbers from 0 to 1."""
    return (state.float() + 1) / 2
