"""A run as a page: `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from glassformer.cli.app import USE, app
from glassformer.cli.choosing import find_run
from glassformer.cli.options import Device, RunFolder, check_new_file, out


@app.command(rich_help_panel=USE)
def report(
    run: RunFolder = None,
    file: Annotated[Path | None, out("the page; report.html in the run folder if not given", metavar="FILE")] = None,
    device: Device = "auto",
) -> None:
    """Write a page about a run: scores, curves, examples, pictures, recipe. It is one file, which any browser opens.

    `train` writes it when it ends. This command writes it anew, also of a run that is unfinished.

    - `glassformer report --run runs/dates`
    - `glassformer report --run runs/dates --out dates.html`
    """
    if file is not None:
        check_new_file(file, "report.html")
    from glassformer.cli.finishing import report_of
    from glassformer.cli.showing import bar, say
    from glassformer.errors import InputError, RunError
    from glassformer.runs import load
    from glassformer.runs.folder import WEIGHTS, read_run
    from glassformer.runs.report import REPORT, Report, try_on
    from glassformer.writing import IMPORT

    folder = find_run(run, "report")
    try:
        loaded = load(folder, device)
    except RunError as error:
        if any((folder / name).exists() for name in (IMPORT, WEIGHTS)):  # it is damaged
            raise
        made = Report(folder, read_run(folder).recipe, missing=str(error))  # nothing is saved yet
    else:
        folder = loaded.path or folder
        try:
            made = report_of(loaded, folder, try_on(loaded.examples("test"), loaded, bar))
        except InputError as error:
            made = report_of(loaded, folder, missing=str(error))
    path = folder / REPORT if file is None else file
    made.write(path)
    say(f"The report is {path}.")
