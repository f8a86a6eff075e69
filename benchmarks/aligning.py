"""How well attention and attribution align words, on 50 sentences that we translated and aligned by hand.

The run is made to write the German sentence. Each German word is linked to the English word with the largest weight of
a head of cross-attention, at the step that writes the word or at the next one, which reads it; or to the word with the
largest attribution. The alignment error rate (AER) is 0 if all links are right. The last line is JSON.

    python benchmarks/aligning.py
    python benchmarks/aligning.py --run runs/mine --attribution
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import glassformer as gf

SENTENCES = Path(__file__).parents[1] / "tests" / "looking" / "alignments.tsv"
METHODS = {
    "input_x_gradient": gf.analyses.input_x_gradient,
    "integrated_gradients": gf.analyses.integrated_gradients,
    "occlusion": gf.analyses.occlusion,
}


def sentences() -> list[tuple[str, str, gf.analyses.Gold]]:
    """English, German, and the links between their words."""
    rows = [line.split("\t") for line in SENTENCES.read_text(encoding="utf-8").splitlines()]
    return [(source, target, gf.analyses.Gold.read(links)) for source, target, links in rows]


def by_heads(run: Any) -> dict[str, Any]:
    """The error rate of the best head, and of all heads, for both rows."""
    given = sentences()
    traces = [gf.analyses.forced_trace(run, source, target, "decoder.*.cross") for source, target, _ in given]
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


def by_attribution(run: Any, name: str) -> float:
    """The error rate of links to the source word with the largest attribution."""
    found, gold = [], []
    for source, target, links in sentences():
        ids = run.target.encode(target)
        values = METHODS[name](run, source, written=ids).words().of("encoder").values  # (tokens written, source words)
        words = [torch.stack([values[at] for at in group]).sum(dim=0) for group in run.target.words(ids)]
        found.append({(int(word.argmax()), number) for number, word in enumerate(words)})
        gold.append(links)
    return gf.analyses.aer(found, gold)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", default="en-de")
    parser.add_argument("--attribution", action="store_true", help="measure attribution, too: minutes")
    options = parser.parse_args()
    run = gf.load(options.run)
    found = by_heads(run)
    for name in METHODS if options.attribution else ():
        found[name] = by_attribution(run, name)
        print(f"{name:22} AER {100 * found[name]:.1f} %", flush=True)
    print(json.dumps({"run": options.run, **found}))


if __name__ == "__main__":
    main()
