"""Plots of images: where a model looks, to tell what an image is, or to write each word about it.

H heads, N patches, F frames, R rows and C columns of patches, S pixels on a side, W words
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.plots.choosing import head_of, heading, wrapped
from glassformer.looking.points import layer_of
from glassformer.looking.style import GREY, HEAT, chart_style
from glassformer.looking.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WARM = "inferno"  # over a grey image
NO_IMAGE = "this trace is of no image: patches are those of a run for images"
DARK = 0.22  # how much is left of the light where a word does not look
ACROSS, STRIPS = 7, 2  # images in a row of a figure, and films


def patch_weights(trace: Trace, layer: int | None, head: int | None, sentence: int) -> tuple[Tensor, str]:
    """How much the class token looks at each patch, (rows, columns), and which head that is, in words.

    Without a head it is the mean of all heads of the layer; without a layer, of the last.
    """
    _, side = _layout(trace, sentence)
    if "encoder.self" not in trace.kinds:
        raise InputError(NO_IMAGE)
    names = trace.attentions("encoder.self")
    last = layer_of(names[-1]) or 0
    found = head_of(trace, last if layer is None else layer, head, "encoder.self", sentence)
    weights = found.weights[0, 1:] if head is not None else trace[found.name][sentence, :, 0, 1:].float().mean(dim=0)
    what = found.title if head is not None else f"encoder self-attention of layer {layer_of(found.name)}, mean of heads"
    return weights.view(side, side), what


def tells(trace: Trace) -> bool:
    """Whether a trace is of words about an image, each of which looks at its patches."""
    return "decoder.cross" in trace.kinds


def word_weights(
    trace: Trace, layer: int | None, head: int | None, sentence: int
) -> tuple[list[str], NDArray[np.float32], str]:
    """The words that were written, how much each looks at each patch (W, F, R, C), and which head that is, in words.

    Without a head it is the mean of all heads of the layer; without a layer, of the last.
    """
    frames, side = _layout(trace, sentence)
    names = trace.attentions("decoder.cross")
    last = layer_of(names[-1]) or 0
    found = head_of(trace, last if layer is None else layer, head, "decoder.cross", sentence)
    mean = trace[found.name][sentence].float().mean(dim=0)[: len(found.rows), : len(found.columns)]
    weights = found.weights if head is not None else mean  # (W, F · (1 + N))
    what = found.title if head is not None else f"cross attention of layer {layer_of(found.name)}, mean of heads"
    inside = weights.reshape(len(weights), frames, -1)[:, :, 1:]  # the class token is no place
    return found.rows, inside.reshape(*inside.shape[:2], side, side).numpy(), what


def patches_on_a_side(trace: Trace, sentence: int = 0) -> int | None:
    """How many patches an image, or each frame of a film, has on a side; None: it is no image."""
    try:
        return _layout(trace, sentence)[1]
    except InputError:
        return None


def _layout(trace: Trace, sentence: int) -> tuple[int, int]:
    """How many frames a film has, 1 of an image, and how many patches are on a side of each."""
    tokens = trace.tokens("encoder")
    names = tokens[sentence] if sentence < len(tokens) else []
    frames = sum(name.split(": ")[-1] == "class" for name in names)
    side = math.isqrt(len(names) // frames - 1) if frames else 0
    if not side or frames * (side * side + 1) != len(names):
        raise InputError(NO_IMAGE)
    return frames, side


def patches(trace: Trace, image: Any, layer: int | None, head: int | None, sentence: int) -> Figure:
    """The image, and over it how much the class token looks at each patch; without the image, the weights alone.

    Of a model that writes, there is one small image for each word.
    """
    from matplotlib.figure import Figure

    if tells(trace):
        return words(trace, image, layer, head, sentence)
    weights, what = patch_weights(trace, layer, head, sentence)
    with chart_style([trace.output]):
        figure = Figure(figsize=(7.6 if image is not None else 4.4, 4.2), layout="constrained")
        panels = figure.subplots(1, 1 if image is None else 2, squeeze=False)[0]
        extent = (-0.5, weights.shape[1] - 0.5, weights.shape[0] - 0.5, -0.5)
        over: dict[str, Any] = {}
        if image is not None:
            pixels = np.asarray(image).squeeze()
            grey = pixels.mean(axis=-1) if pixels.ndim > 2 else pixels  # under the weights, colours would mix
            for axes, shown in zip(panels, (pixels, grey), strict=True):
                axes.imshow(shown, cmap="gray", extent=extent, interpolation="nearest")
            over = {"alpha": 0.6}
        drawn = panels[-1].imshow(weights.numpy(), cmap=WARM, vmin=0, extent=extent, interpolation="nearest", **over)
        for axes in panels:
            axes.set(xticks=[], yticks=[])
            axes.grid(visible=False)
        bar = figure.colorbar(drawn, ax=panels, label="weight of the class token", shrink=0.8)
        bar.outline.set_visible(False)
        title = wrapped(" · ".join(filter(None, (heading(trace), what))), 80)
        figure.suptitle(title, fontsize=9.5, x=0.01, ha="left", parse_math=False)
    return figure


def words(trace: Trace, image: Any, layer: int | None, head: int | None, sentence: int) -> Figure:
    """The image, or the frames of a film, once for each word that was written: bright where the word looked."""
    from matplotlib.figure import Figure

    texts, weights, what = word_weights(trace, layer, head, sentence)  # (W, F, R, C)
    frames = weights.shape[1]
    film = None if image is None else np.asarray(image).reshape(frames, *np.asarray(image).shape[-3:])  # (F, S, S, C)
    panels = [(text, _lit(film, each), f"{each.max():.2f}") for text, each in zip(texts, weights, strict=True)]
    if film is not None:
        panels.insert(0, ("what is shown", _strip(film), ""))
    down = -(-len(panels) // (ACROSS if frames == 1 else STRIPS))
    across = -(-len(panels) // down)
    wide, high = (1.5, 1.75) if frames == 1 else (0.8 * frames, 1.15)
    with chart_style([trace.output, *texts]):
        figure = Figure(figsize=(max(across * wide, 4.5), down * high + 0.6), layout="constrained")
        grid = figure.subplots(down, across, squeeze=False).ravel()
        for axes, (text, pixels, most) in zip(grid, panels, strict=False):
            axes.imshow(pixels, cmap=HEAT, vmin=0, interpolation="nearest")
            axes.set_title(text, fontsize=10, loc="left", parse_math=False, pad=3)
            axes.text(1, 1.03, most, transform=axes.transAxes, ha="right", va="bottom", fontsize=7.5, color=GREY)
        for axes in grid:
            axes.grid(visible=False)
            axes.set_axis_off()
        told = wrapped(" · ".join(filter(None, (heading(trace), what))), 12 * int(across * wide))
        figure.suptitle(told, fontsize=9.5, x=0.01, ha="left", parse_math=False)
    return figure


def _lit(film: NDArray[Any] | None, weights: NDArray[np.float32]) -> NDArray[Any]:
    """A film (F, S, S, C) in one strip, dark where a word does not look, by its weights (F, R, C)."""
    share = weights / max(float(weights.max()), 1e-12)
    if film is None:
        return _strip(share[..., None])[..., 0]
    times = film.shape[1] // weights.shape[1]
    light = DARK + (1 - DARK) * share.repeat(times, axis=1).repeat(times, axis=2)  # (F, S, S)
    return _strip((film * light[..., None]).astype(np.uint8))


def _strip(film: NDArray[Any]) -> NDArray[Any]:
    """Images (F, S, S, C) side by side, with paper between them, (S, width, C or 3)."""
    frames, size = film.shape[:2]
    paper = 255 if film.dtype == np.uint8 else 0
    film = film.repeat(3, axis=-1) if film.dtype == np.uint8 and film.shape[-1] == 1 else film
    between = np.full((size, max(1, size // 16), film.shape[-1]), paper, film.dtype)
    parts = [part for frame in film for part in (frame, between)]
    return np.concatenate(parts[:-1], axis=1) if frames > 1 else film[0]
