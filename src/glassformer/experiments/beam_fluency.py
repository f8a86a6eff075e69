"""beam-fluency: what beam search does for a translator that was trained on real sentences.

`greedy-vs-beam` has a phrase book that is made to lead greedy decoding astray. Here is the translator that ships,
English → German, with sentences that we wrote and translated ourselves: 50 short ones and 50 long ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files

import numpy as np
from matplotlib.figure import Figure

from glassformer.evaluation.bootstrap import draws, ratio
from glassformer.evaluation.metrics import score, score_statistics
from glassformer.experiments.charts import line, panels
from glassformer.experiments.finding import Finding, Row, Rows
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLUE, GREEN, ORANGE
from glassformer.runs import load
from glassformer.tasks.writing import Output

CLAIM = "Greedy decoding usually does not perform very well; beam search gives more fluent outputs."
ORDER = 145  # in the story

SHORT, LONG = "short", "long"
TEXTS = {SHORT: ("assets", "en-de", "check.tsv"), LONG: ("experiments", "longer.tsv")}  # in the package
NAMES = {"score": "log-probability of a token", "bleu": "BLEU", "chrf": "chrF"}


def run(trial: Trial, widths: Sequence[int] = (1, 2, 4, 8), chosen: int = 4, count: int = 50) -> Finding:
    """The translator translates our sentences with beams of several widths; width 1 is greedy decoding."""
    texts = {kind: _sentences(path)[:count] for kind, path in TEXTS.items()}
    sources, ours = (list(side) for side in zip(*texts[SHORT], *texts[LONG], strict=True))
    kinds = [kind for kind, pairs in texts.items() for _ in pairs]
    translator = load("en-de", "cpu")
    found = {width: translator.translate(sources, beam=width) for width in trial.each("translating", widths)}
    rows = Rows()
    for width, outputs in found.items():
        for kind in (SHORT, LONG, "all"):
            own = [number for number, each in enumerate(kinds) if kind in (each, "all")]
            scores = score([outputs[number].text for number in own], [ours[number] for number in own])
            likely = _likely([outputs[number] for number in own])
            row = {"part": "width", "width": width, "sentences": kind, "score": likely}
            rows.append({**row, "bleu": scores.bleu, "chrf": scores.chrf})
    greedy, beam = found[1], found[chosen]
    gains = _gains(greedy, beam, ours)
    rows += _pairs(sources, ours, kinds, greedy, beam)
    changed = Rows(row for row in rows.where(part="sentence") if row["greedy"] != row["beam"])
    at = rows.where(sentences="all").values
    facts: dict[str, float] = {
        "changed": len(changed) / len(sources),
        "changed short": len(changed.where(sentences=SHORT)) / len(texts[SHORT]),
        "changed long": len(changed.where(sentences=LONG)) / len(texts[LONG]),
        "closer": float(sum(row["chrf gain"] > 0 for row in changed)),
        "farther": float(sum(row["chrf gain"] < 0 for row in changed)),
    }
    for name, (gain, low, high) in gains.items():
        first, last, widest = (at(name, by="width")[width] for width in (1, chosen, widths[-1]))
        facts |= {f"{name} greedy": first, f"{name} beam": last, f"{name} widest": widest}
        facts |= {f"{name} gain": gain, f"{name} low": low, f"{name} high": high}
    return Finding(
        method=f"The translator that ships translated {len(sources)} sentences of ours, {len(texts[SHORT])} short "
        f"(check.tsv of its folder) and {len(texts[LONG])} long ({_words(texts[LONG]):.0f} words on average), as its "
        f"recipe decodes, with beams of {', '.join(map(str, widths))}; 1 is greedy. BLEU and chrF compare with our "
        "own German; the log-probability is the model's own, over all tokens. Intervals of the gain of "
        f"{chosen} beams over greedy decoding are by 1,000 paired bootstrap samples of the sentences; the claim "
        "holds if all three are above 0. Nothing is trained, so all seeds give the same.",
        measured=_told(facts, chosen, widths[-1]),
        holds=all(facts[f"{name} low"] > 0 for name in gains),
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, widths, chosen),
    )


def _told(facts: Mapping[str, float], chosen: int, widest: int) -> str:
    """The result as sentences."""
    scores = "; ".join(
        f"{NAMES[name]} is {facts[f'{name} greedy']:.{digits}f} greedily and {facts[f'{name} beam']:.{digits}f} with "
        f"{chosen} beams ({facts[f'{name} gain']:+.{digits}f}, 95 % interval {facts[f'{name} low']:+.{digits}f} to "
        f"{facts[f'{name} high']:+.{digits}f})"
        for name, digits in (("score", 3), ("bleu", 2), ("chrf", 2))
    )
    return (
        f"{chosen} beams change {facts['changed']:.0%} of the translations: {facts['changed short']:.0%} of the short, "
        f"{facts['changed long']:.0%} of the long; {facts['closer']:.0f} come nearer to ours, {facts['farther']:.0f} "
        f"go farther away. The {scores}. With {widest} beams BLEU is {facts['bleu widest']:.2f}, chrF "
        f"{facts['chrf widest']:.2f}."
    )


def _sentences(path: tuple[str, ...]) -> list[tuple[str, str]]:
    """English sentences and our German ones."""
    lines = files("glassformer").joinpath(*path).read_text(encoding="utf-8").splitlines()
    return [(english, german) for english, german in (each.split("\t") for each in lines)]


def _words(pairs: Sequence[tuple[str, str]]) -> float:
    """How many words an English sentence has, on average."""
    return sum(len(english.split()) for english, _ in pairs) / len(pairs)


def _tokens(output: Output) -> int:
    """How many tokens were chosen, the end included."""
    return len(output.ids) + output.finished


def _likely(outputs: Sequence[Output]) -> float:
    """The mean log-probability of all tokens."""
    return sum(each.log_probability for each in outputs) / sum(map(_tokens, outputs))


def _gains(
    greedy: Sequence[Output], beam: Sequence[Output], ours: Sequence[str]
) -> dict[str, tuple[float, float, float]]:
    """How much higher each score is with beams, and the ends of a 95 % interval of that."""
    both = []
    for outputs in (greedy, beam):
        found = score_statistics([each.text for each in outputs], ours)
        likely = ratio([each.log_probability for each in outputs], [_tokens(each) for each in outputs])
        both.append({"score": likely, "bleu": found["bleu"], "chrf": found["chrf"]})
    whole = np.ones((1, len(ours)), np.int64)
    samples = [*draws(len(ours))]
    gains = {}
    for name in NAMES:
        first, last = (each[name] for each in both)
        drawn = np.concatenate([last(each) - first(each) for each in samples])
        low, high = np.percentile(drawn, [2.5, 97.5])
        gains[name] = float((last(whole) - first(whole))[0]), float(low), float(high)
    return gains


def _pairs(
    sources: Sequence[str], ours: Sequence[str], kinds: Sequence[str], greedy: Sequence[Output], beam: Sequence[Output]
) -> list[Row]:
    """Each sentence, both translations, and what the beams gained."""
    rows: list[Row] = []
    for source, own, kind, one, other in zip(sources, ours, kinds, greedy, beam, strict=True):
        row: Row = {"part": "sentence", "sentences": kind, "source": source, "ours": own, "greedy": one.text}
        row |= {"beam": other.text, "gain": _likely([other]) - _likely([one])}
        rows.append({**row, "chrf gain": score([other.text], [own]).chrf - score([one.text], [own]).chrf})
    return rows


def _draw(rows: Rows, widths: Sequence[int], chosen: int) -> Figure:
    figure, (likely, quality, each) = panels(3, 10.5, 3.7, width_ratios=[1, 1, 1.2])
    colours = {SHORT: GREEN, LONG: BLUE}
    for kind, colour in colours.items():
        own = rows.where(part="width", sentences=kind)
        line(likely, widths, own.column("score"), colour, f"{kind} sentences")
        line(quality, widths, own.column("bleu"), colour, f"{kind}: BLEU")
        line(quality, widths, own.column("chrf"), colour, f"{kind}: chrF", linestyle="--")
        told = Rows(row for row in rows.where(part="sentence", sentences=kind) if row["greedy"] != row["beam"])
        each.scatter(told.column("gain"), told.column("chrf gain"), color=colour, label=f"{kind} sentences")
    likely.set(title="Likelier translations", ylabel="log-probability of a token")
    quality.set(title="Nearer to ours", ylabel="BLEU, chrF")
    for axes in (likely, quality):
        axes.set_xlabel("beam width (1: greedy)")
        axes.set_xticks(widths, widths)
    each.axhline(0, color=ORANGE, linewidth=1)
    each.axvline(0, color=ORANGE, linewidth=1)
    each.set(title=f"What {chosen} beams changed", xlabel="gain in log-probability of a token", ylabel="gain in chrF")
    likely.legend(loc="center right")
    quality.legend(loc="center right", bbox_to_anchor=(1, 0.4), handlelength=3)
    return figure
