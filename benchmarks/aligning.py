"""How well attention and attribution align words, on 50 sentences that we translated and aligned by hand.

The run is made to write the German sentence. Each German word is linked to the English word with the largest weight of
a head of cross-attention, at the step that writes the word or at the next one, which reads it; or to the word with the
largest attribution. The alignment error rate (AER) is 0 if all links are right; by how much occlusion errs less than
the best head at the step that writes is given with a 95 % interval, from resampled sentences. The last line is JSON.

    python benchmarks/aligning.py
    python benchmarks/aligning.py --run runs/mine --attribution
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

import torch

import glassformer as gf

SENTENCES = Path(__file__).parents[1] / "tests" / "looking" / "alignments.tsv"
Links = set[tuple[int, int]]
METHODS = {
    "input_x_gradient": gf.analyses.input_x_gradient,
    "integrated_gradients": gf.analyses.integrated_gradients,
    "occlusion": gf.analyses.occlusion,
}


def sentences() -> list[tuple[str, str, gf.analyses.Gold]]:
    """English, German, and the links between their words."""
    rows = [line.split("\t") for line in SENTENCES.read_text(encoding="utf-8").splitlines()]
    return [(source, target, gf.analyses.Gold.read(links)) for source, target, links in rows]


def forced(run: Any) -> list[gf.Trace]:
    """The cross-attention of a run that is made to write the German sentences."""
    return [gf.analyses.forced_trace(run, source, target, "decoder.*.cross") for source, target, _ in sentences()]


def by_heads(traces: list[gf.Trace]) -> dict[str, Any]:
    """The error rate of the best head, and of all heads, for both rows."""
    given = sentences()
    gold = [links for _, _, links in given]
    found: dict[str, Any] = {}
    for row in ("written", "read"):
        errors = gf.analyses.alignment_errors(traces, gold, row)
        point, head = errors.lowest
        rates = [[round(rate, 3) for rate in layer] for layer in errors.values.tolist()]
        name = f"{point.removesuffix('.weights')} head {head}"
        found[row] = {"best": name, "aer": errors.of(point, head), "all": rates}
        print(f"{row:8} {found[row]['best']}  AER {100 * found[row]['aer']:.1f} %")
        for name, layer in zip(errors.points, rates, strict=True):
            print(f"         {name:28} {'  '.join(f'{100 * rate:5.1f}' for rate in layer)}")
    return found


def by_attribution(run: Any, name: str) -> list[Links]:
    """The links to the source word with the largest attribution, of each sentence."""
    found = []
    for source, target, _ in sentences():
        ids = run.target.encode(target)
        values = METHODS[name](run, source, written=ids).words().of("encoder").values  # (tokens written, source words)
        words = [torch.stack([values[at] for at in group]).sum(dim=0) for group in run.target.words(ids)]
        found.append({(int(word.argmax()), number) for number, word in enumerate(words)})
    return found


def lead(first: list[Links], second: list[Links], count: int = 1000) -> tuple[float, float]:
    """By how much the first links err less than the second: the 95 % interval of a bootstrap of the sentences."""
    gold, drawn = [links for _, _, links in sentences()], random.Random(0)
    differences = []
    for _ in range(count):
        some = drawn.choices(range(len(gold)), k=len(gold))
        one, two = (gf.analyses.aer([each[at] for at in some], [gold[at] for at in some]) for each in (first, second))
        differences.append(two - one)
    differences.sort()
    return differences[count // 40], differences[-1 - count // 40]


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", default="en-de")
    parser.add_argument("--attribution", action="store_true", help="measure attribution, too: minutes")
    options = parser.parse_args()
    run = gf.load(options.run)
    traces, gold = forced(run), [links for _, _, links in sentences()]
    found = by_heads(traces)
    links: dict[str, list[Links]] = {}
    for name in METHODS if options.attribution else ():
        links[name] = by_attribution(run, name)
        found[name] = gf.analyses.aer(links[name], gold)
        print(f"{name:22} AER {100 * found[name]:.1f} %", flush=True)
    if links:
        best = gf.analyses.alignment_errors(traces, gold, "written").lowest
        heads: list[Links] = [set(gf.analyses.alignment(trace, *best).links) for trace in traces]
        found["lead"] = lead(links["occlusion"], heads)
        low, high = (100 * each for each in found["lead"])
        print(f"occlusion before the best head: {low:.1f} to {high:.1f} points")
    print(json.dumps({"run": options.run, **found}))


if __name__ == "__main__":
    main()
