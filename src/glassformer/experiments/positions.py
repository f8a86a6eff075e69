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
from glassformer.experiments.charts import bands, heat, line, lines, log_ticks
from glassformer.experiments.finding import Finding, Row, Rows, Spread
from glassformer.experiments.measures import accuracy_by_place, logits, mean_loss
from glassformer.experiments.small import SCHEMES, Small, with_all_schemes
from glassformer.experiments.trial import Trial, told_rates
from glassformer.looking.style import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, TWO_SIDED
from glassformer.models import DecoderOnly
from glassformer.parts.positions import ALiBi, Learned, RelativeBias, Rotary, Sinusoidal
from glassformer.tasks.gathering import token_loss

CLAIM = "Counting positions is unbounded; sinusoids are bounded, distinct, and give relative offsets by a linear map."
ORDER = 80  # in the story

WIDTH, HEADS, RATES = 64, 8, (3e-3, 8e-3)
WIDTHS = (16, 64, 256)  # of waves that are looked at
POSITIONS = 512  # that the waves are looked at
ENDS = (0, 1, POSITIONS - 1)
OFFSETS = (1, 2, 4, 8, 16, 32)
SHOWN = 48  # places in the maps of scores
TIMES = 4  # how much longer than in training the tested texts are
NONE, WAVES, TABLE, ROTARY, RELATIVE, ALIBI = SCHEMES
COLOURS = {NONE: GREY, WAVES: BLUE, TABLE: ORANGE, ROTARY: GREEN, RELATIVE: PINK, ALIBI: BLACK}
OTHERS = (TABLE, ROTARY, RELATIVE, ALIBI)
PATIENCE = 3  # times as many steps without positions: until that curve has settled


def run(trial: Trial, steps: int = 300, length: int = 12, vocabulary: int = 12) -> Finding:
    """The waves by themselves; then models that learn, with each scheme, to say which token came before."""
    rows = Rows({"part": "size", "position": p, "count": p, "wave": _waves(WIDTH)[p].abs().max().item()} for p in ENDS)
    facts: dict[str, float] = {}
    for width in WIDTHS:
        waves = _waves(width)  # (L, D)
        facts |= {f"largest_wave {width}": waves.abs().max().item(), f"nearest {width}": _nearest(waves)}
        errors = {offset: _linear_error(waves, offset) for offset in OFFSETS}
        rows += [
            {"part": "offset", "positions": WAVES, "width": width, "offset": o, "error": e} for o, e in errors.items()
        ]
        facts[f"offset_error {width}"] = max(errors.values())
    random = Learned(POSITIONS, WIDTH).weight.detach().double()  # (L, D)
    errors = {offset: _linear_error(random, offset) for offset in OFFSETS}
    rows += [{"part": "offset", "positions": TABLE, "width": WIDTH, "offset": o, "error": e} for o, e in errors.items()]
    facts["offset_error_learned"], facts["nearest_one_wave"] = min(errors.values()), _nearest(_waves(WIDTH)[:, :1])
    work = partial(_trained, steps=steps, length=length, vocabulary=vocabulary)
    tuned = trial.tuned("training", work, [*SCHEMES], RATES)
    rows += [row for each in tuned.values() for result, _ in each.results for row in result]
    maps = {name: each.results[0][1] for name, each in tuned.items() if name != NONE}
    spans = {"within": (1, length), "twice": (length, 2 * length), "four": (3 * length, 4 * length)}
    places = Rows(rows.where(part="length"))
    means: dict[str, dict[str, Spread]] = {}
    for span, (first, end) in spans.items():
        own = Rows(row for row in places if first <= row["place"] < end)
        by_seed = own.spreads("accuracy", by=("positions", "seed"))
        means[span] = {name: Spread(by_seed[name, each.seed] for each in trial.seeds()) for name in SCHEMES}
    facts |= {f"{span} {name}": value for span, own in means.items() for name, value in own.items()}
    told = {span: ", ".join(f"{own[name]:.0%} for {name}" for name in (WAVES, *OTHERS)) for span, own in means.items()}
    return Finding(
        method=f"The waves are `Sinusoidal(D)` at {POSITIONS} positions, for each width D of "
        f"{', '.join(map(str, WIDTHS))}. For each offset the linear map that takes the vector of each position best to "
        "that of the position so much later was fitted by least squares; the error is what it leaves, by the length of "
        f"the vectors. Then decoders of 2 layers, width {WIDTH}, learned to repeat the token before each in random "
        f"texts of {length} tokens, for {steps} steps with each scheme and {PATIENCE * steps} without positions, "
        f"{told_rates(RATES)}, and were tested on texts {TIMES} times as long. The table of learned positions has room "
        f"for these, but only the first {length} were trained.",
        measured=f"Position {POSITIONS - 1} is {POSITIONS - 1} by counting, and at most "
        f"{max(facts[f'largest_wave {width}'] for width in WIDTHS):.0f} in a wave of any width; of {POSITIONS} "
        f"positions no two are nearer than {min(facts[f'nearest {width}'] for width in WIDTHS):.2f} (one sine alone "
        f"repeats itself: {facts['nearest_one_wave']:.0e}); and an offset is a linear map, to "
        f"{max(facts[f'offset_error {width}'] for width in WIDTHS):.0e} at every width and offset (for a table of "
        f"numbers as learned positions begin, {facts['offset_error_learned']:.0%} is left over). What the claim does "
        f"not say: right answers within the trained length are {told['within']}, and {means['within'][NONE]:.0%} "
        f"without positions; at up to twice the length {told['twice']}; at four times {told['four']}. So sinusoids can "
        "be computed for any length, but what was learned from short texts "
        + ("does not carry" if means["twice"][WAVES].high < 0.5 else "carries in part")
        + " over to longer ones, which the notes hope for.",
        holds=all(
            facts[f"largest_wave {width}"] <= 1
            and facts[f"nearest {width}"] > 0.1
            and facts[f"offset_error {width}"] < 1e-6
            for width in WIDTHS
        ),
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, maps, length),
        seeds=[each.seed for each in trial.seeds()],
    )


