"""binary-counting: sinusoidal positions are a binary counter whose digits turn instead of flipping; tan would not do.

The last digit of a binary number changes at every step, the one before at every second, and so on: so do waves, each
slower than the last. But a digit jumps, and at 255 → 256 nine digits jump at once. A pair of waves turns by the same
angle at every step. The tangent, whose waves are no pair, has no bound and jumps from +∞ to -∞.

B texts, T length, L positions, D model width
"""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from glassformer.errors import TrainingError
from glassformer.experiments.batches import Rng
from glassformer.experiments.charts import bars, heat, line
from glassformer.experiments.finding import Finding, Rows, Spread
from glassformer.experiments.measures import accuracy, logits, mean_loss
from glassformer.experiments.small import Small
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLACK, BLUE, GREEN, GREY, ORANGE, TWO_SIDED
from glassformer.parts.positions import Position
from glassformer.parts.schemes import scheme_of
from glassformer.tasks.gathering import TokenBatch, token_loss

CLAIM = (
    "Sinusoidal positions are like binary counting, each higher digit changing less often, but bounded and smooth; tan "
    "would not do, as it jumps to infinity."
)
ORDER = 84  # in the story

WIDTH, POSITIONS = 32, 512
BITS = 9  # enough for 512 positions
SYMBOLS, LENGTH = 8, 24
WAVES, BINARY, TANGENT, COUNT = "sinusoidal", "binary", "tan", "counting"
COLOURS = {WAVES: BLUE, BINARY: GREEN, TANGENT: ORANGE, COUNT: BLACK}
RATES = (3e-3, 1e-2)
WORST = 10.0  # nats; of trainings that end in numbers that are none


class FromTable(nn.Module):
    """Adds the rows of a given table (L, D) to the embeddings, in order."""

    table: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table.float(), persistent=False)

    def forward(self, x: Tensor, position: Position = None) -> Tensor:
        return x + self.table[: x.shape[1]]


def table_of(kind: str) -> Tensor:
    """The vectors of the first positions, (L, D), in double precision."""
    position = torch.arange(POSITIONS, dtype=torch.float64)[:, None]
    angles = position * 10_000.0 ** (-torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)  # (L, D/2)
    if kind == WAVES:
        return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)
    if kind == TANGENT:  # instead of both waves of a pair
        return torch.stack((angles.tan(), -1 / angles.tan().where(angles != 0, torch.inf)), dim=-1).flatten(1)
    columns = [position // 2**bit % 2 for bit in range(BITS)] if kind == BINARY else [position]
    table = torch.cat(columns, dim=1)  # (L, digits)
    return torch.cat((table, torch.zeros(POSITIONS, WIDTH - table.shape[1])), dim=1)


def run(trial: Trial, steps: int = 200) -> Finding:
    """The vectors of positions by four schemes; then models that have to find the token before each, with each."""
    tables = {kind: table_of(kind) for kind in COLOURS}
    rows = Rows({"part": "table", "positions": kind, **_measures(table)} for kind, table in tables.items())
    rows += _changes(tables[BINARY][:, :BITS])
    tuned = trial.tuned("learning", partial(_learned, steps=steps), [*COLOURS], RATES)
    seeds = [each.seed for each in trial.seeds()]
    for kind, found in tuned.items():
        rows += [
            {"part": "learned", "positions": kind, "rate": found.rate, "seed": seed, "right": right}
            for seed, right in zip(seeds, found.results, strict=True)
        ]
    measured = rows.where(part="table")
    facts: dict[str, float] = {
        f"{name} {row['positions']}": row[name]
        for row in measured
        for name in ("largest", "nearest", "least_step", "longest_step", "offset_error")
    }
    right = rows.where(part="learned").spreads("right", by="positions")
    facts |= {f"right {kind}": right[kind] for kind in COLOURS}
    halves = rows.where(part="digit", positions=BINARY).column("changes")
    slows = rows.where(part="digit", positions=WAVES).column("changes")
    facts["ratio_binary"] = halves[1] / halves[0]
    facts["ratio_waves"] = slows[1] / slows[0]
    return Finding(
        method=f"Vectors of {POSITIONS} positions: {BITS} binary digits, {WIDTH} sinusoids, the same with tan and "
        "-cot instead of sin and cos, and the position itself. A step is the distance between the vectors of "
        "neighbouring positions; how often a digit or a wave changes is how often it changes its value or its sign, "
        "by position. For each offset the best linear map from each position to the one so much later was fitted; its "
        f"error is what is left over. Then encoders of 2 layers learned for {steps} steps to say which of {SYMBOLS} "
        f"symbols stands before each in texts of {LENGTH}, three times each, at the better of the rates {RATES[0]:g} "
        f"and {RATES[1]:g}.",
        measured=f"A binary digit changes {facts['ratio_binary']:.2f} times as often as the one below it, a wave "
        f"{facts['ratio_waves']:.2f} times as often (with {WIDTH} dimensions): the same idea, with finer steps. But "
        f"from one position to the next binary vectors move by {facts['least_step binary']:.1f} to "
        f"{facts['longest_step binary']:.1f}, as up to {BITS} digits flip at once, and waves always by "
        f"{facts['longest_step sinusoidal']:.2f}; an offset is a linear map for waves (error "
        f"{facts['offset_error sinusoidal']:.0e}), not for digits ({facts['offset_error binary']:.0%}). tan reaches "
        f"{facts['largest tan']:,.0f} and jumps by up to {facts['longest_step tan']:,.0f} in one step. Which symbol "
        f"stands before is learned by waves in {right[WAVES]:.0%}, by binary digits in {right[BINARY]:.0%}, by "
        f"counting in {right[COUNT]:.0%}, by tan in {right[TANGENT]:.0%}; a guess finds {1 / SYMBOLS:.0%}.",
        holds=halves[0] == 1.0
        and all(abs(one / other - 2) < 0.05 for one, other in pairwise(halves))
        and all(one > other for one, other in pairwise(slows))
        and facts["largest sinusoidal"] <= 1
        and facts["longest_step sinusoidal"] - facts["least_step sinusoidal"] < 1e-6
        and facts["longest_step binary"] > 2 * facts["least_step binary"]
        and facts["largest tan"] > 50
        and right[WAVES].low > 0.95
        and right[TANGENT].high < right[WAVES].low - 0.1,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, tables, right),
        seeds=seeds,
    )


