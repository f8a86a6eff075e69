"""The report of a run: what was trained on what, its scores, curves, examples and pictures, as one file of HTML.

A section whose facts are missing is left out, or says in a sentence what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from glassformer.data.examples import png_of
from glassformer.errors import GlassformerError, RunError
from glassformer.looking import page as pages
from glassformer.looking.figures import loss_figure
from glassformer.looking.style import chart_style
from glassformer.recipe import Recipe
from glassformer.runs.folder import DATA, ENVIRONMENT, RECIPE, WEIGHTS
from glassformer.runs.metrics import read_metrics
from glassformer.tasks.run import Evaluation, Progress, Run
from glassformer.tasks.showing import Sample, differences, shortened
from glassformer.training import Checkpoints
from glassformer.writing import read_json, write_text

REPORT = "report.html"
SCORED = 1000  # test examples at most
READ, WRITTEN = 300, 600  # characters of an input and of an output in an example
Bar = Callable[[str, int], AbstractContextManager[Progress | None]]


@dataclass(frozen=True)
class Tested:
    """How a run does on some of the test examples that were kept out of its training."""

    examples: list[Any]
    found: Evaluation
    kept: int

    @property
    def sentence(self) -> str:
        """On how many examples, in words."""
        some = f"{len(self.examples):,} of " if len(self.examples) < self.kept else ""
        return f"On {some}{self.kept:,} test examples, which it was not trained on:"


def try_on(kept: Sequence[Any], run: Run, bar: Bar = lambda name, total: nullcontext()) -> Tested:
    """Evaluate a run on the test examples that were kept, drawn over all if they are many."""
    examples = run.drawn(kept, SCORED)
    with bar("testing", len(examples)) as progress:
        found = run.evaluate(examples, progress=progress)
    found.check(run.path)
    return Tested(examples, found, len(kept))


@dataclass(frozen=True)
class Report:
    """What a report is made of. Without a run, or without a test, `missing` says in a sentence why."""

    folder: Path
    recipe: Recipe
    run: Run | None = None
    tested: Tested | None = None
    missing: str = ""
    commands: Sequence[str] = ()  # to use the run

    def write(self, path: Path) -> None:
        """Write the report, at once."""
        write_text(path, self.page())

    def page(self) -> str:
        """The report as one file of HTML."""
        title = self.recipe.title or self.folder.absolute().name
        records = _read(lambda: read_metrics(self.folder), [])
        sections: dict[str, Callable[[], Iterator[str]]] = {
            "Scores": lambda: self._scores(records),
            "Training": lambda: self._curves(records),
            "Examples": self._examples,
            "Pictures": self._pictures,
            "Use": self._use,
            "Recipe": self._recipe,
        }
        return pages.page(title, [*self._head(records), *(_section(name, each) for name, each in sections.items())])

    def _head(self, records: list[dict[str, Any]]) -> Iterator[str]:
        task = self.recipe.task
        meaning = (type(task).__doc__ or "").strip().split("\n")[0].split(". ")[0].removesuffix(".")
        yield pages.paragraph(f"Task: {task.kind}. {meaning}.", "quiet")
        facts = _facts(self.folder, self.recipe, self.run, records)
        yield f"<dl>{''.join(f'<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>' for k, v in facts.items())}</dl>"
        trained = (self.folder / RECIPE).is_file()
        if trained and not (self.folder / WEIGHTS).is_file():
            found = Checkpoints(self.folder).all()
            last = f"its last checkpoint is of step {found[-1].step:,}" if found else "it has no checkpoint yet"
            now = "; what follows is of the weights that it would end with now" if self.run is not None else ""
            yield pages.paragraph(f"The training is unfinished: {last}{now}.", "note")

    def _scores(self, records: list[dict[str, Any]]) -> Iterator[str]:
        """Those of the test; without one, those of the best validation."""
        if self.tested is not None:
            found = self.tested.found
            yield pages.paragraph(self.tested.sentence)
            rows = [
                [*map(escape, (each.name, each.value, each.interval)), escape(f"{each.unit} {each.note}".strip())]
                for each in found.table()
            ]
            yield pages.table(["score", "value", "95 % interval", ""], rows, last_is_text=True)
            yield _details("All that was measured", "\n".join(found.lines()))
            return
        if self.missing:
            yield pages.paragraph(f"There are no scores of a test: {self.missing}.", "note")
        watch = self.recipe.train.watch
        measured = [each for each in records if each.get(f"valid_{watch}") is not None]
        if measured:
            choose = min if watch == "loss" else max
            best = choose(measured, key=lambda each: float(each[f"valid_{watch}"]))
            values = {key.removeprefix("valid_"): value for key, value in best.items() if key.startswith("valid_")}
            rows = [[escape(name), f"{value:.4g}"] for name, value in values.items() if value is not None]
            yield pages.paragraph(f"Validation at step {best['step']:,}, the best by {watch}:")
            yield pages.table(["score", "value"], rows)

    def _curves(self, records: list[dict[str, Any]]) -> Iterator[str]:
        if not records:
            return
        with chart_style():
            figure = loss_figure(records, unit=self.recipe.task.loss_unit)
            picture = pages.svg(figure, "loss", "the loss and the scores of validation by step")
        yield _figure(picture, "The loss, and the scores of validation. The thin line is what training minimises.")

    def _examples(self) -> Iterator[str]:
        if self.run is None or self.tested is None:
            return
        examples, found = self.tested.examples, self.tested.found
        samples = self.run.samples(examples, found)
        if samples:
            yield _samples(samples)
        elif lines := self.run.shown(examples, found):  # of a task that says no more
            yield _pre("\n".join(each.strip() for each in lines))

    def _pictures(self) -> Iterator[str]:
        if self.run is None or self.tested is None:
            return
        for each in self.run.pictures(self.tested.examples, self.tested.found):
            yield _figure(pages.svg(each.figure, each.name, each.caption), each.caption)

    def _use(self) -> Iterator[str]:
        if self.commands:
            yield _pre("\n".join(self.commands))
        if self.run is not None:
            yield pages.paragraph("In Python:")
            yield _pre(f"import glassformer as gf\n\nrun = gf.load({str(self.folder)!r})")

    def _recipe(self) -> Iterator[str]:
        text = _read(lambda: (self.folder / RECIPE).read_text(encoding="utf-8", errors="replace"), "")
        if text:
            yield _details("All keys of recipe.toml", text)


def _facts(folder: Path, recipe: Recipe, run: Run | None, records: list[dict[str, Any]]) -> dict[str, str]:
    """What was trained on what, as far as the files of a run tell."""
    data = _read(lambda: read_json(folder / DATA, dict[str, Any]), {})
    machine = _read(lambda: read_json(folder / ENVIRONMENT, dict[str, Any]), {})
    kept, packages = (found if isinstance(found, dict) else {} for found in (data.get("kept"), machine.get("packages")))
    last = {key: value for each in records for key, value in each.items() if value is not None}
    facts = dict[str, str]()
    for split in ("train", "valid", "test"):
        if isinstance(kept.get(split), int):
            facts[f"{split} examples"] = f"{kept[split]:,}"
    if "tokens" in last:
        facts[f"{recipe.task.counted_in} trained on"] = f"{last['tokens']:,}"
    if records:
        facts["steps"] = f"{last['step']:,}"
    if "elapsed" in last:
        facts["minutes"] = f"{last['elapsed'] / 60:,.1f}"
    if run is not None:
        facts["parameters"] = f"{sum(each.numel() for each in run.model.parameters()):,}"
        facts["model"] = str(getattr(recipe.model, "family", None) or run.model.blueprint.family)
    if machine:
        device = machine.get("device")
        name = machine.get("accelerator") if device in (None, "cuda") else None
        facts["device"] = str(name or f"{device or 'cpu'}, {machine.get('processors')} cores")
        if device == "cpu" and "kernels" in machine:
            facts["kernels"] = str(machine["kernels"])
    facts |= {name: str(packages[name]) for name in ("glassformer", "torch") if name in packages}
    return facts | ({"Python": str(machine["python"])} if "python" in machine else {})


def _read(read: Callable[[], Any], otherwise: Any) -> Any:
    """What a file holds, or something else where it is missing or damaged."""
    try:
        return read()
    except (OSError, RunError):
        return otherwise


def _section(name: str, parts: Callable[[], Iterator[str]]) -> str:
    """A section with its heading; nothing where there is nothing to say, a sentence where it cannot be said."""
    made = list[str]()
    try:
        made.extend(parts())
    except GlassformerError as error:
        made.append(pages.paragraph(f"This cannot be shown: {error}", "note"))
    return "\n".join([f"<section>\n<h2>{name}</h2>", *made, "</section>"]) if made else ""


def _samples(samples: Sequence[Sample]) -> str:
    """Examples as a table; where an output is not as the reference, both have their differences marked."""
    compared = any(each.reference is not None for each in samples)
    seen = any(each.pixels is not None for each in samples)
    rows = []
    for each in samples:
        output, reference = shortened(each.output, WRITTEN), shortened(each.reference or "", WRITTEN)
        made, right = escape(output), f"✓&nbsp;{escape(reference)}"
        if not each.right:
            made, right = (marked(*two, each.whole) for two in ((output, reference), (reference, output)))
        detail = f'&nbsp;<span class="quiet">{escape(each.detail)}</span>' if each.detail else ""
        image = [pages.png(png_of(each.pixels), each.input) if each.pixels is not None else ""] * seen
        rows.append([*image, escape(shortened(each.input, READ)), f"{made}{detail}", *[right] * compared])
    head = [*["image"] * seen, "input", "output", *[samples[0].called] * compared]
    return pages.table(head, rows, "texts")


def marked(text: str, other: str, whole: bool = False) -> str:
    """A text as HTML in which that is marked which another text does not have: words, or letters of a single word."""
    pieces = differences(text, other, whole)
    return "".join(f"<mark>{escape(piece)}</mark>" if lacking else escape(piece) for piece, lacking in pieces)


def _figure(picture: str, caption: str) -> str:
    return f"<figure>\n{picture}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"


def _pre(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def _details(summary: str, text: str) -> str:
    return f"<details>\n<summary>{escape(summary)}</summary>\n{_pre(text)}\n</details>"
