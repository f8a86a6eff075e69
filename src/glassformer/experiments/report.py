"""Reports: an experiment's folder, with its figure, its numbers and a page that says what they mean; and the gallery.

`figure.png`, `figure.svg`, `data.csv`, `report.md`, and `finding.json`, which is written last: where it is, all is. The
gallery is a folder of such folders, with a page that shows all of them.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from io import StringIO
from pathlib import Path
from typing import Literal

from glassformer.errors import Stopped, TrainingError
from glassformer.experiments import EXPERIMENTS, Experiment, Finding
from glassformer.experiments.finding import Row, Spread
from glassformer.looking.style import chart_style, save
from glassformer.writing import make_folder, write_json, write_text

LAST = "finding.json"
KINDS: tuple[Literal["png", "svg"], ...] = ("png", "svg")
HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>The claims of the notes, measured</title>
<style>body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}img{max-width:100%}
section{border-top:1px solid #ccc;padding:1rem 0}</style></head><body>
<h1>The claims of the notes, measured</h1>
"""


@dataclass(frozen=True)
class Result:
    """What is known of a finished experiment without its figure."""

    name: str
    claim: str
    measured: str
    holds: bool
    seed: int
    seeds: list[int]  # of the repetitions, if there are several
    facts: dict[str, float]  # of several seeds the mean, and the lowest and the highest under names of their own


def write(experiment: Experiment, finding: Finding, seed: int, folder: Path) -> Result:
    """Fill the folder of an experiment, or fill it anew."""
    make_folder(folder)
    (folder / LAST).unlink(missing_ok=True)
    with chart_style():
        figure = finding.draw()
        for kind in KINDS:
            save(figure, folder / f"figure.{kind}")
    write_text(folder / "data.csv", table(finding.rows))
    write_text(folder / "report.md", page(experiment, finding, seed))
    words = (experiment.name, experiment.claim, finding.measured, finding.holds)
    result = Result(*words, seed, [*finding.seeds], _flat(finding.facts))
    write_json(folder / LAST, asdict(result))
    return result


def _flat(facts: Mapping[str, float]) -> dict[str, float]:
    """Facts as plain numbers."""
    flat: dict[str, float] = {}
    for name, fact in facts.items():
        flat[name] = float(fact)
        if isinstance(fact, Spread):
            flat |= {f"{name}, lowest": fact.low, f"{name}, highest": fact.high}
    return flat


def read(folder: Path) -> Result | None:
    """The result in a folder; None if there is none that can be read."""
    try:
        return Result(**json.loads((folder / LAST).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def page(experiment: Experiment, finding: Finding, seed: int) -> str:
    """The page of an experiment, in Markdown."""
    return f"""# {experiment.name}

**The claim.** {experiment.claim}

**What was measured.** {finding.measured}

**Does it hold?** {verdict(finding.holds)}

![{experiment.name}](figure.svg)

**What was done.** {finding.method}{_repeated(finding.seeds)}

Every point of the figure is in [data.csv](data.csv). To do it again:

    glassformer experiment {experiment.name} --seed {seed}
"""


def _repeated(seeds: Sequence[int]) -> str:
    """What a page says of several seeds."""
    if not seeds:
        return ""
    *first, last = map(str, seeds)
    return (
        f" It was done {len(seeds)} times, with the seeds {', '.join(first)} and {last}. Numbers are means, with "
        "the lowest and the highest in brackets; bands and whiskers of the figure reach from the lowest to the highest."
    )


def verdict(holds: bool) -> str:
    """Whether a claim holds, in words."""
    return "Yes." if holds else "It does not hold as the notes say it: read what was measured instead."


def table(rows: Sequence[Row]) -> str:
    """Rows as CSV, numbers with six digits."""
    text = StringIO()
    columns = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, [*columns], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: float(f"{v:.6g}") if isinstance(v, float) else v for name, v in row.items()})
    return text.getvalue()


def build(
    folder: Path,
    seed: int,
    perform: Callable[[Experiment], Finding],
    again: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Result]:
    """Perform every experiment into a folder of its own under `folder`, and write the index.

    A result of the same seed is kept unless `again`. If one experiment fails, the others are still performed; the
    error at the end names those that failed.
    """
    make_folder(folder)
    results: list[Result] = []
    failures: list[str] = []
    for number, experiment in enumerate(EXPERIMENTS.values(), start=1):
        place = f"{number} of {len(EXPERIMENTS)}: {experiment.name}"
        known = None if again else read(folder / experiment.name)
        if known is not None and known.seed == seed and known.claim == experiment.claim:
            tell(f"{place}: done already")
            results.append(known)
            continue
        tell(place)
        try:
            results.append(write(experiment, perform(experiment), seed, folder / experiment.name))
        except (Stopped, MemoryError):
            raise
        except Exception as error:  # the others are still worth having
            failures.append(f"{experiment.name} ({type(error).__name__}: {error})")
            tell(f"{place}: failed: {error}")
    write_text(folder / "index.md", markdown(results))
    write_text(folder / "index.html", html(results))
    if failures:
        raise TrainingError(f"{len(failures)} of {len(EXPERIMENTS)} experiments failed: {'; '.join(failures)}")
    return results


def markdown(results: Sequence[Result]) -> str:
    """The gallery as a page of Markdown."""
    parts = [
        f"## [{each.name}]({each.name}/report.md)\n\n*{each.claim}*\n\n{each.measured}\n\n"
        f"**Does it hold?** {verdict(each.holds)}\n\n![{each.name}]({each.name}/figure.svg)\n"
        for each in results
    ]
    return "\n".join(["# The claims of the notes, measured\n", *parts])


def html(results: Sequence[Result]) -> str:
    """The gallery as a page that any browser opens, without a network."""
    parts = [
        f'<section id="{each.name}"><h2>{each.name}</h2><p><em>{escape(each.claim)}</em></p>'
        f"<p>{escape(each.measured)}</p><p><strong>Does it hold?</strong> {escape(verdict(each.holds))}</p>"
        f'<img src="{each.name}/figure.svg" alt="{escape(each.measured)}">'
        f'<p><a href="{each.name}/data.csv">data.csv</a></p></section>\n'
        for each in results
    ]
    return "".join([HEAD, *parts, "</body></html>\n"])
