"""Plots of images: where a model looks.

H heads, N patches, S pixels on a side
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.plots.choosing import head_of, heading, wrapped
from glassformer.looking.points import layer_of
from glassformer.looking.style import chart_style
from glassformer.looking.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WARM = "inferno"  # over a grey image


def patch_weights(trace: Trace, layer: int | None, head: int | None, sentence: int) -> tuple[Tensor, str]:
    """How much the class token looks at each patch, (rows, columns), and which head that is, in words.

    Without a head it is the mean of all heads of the layer; without a layer, of the last.
    """
    if "encoder.self" not in trace.kinds or _side(trace, sentence) is None:
        raise InputError("this trace is of no image: patches are those of a run for images")
    names = trace.attentions("encoder.self")
    last = layer_of(names[-1]) or 0
    found = head_of(trace, last if layer is None else layer, head, "encoder.self", sentence)
    side = _side(trace, sentence) or 1
    weights = found.weights[0, 1:] if head is not None else trace[found.name][sentence, :, 0, 1:].float().mean(dim=0)
    what = found.title if head is not None else f"encoder self-attention of layer {layer_of(found.name)}, mean of heads"
    return weights.view(side, side), what


def _side(trace: Trace, sentence: int) -> int | None:
    """How many patches an image has on a side; None: it is no image."""
    tokens = trace.tokens("encoder")
    if sentence >= len(tokens) or not tokens[sentence] or tokens[sentence][0] != "class":
        return None
    side = math.isqrt(len(tokens[sentence]) - 1)
    return side if side * side == len(tokens[sentence]) - 1 and side else None


def patches(trace: Trace, image: Any, layer: int | None, head: int | None, sentence: int) -> Figure:
    """The image, and over it how much the class token looks at each patch; without the image, the weights alone."""
    from matplotlib.figure import Figure

    weights, what = patch_weights(trace, layer, head, sentence)
    with chart_style([trace.output]):
        figure = Figure(figsize=(7.6 if image is not None else 4.4, 4.2), layout="constrained")
        panels = figure.subplots(1, 1 if image is None else 2, squeeze=False)[0]
        extent = (-0.5, weights.shape[1] - 0.5, weights.shape[0] - 0.5, -0.5)
        over: dict[str, Any] = {}
        if image is not None:
            pixels = np.asarray(image).squeeze()
            for axes in panels:
                axes.imshow(pixels, cmap="gray", extent=extent, interpolation="nearest")
            over = {"alpha": 0.6}
        drawn = panels[-1].imshow(weights.numpy(), cmap=WARM, vmin=0, extent=extent, interpolation="nearest", **over)
        for axes in panels:
            axes.set(xticks=[], yticks=[])
            axes.grid(visible=False)
        bar = figure.colorbar(drawn, ax=panels, label="weight of the class token", shrink=0.8)
        bar.outline.set_visible(False)
        title = wrapped("\n".join(filter(None, (heading(trace), what))), 80)
        figure.suptitle(title, fontsize=9.5, x=0.01, ha="left", parse_math=False)
    return figure
