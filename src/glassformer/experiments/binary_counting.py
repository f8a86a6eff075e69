"""binary-counting: sinusoidal positions are a binary counter whose digits turn instead of flipping; tan would not do.

The last digit of a binary number changes at every step, the one before at every second, and so on: so do waves, each
slower than the last. But a digit jumps, and at 255 → 256 nine digits jump at once. A pair of waves turns by the same
angle at every step. The tangent, whose waves are no pair, has no bound and jumps from +∞ to -∞.

B queries, L positions, D width of a vector
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from glassformer.errors import TrainingError
from glassformer.experiments.batches import Rng
from glassformer.experiments.charts import bars, heat, line
from glassformer.experiments.finding import Finding, Rows, Spread
from glassformer.experiments.measures import mean_loss
from glassformer.experiments.trial import Trial, told_rates
from glassformer.looking.style import BLACK, BLUE, GREEN, ORANGE, TWO_SIDED
from glassformer.tasks.protocol import Learner, Tensors

CLAIM = (
    "Sinusoidal positions are like binary counting, each higher digit changing less often, but bounded and smooth; tan "
    "would not do, as it jumps to infinity."
)
ORDER = 84  # in the story

WIDTH, POSITIONS = 32, 512
BITS = 9  # enough for 512 positions
SEEN = 64  # positions that are learned from
WAVES, BINARY, TANGENT, COUNT = "sinusoidal", "binary", "tan", "counting"
COLOURS = {WAVES: BLUE, BINARY: GREEN, TANGENT: ORANGE, COUNT: BLACK}
RATES = (3e-2, 3e-1)


@dataclass(frozen=True)
class Steps(Tensors):
    """Positions (B) from which one looks back, and where one should look (B), among the first `length` positions."""

    query: Tensor
    answer: Tensor
    length: int

    @property
    def targets(self) -> int:
        """How many there are."""
        return len(self.query)

    tokens = padded_tokens = targets


class Glance(nn.Module):
    """One head of attention that sees nothing but positions: score(p, q) = x_pᵀ M x_q, and M is all that learns.

    Every vector has a 1 beside the numbers of its position, as a word would give it.
    """

    table: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", torch.cat((table.float(), torch.ones(len(table), 1)), dim=1), persistent=False)
        self.matrix = nn.Parameter(torch.randn(self.table.shape[1], self.table.shape[1]) * 0.01)
        self.head = nn.Identity()

    def hidden(self, query: Tensor, length: int) -> Tensor:
        """The scores (B, L) of the first positions for queries at these positions (B)."""
        return self.table[query] @ self.matrix @ self.table[:length].T


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
    """The vectors of positions by four schemes; then a head of attention that has to find the position before each."""
    tables = {kind: table_of(kind) for kind in COLOURS}
    rows = Rows({"part": "table", "positions": kind, **_measures(table)} for kind, table in tables.items())
    rows += _changes(tables[BINARY][:, :BITS])
    tuned = trial.tuned("learning", partial(_learned, steps=steps), [*COLOURS], RATES)
    seeds = [each.seed for each in trial.seeds()]
    for kind, found in tuned.items():
        rows += [
            {"part": "learned", "positions": kind, "rate": found.rate, "seed": seed, **right}
            for seed, right in zip(seeds, found.results, strict=True)
        ]
    measured = rows.where(part="table")
    facts: dict[str, float] = {
        f"{name} {row['positions']}": row[name]
        for row in measured
        for name in ("largest", "nearest", "least_step", "longest_step", "offset_error")
    }
    right, beyond = (rows.where(part="learned").spreads(column, by="positions") for column in ("seen", "unseen"))
    facts |= {f"right {kind}": right[kind] for kind in COLOURS}
    facts |= {f"unseen {kind}": beyond[kind] for kind in COLOURS}
    halves = rows.where(part="digit", positions=BINARY).column("changes")
    slows = rows.where(part="digit", positions=WAVES).column("changes")
    facts["ratio_binary"] = halves[1] / halves[0]
    facts["ratio_waves"] = slows[1] / slows[0]
    return Finding(
        method=f"Vectors of {POSITIONS} positions: {BITS} binary digits, {WIDTH} sinusoids, the same with tan and "
        "-cot instead of sin and cos, and the position itself. A step is the distance between the vectors of "
        "neighbouring positions; how often a digit or a wave changes is how often it changes its value or its sign, "
        "by position. The best linear map from each position to the one 8 later was fitted; its error is what is left "
        "over. Then one head of attention that sees nothing but positions, of which a matrix between query and key "
        f"learns, learned for {steps} steps to look at the position before, among {SEEN} positions; three times each, "
        f"{told_rates(RATES)}. It was asked at these positions, and at the {SEEN} after them.",
        measured=f"A binary digit changes {facts['ratio_binary']:.2f} times as often as the one below it, a wave "
        f"{facts['ratio_waves']:.2f} times as often (with {WIDTH} dimensions): the same idea. But from one position "
        f"to the next binary vectors move by {facts['least_step binary']:.1f} to {facts['longest_step binary']:.1f}, "
        f"as up to {BITS} digits flip at once, and waves always by {facts['longest_step sinusoidal']:.2f}; an offset "
        f"is a linear map for waves (error {facts['offset_error sinusoidal']:.0e}), not for digits "
        f"({facts['offset_error binary']:.0%}). tan reaches {facts['largest tan']:,.0f} and jumps by up to "
        f"{facts['longest_step tan']:,.0f} in one step. A head finds the position before in {right[WAVES]:.0%} by "
        f"waves, {right[BINARY]:.0%} by binary digits, {right[COUNT]:.0%} by counting and {right[TANGENT]:.0%} by "
        f"tan; at positions that it has not learned from, in {beyond[WAVES]:.0%}, {beyond[BINARY]:.0%}, "
        f"{beyond[COUNT]:.0%} and {beyond[TANGENT]:.0%}.",
        holds=all(abs(often - 0.5**digit) <= 1 / POSITIONS for digit, often in enumerate(halves))
        and all(one > other for one, other in pairwise(slows))
        and facts["largest sinusoidal"] <= 1
        and facts["longest_step sinusoidal"] - facts["least_step sinusoidal"] < 1e-6
        and facts["longest_step binary"] > 2 * facts["least_step binary"]
        and facts["largest tan"] > 50
        and right[WAVES].low > 0.95
        and right[TANGENT].high < right[WAVES].low - 0.1,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, tables, right, beyond),
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


def _steps_back(rng: Rng, length: int, count: int = 64) -> Steps:
    """Positions (B) to look back from, among the first ones; the answer is the one before each."""
    query = torch.from_numpy(rng.integers(1, length, size=count))
    return Steps(query, query - 1, length)


def _loss(learner: Learner, batch: Steps) -> Tensor:
    """The cross-entropy of the position that is looked at, summed."""
    return nn.functional.cross_entropy(learner.hidden(batch.query, batch.length), batch.answer, reduction="sum")


def _learned(trial: Trial, kind: str, rate: float, steps: int) -> tuple[float, dict[str, float]]:
    """The loss on validation, and how often the position before is the one that gets most attention."""
    draw, model = partial(_steps_back, length=SEEN), trial.begin(Glance, table_of(kind))
    try:
        trial.learn("", model, draw, _loss, steps, rate)
    except TrainingError:
        return math.inf, {"seen": 0.0, "unseen": 0.0}
    with torch.no_grad():
        loss = mean_loss(model, trial.held_out(draw, count=500), _loss)
        right = {}
        for name, (first, end) in {"seen": (1, SEEN), "unseen": (SEEN, 2 * SEEN)}.items():
            query = torch.arange(first, end)
            right[name] = (model.hidden(query, end).argmax(dim=-1) == query - 1).float().mean().item()
    return loss, right


def _draw(rows: Rows, tables: dict[str, Tensor], right: dict[str, Spread], beyond: dict[str, Spread]) -> Figure:
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
    groups = ("learned from", "not learned from")
    bars(learned, groups, {kind: [right[kind], beyond[kind]] for kind in COLOURS}, COLOURS)
    learned.set(title="A head looks for the position before", xlabel="positions", ylabel="found", ylim=(0, 1.05))
    learned.legend(loc="upper right")
    return figure
