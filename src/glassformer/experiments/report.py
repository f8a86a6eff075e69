"""Reports: an experiment's folder, with its figure, its numbers, and a page that says what they mean.

`figure.png`, `figure.svg`, `data.csv`, `report.md`, and `finding.json`, which is written last: where it is, all is.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Literal

from glassformer.errors import InputError
from glassformer.experiments import Experiment, Finding
from glassformer.experiments.finding import Row
from glassformer.looking.style import look, save
from glassformer.writing import replacing

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
    with replacing(folder / "data.csv") as path:
        _write_rows(finding.rows, path)
    with replacing(folder / "report.md") as path:
        path.write_text(page(experiment, finding, seed), encoding="utf-8")
    result = Result(experiment.name, experiment.claim, finding.measured, finding.holds, seed, finding.facts)
    with replacing(folder / LAST) as path:
        path.write_text(json.dumps(asdict(result), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return result


def make_folder(folder: Path) -> None:
    """Make a folder that can be written to; called before there is anything to write, so that no work is lost."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"{folder}: cannot be a folder for experiments: {error.strerror}") from None


def read(folder: Path) -> Result | None:
    """What was written there; None where nothing was, or where it cannot be read."""
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


def _write_rows(rows: Sequence[Row], path: Path) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, columns, lineterminator="\n")
        table.writeheader()
        table.writerows({name: _short(value) for name, value in row.items()} for row in rows)


def _short(value: Any) -> Any:
    """A number with as many digits as it is worth."""
    return float(f"{value:.6g}") if isinstance(value, float) else value
