"""What `glassformer new` writes, trained, beside the best that the sweep reaches in that time.

    python benchmarks/new.py PAIRS.tsv --examples 2000,20000,150000 --minutes 20

For each number of examples the recipe is suggested for this machine, trained, and scored as the sweep scores
(benchmarks/sweep.py: the same held-out pairs, greedily). Beside it stands the best that any size of the sweep reaches
with as many tokens as this machine trains on in the time. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import glassformer as gf
from glassformer.recipe import make_recipe
from glassformer.runs import examples_in
from glassformer.suggest import sizes
from glassformer.suggest.recognising import recognise
from glassformer.suggest.suggesting import suggest
from sweep import drawn


def tried(path: Path, examples: int, minutes: float, folder: Path) -> dict[str, Any]:
    """Suggest, train, score."""
    train, test = drawn(path, examples, folder)
    made = suggest(recognise([train], "translation"), minutes)
    size = next(name for name, each in sizes.SIZES.items() if each["width"] == made.table["model"]["width"])
    run: Any = gf.train(make_recipe(made.table), folder / f"run-{examples}")
    score = run.evaluate(examples_in(test, run), beam=1).summary()["bleu"]
    best = max(made.tried, key=lambda each: each.score)
    swept = {each.size: round(each.score, 1) for each in made.tried}
    return {
        "examples": examples,
        "size": size,
        "tokens": made.tokens,
        "score": round(score, 1),
        "best_of_sweep": round(best.score, 1),
        "sweep": swept,
    }


def main() -> None:
    """One line for each number of examples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--examples", default="2000,20000,150000")
    parser.add_argument("--minutes", type=float, default=20.0)
    given = parser.parse_args()
    rows = []
    with TemporaryDirectory() as folder:
        for examples in map(int, given.examples.split(",")):
            rows.append(tried(given.pairs, examples, given.minutes, Path(folder)))
            print("{examples:,} pairs: {size}, BLEU {score}; best of the sweep {best_of_sweep}".format(**rows[-1]))
    print(json.dumps({"minutes": given.minutes, "trained": rows}))


if __name__ == "__main__":
    main()
