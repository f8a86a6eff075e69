"""What `glassformer new` writes, trained, beside the best that the sweep reaches in that time.

    python benchmarks/new.py PAIRS.tsv --examples 2000,20000,150000 --minutes 20
    python benchmarks/new.py PAIRS.tsv --minutes 20 --suggest laptop.json   # on the machine in question, and then,
    python benchmarks/new.py PAIRS.tsv --train laptop.json                  # on a faster one, for as many tokens

For each number of examples the recipe is suggested for this machine, trained, and scored as the sweep scores
(benchmarks/sweep.py: the same held-out pairs, greedily). Beside it stands the best that any size of the sweep reaches
with as many tokens as the machine trains on in the time. Both learn from what is left of the same pairs: a suggestion
holds out a test set of its own, too, and a training of the sweep keeps more for validation where pairs are few. How
many each learns from stands beside the scores, and the 95 % interval of the score. The last line is JSON.
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
from glassformer.writing import read_json, write_text
from sweep import drawn, validation

Row = dict[str, Any]


def suggested(path: Path, examples: int, minutes: float, folder: Path) -> Row:
    """What `glassformer new` would write on this machine, for how many tokens, and what the sweep expects of sizes."""
    train, _ = drawn(path, examples, folder)
    made = suggest(recognise([train], "translation"), minutes)
    size = next(name for name, each in sizes.SIZES.items() if each["width"] == made.table["model"]["width"])
    swept = {each.size: round(each.score, 1) for each in made.tried}
    speeds = {each.size: round(each.speed.tokens_per_second) for each in made.tried}
    facts = {"examples": examples, "minutes": minutes, "size": size, "tokens": made.tokens, "steps": made.steps}
    return facts | {"best_of_sweep": max(swept.values()), "sweep": swept, "speeds": speeds, "recipe": made.table}


def trained(row: Row, path: Path, folder: Path, minutes: bool) -> Row:
    """Train a suggestion, for its time or for the tokens that were expected in it, and score it."""
    train, test = drawn(path, row["examples"], folder)
    table: dict[str, dict[str, Any]] = {name: dict(section) for name, section in row["recipe"].items()}
    table["source"]["train"] = str(train)
    if not minutes:
        table["train"].pop("minutes")
        table["train"]["tokens"] = row["tokens"]
    run: Any = gf.train(make_recipe(table), folder / f"run-{row['examples']}")
    found = run.evaluate(examples_in(test, run), beam=1)
    low, high = found.intervals["bleu"]
    facts: Row = {"score": round(found.summary()["bleu"], 1), "interval": [round(low, 1), round(high, 1)]}
    facts |= {"learns_from": read_json(run.path / "data.json", Row)["kept"]["train"]}
    facts |= {"sweep_learns_from": round(row["examples"] * (1 - validation(row["examples"])))}
    found_row = {key: value for key, value in row.items() if key != "recipe"} | facts
    print(
        "{examples:,} pairs: {size}, BLEU {score} {interval}, learned from {learns_from:,}; "
        "best of the sweep {best_of_sweep}, learned from {sweep_learns_from:,}".format(**found_row)
    )
    return found_row


def main() -> None:
    """One line for each number of examples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--examples", default="2000,20000,150000")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--suggest", type=Path, help="write the suggestions for this machine into a file, and stop")
    parser.add_argument("--train", type=Path, help="train the suggestions of such a file, for as many tokens")
    given = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        if given.train:
            rows = json.loads(given.train.read_text(encoding="utf-8"))
        else:
            rows = [suggested(given.pairs, int(each), given.minutes, folder) for each in given.examples.split(",")]
        if given.suggest:
            write_text(given.suggest, json.dumps(rows, indent=1))
        else:
            rows = [trained(row, given.pairs, folder, minutes=given.train is None) for row in rows]
        print(json.dumps({"trained": rows} if not given.suggest else {"suggested": rows}))


if __name__ == "__main__":
    main()
