"""greedy-vs-beam: the likeliest word now is not always the beginning of the likeliest sentence.

A phrase book gives each word several translations of two tokens. Where many of them begin alike, that beginning is the
likeliest first token, though each of its endings is rare; greedy decoding takes it and cannot go back. Beam search
keeps the other beginning until the endings are known.

B sentences, S source length, T target length
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from glassformer.decoding import Hypothesis, Limits, beam_search
from glassformer.experiments.batches import Rng, pairs
from glassformer.experiments.charts import band, line, note, panels
from glassformer.experiments.finding import Finding, Row, Rows
from glassformer.experiments.measures import mean_loss
from glassformer.experiments.trial import Trial, told_rates
from glassformer.looking.style import BLUE, GREEN, ORANGE
from glassformer.models import transformer
from glassformer.tasks.translation import PairBatch, translation_loss

CLAIM = "Greedy decoding takes the likeliest word at each step and misses likelier sentences; beam search finds them."
ORDER = 140  # in the story

WORDS, SENTENCE = 8, 4  # in the language that is read
STEMS, ENDINGS = 6, 6  # first and second tokens of the language that is written
USUAL = (0.3, 0.6)  # how often the usual translation of a word is used, from one word to the other
RATES = (3e-3, 8e-3)
START, END = STEMS + ENDINGS, STEMS + ENDINGS + 1
SOURCE = END + 1  # the first word of the language that is read
NAMES = [f"{letter}a" for letter in "bdfgkl"] + [f"-{letter}o" for letter in "mnprst"]  # of tokens
Book = NDArray[np.float64]  # (WORDS, STEMS * ENDINGS): how likely each translation of each word is


def run(trial: Trial, steps: int = 500, widths: Sequence[int] = (1, 2, 4, 8), count: int = 150) -> Finding:
    """A model learns a phrase book from examples, and translates with beams of several widths."""
    work = partial(_translated, steps=steps, widths=widths, count=count)
    tuned = trial.tuned("learning a phrase book", work, ["Transformer"], RATES)["Transformer"]
    rows = Rows(row for result in tuned.results for row in result)
    by_width = {
        column: rows.where(part="width").spreads(column, by="width")
        for column in ("log probability", "likeliest", "better", "worse")
    }
    scores, likeliest, better, worse = by_width.values()
    beams, most = widths[1:], widths[-1]
    seeds = [each.seed for each in trial.seeds()]
    shown = rows.where(part="sentence", seed=seeds[0])
    alone, kept = (shown.where(search=name)[-1]["total"] for name in ("greedy", f"beam {most}"))
    facts: dict[str, float] = {
        "score_greedy": scores[1],
        "right_greedy": likeliest[1],
        **{f"score {width}": scores[width] for width in beams},
        **{f"right {width}": likeliest[width] for width in beams},
        **{f"better {width}": better[width] for width in beams},
        **{f"worse {width}": worse[width] for width in beams},
    }
    told = ", ".join(f"{scores[width]:.2f} with {width} beams" for width in beams)
    found = ", ".join(f"{better[width]:.0%} of the sentences with {width}" for width in beams)
    return Finding(
        method=f"A phrase book of {WORDS} words was drawn: each has a usual translation ({USUAL[0]:.0%} to "
        f"{USUAL[1]:.0%} of the time) and {ENDINGS} others that share another first token. A Transformer of 1 + 1 "
        f"layers learned it for {steps} steps, {told_rates(RATES)}, from sentences of {SENTENCE} words whose "
        f"translations were drawn from the book. {count} new sentences were translated with beams of "
        f"{', '.join(map(str, widths))}; 1 is greedy. Quality is the share of words that got their likeliest "
        "translation by the book. Beams find likelier outputs if, at every width and seed, they do for more than half "
        "of the sentences, and find a less likely one for fewer than 5%.",
        measured=f"Greedy outputs have a log-probability of {scores[1]:.2f} on average; it is {told}. Beams find a "
        f"likelier output for {found}, and a less likely one for at most {max(worse[w].high for w in beams):.0%}. "
        f"Words that got their likeliest translation: {likeliest[1]:.0%} greedily, {likeliest[most]:.0%} with {most} "
        f"beams. In the sentence of the figure the beam's output is {math.exp(kept - alone):,.0f} times as likely.",
        holds=all(
            better[width].low > 0.5
            and worse[width].high < 0.05
            and all(beam > greedy for beam, greedy in zip(scores[width].values, scores[1].values, strict=True))
            for width in beams
        ),
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, shown, widths),
        seeds=seeds,
    )


def _translated(
    trial: Trial, kind: str, rate: float, steps: int, widths: Sequence[int], count: int
) -> tuple[float, list[Row]]:
    """The validation loss of a model; how likely and how good its outputs are by width; where it gains most."""
    book = _phrase_book(np.random.default_rng([trial.seed, 7]))
    draw = partial(_sentences, book=book)
    model = trial.begin(lambda: transformer(SOURCE + WORDS, width=32, heads=4, layers=1, hidden=64, dropout=0.0))
    trial.learn("", model, draw, translation_loss, steps, rate)
    new: PairBatch = trial.new(draw, count=count)
    limits = Limits(start=START, end=END, max_length=2 * SENTENCE + 1)
    best = _tokens(book.argmax(axis=-1))[new.source.numpy() - SOURCE]  # (B, S, 2)
    found: list[list[Hypothesis]] = []
    rows: list[Row] = []
    for width in widths:
        answers = beam_search(model, new.source, limits=limits, width=width, length_penalty=0.0)
        found.append([answer[0] for answer in answers])
        gains = np.array([b.log_probability - g.log_probability for g, b in zip(found[0], found[-1], strict=True)])
        row: Row = {"part": "width", "seed": trial.seed, "width": width}
        row["log probability"] = float(np.mean([output.log_probability for output in found[-1]]))
        row["likeliest"] = float(np.mean([_likeliest(*both) for both in zip(found[-1], best, strict=True)]))
        rows.append({**row, "better": float((gains > 1e-6).mean()), "worse": float((gains < -1e-6).mean())})
    one = int(gains.argmax())
    story = _story(found[0][one], "greedy") + _story(found[-1][one], f"beam {widths[-1]}")
    rows += [{**row, "seed": trial.seed} for row in story]
    return mean_loss(model, trial.held_out(draw, count=300), translation_loss), rows


def _phrase_book(rng: Rng) -> Book:
    """For each word a usual translation, more or less usual, and all endings of another stem, which share the rest."""
    book = np.zeros((WORDS, STEMS, ENDINGS))
    for word in book:
        usual, crowd = rng.choice(STEMS, size=2, replace=False)
        share = rng.uniform(*USUAL)
        word[crowd] = (1 - share) * rng.dirichlet(np.full(ENDINGS, 20.0))
        word[usual, rng.integers(ENDINGS)] = share
    return book.reshape(WORDS, -1)


def _tokens(translations: NDArray[Any]) -> NDArray[Any]:
    """The two tokens of translations, on a last axis."""
    return np.stack((translations // ENDINGS, STEMS + translations % ENDINGS), axis=-1)


def _sentences(rng: Rng, book: Book, count: int = 64) -> PairBatch:
    """Random sentences, each word translated as the book has it, the rare translations rarely."""
    words = rng.integers(WORDS, size=(count, SENTENCE))  # (B, S)
    chosen = (rng.random((count, SENTENCE, 1)) > book[words].cumsum(axis=-1)).sum(axis=-1)  # (B, S)
    return pairs(words + SOURCE, _tokens(chosen.clip(max=STEMS * ENDINGS - 1)).reshape(count, -1), START, END)


def _likeliest(output: Hypothesis, best: NDArray[Any]) -> float:
    """How many words of an output are the likeliest translations (S, 2)."""
    return float(np.mean([output.tokens[2 * n : 2 * n + 2] == word for n, word in enumerate(best.tolist())]))


def _story(output: Hypothesis, name: str) -> list[Row]:
    """One sentence, token by token: what it was, how likely, and the total so far."""
    sums = np.cumsum(output.log_probabilities).tolist()
    names = [NAMES[token] if token < len(NAMES) else "?" for token in output.tokens] + ["end"] * output.finished
    return [
        {"part": "sentence", "search": name, "place": place, "token": token, "total": total}
        for place, (token, total) in enumerate(zip(names, sums, strict=True), start=1)
    ]


def _draw(rows: Rows, shown: Rows, widths: Sequence[int]) -> Figure:
    figure, (score, quality, story) = panels(3, 10.5, 3.8, width_ratios=[1, 1, 1.5])
    own = rows.where(part="width")
    band(score, widths, [*own.spreads("log probability", by="width").values()], BLUE, "")
    score.set(title="Likelier outputs", ylabel="log-probability (mean)")
    band(quality, widths, [*own.spreads("likeliest", by="width").values()], GREEN, "")
    quality.set(title="Better words", ylabel="words with their likeliest translation", ylim=(0, 1.05))
    for axes in (score, quality):
        axes.set_xlabel("beam width (1: greedy)")
        axes.set_xticks(widths, widths)
    greedy, beam = (shown.where(search=name) for name in ("greedy", f"beam {widths[-1]}"))
    for told, other, colour in ((greedy, beam, ORANGE), (beam, greedy, BLUE)):
        line(story, told.column("place"), told.column("total"), colour, told[0]["search"])
        for row, beside in zip(told, other, strict=False):
            apart = (0, 8 if row["total"] >= beside["total"] else -15)
            note(story, row["token"], (row["place"], row["total"]), apart, ha="center", color=colour)
    story.set(title="Where greed goes wrong: one sentence", xlabel="token", ylabel="log-probability so far")
    story.set_xticks(beam.column("place"))
    story.margins(0.08, 0.15)
    story.legend(loc="lower left")
    return figure
