"""How good a run is: `evaluate`."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer.cli.app import USE, app
from glassformer.cli.choosing import find_runs
from glassformer.cli.options import Adapter, AsJson, Beam, Checkpoint, Device, Int8, MeanName, RunFolders, path
from glassformer.errors import ConfigurationError


@app.command(rich_help_panel=USE)
def evaluate(
    run: RunFolders = None,
    data: Annotated[
        Path | None,
        path(
            metavar="FILE",
            meaning="examples of your own, as the run's task takes them: a TSV of source and target, or of one or two "
            "texts and a label; a text; SQuAD's JSON; a folder of images by label; JSONL of images and captions; a CSV "
            "of numbers",
        ),
    ] = None,
    split: Annotated[str, typer.Option(metavar="NAME", help="valid or test, of the run's own data")] = "test",
    beam: Beam = None,
    int8: Int8 = False,
    rouge: Annotated[
        bool, typer.Option("--rouge", metavar="", help="ROUGE as well, of summaries (in English letters)")
    ] = False,
    choices: Annotated[
        list[str] | None,
        typer.Option(
            "--choice",
            metavar="LABEL",
            help="of a language model: a label that it chooses by how likely it is after the text; may be repeated; "
            "--data is a TSV of texts and labels then",
        ),
    ] = None,
    prompt: Annotated[
        str, typer.Option(metavar="TEXT", help="with --choice: what is read before a label; {} is the text")
    ] = "{}",
    adapter: Adapter = None,
    checkpoint: Checkpoint = None,
    device: Device = "auto",
    mean: MeanName = None,
    as_json: AsJson = False,
) -> None:
    """Score a run on held-out examples, with 95 % intervals. Translation: sacreBLEU with its signature, chrF, and more.

    Pairs with the same source are one source with several references. Labels: accuracy, F1. Tags: the same for words,
    and sentences without a mistake. Answers: exact match and F1 as SQuAD defines them. Captions: as translations, and
    how many are right, where the source can tell. Documents: perplexity per token and word, bits per byte. Forecasts:
    MAE, RMSE and MASE, beside those of the naive forecasts. Of the run's own examples and weights, it writes the
    pictures in the run's folder anew: attention.png, confusion.png.

    Several runs are scored as one, which writes by the mean of what they expect.

    - `glassformer evaluate --run runs/dates`
    - `glassformer evaluate --run runs/dates --data mine.tsv --json`
    - `glassformer evaluate --run runs/seed-0 --run runs/seed-1 --run runs/seed-2 --beam 5`
    - `glassformer evaluate --run runs/gpt --data reviews.tsv --choice good --choice bad --prompt "{} It was"`
    """
    from glassformer.cli.items import notice
    from glassformer.cli.showing import bar
    from glassformer.runs import examples_in, load

    loaded: Any = load(find_runs(run, "evaluate"), device, adapter, checkpoint, mean)  # type: ignore[arg-type]
    if choices:
        _evaluate_choices(loaded, data, choices, prompt, as_json)
        return
    if prompt != "{}":
        raise ConfigurationError("--prompt is for --choice: name the labels with it, too")
    options: dict[str, Any] = {"beam": beam, "int8": int8, "rouge": rouge}
    options = {name: value for name, value in options.items() if value}
    for name in sorted(options.keys() - loaded.options):
        raise ConfigurationError(
            f"{loaded.path} was trained for {loaded.task.kind} and takes no --{name}: "
            "--beam, --int8 and --rouge are for runs that write"
        )
    if loaded.reads_images:
        options["complain"] = lambda sentence: notice(f"{sentence}: left out")
    examples = loaded.examples(split) if data is None else examples_in(data, loaded)
    with bar("evaluating", len(examples)) as progress:
        found = loaded.evaluate(examples, progress=progress, **options)
    found.check(loaded.path)
    own = adapter is None and checkpoint is None and not loaded.others
    if data is None and own:  # else they are not of the run, nor of its own weights
        with suppress(OSError):  # a run may be used where it cannot be written to
            loaded.draw(examples, found, loaded.path)
    _print(found, loaded, as_json)


def _evaluate_choices(run: Any, data: Path | None, choices: list[str], prompt: str, as_json: bool) -> None:
    """Score a language model on a labelled file, without training: it chooses among the labels."""
    from glassformer.cli.showing import bar
    from glassformer.tasks.choosing import check_choices, evaluate_choices, labelled

    if not run.can("choose"):
        run.refuse("choose")
    if data is None:
        raise ConfigurationError("--choice needs --data: a TSV of texts and labels")
    examples = labelled(data, Path.cwd(), check_choices(choices))
    with bar("evaluating", len(examples)) as progress:
        found = evaluate_choices(run, examples, choices, prompt, progress)
    found.check(run.path)
    _print(found, run, as_json)


def _print(found: Any, run: Any, as_json: bool) -> None:
    together: dict[str, Any] = {}
    if run.others:
        together = {"runs": [str(path) for path in (run.path, *run.others)], "mean": run.model.mean}
    if as_json:
        lines = [json.dumps({**together, **found.facts(), "intervals": found.intervals})]
    else:
        lines = found.lines()
        if together:
            runs = together["runs"]
            lines = [f"{len(runs)} runs together, by the mean of {together['mean']}: {', '.join(runs)}", *lines]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
