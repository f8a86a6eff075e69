"""positions: why waves and not numbers, and what each scheme makes of texts longer than those it was trained on.

Counting grows without end. Sines and cosines stay between -1 and 1, no two positions have the same ones, and a step of
k positions is one and the same linear map wherever it begins: a rotation of each pair (sin ωp, cos ωp) by ωk.

B texts, T length, L positions, D model width, H heads, V vocabulary
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from glassformer.experiments.batches import repeating
from glassformer.experiments.charts import heat, line, lines, log_ticks
from glassformer.experiments.finding import Finding, Rows
from glassformer.experiments.measures import accuracy_by_place, logits
from glassformer.experiments.small import SCHEMES, Small, with_all_schemes
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, TWO_SIDED
from glassformer.models import DecoderOnly
from glassformer.parts.positions import ALiBi, Learned, RelativeBias, Rotary, Sinusoidal
from glassformer.tasks.gathering import token_loss

CLAIM = "Counting positions is unbounded; sinusoids are bounded, distinct, and give relative offsets by a linear map."
ORDER = 80  # in the story

WIDTH, HEADS = 64, 8
POSITIONS = 512  # that the waves are looked at
OFFSETS = (1, 2, 4, 8, 16, 32)
SHOWN = 48  # places in the maps of scores
TIMES = 4  # how much longer than in training the tested texts are
NONE, WAVES, TABLE, ROTARY, RELATIVE, ALIBI = SCHEMES
COLOURS = {NONE: GREY, WAVES: BLUE, TABLE: ORANGE, ROTARY: GREEN, RELATIVE: PINK, ALIBI: BLACK}
OTHERS = (TABLE, ROTARY, RELATIVE, ALIBI)


def run(trial: Trial, steps: int = 300, length: int = 16, vocabulary: int = 16) -> Finding:
    """The waves by themselves; then models that learn, with each scheme, to say which token came before."""
    waves = Sinusoidal(WIDTH, length=POSITIONS).table.double()  # (L, D)
    random = Learned(POSITIONS, WIDTH).weight.detach().double()  # (L, D)
    rows = Rows(
        {"part": "size", "position": p, "count": p, "wave": waves[p].abs().max().item()} for p in (0, 1, POSITIONS - 1)
    )
    rows += [
        {"part": "offset", "positions": name, "offset": offset, "error": _linear_error(table, offset)}
        for name, table in ((WAVES, waves), (TABLE, random))
        for offset in OFFSETS
    ]
    models: dict[str, DecoderOnly] = {}
    right: dict[str, list[float]] = {}
    draw = partial(repeating, vocabulary=vocabulary, length=length)
    new = trial.new(draw, length=TIMES * length, count=400)
    for name, small in with_all_schemes(Small(vocabulary, WIDTH, HEADS), TIMES * length, bidirectional=False).items():
        model = models[name] = small.language_model()
        trial.learn(f"positions: {name}", model, draw, token_loss, steps, 5e-3)
        right[name] = accuracy_by_place(logits(model, new.text), new.labels)
        places = range(1, TIMES * length)
        rows += [{"part": "length", "positions": name, "place": n, "accuracy": right[name][n]} for n in places]
    spans = {"within": (1, length), "twice": (length, 2 * length), "four": (3 * length, 4 * length)}
    within, twice, four = (
        {name: sum(each[first:end]) / (end - first) for name, each in right.items()} for first, end in spans.values()
    )
    errors = {name: rows.where(part="offset", positions=name).column("error") for name in (WAVES, TABLE)}
    facts: dict[str, float] = {
        "largest_wave": waves.abs().max().item(),
        "nearest": _nearest(waves),
        "nearest_one_wave": _nearest(waves[:, :1]),
        "offset_error": max(errors[WAVES]),
        "offset_error_learned": min(errors[TABLE]),
        **{f"within {name}": value for name, value in within.items()},
        **{f"twice {name}": value for name, value in twice.items()},
        **{f"four {name}": value for name, value in four.items()},
    }
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
        f"trained length sinusoidal positions are right in {within[WAVES]:.0%}, "
        + ", ".join(f"{name} in {within[name]:.0%}" for name in OTHERS)
        + f", no positions in {within[NONE]:.0%}. At up to twice the length it is {twice[WAVES]:.0%} for "
        "sinusoidal, "
        + ", ".join(f"{twice[name]:.0%} for {name}" for name in OTHERS)
        + f"; at four times, {four[ROTARY]:.0%} for rotary, {four[RELATIVE]:.0%} for relative and "
        f"{four[ALIBI]:.0%} for ALiBi. So sinusoids can be computed for any length, but what was learned from short "
        "texts does not carry over to longer ones, which the notes hope for.",
        holds=facts["largest_wave"] <= 1
        and facts["nearest"] > 0.1
        and facts["offset_error"] < 1e-6
        and min(value for name, value in within.items() if name != NONE) > 0.9
        and four[ALIBI] > 0.8,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, waves, models, length),
    )


def _nearest(table: Tensor) -> float:
    """The smallest distance between two rows of a table (L, D)."""
    return (torch.cdist(table, table) + 1e9 * torch.eye(len(table))).min().item()


def _linear_error(table: Tensor, offset: int) -> float:
    """What the best linear map from each row (L, D) to the one `offset` later leaves, by the length of the rows."""
    before, after = table[:-offset], table[offset:]
    best = torch.linalg.lstsq(before, after, driver="gelsd").solution  # (D, D)
    return ((before @ best - after).norm() / after.norm()).item()  # type: ignore[no-any-return]


@torch.no_grad()
def _score_map(model: DecoderOnly) -> Tensor:
    """What a model's scheme says of each pair of places (T, T) by itself: a product of positions, or a bias."""
    added: Any = model.decoder.embedding.positions
    inside: Any = next((part for part in model.modules() if isinstance(part, Rotary | RelativeBias | ALiBi)), None)
    if isinstance(inside, RelativeBias | ALiBi):
        places = torch.arange(SHOWN)[None]
        every: Tensor = inside.bias(places, places)[0]  # (H, T, T)
        return every[(every.amax(dim=(1, 2)) - every.amin(dim=(1, 2))).argmax()]  # the head that cares most
    if isinstance(inside, Rotary):
        vectors = inside.rotate(torch.ones(1, 1, SHOWN, inside.head_width), None)[0, 0]  # (T, K)
    else:
        vectors = (added.table if isinstance(added, Sinusoidal) else added.weight)[:SHOWN]  # (T, D)
    return vectors @ vectors.T


