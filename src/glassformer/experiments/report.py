"""Reports: an experiment's folder, with its figure, its numbers, and a page that says what they mean.

`figure.png`, `figure.svg`, `data.csv`, `report.md`, and `finding.json`, which is written last: where it is, all is.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import Literal

from glassformer.experiments import Experiment, Finding
from glassformer.experiments.finding import Row
from glassformer.looking.style import look, save
from glassformer.writing import make_folder, replacing, write_json, write_text

LAST = "finding.json"
KINDS: tuple[Literal["png", "svg"], ...] = ("png", "svg")


@dataclass(frozen=True)
class Result:
    """What is known of a finished experiment without its figure."""

    name: str
    claim: str
    measured: str
    holds: bool
    seed: int
    facts: dict[str, float]


def write(experiment: Experiment, finding: Finding, seed: int, folder: Path) -> Result:
    """Fill the folder of an experiment, or fill it anew."""
    make_folder(folder)
    (folder / LAST).unlink(missing_ok=True)
    with look():
        figure = finding.draw()
        for kind in KINDS:
            with replacing(folder / f"figure.{kind}") as path:
                save(figure, path, kind)
    write_text(folder / "data.csv", table(finding.rows))
    write_text(folder / "report.md", page(experiment, finding, seed))
    result = Result(experiment.name, experiment.claim, finding.measured, finding.holds, seed, finding.facts)
    write_json(folder / LAST, asdict(result))
    return result


def read(folder: Path) -> Result | None:
    """The result in a folder; None if there is none that can be read."""
    try:
        return Result(**json.loads((folder / LAST).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def page(experiment: Experiment, finding: Finding, seed: int) -> str:
    """The page of an experiment, in Markdown."""
    return f"""# {experiment.name}

**The claim.** {experiment.claim}

**What was measured.** {finding.measured}

**Does it hold?** {verdict(finding.holds)}

![{experiment.name}](figure.svg)

**What was done.** {finding.method}

Every point of the figure is in [data.csv](data.csv). To do it again:

    glassformer experiment {experiment.name} --seed {seed}
"""


def verdict(holds: bool) -> str:
    """Whether a claim holds, in words."""
    return "Yes." if holds else "Not as the notes say: read what was measured instead."


def table(rows: Sequence[Row]) -> str:
    """Rows as CSV, numbers with six digits."""
    text = StringIO()
    columns = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, [*columns], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: float(f"{v:.6g}") if isinstance(v, float) else v for name, v in row.items()})
    return text.getvalue()
