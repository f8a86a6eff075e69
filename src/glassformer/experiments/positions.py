"""positions: why waves and not numbers, and what each scheme makes of texts longer than those it was trained on.

Counting grows without end. Sines and cosines stay between -1 and 1, no two positions have the same ones, and a step of
k positions is one and the same linear map wherever it begins: a rotation of each pair (sin ωp, cos ωp) by ωk.

B texts, T length, L positions, D model width, H heads, V vocabulary
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glassformer.experiments.finding import Finding, Progress, Row, silent
from glassformer.experiments.learning import Dice, held_out, learn
from glassformer.experiments.small import Small, schemes
from glassformer.looking.style import BLUE, GREY, ORANGE, TWO_SIDED
from glassformer.models import DecoderOnly
from glassformer.parts.positions import ALiBi, Learned, RelativeBias, Rotary, Sinusoidal
from glassformer.tasks import WindowBatch, language_loss

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEADS = 64, 8
POSITIONS = 512  # that the waves are looked at
OFFSETS = (1, 2, 4, 8, 16, 32)
SHOWN = 48  # places in the maps of scores
TIMES = 4  # how much longer than in training the tested texts are


def run(
    seed: int = 0, progress: Progress = silent, steps: int = 300, length: int = 16, vocabulary: int = 16
) -> Finding:
    """The waves by themselves; then models that learn, with each scheme, to say which token came before."""
    waves = Sinusoidal(WIDTH, length=POSITIONS).table.double()  # (L, D)
    random = Learned(POSITIONS, WIDTH).weight.detach().double()  # (L, D)
    apart = _nearest(waves), _nearest(waves[:, :1])
    offsets: list[Row] = [
        {"part": "offset", "positions": name, "offset": offset, "error": _linear_error(table, offset)}
        for name, table in (("sinusoidal", waves), ("learned", random))
        for offset in OFFSETS
    ]
    rows: list[Row] = [
        {"part": "size", "position": p, "count": p, "wave": waves[p].abs().max().item()} for p in (0, 1, POSITIONS - 1)
    ]
    rows += offsets
    models: dict[str, DecoderOnly] = {}
    shape = Small(vocabulary, WIDTH, HEADS)
    for name, small in schemes(shape, length=TIMES * length, both_ways=False).items():
        model = models[name] = small.language_model()
        draw = partial(_repeat, vocabulary=vocabulary, length=length)
        learn(model, draw, language_loss, steps, rate=5e-3, seed=seed, progress=progress, name=f"positions: {name}")
        rows += [{"part": "length", "positions": name, **row} for row in _by_place(model, vocabulary, length, seed)]
    within = {name: _mean(rows, name, 1, length) for name in models}
    twice = {name: _mean(rows, name, length, 2 * length) for name in models}
    four = {name: _mean(rows, name, 3 * length, 4 * length) for name in models}
    facts: dict[str, float] = {
        "largest_wave": waves.abs().max().item(),
        "nearest": apart[0],
        "nearest_one_wave": apart[1],
        "offset_error": max(row["error"] for row in offsets if row["positions"] == "sinusoidal"),
        "offset_error_learned": min(row["error"] for row in offsets if row["positions"] == "learned"),
        **{f"within {name}": value for name, value in within.items()},
        **{f"twice {name}": value for name, value in twice.items()},
        **{f"four {name}": value for name, value in four.items()},
    }
    others = ("learned", "rotary", "relative (T5)", "ALiBi")
    return Finding(
        method=f"The waves are `Sinusoidal({WIDTH})` at {POSITIONS} positions. For each offset the linear map that "
        "takes the vector of each position best to that of the position so much later was fitted by least squares; the "
        "error is what it leaves, by the length of the vectors. Then decoders of 2 layers learned to repeat the token "
        f"before each in random texts of {length} tokens, for {steps} steps, with each scheme, and were tested "
        f"on texts {TIMES} times as long. The table of learned positions has room for these, but only the first "
        f"{length} were trained.",
        measured=f"Position {POSITIONS - 1} is {POSITIONS - 1} by counting, at most {facts['largest_wave']:.0f} in a "
        f"wave; of {POSITIONS} positions no two are nearer than {facts['nearest']:.2f} (one sine alone repeats itself: "
        f"{facts['nearest_one_wave']:.0e}); and an offset is a linear map, to {facts['offset_error']:.0e} (for a table "
        f"of numbers as learned positions begin, {facts['offset_error_learned']:.0%} is left over). Within the "
        f"trained length sinusoidal positions are right in {within['sinusoidal']:.0%}, "
        + ", ".join(f"{name} in {within[name]:.0%}" for name in others)
        + f", no positions in {within['none']:.0%}. At up to twice the length it is {twice['sinusoidal']:.0%} for "
        "sinusoidal, "
        + ", ".join(f"{twice[name]:.0%} for {name}" for name in others)
        + f"; at four times, {four['rotary']:.0%} for rotary, {four['relative (T5)']:.0%} for relative and "
        f"{four['ALiBi']:.0%} for ALiBi. So sinusoids can be computed for any length, but what was learned from short "
        "texts does not carry over to longer ones, which the notes hope for.",
        holds=facts["largest_wave"] <= 1
        and facts["nearest"] > 0.1
        and facts["offset_error"] < 1e-6
        and min(value for name, value in within.items() if name != "none") > 0.9
        and four["ALiBi"] > 0.8,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, waves, models, length),
    )


def _nearest(table: Tensor) -> float:
    """The smallest distance between two rows of a table (L, D)."""
    distances = torch.cdist(table, table) + 1e9 * torch.eye(len(table))  # (L, L)
    return distances.min().item()


def _linear_error(table: Tensor, offset: int) -> float:
    """What the best linear map from each row (L, D) to the one `offset` later leaves, by the length of the rows."""
    before, after = table[:-offset], table[offset:]
    best = torch.linalg.lstsq(before, after, driver="gelsd").solution  # (D, D)
    error: float = ((before @ best - after).norm() / after.norm()).item()
    return error


def _repeat(dice: Dice, vocabulary: int, length: int, count: int = 32) -> WindowBatch:
    """Random texts (B, T), and for each place the token before."""
    text = torch.from_numpy(dice.integers(vocabulary, size=(count, length)))
    asked = torch.ones_like(text, dtype=torch.bool)
    asked[:, 0] = False
    return WindowBatch(text, text.roll(1, dims=1), asked, None, text.numel(), int(asked.sum()))


@torch.no_grad()
def _by_place(model: DecoderOnly, vocabulary: int, length: int, seed: int) -> list[Row]:
    """How often the answer is right at each place of texts that are longer than those of training."""
    batch = held_out(partial(_repeat, vocabulary=vocabulary, length=TIMES * length, count=400), seed)
    right = (model(batch.text).argmax(dim=-1) == batch.right).double().mean(dim=0)  # (T)
    return [{"place": place, "accuracy": right[place].item()} for place in range(1, len(right))]


def _mean(rows: list[Row], name: str, first: int, end: int) -> float:
    """The mean accuracy of a scheme from one place to before another."""
    own: list[float] = [
        row["accuracy"] for row in rows if row.get("positions") == name and first <= row.get("place", -1) < end
    ]
    return sum(own) / len(own)


@torch.no_grad()
def score_map(model: DecoderOnly, places: int) -> Tensor:
    """What a model's scheme says of each pair of places (T, T) by itself: a product of positions, or a bias."""
    embedding: Any = model.decoder.embedding.positions
    attention: Any = next((part for part in model.modules() if isinstance(part, Rotary | RelativeBias | ALiBi)), None)
    if isinstance(embedding, Sinusoidal):
        return embedding.table[:places] @ embedding.table[:places].T
    if isinstance(embedding, Learned):
        return embedding.weight[:places] @ embedding.weight[:places].T
    if isinstance(attention, Rotary):
        turned = attention.rotate(torch.ones(1, 1, places, attention.head_width), None)[0, 0]  # (T, K)
        return turned @ turned.T
    stands = torch.arange(places)[None]
    every: Tensor = attention.bias(stands, stands)[0]  # (H, T, T)
    return every[(every.amax(dim=(1, 2)) - every.amin(dim=(1, 2))).argmax()]  # the head that cares most