def _measures(table: Tensor) -> dict[str, float]:
    """How large the numbers of a table (L, D) are, how far its rows are apart, and how far its offsets are linear."""
    steps = (table[1:] - table[:-1]).norm(dim=1)  # (L - 1)
    apart = torch.cdist(table, table) + 1e9 * torch.eye(len(table))
    before, after = table[:-8], table[8:]
    best = torch.linalg.lstsq(before, after, driver="gelsd").solution  # (D, D)
    return {
        "largest": table.abs().max().item(),
        "nearest": apart.min().item(),
        "least_step": steps.min().item(),
        "longest_step": steps.max().item(),
        "offset_error": ((before @ best - after).norm() / after.norm()).item(),
    }


def _changes(digits: Tensor) -> Rows:
    """How often each digit (L, digits) changes its value and each wave its sign, by position; of a wave it is ω/π."""
    often = {
        BINARY: (digits[1:] != digits[:-1]).double().mean(dim=0).tolist(),
        WAVES: [10_000.0 ** (-number * 2 / WIDTH) / math.pi for number in range(WIDTH // 2)],
    }
    return Rows(
        {"part": "digit", "positions": kind, "digit": number, "changes": changes}
        for kind, found in often.items()
        for number, changes in enumerate(found, start=1)
    )


def _before(rng: Rng, count: int = 32) -> TokenBatch:
    """Random texts (B, T); at each place but the first the symbol before it is asked for."""
    text = torch.from_numpy(rng.integers(SYMBOLS, size=(count, LENGTH)))
    asked = (torch.arange(LENGTH) > 0).expand_as(text)
    return TokenBatch(text, text.roll(1, dims=1), asked, None, text.numel(), int(asked.sum()))


def _learned(trial: Trial, kind: str, rate: float, steps: int) -> tuple[float, float]:
    """The loss on validation and the right answers on new texts of an encoder with these positions."""
    positions = scheme_of(embedding=FromTable(table_of(kind)))
    model = trial.begin(Small(SYMBOLS, WIDTH, heads=4, positions=positions).reader)
    try:
        trial.learn("", model, _before, token_loss, steps, rate)
    except TrainingError:
        return WORST, 1 / SYMBOLS
    new = trial.new(_before, count=200)
    right = accuracy(logits(model, new.text)[:, 1:], new.labels[:, 1:])
    return mean_loss(model, trial.held_out(_before, count=100), token_loss), right


def _draw(rows: Rows, tables: dict[str, Tensor], right: dict[str, Spread]) -> Figure:
    figure = Figure(figsize=(11, 7), layout="constrained")
    grid = figure.subplots(2, 3)
    (digits, waves, often), (jumps, tangent, learned) = grid
    heat(digits, tables[BINARY][:32, :5].flip(1), aspect="auto", cmap="Greys", vmin=0, vmax=1)
    digits.set(title="Binary digits", xlabel="digit (the last changes most often)", ylabel="position", xticks=[])
    heat(waves, tables[WAVES][:32, ::2].flip(1), aspect="auto", cmap=TWO_SIDED, vmin=-1, vmax=1)
    waves.set(title="Sines, slowest first", xlabel="wave (the last changes most often)", xticks=[])
    for kind in (BINARY, WAVES):
        own = rows.where(part="digit", positions=kind)
        line(often, own.column("digit"), own.column("changes"), COLOURS[kind], kind)
    often.set(title="How often each changes", xlabel="digit or wave, from the fastest", yscale="log")
    often.set(ylabel="changes of value or sign by position")
    often.legend()
    for kind in (BINARY, WAVES):
        steps = (tables[kind][1:66] - tables[kind][:65]).norm(dim=1)
        line(jumps, range(1, 66), steps.tolist(), COLOURS[kind], kind, marker="")
    jumps.set(title="How far a step goes", xlabel="position", ylabel="distance to the position before", ylim=(0, None))
    jumps.legend()
    for kind, column in ((TANGENT, 0), (WAVES, 0)):
        line(tangent, range(64), tables[kind][:64, column].tolist(), COLOURS[kind], kind, marker="")
    tangent.set(title="tan has no bound", xlabel="position", ylabel="first dimension", yscale="symlog")
    tangent.legend()
    values = {"": [right[kind] for kind in COLOURS]}
    bars(learned, [*COLOURS], values, {"": [*COLOURS.values()]})
    learned.axhline(1 / SYMBOLS, color=GREY, linestyle=":")
    learned.set(title="Trained: which symbol stands before?", ylabel="right answers on new texts", ylim=(0, 1.05))
    return figure
