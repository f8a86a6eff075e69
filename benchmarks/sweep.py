"""The sweep behind `glassformer new`: which size of model gets furthest with so many examples and so many tokens.

    python benchmarks/sweep.py PAIRS.tsv --examples 2000,20000,150000 --tokens 500000,2000000,8000000,32000000

Each training has a recipe as `glassformer new` writes it, on pairs drawn from the file, and is scored on the same held-out pairs (BLEU,
several references where there are such). It has no test set of its own, does not stop early, and keeps the best of four validations by
BLEU of 100 sentences; these stay as they were for the first of them, whatever `new` writes now. What was trained is added to src/glassformer/suggest/sweep.json, and is not trained again.
The last line is JSON: the best training for each number of examples and tokens.
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import asdict
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import glassformer as gf
from glassformer.recipe import make_recipe
from glassformer.suggest import sizes
from glassformer.suggest.recognising import recognise
from glassformer.suggest.suggesting import ON_CPU, batch_tokens, start
from glassformer.writing import write_text

HELD_OUT = 500  # sources
VALIDATION, LARGEST_PART = 500, 0.1  # examples for validation, and the most of all examples


def drawn(path: Path, count: int, folder: Path) -> tuple[Path, Path]:
    """Files of so many training pairs, and of the held-out ones, which are the same for every number."""
    rows = [row.split("\t")[:2] for row in path.read_text(encoding="utf-8").splitlines()]
    sources = sorted({row[0] for row in rows if len(row) == 2})
    random.Random(0).shuffle(sources)
    kept = {*sources[:HELD_OUT]}
    others = [row for row in rows if len(row) == 2 and row[0] not in kept]
    random.Random(1).shuffle(others)
    files = {"train": others[:count], "test": [row for row in rows if row[0] in kept]}
    for name, some in files.items():
        write_text(folder / f"{name}-{count}.tsv", "".join(f"{one}\t{two}\n" for one, two in some))
    return folder / f"train-{count}.tsv", folder / f"test-{count}.tsv"


def validation(examples: int) -> float:
    """The part of so many examples that validation gets; a training of the sweep learns from all others."""
    return min(LARGEST_PART, VALIDATION / examples)


def trained(path: Path, size: str, examples: int, tokens: int, dropout: float, folder: Path) -> sizes.Trained:
    """Train a model and score it."""
    train, test = drawn(path, examples, folder)
    found = recognise([train], "translation")
    table: dict[str, Any] = start(found, examples, 1.0)
    batch = batch_tokens(tokens, ON_CPU)  # as on a laptop, whatever trains here
    steps = max(1, tokens // batch // 2)  # both sides of the pairs are counted
    table["source"]["test"] = str(test)
    table["decode"] = {"beam": 1, "max_length": 60}  # which is fast, and ranks sizes alike
    table["data"] = {**table["data"], "valid": validation(examples)}
    table["data"].pop("test")
    table["model"] = {"family": "transformer", **sizes.SIZES[size], "dropout": dropout}
    table["train"] |= {"batch_tokens": batch, "tokens": tokens, "warmup": min(400, max(1, steps // 20))}
    table["train"] |= {"validate_every": max(10, steps // 4), "save_every": max(10, steps // 4), "patience": 0}
    table["train"] |= {"validate_sentences": 100, "watch": "bleu"}
    table["train"].pop("minutes")
    with TemporaryDirectory(dir=folder) as out:
        run = gf.train(make_recipe(table), Path(out) / "run")
        score = run.evaluate(run.examples("test")).summary()["bleu"]
    return sizes.Trained(size, examples, tokens, dropout, round(score, 2))


def main() -> None:
    """Train what the sweep lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("pairs", type=Path)
    numbers = {"examples": "2000,20000,150000", "tokens": "500000,2000000,8000000,32000000", "dropout": "0.1,0.2,0.3"}
    for name, usual in numbers.items():
        parser.add_argument(f"--{name}", default=usual)
    parser.add_argument("--sizes", default=",".join(sizes.SIZES))
    parser.add_argument("--into", type=Path, default=sizes.SWEEP, help="the file that trainings are added to")
    options = parser.parse_args()
    rows = json.loads(options.into.read_text(encoding="utf-8")) if options.into.is_file() else []
    wanted = product(
        [int(each) for each in options.examples.split(",")],
        [int(each) for each in options.tokens.split(",")],
        options.sizes.split(","),
        [float(each) for each in options.dropout.split(",")],
    )
    with TemporaryDirectory() as folder:
        for examples, tokens, size, dropout in wanted:
            place = {"size": size, "examples": examples, "tokens": tokens, "dropout": dropout}
            if not any(place.items() <= row.items() for row in rows):
                rows.append(asdict(trained(options.pairs, size, examples, tokens, dropout, Path(folder))))
                sys.stderr.write(f"{rows[-1]}\n")
                lines = ",\n".join(json.dumps(row) for row in rows)
                write_text(options.into, f"[\n{lines}\n]\n")
    sys.stdout.write(json.dumps(best(rows)) + "\n")


def best(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The best training for each number of examples and tokens."""
    places = sorted({(row["examples"], row["tokens"]) for row in rows})
    return [
        max((row for row in rows if (row["examples"], row["tokens"]) == place), key=lambda row: row["score"])
        for place in places
    ]


if __name__ == "__main__":
    main()