def _waves(width: int) -> Tensor:
    """Sinusoidal positions (L, D)."""
    return Sinusoidal(width, length=POSITIONS).table.double()


def _trained(
    trial: Trial, name: str, rate: float, steps: int, length: int, vocabulary: int
) -> tuple[float, tuple[list[Row], Tensor]]:
    """The validation loss of a model with this scheme; how often it is right by place, and the map of its scores."""
    shape = Small(vocabulary, WIDTH, HEADS)
    model = trial.begin(with_all_schemes(shape, TIMES * length, bidirectional=False)[name].language_model)
    draw = partial(repeating, vocabulary=vocabulary, length=length)
    trial.learn("", model, draw, token_loss, PATIENCE * steps if name == NONE else steps, rate)
    new = trial.new(draw, length=TIMES * length, count=200)
    right = accuracy_by_place(logits(model, new.text), new.labels)
    row = {"part": "length", "positions": name, "seed": trial.seed}
    rows = [{**row, "place": place, "accuracy": right[place]} for place in range(1, TIMES * length)]
    scores = torch.empty(0) if name == NONE else _score_map(model)
    return mean_loss(model, trial.held_out(draw, count=200), token_loss), (rows, scores)


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


def _draw(rows: Rows, maps: dict[str, Tensor], length: int) -> Figure:
    waves = _waves(WIDTH)
    figure = Figure(figsize=(10.5, 9), layout="constrained")
    parts: Any = figure.subfigures(3, 1, height_ratios=[1.1, 0.9, 1.15])
    top, middle, bottom = parts
    count, heights, offsets = top.subplots(1, 3)
    line(count, range(64), range(64), ORANGE, "counting", marker="")
    line(count, range(64), waves[:64, 0].tolist(), BLUE, "one of the waves", marker="")
    count.set(title="Counting has no bound", xlabel="position", ylabel="what the model reads", yscale="symlog")
    count.legend(loc="center right")
    heat(heights, waves[:50].numpy(), bar="", cmap=TWO_SIDED, vmin=-1, vmax=1, aspect="auto")
    heights.set(title="Sinusoidal positions", xlabel="dimension", ylabel="position")
    lines(offsets, rows.where(part="offset", width=WIDTH), "offset", "error", "positions", COLOURS)
    log_ticks(offsets, OFFSETS)
    offsets.set(title="Is an offset a linear map?", xlabel="offset k", ylabel="error of the best map", yscale="log")
    offsets.legend(loc="center right", labels=[WAVES, f"{TABLE} (as it begins)"])
    middle.suptitle(
        "What each scheme says of query and key by their places alone (bright: more; trained models of one seed)",
        fontsize=10,
    )
    for axes, (name, scores) in zip(middle.subplots(1, len(maps)), maps.items(), strict=True):
        future = torch.ones_like(scores, dtype=torch.bool).triu(1)
        heat(axes, scores.masked_fill(future, torch.nan).numpy())
        axes.set(title=name, xlabel="key", ylabel="query" if name == WAVES else "")
    axes = bottom.subplots()
    bands(axes, rows.where(part="length"), "place", "accuracy", "positions", COLOURS, markevery=4)
    axes.axvspan(0, length - 1, color=GREY, alpha=0.15, linewidth=0)
    axes.annotate("trained length", (length / 2, 0.04), ha="center", color="0.3")
    axes.set(title="Trained on short texts, tested on long ones", xlabel="place in the text", ylabel="right answers")
    axes.set_ylim(0, 1.05)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
