"""A comparison of runs as a picture, a table and a page that needs nothing but itself."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.compare.comparing import Comparison
from glassformer.looking import page as pages
from glassformer.looking.style import BLACK, COLOURS, MARKERS, chart_style, save
from glassformer.writing import write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVES = (("steps", "steps"), ("tokens", "tokens trained on"), ("seconds", "seconds"))


def columns(result: Comparison) -> list[str]:
    """What the table says of each run."""
    cost = ["parameters", "steps", "tokens", "seconds", "tokens/s", "memory"]
    return ["run", "seed", result.score, "95 %", "p", "loss", *cost]


def rows(result: Comparison) -> list[list[str]]:
    """The table: a run a row."""
    return [
        [
            run.name,
            str(run.seed),
            f"{run.score:.2f}",
            f"{run.low:.2f} to {run.high:.2f}",
            "" if run.p is None else f"{run.p:.3f}",
            f"{run.loss:.4f}",
            f"{run.parameters:,}",
            f"{run.steps:,}",
            f"{run.tokens:,}",
            f"{run.seconds:,.0f}",
            f"{run.tokens_per_s:,.0f}",
            f"{run.memory / 2**20:,.0f} MiB",
        ]
        for run in result.runs
    ]


def sentences(result: Comparison) -> list[str]:
    """What the numbers are, and what a reader should know of them."""
    first = result.runs[0].name
    losses = " and ".join(sorted({run.loss_of for run in result.runs}))
    what = f"{result.score} ({result.better} is better) on {result.examples:,} {result.split} examples"
    how = f"95 % intervals and p, the paired test against {first}, are by the bootstrap over these examples"
    found = [f"{what} that were kept out of training; {how}."]
    if result.signature:
        found.append(f"sacreBLEU's signature: {result.signature}")
    found.append(
        f"Each run was trained on {result.tokens:,} tokens: both sides of its examples, without padding. The loss is "
        f"that of {losses}; tokens/s is the median over the training, memory the most that was in use."
    )
    return [*found, *result.notes]


def write_report(result: Comparison, folder: Path) -> None:
    """Write figure.png and report.html."""
    with chart_style():
        figure = draw(result)
        save(figure, folder / "figure.png")
        picture = pages.svg(figure, "figure", "losses and scores of the runs")
    write_text(folder / "report.html", page(result, picture))


def page(result: Comparison, picture: str) -> str:
    """The report as one file of HTML."""
    names = " and ".join(dict.fromkeys(run.name for run in result.runs))
    cells = [[escape(cell) for cell in row] for row in rows(result)]
    return pages.page(
        f"{names}: a comparison",
        [pages.table(columns(result), cells), *map(pages.paragraph, sentences(result)), picture],
    )


def draw(result: Comparison) -> Figure:
    """Loss against steps, tokens and seconds; the scores with their intervals; the scores by length."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(run.name for run in result.runs))
    styles = {name: (COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]) for i, name in enumerate(names)}
    figure = Figure(figsize=(12, 7), layout="constrained")
    above, below = figure.subfigures(2, 1)  # type: ignore[misc]  # an array of them
    loss_axes = above.subplots(1, 3, sharey=True)
    for axes, (key, label) in zip(loss_axes, CURVES, strict=True):
        _curves(axes, result, styles, key, label)
    loss_axes[0].set_ylabel("loss (nats)")
    loss_axes[0].set_title("The loss: thin in training, marked in validation")
    loss_axes[0].legend()
    widths = [1, 2] if result.lengths else [1]
    lower = below.subplots(1, len(widths), width_ratios=widths, squeeze=False)[0]
    _scores(lower[0], result, styles)
    if result.lengths:
        _by_length(lower[1], result, styles)
    return figure


def _curves(axes: Axes, result: Comparison, styles: dict[str, tuple[str, str]], key: str, label: str) -> None:
    from matplotlib.ticker import EngFormatter

    known = set[str]()
    for run in result.runs:
        (colour, marker), curves = styles[run.name], run.curves
        axes.plot(
            getattr(curves["training"], key), curves["training"].loss, color=colour, marker="", linewidth=1, alpha=0.6
        )
        last = curves[run.loss_of]
        name = None if run.name in known else run.name
        known.add(run.name)
        axes.plot(getattr(last, key), last.loss, color=colour, marker=marker, label=name)
    axes.set_xlabel(label)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(EngFormatter())  # 200 k


def _scores(axes: Axes, result: Comparison, styles: dict[str, tuple[str, str]]) -> None:
    runs = result.runs
    for place, run in enumerate(runs):
        colour, marker = styles[run.name]
        below, above = max(run.score - run.low, 0), max(run.high - run.score, 0)
        bars: dict[str, Any] = {"xerr": [[below], [above]], "capsize": 4, "markersize": 7}
        axes.errorbar(run.score, place, color=colour, marker=marker, **bars)
        over: dict[str, Any] = {"xytext": (0, 8), "textcoords": "offset points", "ha": "center"}
        axes.annotate(f"{run.score:.2f}", (run.score, place), color=BLACK, **over)
    seeds = len({run.seed for run in runs}) > 1
    labels = [f"{run.name}, seed {run.seed}" if seeds else run.name for run in runs]
    axes.set_yticks(range(len(runs)), labels, parse_math=False)
    axes.set_ylim(len(runs) - 0.4, -0.7)
    axes.margins(x=0.15)
    axes.set_xlabel(f"{result.score}, {result.better} is better")
    axes.set_title("Scores, with 95 % intervals")


def _by_length(axes: Axes, result: Comparison, styles: dict[str, tuple[str, str]]) -> None:
    names = [f"{each.words}\n({each.examples:,})" for each in result.lengths]
    for run in result.runs:
        colour, marker = styles[run.name]
        axes.plot(range(len(names)), run.by_length, color=colour, marker=marker)
    axes.set_xticks(range(len(names)), names)
    axes.set_xlabel("words read (examples)")
    axes.set_ylabel(result.score)
    axes.set_title("Scores by length")
