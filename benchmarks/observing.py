"""What looking costs: nothing while nobody looks, and how much while somebody does, on this machine's CPU.

Four contenders with the same weights, each in a process of its own, in turns; the median round counts:

    without    the same source with every `self.seen(name, x)` replaced by `x`, as if there were no points
    nobody     the library as it is, while nobody looks
    weights    inside `gf.record(model, keep="weights")`
    all        inside `gf.record(model)`

They read pairs at once (forward), and write with 5 beams (beam). Small models show the most: a check takes as long in
a large one, where all else takes longer. The last line is JSON: the seconds, and their ratios to "without".

    python benchmarks/observing.py
    python benchmarks/observing.py --sizes base --rounds 11
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from peers import END, FIRST, SIZES, START, Size, Worker, Write, processor, race

CONTENDERS = ("without", "nobody", "weights", "all")
PAIRS, LENGTH, BEAMS = 4, 24, 5


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


def contender(name: str, folder: str, size: Size, what: str, repeats: int) -> Write:
    """One way to run a model, for a process of its own."""
    if name == "without":
        sys.path.insert(0, folder)
    import glassformer as gf

    torch.manual_seed(0)
    numbers: dict[str, Any] = {"width": size.width, "heads": size.heads, "layers": size.layers, "hidden": size.hidden}
    model = gf.transformer(size.vocabulary, **numbers, dropout=0.0).eval()
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


def main() -> None:
    """Race all contenders for each size and each kind of work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="tiny,small")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    found: dict[str, Any] = {"processor": processor(), "rounds": chosen.rounds, "threads": chosen.threads}
    with tempfile.TemporaryDirectory() as folder:
        without_points(Path(folder))
        for size in chosen.sizes.split(","):
            for what, repeats in (("forward", 20), ("beam", 2)):
                given = (folder, SIZES[size], what, repeats)
                workers = {name: Worker(chosen.threads, contender, name, *given) for name in CONTENDERS}
                seconds, outputs = race(workers, chosen.rounds)
                if any(each != outputs["without"] for each in outputs.values()):
                    raise SystemExit(f"{size} {what}: the outputs differ")
                ratios = {name: seconds[name] / seconds["without"] for name in CONTENDERS}
                found[f"{size} {what}"] = {"seconds": seconds, "ratio": ratios}
                shown = "  ".join(f"{name} {ratios[name]:.3f}" for name in CONTENDERS)
                print(f"{size:6} {what:8} {1000 * seconds['without'] / repeats:7.1f} ms   {shown}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
