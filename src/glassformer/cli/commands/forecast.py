"""The command that continues series of numbers: `forecast`."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated, Any

from glassformer.cli.items import Item
from glassformer.cli.options import Tables, check_new_file, out
from glassformer.cli.template import Template, reads_texts
from glassformer.errors import ConfigurationError

PICTURES = (".png", ".svg", ".pdf")
TABLES = (".csv",)


@reads_texts("forecast", given=Tables)
def forecast(
    run: Any,
    to: Annotated[Path | None, out("write the forecasts to a .csv, or draw them (.png, .svg, .pdf)", "FILE")] = None,
) -> Template[list[Any], Any]:
    """Forecast what comes after series of numbers: a line for each step, with its time and a number for each column.

    Each CSV is a file with the columns that the run was trained on; its last steps are read. With
    quantiles, the numbers are medians, and the quantiles of each column follow. A file may hold several series.

    - `glassformer forecast --run runs/seasons data.csv`
    - `glassformer forecast --run runs/seasons data.csv --out forecast.png`
    - `glassformer forecast --run runs/seasons monday.csv tuesday.csv --json`
    """
    if to is not None:
        if to.suffix.lower() not in (*PICTURES, *TABLES):
            raise ConfigurationError(f"--out is {to}: expected a file that ends in {', '.join((*TABLES, *PICTURES))}")
        check_new_file(to, "forecast.csv")
    kept: list[tuple[Any, Any]] = []  # series, and what is forecast after each

    def work(items: list[list[Any]], progress: Any) -> list[list[Any]]:
        found = iter(run.forecast([series for item in items for series in item], progress))
        answers = [[next(found) for _ in item] for item in items]
        kept.extend(
            zip((each for item in items for each in item), (each for some in answers for each in some), strict=True)
        )
        if to is not None:
            _write(run, kept, to)
        return answers

    def plain(item: Item, found: list[Any]) -> str:
        several = len(found) > 1
        rows = [[each.series, *row] if several else row for each in found for row in each.rows()]
        return "\n".join("\t".join(row) for row in rows)

    def details(found: list[Any]) -> dict[str, Any]:
        names = ("series", "columns", "times", "values", "quantiles")
        return {"forecasts": [{name: getattr(each, name) for name in names} for each in found]}

    return Template(
        doing="forecasting",
        things="files",
        check=run.series_in,
        work=work,
        plain=plain,
        output=lambda found: found[0].values,
        details=details,
    )


def _write(run: Any, kept: list[tuple[Any, Any]], to: Path) -> None:
    """Write forecasts as a table or as a picture."""
    from glassformer.looking.plots.series import forecast_figure
    from glassformer.looking.style import save_and_tell
    from glassformer.writing import write_text

    if to.suffix.lower() in PICTURES:
        panels = [run.panel_of(series, found) for series, found in kept]
        save_and_tell(forecast_figure(panels, run.recipe.title, run.task.season), to)
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["series", *kept[0][1].header])
    writer.writerows([found.series, *row] for _, found in kept for row in found.rows())
    write_text(to, text.getvalue())
