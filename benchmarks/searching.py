"""How long a search takes: the nearest of many texts, by vectors as MiniLM has them, exactly, on the processor.

    python benchmarks/searching.py --texts 100000 --threads 2

The vectors are drawn at random: how long a product takes does not depend on the numbers. With --run, the time to make a
vector of the question is measured, too. The last line is JSON; `torch` is the bare product and topk of the same size.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import glassformer as gf
from glassformer.search import Index, Passage

WIDTH, TIMES = 384, 50


def median(work: Callable[[], Any]) -> float:
    """Milliseconds, the median of several times, after two to warm up."""
    work(), work()
    found = []
    for _ in range(TIMES):
        began = time.perf_counter()
        work()
        found.append(1000 * (time.perf_counter() - began))
    return statistics.median(found)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--run", type=Path, help="a run that embeds, such as an import of MiniLM")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    vectors = F.normalize(torch.randn(chosen.texts, WIDTH), dim=1)
    index = Index([Passage(f"text {row}", "") for row in range(chosen.texts)], vectors)
    question = torch.randn(1, WIDTH).numpy()
    plain = torch.from_numpy(question)[0]
    facts: dict[str, Any] = {
        "texts": chosen.texts,
        "width": WIDTH,
        "threads": chosen.threads,
        "search_ms": median(lambda: index.search(question, 10)),
        "torch_ms": median(lambda: torch.mv(vectors, plain).topk(10)),
    }
    if chosen.run is not None:
        run = gf.load(chosen.run, "cpu")
        facts["embed_ms"] = median(lambda: run.embed(["where do cats sleep during the day?"]))
    print(json.dumps({name: round(value, 2) if isinstance(value, float) else value for name, value in facts.items()}))


if __name__ == "__main__":
    main()
