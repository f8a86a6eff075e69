"""Which run a command works with: the one that is named, or the only one that it can be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.errors import ConfigurationError, InputError
from glassformer.writing import is_run

if TYPE_CHECKING:
    from glassformer.tasks.run import Run

RUNS = Path("runs")  # the folder that `train` writes runs to
LISTED = 5  # runs in a message


def find_runs(given: Sequence[Path] | None, verb: str, or_shipped: bool = False) -> list[Path]:
    """The folders of the runs to use: the given ones, else the current folder if it is a run, else the one in ./runs.

    Only files are looked at: nothing is loaded. `verb` is what the run is needed for, in messages. With `or_shipped`,
    where there is no run, a model that ships is used if it does what the verb says.
    """
    return [*given] if given else [_found(verb, or_shipped)]


def find_run(given: Sequence[Path] | None, verb: str, or_shipped: bool = False) -> Path:
    """The same of a command that works with one run."""
    first, *others = find_runs(given, verb, or_shipped)
    if others:
        raise ConfigurationError(f"{verb} works with one run, but --run names {1 + len(others)}: name one")
    return first


def _found(verb: str, or_shipped: bool) -> Path:
    if is_run(Path()):
        return Path()
    found = sorted(path for path in RUNS.iterdir() if is_run(path)) if RUNS.is_dir() else []
    if len(found) > 1:
        found = [path for path in found if _can(path, verb)] or found
    if len(found) == 1:
        return found[0]
    if not found and or_shipped and (model := _shipped_for(verb)) is not None:
        return model
    if not found:
        raise InputError(
            f"there is no run to {verb} with in the current folder or in {RUNS}: name its folder with --run, "
            "or make a run first with glassformer train or glassformer import"
        )
    names = ", ".join(str(path) for path in found[:LISTED])
    more = f" and {len(found) - LISTED} more" if len(found) > LISTED else ""
    raise InputError(f"there are several runs to {verb} with, {names}{more}: name one with --run")


def _shipped_for(verb: str) -> Path | None:
    """The folder of the first model that ships and does what the verb says; the user is told."""
    from glassformer.cli.items import notice
    from glassformer.runs.shipping import shipped

    for model in shipped().values():
        if _can(model.folder, verb):
            notice(f"no run is named: {model.name} is used, which ships ({model.title})")
            return model.folder
    return None


def _can(path: Path, verb: str) -> bool:
    """Whether a run was trained for a task that does what the verb says; an imported one may be."""
    from glassformer.recipe.reading import DEFAULT_TASK, read_table
    from glassformer.registry import TASKS
    from glassformer.tasks.run import Run

    if not (path / "recipe.toml").is_file():
        return True
    kind = read_table(path / "recipe.toml").get("task", {}).get("kind", DEFAULT_TASK)
    return kind in TASKS and getattr(TASKS[kind].Run, verb, None) is not getattr(Run, verb, None)


def load_run(
    given: Sequence[Path] | None,
    verb: str,
    device: str,
    adapter: Path | None,
    checkpoint: str | None,
    mean: str | None = None,
    several: bool = False,
) -> Run:
    """The run to use, loaded, or the ensemble of `several`; one that cannot do what the verb says is refused."""
    from glassformer.runs import load

    found = find_runs(given, verb, or_shipped=True) if several else [find_run(given, verb, or_shipped=True)]
    run = load(found, device, adapter, checkpoint, mean)  # type: ignore[arg-type]
    if not run.can(verb):
        run.refuse(verb)
    return run