def _draw(rows: Rows, waves: Tensor, models: dict[str, DecoderOnly], length: int) -> Figure:
    figure = Figure(figsize=(10.5, 9), layout="constrained")
    parts: Any = figure.subfigures(3, 1, height_ratios=[1.1, 0.9, 1.15])
    top, middle, bottom = parts
    count, heights, offsets = top.subplots(1, 3)
    line(count, range(64), range(64), ORANGE, "counting", marker="")
    line(count, range(64), waves[:64, 0].tolist(), BLUE, "one of the waves", marker="")
    count.set(title="Counting has no bound", xlabel="position", ylabel="what the model reads", yscale="symlog")
    count.legend(loc="center right")
    heat(heights, waves[:50], bar="", cmap=TWO_SIDED, vmin=-1, vmax=1, aspect="auto")
    heights.set(title="Sinusoidal positions", xlabel="dimension", ylabel="position")
    lines(offsets, rows.where(part="offset"), "offset", "error", "positions", COLOURS)
    log_ticks(offsets, OFFSETS)
    offsets.set(title="Is an offset a linear map?", xlabel="offset k", ylabel="error of the best map", yscale="log")
    offsets.legend(loc="center right", labels=[WAVES, f"{TABLE} (as it begins)"])
    middle.suptitle(
        "What each scheme says of query and key by their places alone (bright: more; trained models)", fontsize=10
    )
    schemes = [name for name in models if name != NONE]
    for axes, name in zip(middle.subplots(1, len(schemes)), schemes, strict=True):
        future = torch.ones(SHOWN, SHOWN, dtype=torch.bool).triu(1)
        heat(axes, _score_map(models[name]).masked_fill(future, torch.nan))
        axes.set(title=name, xlabel="key", ylabel="query" if name == schemes[0] else "")
    axes = bottom.subplots()
    lines(axes, rows.where(part="length"), "place", "accuracy", "positions", COLOURS, markevery=4)
    axes.axvspan(0, length - 1, color=GREY, alpha=0.15, linewidth=0)
    axes.annotate("trained length", (length / 2, 0.04), ha="center", color="0.3")
    axes.set(title="Trained on short texts, tested on long ones", xlabel="place in the text", ylabel="right answers")
    axes.set_ylim(0, 1.05)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
