"""Run experiments at seed 0 and put what they measured, and their figures, into their pages of the guide.

    python tools/guide.py one-hot skip-layers      # without names: all experiments

A page's paragraph that begins with **Measured.** is replaced, and so is its figure: SVG, or PNG where that is smaller
than a large SVG.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from glassformer.experiments import EXPERIMENTS, find, report
from glassformer.experiments.workers import Workers, cores

GUIDE = Path(__file__).parent.parent / "docs" / "guide"
LARGEST = 150_000  # bytes of an SVG


def main(names: list[str]) -> None:
    """Fill in the pages of these experiments."""
    with Workers(cores()) as workers:
        for name in names or EXPERIMENTS:
            experiment = find(name)
            with TemporaryDirectory() as folder:
                result = report.write(experiment, experiment.run(seed=0, workers=workers), 0, Path(folder))
                kind = "svg" if (Path(folder) / "figure.svg").stat().st_size < LARGEST else "png"
                shutil.copy(Path(folder) / f"figure.{kind}", GUIDE / "figures" / f"{name}.{kind}")
            page = GUIDE / f"{name}.md"
            text = re.sub(
                r"^\*\*Measured\.\*\*.*$",
                lambda _, measured=result.measured: f"**Measured.** {measured}",
                page.read_text(encoding="utf-8"),
                flags=re.MULTILINE,
            )
            text = re.sub(rf"\(figures/{name}\.\w+\)", f"(figures/{name}.{kind})", text)
            page.write_text(text, encoding="utf-8")
            print(f"{name}: {'holds' if result.holds else 'does not hold'}")


if __name__ == "__main__":
    main(sys.argv[1:])
