"""Experiments: what the lecture notes claim, each as a small thing to run, with a figure and a sentence of numbers.

One file an experiment, and no list of them: `dot-product-variance` is `dot_product_variance.py`, which has a `CLAIM`,
its place in the story (`ORDER`), and `run(trial, …)`, which returns a `Finding`. The numbers after `trial` are its
sizes, so that a test can ask for less.
"""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from glassformer.errors import ConfigurationError
from glassformer.experiments.finding import Finding, Progress, silent

if TYPE_CHECKING:
    from glassformer.experiments.workers import Workers

__all__ = ["EXPERIMENTS", "Experiment", "Finding", "Progress", "find", "silent"]


@dataclass(frozen=True)
class Experiment:
    """A claim, and the name under which it is tried."""

    name: str
    claim: str

    def run(
        self,
        seed: int = 0,
        progress: Progress = silent,
        workers: Workers | None = None,
        repeats: int = 3,
        **sizes: Any,
    ) -> Finding:
        """Try the claim `repeats` times; the caller's own random numbers and threads stay as they are.

        One thread computes, so that sums are added in the same order on every machine; `workers` share the trainings.
        """
        from glassformer.experiments.trial import Trial
        from glassformer.experiments.workers import reproducible

        module = import_module(f"{__name__}.{self.name.replace('-', '_')}")
        with reproducible(seed):
            found: Finding = module.run(Trial(seed, progress, workers, repeats), **sizes)
        return found


def _claims() -> list[tuple[int, str, str]]:
    """Place, name and claim of every experiment, read from its file without importing it, as that imports torch."""
    found = []
    for file in files(__name__).iterdir():
        if file.name.endswith(".py") and "\nCLAIM = " in (text := file.read_text(encoding="utf-8")):
            named = {
                statement.targets[0].id: statement.value
                for statement in ast.parse(text).body
                if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
            }
            order, claim = (ast.literal_eval(named[name]) for name in ("ORDER", "CLAIM"))
            found.append((order, file.name.removesuffix(".py").replace("_", "-"), claim))
    return sorted(found)


EXPERIMENTS = {name: Experiment(name, claim) for _, name, claim in _claims()}


def find(name: str) -> Experiment:
    """The experiment of this name."""
    if name not in EXPERIMENTS:
        near = difflib.get_close_matches(name, EXPERIMENTS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(EXPERIMENTS)}"
        raise ConfigurationError(f'there is no experiment "{name}": {hint}')
    return EXPERIMENTS[name]
