"""The gallery: all experiments, one after the other, and a page that shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from glassformer.errors import Stopped, TrainingError
from glassformer.experiments import EXPERIMENTS, Experiment, Finding
from glassformer.experiments.report import Result, read, verdict, write
from glassformer.writing import make_folder, write_text

HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>The claims of the notes, measured</title>
<style>body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}img{max-width:100%}
section{border-top:1px solid #ccc;padding:1rem 0}</style></head><body>
<h1>The claims of the notes, measured</h1>
"""


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
