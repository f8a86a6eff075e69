"""How much memory and time a large corpus takes: make a file of so many pairs, prepare it, read its first batches.

python benchmarks/corpus.py [--pairs 10000000]
"""

import argparse
import json
import random
import resource
import tempfile
import threading
import time
from itertools import accumulate, islice
from pathlib import Path

from glassformer.data import Batches, prepare
from glassformer.recipe import make_recipe
from glassformer.tasks.translation import PairCollator


def made_up_words(rng: random.Random, count: int) -> list[str]:
    """Words of two to four syllables, without meaning."""
    syllables = [a + b for a in "bcdfghjklmnprstvwz" for b in ("a", "e", "i", "o", "u", "an", "er", "in")]
    return ["".join(rng.choices(syllables, k=rng.randint(2, 4))) for _ in range(count)]


def write_corpus(path: Path, pairs: int) -> None:
    """Sentences of three phrases each, drawn from many; rare words are rare as in a language."""
    rng = random.Random(0)
    words = list(zip(made_up_words(rng, 50_000), made_up_words(rng, 50_000), strict=True))
    weights = list(accumulate(1 / (rank + 10) for rank in range(len(words))))
    phrases = [
        list(zip(*rng.choices(words, cum_weights=weights, k=rng.randint(1, 6)), strict=True)) for _ in range(50_000)
    ]
    sides = [("\t".join((" ".join(left), " ".join(right)))).split("\t") for left, right in phrases]
    with path.open("w", encoding="utf-8") as file:
        for _ in range(pairs):
            first, second, third = rng.choices(sides, k=3)
            file.write(f"{first[0]} {second[0]}, {third[0]}.\t{first[1]} {second[1]}, {third[1]}.\n")


class Watch:
    """The most memory that this process and its children held at one time, in MB, looked at ten times a second."""

    def __init__(self) -> None:
        self.peak, self._end = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(0.1):
            children = Path("/proc/self/task").glob("*/children")
            try:
                ids = ["self", *(each for path in children for each in path.read_text().split())]
                self.peak = max(self.peak, sum(map(_resident, ids)))
            except OSError:
                continue  # a process ended between two looks


def _resident(process: str) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS")), 0.0)


def main() -> None:
    """Make, prepare, read; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--batches", type=int, default=2_000)
    parser.add_argument("--folder", type=Path, default=None, help="where the temporary files go")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name, Watch() as watch:
        folder, times = Path(name), {}
        start = time.perf_counter()
        write_corpus(folder / "train.tsv", arguments.pairs)
        times["write"] = time.perf_counter() - start
        print(f"{arguments.pairs:,} pairs, {(folder / 'train.tsv').stat().st_size / 1e6:,.0f} MB", flush=True)
        recipe = make_recipe(
            {"source": {"kind": "tsv", "train": "train.tsv"}, "data": {"valid": 0.001, "test": 0.001},
             "tokenizer": {"sample": 100_000}}
        )  # fmt: skip
        stage = ""

        def progress(name: str, done: int, total: int | None) -> None:
            nonlocal stage
            if name != stage:
                stage = name
                print(f"{time.perf_counter() - start:6.1f} s  {name}", flush=True)

        start = time.perf_counter()
        corpus = prepare(recipe, folder, folder / "cache", progress)
        times["prepare"] = time.perf_counter() - start
        print(*corpus.report.lines(), sep="\n")
        start = time.perf_counter()
        corpus = prepare(recipe, folder, folder / "cache")
        times["prepare_again"] = time.perf_counter() - start
        start = time.perf_counter()
        pairs, (source, target) = corpus.splits["train"], corpus.assets.tokenizers
        batches = Batches(pairs, 4096, PairCollator(pairs, source.pad, target), seed=0)
        times["batches_per_epoch"] = batches.batches_per_epoch
        times["plan"] = time.perf_counter() - start
        start, tokens, places, count = time.perf_counter(), 0, 0, 0
        for batch in islice(batches, arguments.batches):
            tokens += batch.tokens
            places += batch.padded_tokens
            count += 1
        times["batch_ms"] = 1000 * (time.perf_counter() - start) / count
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"pairs": arguments.pairs, "peak_mb": round(watch.peak), "own_peak_mb": round(own),
                      "padding": round(1 - tokens / places, 4),
                      **{key: round(value, 3) for key, value in times.items()}}))  # fmt: skip


if __name__ == "__main__":
    main()
