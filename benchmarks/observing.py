"""What looking costs: nothing while nobody looks, and how much while somebody does, on this machine's CPU.

Four contenders with the same weights, each in a process of its own, in turns. What counts is the CPU time of the
process, as a ratio to that of "without" in the same round, and of these ratios the median: a busy machine, which makes
a process wait, or runs slower for a while, spoils neither.

    without    the same source with every `self.seen(name, x)` replaced by `x`, as if there were no points
    nobody     the library as it is, while nobody looks
    weights    inside `gf.record(model, keep="weights")`
    all        inside `gf.record(model)`

They read pairs at once (forward), and write with 5 beams (beam). Small models show the most: a check takes as long in
a large one, where all else takes longer. The checks are also counted: how many a forward pass makes, what one takes in
a loop of its own, and what part of the CPU time of a pass that is (the smallest times of some). The last line is JSON:
the CPU seconds, their ratios to "without", and the checks.

    python benchmarks/observing.py
    python benchmarks/observing.py --sizes base --rounds 11 --only without,nobody
    python benchmarks/observing.py --checks
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import shutil
import statistics
import sys
import tempfile
import time
import timeit
from pathlib import Path
from typing import Any

import torch

from peers import END, FIRST, SIZES, START, Size, Worker, Write, processor

CONTENDERS = ("without", "nobody", "weights", "all")
PAIRS, LENGTH, BEAMS = 4, 24, 5
REPEATS = {"tiny": (20, 2), "small": (10, 1), "base": (2, 1)}  # in a round: forward passes, searches
CHECKS = 200_000  # of a point, in a loop


class WithoutPoints(ast.NodeTransformer):
    """Puts x in place of `self.seen(name, x)`."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        is_point = isinstance(node.func, ast.Attribute) and node.func.attr == "seen"
        return node.args[1] if is_point else node


def without_points(folder: Path) -> None:
    """A copy of the library without points, in a folder."""
    found = importlib.util.find_spec("glassformer")
    if found is None or found.origin is None:
        raise SystemExit("glassformer is not installed")
    package = folder / "glassformer"
    shutil.copytree(Path(found.origin).parent, package, ignore=shutil.ignore_patterns("__pycache__", "assets"))
    for path in (*(package / "parts").glob("*.py"), package / "models" / "shapes.py"):
        if path.name != "observing.py":
            changed = WithoutPoints().visit(ast.parse(path.read_text(encoding="utf-8")))
            path.write_text(ast.unparse(ast.fix_missing_locations(changed)), encoding="utf-8")


def made(size: Size) -> Any:
    """A Transformer of some size, always the same."""
    import glassformer as gf

    torch.manual_seed(0)
    numbers: dict[str, Any] = {"width": size.width, "heads": size.heads, "layers": size.layers, "hidden": size.hidden}
    return gf.transformer(size.vocabulary, **numbers, dropout=0.0).eval()


def contender(name: str, folder: str, size: Size, what: str, repeats: int) -> Write:
    """One way to run a model, for a process of its own."""
    if name == "without":
        sys.path.insert(0, folder)
    import glassformer as gf

    model = made(size)
    source, target = torch.randint(FIRST, size.vocabulary, (2, PAIRS, LENGTH))
    limits = gf.Limits(start=START, end=END, max_length=LENGTH, min_length=LENGTH)

    @torch.inference_mode()
    def run() -> list[list[int]]:
        if what == "forward":
            return model(source, target).argmax(dim=-1).tolist()  # type: ignore[no-any-return]
        return [best.tokens for best, *_ in gf.beam_search(model, source, limits=limits, width=BEAMS)]

    def write() -> list[list[int]]:
        for _ in range(repeats):
            if name in ("without", "nobody"):
                outputs = run()
            else:
                with gf.record(model, keep=None if name == "all" else "weights"):
                    outputs = run()
        return outputs

    return write


def race(workers: dict[str, Worker], rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """The median CPU seconds of each contender, and the median of its ratios to "without" in the same round."""
    seconds: dict[str, list[float]] = {name: [] for name in workers}
    for number in range(rounds):
        outputs = {}
        for name in [*workers][:: -1 if number % 2 else 1]:  # each is the first as often as the last
            took, outputs[name] = workers[name].write()
            seconds[name].append(took)
        if any(each != outputs["without"] for each in outputs.values()):
            raise SystemExit("the outputs differ")
    for worker in workers.values():
        worker.stop()
    ratios = {
        name: [one / other for one, other in zip(each, seconds["without"], strict=True)]
        for name, each in seconds.items()
    }
    return {name: statistics.median(each) for name, each in seconds.items()}, {
        name: statistics.median(each) for name, each in ratios.items()
    }


def checks(size: Size, passes: int = 7) -> dict[str, float]:
    """How many points a forward pass has, each of which is a check; the CPU seconds of a check, and of the pass."""
    from glassformer.parts.observing import Observable

    model, count = made(size), 0
    seen = Observable.seen

    def counted(self: Observable, name: str, x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return seen(self, name, x)

    Observable.seen = counted  # type: ignore[method-assign]
    source, target = torch.randint(FIRST, size.vocabulary, (2, PAIRS, LENGTH))
    with torch.inference_mode():
        model(source, target)
        Observable.seen = seen  # type: ignore[method-assign]
        timer = timeit.Timer(lambda: model(source, target), timer=time.process_time)
        whole = min(timer.repeat(repeat=passes, number=1))
    part, x = next(each for each in model.modules() if isinstance(each, Observable)), torch.zeros(1)
    timers = [
        timeit.Timer(code, timer=time.process_time, globals={"part": part, "x": x})
        for code in ('part.seen("output", x)', "x")
    ]
    with_check, without = (min(timer.repeat(repeat=9, number=CHECKS)) / CHECKS for timer in timers)
    check = with_check - without
    return {"count": count, "check": check, "pass": whole, "ratio": count * check / whole}


def main() -> None:
    """Race all contenders for each size and each kind of work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="tiny,small,base")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default=",".join(CONTENDERS), help="contenders, without among them")
    parser.add_argument("--checks", action="store_true", help="only count the checks, and time one: seconds")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    found: dict[str, Any] = {"processor": processor(), "rounds": chosen.rounds, "threads": chosen.threads}
    with tempfile.TemporaryDirectory() as folder:
        without_points(Path(folder))
        for size in chosen.sizes.split(","):
            for what, repeats in zip(("forward", "beam"), REPEATS[size], strict=True) if not chosen.checks else ():
                given = (folder, SIZES[size], what, repeats)
                names = chosen.only.split(",")
                workers = {
                    name: Worker(chosen.threads, contender, name, *given, clock=time.process_time) for name in names
                }
                seconds, ratios = race(workers, chosen.rounds)
                found[f"{size} {what}"] = {"seconds": seconds, "ratio": ratios}
                shown = "  ".join(f"{name} {ratios[name]:.3f}" for name in names)
                print(f"{size:6} {what:8} {1000 * seconds['without'] / repeats:7.1f} ms   {shown}", flush=True)
            each = found[f"{size} checks"] = checks(SIZES[size])
            of = f"{1e9 * each['check']:.0f} ns each, of {1000 * each['pass']:.1f} ms"
            print(f"{size:6} checks   {each['count']} of {of}: {100 * each['ratio']:.3f} % of a pass", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
