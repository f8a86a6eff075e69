"""Recurrent encoder-decoders beside the Transformer, on the same pairs, after the same number of steps.

An LSTM without attention knows its source by one vector; with attention it looks back at every word. The pairs are
made here: dates to ISO 8601, and letters to be reversed, up to `--letters` of them. Test pairs never occur in
training. The last line is JSON.

    python benchmarks/recurrent.py --steps 300 --letters 20
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any, cast

import glassformer as gf
from glassformer.recipe import find_recipe, make_recipe
from glassformer.tasks.translation import Translator

LSTM: dict[str, Any] = {"family": "recurrent", "width": 128, "layers": 1, "dropout": 0.0, "bidirectional": True}
WAYS: dict[str, dict[str, Any]] = {
    "lstm, no attention": {"model": {**LSTM, "attention": "none"}},
    "lstm, additive": {"model": {**LSTM, "attention": "additive"}},
    "lstm, multiplicative": {"model": {**LSTM, "attention": "multiplicative"}},
    "transformer": {"model": {"width": 64, "heads": 4, "layers": 2, "hidden": 256, "dropout": 0.0}},
}
RATES = {"transformer": 3e-3}  # which has Muon besides, as its own recipes do
RECURRENT_RATE = 5e-3


def measured(way: str, recipe: dict[str, Any], steps: int, folder: Path) -> dict[str, Any]:
    """Train a recipe in one way, and score it on its test pairs."""
    muon = way == "transformer"
    own = {"lr": RATES.get(way, RECURRENT_RATE), "optimiser": "muon" if muon else "adamw"}
    kept = {key: value for key, value in recipe["train"].items() if muon or key != "muon_lr"}
    train = kept | own | {"steps": steps, "validate_every": steps, "save_every": steps}
    began = time.perf_counter()
    run = gf.train(make_recipe({**recipe, **WAYS[way], "train": train}), folder)
    seconds = time.perf_counter() - began
    found = cast(Translator, run).evaluate(run.examples("test"))
    size = sum(parameter.numel() for parameter in run.model.parameters())
    return {"way": way, "exact": found.scores.exact, "loss": found.loss, "parameters": size, "seconds": seconds}


def recipe_of(name: str, letters: int) -> dict[str, Any]:
    """A recipe that ships, as tables; that of letters with longer ones."""
    table = tomllib.loads(find_recipe(name).read_text(encoding="utf-8"))
    if name == "reverse":
        table["source"] |= {"length": letters, "count": 20_000}
        table["decode"] |= {"max_length": letters + 2}
    return table


def main() -> None:
    """Measure all ways on both kinds of pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--letters", type=int, default=20)
    wish = parser.parse_args()
    report: dict[str, Any] = {"steps": wish.steps, "letters": wish.letters}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("dates", "reverse"):
            report[name] = []
            for way in WAYS:
                found = measured(
                    way, recipe_of(name, wish.letters), wish.steps, Path(folder) / f"{name}-{len(report[name])}"
                )
                report[name].append(found)
                print(
                    f"{name:8} {way:21} exact {found['exact']:7.1%}  loss {found['loss']:.4f}  "
                    f"{found['parameters']:,} parameters  {found['seconds']:.0f} s",
                    flush=True,
                )
    print(json.dumps(report))


if __name__ == "__main__":
    main()
