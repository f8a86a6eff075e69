"""The guide's numbers: what `glassformer experiment --all` found, written into the pages of docs/guide.

    glassformer experiment --all --out runs/experiments
    python tools/guide.py runs/experiments [NAME …]

Each page gets its experiment's sentence, its verdict and its figure (a PNG of few colours where the SVG is too large),
the guide's table every claim and verdict. What else a page says is written by hand: read it again when a verdict
changes.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from PIL import Image

from glassformer.experiments import EXPERIMENTS, report

GUIDE = Path(__file__).parent.parent / "docs" / "guide"
LARGEST = 150_000  # bytes of a figure


def main(folder: Path, names: list[str]) -> None:
    """Write the results in this folder, or those of these names, into the guide."""
    for name in names or [each for each in EXPERIMENTS if report.read(folder / each) is not None]:
        result = report.read(folder / name)
        if result is None:
            sys.exit(f"{folder / name} has no finished experiment: run glassformer experiment {name}")
        write(GUIDE / f"{name}.md", folder / name, result)
        sys.stdout.write(f"{name}: {report.verdict(result.holds)}\n")


def write(page: Path, folder: Path, result: report.Result) -> None:
    """Bring a page up to date."""
    kind = "svg" if (folder / "figure.svg").stat().st_size < LARGEST else "png"
    for each in ("svg", "png"):
        (GUIDE / "figures" / f"{result.name}.{each}").unlink(missing_ok=True)
    figure = GUIDE / "figures" / f"{result.name}.{kind}"
    shutil.copyfile(folder / f"figure.{kind}", figure)
    if figure.stat().st_size >= LARGEST:
        Image.open(figure).convert("RGB").quantize(128).save(figure, optimize=True)
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^\*.*\*$", lambda _: f"*{result.claim}*", text, count=1, flags=re.MULTILINE)
    text = re.sub(r"!\[.*?\]\(figures/.*?\)", f"![{result.name}](figures/{result.name}.{kind})", text, count=1)
    measured = f"**Measured.** {result.measured}\n\n**Does it hold?** {report.verdict(result.holds)}"
    text = re.sub(r"^\*\*Does it hold\?\*\*.*\n\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\*\*Measured\.\*\*.*$", lambda _: measured, text, count=1, flags=re.MULTILINE)
    page.write_text(text, encoding="utf-8")
    index = GUIDE / "README.md"
    words = "holds" if result.holds else "does not hold"
    row = re.compile(rf"^(\| \[.*?\]\({re.escape(result.name)}\.md\)) \|.*$", flags=re.MULTILINE)
    text = index.read_text(encoding="utf-8")
    index.write_text(row.sub(lambda found: f"{found[1]} | {result.claim} | {words} |", text), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:])
