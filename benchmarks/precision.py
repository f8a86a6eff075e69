"""Whether training in bf16 learns as well as in float32: recipes, trained in both with the same seeds, and scored.

    python benchmarks/precision.py --data ../shared/data --out runs/precision            # on a CPU
    python benchmarks/precision.py --data ../shared/data --recipes shakespeare --seeds 0,1,2,3,4

Every training is `glassformer train` as it is typed, on one thread unless --threads says otherwise (translation is cut
to 800 steps), and is scored on the whole test set. A finished run is not trained again, and one that was stopped goes
on. The last line is JSON: the scores of each seed, the mean difference (bf16 minus float32) with its 95 % interval over
pairs of one seed, and tokens a second, which other work on the machine slows down.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import glassformer as gf
from commands import Bench, Settings, folder, speed
from glassformer.training.devices import has_bf16
from peers import processor

PRECISIONS = ("float32", "bf16")
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}  # Student's t, by the number of pairs


@dataclass(frozen=True)
class Case:
    """A recipe, its score, and what is changed in it."""

    score: str
    source: dict[str, Any]  # the files, below the folder of the data
    changes: Settings = field(default_factory=dict)


SIDES = {split: [f"multi30k/{name}.{side}.gz" for side in ("en", "de")] for split, name in
         (("train", "train"), ("valid", "val"), ("test", "test_2016_flickr"))}  # fmt: skip
CASES = {
    "translate": Case("bleu", SIDES, {"train.steps": 800, "train.warmup": 200, "decode.beam": 1}),
    "shakespeare": Case("loss", {"train": "tiny-shakespeare/input.txt.gz"}),
    "digits": Case("accuracy", {}),
}


def trained(name: str, precision: str, seed: int, bench: Bench) -> dict[str, Any]:
    """Train a recipe, score it, and say how fast that was."""
    case, place = CASES[name], bench.work / f"{name}-{precision}-{seed}"
    known = place.with_suffix(".json")
    if known.is_file():
        return dict(json.loads(known.read_text(encoding="utf-8")))
    source = {f"source.{key}": absolute(bench.data, value) for key, value in case.source.items()}
    own: Settings = {"train.precision": precision, "train.seed": seed, "train.log_every": 50}
    begun = place if (place / "recipe.toml").is_file() else None
    command = bench.start(name, source, case.changes, own, into=place, resume=begun)
    command.wait()
    run: Any = gf.load(place, device="cpu")
    found = run.evaluate(run.examples("test")).summary()
    facts = {"score": found[case.score], "tokens_per_s": speed(command, 0)["tokens_per_s"]}
    known.write_text(json.dumps(facts), encoding="utf-8")
    print(f"{name}, {precision}, seed {seed}: {case.score} {facts['score']:.4g}", flush=True)
    return facts


def absolute(data: Path, value: Any) -> Any:
    """Files below a folder, by their whole paths."""
    return str(data / value) if isinstance(value, str) else [str(data / each) for each in value]


def difference(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    """The mean of second minus first, with its 95 % interval by Student's t, for 2 to 8 pairs."""
    apart = [second - first for first, second in pairs]
    found: dict[str, Any] = {"mean": round(statistics.mean(apart), 4)}
    if len(apart) in T_95:
        reach = T_95[len(apart)] * statistics.stdev(apart) / math.sqrt(len(apart))
        found["interval"] = [round(found["mean"] - reach, 4), round(found["mean"] + reach, 4)]
    return found


def compared(name: str, seeds: list[int], bench: Bench) -> dict[str, Any]:
    """All trainings of a recipe."""
    rows = {each: [trained(name, each, seed, bench) for seed in seeds] for each in PRECISIONS}
    scores = {each: [row["score"] for row in rows[each]] for each in PRECISIONS}
    return {
        "score": CASES[name].score,
        **{each: [round(score, 4) for score in some] for each, some in scores.items()},
        "difference": difference(list(zip(*scores.values(), strict=True))),
        "tokens_per_s": {each: round(statistics.mean(row["tokens_per_s"] for row in rows[each])) for each in rows},
    }


def main() -> None:
    """Train, score and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, metavar="DIR", help="where multi30k and tiny-shakespeare are"
    )
    parser.add_argument("--recipes", default=",".join(CASES), metavar="NAME,NAME,…")
    parser.add_argument("--seeds", default="0,1,2", metavar="N,N,…")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the runs; else they are removed in the end")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change all recipes")
    parser.add_argument("--toy", action="store_true", help="tiny models, a few steps")
    given = parser.parse_args()
    names = given.recipes.split(",")
    if unknown := set(names) - set(CASES):
        parser.error(f"there is no {', '.join(sorted(unknown))}: {', '.join(CASES)}")
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    torch.set_num_threads(given.threads)
    seeds = [int(seed) for seed in given.seeds.split(",")]
    facts = {"cpu": processor(), "threads": given.threads, "bf16": has_bf16(torch.device("cpu"))}
    report: dict[str, Any] = {"benchmark": "precision", **facts, "torch": torch.__version__, "seeds": seeds}
    with folder(given.out) as work:
        bench = Bench(given.data.resolve(), work, "cpu", given.toy, 0, given.set)
        for name in names:
            report[name] = compared(name, seeds, bench)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
