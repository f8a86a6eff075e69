"""The figures that the pages of docs/looking quote, measured anew. The last line is JSON.

Of the translator that ships: the roles of its heads, what the logit lens says after each layer, what each part adds
to a word, the gap of integrated gradients, how vectors of "bank" part from each other, rollout, the memory of recorded
beam searches, the sizes of pages. Of a base model: the memory of a recording of everything. Of a tagger, which is
trained if no run is named: how open the forget gates of its LSTM are. It takes some minutes.

    python benchmarks/analyses.py
    python benchmarks/analyses.py --only memory
    python benchmarks/analyses.py --only gates --tags runs/tags
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import glassformer as gf
from aligning import sentences
from glassformer.looking import recording

TEXT = "The woman saw the old man."
PAGE = "The bank raised its interest rates."
TAGGED = "the old fish can light the river"
COUNT = 20  # sentences
BANKS = ["He sat on the bank of the river.", "The bank is closed today.", "She works for a bank.", "I need money."]


def heads(run: Any) -> dict[str, Any]:
    """The heads with the strongest roles, the mean over the translator's outputs for some sentences."""
    traces = [run.look(source, keep="weights") for source, _, _ in sentences()[:COUNT]]
    found: dict[str, Any] = {}
    for kind, names in (("encoder.self", ("previous", "next")), ("decoder.cross", ("end",))):
        some = [gf.analyses.roles(trace, kind) for trace in traces]
        mean = torch.stack([each.values for each in some]).mean(dim=0)
        for role in names:
            values = mean[some[0].roles.index(role)]
            layer, head = divmod(int(values.argmax()), values.shape[1])
            found[f"{kind} {role}"] = [layer, head, round(float(values.max()), 3)]
    return found


def lens(run: Any) -> list[float]:
    """How often the lens says the final token, after each layer."""
    same = total = torch.zeros(())
    for source, _, _ in sentences()[:COUNT]:
        top = gf.analyses.logit_lens(run, run.look(source, keep=["before", "after", "logits"])).top()[..., 0]
        same, total = same + (top == top[-1]).sum(dim=1), total + top.shape[1]
    return [round(each, 3) for each in (same / total).tolist()]


def parts(run: Any) -> dict[str, float]:
    """What cross-attention adds to the logit of "▁Frau"."""
    found = gf.analyses.logit_attribution(run, run.look(TEXT), position=1)
    cross = {part: float(value) for part, value in zip(found.parts, found.values, strict=True) if "cross" in part}
    return {"logit": found.logit, "cross": sum(cross.values()), "last cross": cross["decoder.2.cross"]}


def gaps(run: Any) -> dict[str, float]:
    """By how much integrated gradients miss f(x) - f(b), as a part of it, over all outputs."""
    found = {}
    for steps in (32, 128, 512):
        each = gf.analyses.integrated_gradients(run, TEXT, steps=steps)
        found[str(steps)] = float(each.gap.abs().sum() / (each.outputs - each.baseline).abs().sum())
    return found


def banks(run: Any) -> dict[str, Any]:
    """How near "bank" is to other banks after the last layer, and tokens to their own embeddings."""
    traces = [run.look(text, keep=["encoder.embedding", "encoder.*.before", "encoder.*.after"]) for text in BANKS]
    near = gf.analyses.neighbours(traces, text=0, token=4, top=2)
    static = gf.analyses.static_similarity(traces[0]).values.mean(dim=1)
    return {"static": near.cosine[0].tolist(), "last": near.cosine[-1].tolist(), "own": static[[1, -1]].tolist()}


def rolled(run: Any) -> float:
    """The largest ratio of a source token in any vector, by rollout."""
    return float(gf.analyses.rollout(run.look(TEXT, keep="weights"), "decoder.cross").values.max())


def memory(run: Any) -> dict[str, float]:
    """The gigabytes of a recording of everything: a base model over 512 tokens, and searches with 5 beams."""
    torch.manual_seed(0)
    model = gf.transformer_base(vocabulary=37_000).eval()
    tokens = torch.randint(4, 37_000, (1, 512))
    with gf.record(model) as trace, torch.inference_mode():
        model(tokens, tokens)
    kept: Any = trace.kept
    found = {"base, 512 tokens": kept.total / recording.GIGABYTE}
    text = " and ".join(source[:-1].lower() for source, _, _ in sentences()[:12])
    for name, beam, forget in (("1 beam", 1, 16), ("5 beams", 5, 16), ("5 beams, none let go", 5, 10_000)):
        found[name] = _most(run, text, beam, forget)
    return found


def _most(run: Any, text: str, beam: int, forget: int) -> float:
    """The most gigabytes that a recording of everything takes while a run writes."""
    before, recording.FORGET = recording.FORGET, forget
    most = 0
    with gf.record(run.model) as trace:
        kept: Any = trace.kept
        begin = kept.session.starting

        def told(*given: Any) -> None:
            nonlocal most
            most = max(most, kept.total)
            begin(*given)

        kept.session.starting = told
        run.translate([text], beam=beam)
        most = max(most, kept.total)
    recording.FORGET = before
    return float(most) / recording.GIGABYTE


def pages(run: Any) -> dict[str, Any]:
    """The megabytes of a page of `look` and of `trace.save_page`, and how many tokens were read and written."""
    from glassformer.studio.saving import page_for

    trace = run.look(PAGE)
    with tempfile.TemporaryDirectory() as folder:
        size = trace.save_page(Path(folder) / "look.html").stat().st_size
    counts = [len(trace.tokens(stack)[0]) for stack in ("encoder", "written")]
    return {"look": len(page_for(run, "en-de", PAGE, {}, {}).encode()) / 1e6, "save_page": size / 1e6, "tokens": counts}


def gates(run: Any, tags: str | None = None) -> dict[str, float]:
    """How open the forget gates of a trained tagger's LSTM are at each token, the mean of all units."""
    with tempfile.TemporaryDirectory() as folder:
        tagger: Any = gf.load(tags) if tags else gf.train("tags", Path(folder) / "tags")
        found = gf.analyses.gates(tagger.look(TAGGED, keep="gates.*"))
    mean = found.mean[found.gates.index("forget")].tolist()
    return {
        f"{place} {token}": round(value, 3) for place, (token, value) in enumerate(zip(found.tokens, mean, strict=True))
    }


MEASURED: dict[str, Callable[[Any], Any]] = {
    "heads": heads,
    "lens": lens,
    "parts": parts,
    "gaps": gaps,
    "banks": banks,
    "rollout": rolled,
    "memory": memory,
    "pages": pages,
    "gates": gates,
}


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MEASURED, help="measure this alone")
    parser.add_argument("--tags", metavar="RUN", help="a run of the recipe tags, in place of training one")
    chosen = parser.parse_args()
    run, found = gf.load("en-de"), {}
    measures: dict[str, Callable[[Any], Any]] = {**MEASURED, "gates": partial(gates, tags=chosen.tags)}
    for name in [chosen.only] if chosen.only else MEASURED:
        found[name] = measures[name](run)
        print(f"{name:8} {json.dumps(found[name])}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