def _draw(rows: list[Row], waves: Tensor, models: dict[str, DecoderOnly], length: int) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 9), layout="constrained")
    parts: Any = figure.subfigures(3, 1, height_ratios=[1.1, 0.9, 1.15])
    top, middle, bottom = parts
    count, heat, offsets = top.subplots(1, 3)
    for line, label, colour in (
        (torch.arange(len(waves)).double(), "counting", ORANGE),
        (waves[:, 0], "one of the waves", BLUE),
    ):
        count.plot(line[:64], label=label, color=colour, marker="")
    count.set(title="Counting has no bound", xlabel="position", ylabel="what the model reads", yscale="symlog")
    count.legend(loc="center right")
    image = heat.imshow(waves[:50], cmap=TWO_SIDED, vmin=-1, vmax=1, aspect="auto")
    heat.set(title="Sinusoidal positions", xlabel="dimension", ylabel="position")
    heat.grid(visible=False)
    top.colorbar(image, ax=heat, shrink=0.9)
    for name, colour, marker in (("learned", ORANGE, "s"), ("sinusoidal", BLUE, "o")):
        own = [row for row in rows if row["part"] == "offset" and row["positions"] == name]
        label = "learned (as it begins)" if name == "learned" else name
        offsets.plot(
            [row["offset"] for row in own], [row["error"] for row in own], color=colour, marker=marker, label=label
        )
    offsets.set(
        title="Is an offset a linear map?",
        xlabel="offset k",
        ylabel="error of the best map",
        xscale="log",
        yscale="log",
    )
    offsets.set_xticks(OFFSETS, OFFSETS)
    offsets.minorticks_off()
    offsets.legend(loc="center right")
    _draw_maps(middle.subplots(1, 5), models)
    middle.suptitle(
        "What each scheme says of query and key by their places alone (bright: more; trained models)", fontsize=10
    )
    axes = bottom.subplots()
    for name in models:
        own = [row for row in rows if row["part"] == "length" and row["positions"] == name]
        axes.plot(
            [row["place"] for row in own],
            [row["accuracy"] for row in own],
            label=name,
            markevery=4,
            **({"color": GREY} if name == "none" else {}),
        )
    axes.axvspan(0, length - 1, color=GREY, alpha=0.15, linewidth=0)
    axes.annotate("trained length", (length / 2, 0.04), ha="center", color="0.3")
    axes.set(
        title="Trained on short texts, tested on long ones",
        xlabel="place in the text",
        ylabel="right answers",
        ylim=(0, 1.05),
    )
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _draw_maps(places: Any, models: dict[str, DecoderOnly]) -> None:
    axes: Axes
    for axes, (name, model) in zip(places, ((n, m) for n, m in models.items() if n != "none"), strict=True):
        scores = score_map(model, SHOWN)
        future = torch.ones_like(scores, dtype=torch.bool).triu(1)
        axes.imshow(scores.masked_fill(future, torch.nan))
        axes.set(title=name, xlabel="key")
        axes.grid(visible=False)
    places[0].set_ylabel("query")
