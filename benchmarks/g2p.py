"""Spelling to phonemes with several seeds: train them beside each other, score each and all together, and record it.

    python benchmarks/g2p.py --data ../shared/data/cmudict-g2p                     # seeds 0, 1, 2, on a GPU
    python benchmarks/g2p.py --data ../shared/data/cmudict-g2p --with-dev          # train+dev, as published results do
    python benchmarks/g2p.py --data ../shared/data/cmudict-g2p --toy --into /tmp/records   # tries the script itself

It writes the tables to OUT, the runs to OUT/runs/g2p-SEED, what the trainings say to OUT/g2p-SEED.log, and the records
of the rows g2p (each seed) and g2p-ensemble, or g2p-with-dev and g2p-with-dev-ensemble, to benchmarks/results, or to
--into. A run that is finished is not trained again, and one that was stopped goes on. `make results` writes the
documents then.
"""

from __future__ import annotations

import argparse
import gzip
import subprocess
import sys
import time
from pathlib import Path

import results

TABLES = ("train", "dev", "test", "train+dev")
UNSEEN = "unseen.tsv"  # words of dev that are not in train: others have several pronunciations
TOY = ["model.width=64", "model.heads=4", "model.layers=1", "model.hidden=128", "train.steps=20", "train.warmup=5"]
TOY += ["train.consistency=0", "train.validate_every=10", "train.validate_sentences=20", "train.save_every=10"]
TOY += ["train.batch_tokens=512", "train.precision=float32", "train.average=1"]
FEW = 200  # words of each table that is not for training, of a toy
SHOWN = 15  # lines of the output of what failed


def write_tables(data: Path, folder: Path, toy: bool) -> None:
    """The dictionary's files as tables: letters, a tab, phonemes, all with spaces between."""
    folder.mkdir(parents=True, exist_ok=True)
    known = set[str]()
    for name in TABLES:
        with gzip.open(data / f"cmudict-0.7b.{name}.txt.gz", "rt", encoding="ascii") as file:
            rows = [line.split(maxsplit=1) for line in file]
        rows = rows[:: len(rows) // FEW] if toy and not name.startswith("train") else rows
        known |= {word for word, _ in rows} if name == "train" else set()
        _write(folder / f"{name}.tsv", rows)
        if name == "dev":
            _write(folder / UNSEEN, [row for row in rows if row[0] not in known])


def _write(path: Path, rows: list[list[str]]) -> None:
    lines = [f"{' '.join(word)}\t{phonemes.strip()}\n" for word, phonemes in rows]
    path.write_text("".join(lines), encoding="utf-8")


def train(folder: Path, seeds: list[int], changes: list[str]) -> None:
    """Train all seeds at once, each in a process of its own."""
    begin, started = time.perf_counter(), {}
    for seed in seeds:
        run = folder / "runs" / f"g2p-{seed}"
        if (run / "model.safetensors").is_file():
            continue
        sets = [word for change in [*changes, f"train.seed={seed}"] for word in ("--set", change)]
        resume = ["--resume"] if (run / "recipe.toml").is_file() else []
        command = [sys.executable, "-m", "glassformer", "train", "g2p", "--out", str(run.absolute()), *sets, *resume]
        with (folder / f"g2p-{seed}.log").open("a", encoding="utf-8") as log:
            started[seed] = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)  # noqa: S603
    failed = [seed for seed, process in started.items() if process.wait() != 0]
    for seed in failed:
        tail = (folder / f"g2p-{seed}.log").read_text(encoding="utf-8").splitlines()[-SHOWN:]
        print(f"seed {seed}:", *tail, sep="\n")
    if failed:
        sys.exit(f"{len(failed)} of {len(started)} trainings have failed")
    print(f"trained {len(started)} runs in {time.perf_counter() - begin:.0f} s", flush=True)


def main() -> None:
    """Write the tables, train, and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="where cmudict-0.7b.*.txt.gz are")
    parser.add_argument("--out", type=Path, default=Path("runs/g2p"), metavar="DIR", help="tables, runs and logs")
    parser.add_argument("--into", type=Path, default=results.RECORDS, metavar="DIR", help="where records are written")
    parser.add_argument("--seeds", default="0,1,2", metavar="N,N,…")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change the recipe")
    parser.add_argument("--with-dev", action="store_true", help="learn from train+dev; validation is on known words")
    parser.add_argument("--toy", action="store_true", help="a tiny model, 20 steps and few words")
    parser.add_argument("--note", default="")
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    write_tables(given.data, given.out, given.toy)
    changes = [*(TOY if given.toy else []), *(['source.train="train+dev.tsv"'] if given.with_dev else []), *given.set]
    train(given.out, seeds, changes)
    folders = [given.out / "runs" / f"g2p-{seed}" for seed in seeds]
    note = given.note or f"The {len(seeds)} seeds were trained beside each other, so that seconds are more than alone."
    row, data = ("g2p-with-dev", []) if given.with_dev else ("g2p", [f"words unseen={given.out / UNSEEN}"])
    if len(folders) > 1:
        results.record(f"{row}-ensemble", folders, data, note, into=given.into)
    for folder in folders:
        results.record(row, [folder], data, note, into=given.into)


if __name__ == "__main__":
    main()
