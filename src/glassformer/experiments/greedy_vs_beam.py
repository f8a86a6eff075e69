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
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.decoding import Hypothesis, Limits, beam_search
from glassformer.experiments.finding import Finding, Progress, Row, silent
from glassformer.experiments.learning import Dice, held_out, learn, pairs
from glassformer.looking.style import BLUE, GREEN, ORANGE
from glassformer.models import transformer
from glassformer.tasks import PairBatch, translation_loss

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS, SENTENCE = 8, 4  # in the language that is read
STEMS, ENDINGS = 6, 6  # first and second tokens of the language that is written
USUAL = (0.3, 0.6)  # how often the usual translation of a word is used, from one word to the other
START, END = STEMS + ENDINGS, STEMS + ENDINGS + 1
SOURCE = END + 1  # the first word of the language that is read
Book = NDArray[np.float64]  # (WORDS, STEMS * ENDINGS): how likely each translation of each word is


def run(
    seed: int = 0,
    progress: Progress = silent,
    steps: int = 500,
    widths: Sequence[int] = (1, 2, 3, 4, 6, 8),
    count: int = 200,
) -> Finding:
    """A model learns a phrase book from examples, and translates with beams of several widths."""
    book = _phrase_book(np.random.default_rng([seed, 7]))
    draw = partial(_sentences, book=book)
    model = transformer(SOURCE + WORDS, width=32, heads=4, layers=1, hidden=64, dropout=0.0)
    learn(model, draw, translation_loss, steps, 5e-3, seed, progress, "learning a phrase book")
    new: PairBatch = held_out(partial(draw, count=count), seed)
    limits = Limits(start=START, end=END, max_length=2 * SENTENCE + 1)
    best = _likeliest(book)[new.source - SOURCE].reshape(len(new.source), -1)  # (B, T)
    found: dict[int, list[Hypothesis]] = {}
    rows: list[Row] = []
    for done, width in enumerate(widths, start=1):
        answers = beam_search(model, new.source, limits=limits, width=width, length_penalty=0.0)
        found[width] = [answer[0] for answer in answers]
        rows.append({"part": "width", "width": width, **_judge(found[width], best, new.source, book)})
        progress("decoding", done, len(widths))
    greedy, beam = found[widths[0]], found[widths[-1]]
    one = max(range(count), key=lambda n: beam[n].log_probability - greedy[n].log_probability)
    rows += _story(greedy[one], "greedy") + _story(beam[one], f"beam {widths[-1]}")
    better = sum(b.log_probability > g.log_probability + 1e-6 for g, b in zip(greedy, beam, strict=True)) / count
    worse = sum(b.log_probability < g.log_probability - 1e-6 for g, b in zip(greedy, beam, strict=True)) / count
    facts = {
        "score_greedy": rows[0]["log probability"],
        "score_beam": rows[len(widths) - 1]["log probability"],
        "right_greedy": rows[0]["likeliest"],
        "right_beam": rows[len(widths) - 1]["likeliest"],
        "better": better,
        "worse": worse,
        "score_two": rows[1]["log probability"],
    }
    ratio = math.exp(beam[one].log_probability - greedy[one].log_probability)
    return Finding(
        method=f"A phrase book of {WORDS} words was drawn: each has a usual translation ({USUAL[0]:.0%} to "
        f"{USUAL[1]:.0%} of the time) and {ENDINGS} others that share another first token. A Transformer of 1 + 1 "
        f"layers learned it for {steps} steps from sentences of {SENTENCE} words whose translations were drawn from "
        f"the book. {count} new sentences were translated with beams of {', '.join(map(str, widths))}; 1 is greedy. "
        "Quality is the share of words that got their likeliest translation by the book.",
        measured=f"Greedy outputs have a log-probability of {facts['score_greedy']:.2f} on average, those of "
        f"{widths[1]} beams {facts['score_two']:.2f}, of {widths[-1]} beams {facts['score_beam']:.2f}; beams find a "
        f"likelier output for {better:.0%} of the sentences and a less likely one for {worse:.0%}. Words that got "
        f"their likeliest translation: {facts['right_greedy']:.0%} greedily, {facts['right_beam']:.0%} with "
        f"{widths[-1]} beams. In the sentence of the figure the beam's output is {ratio:,.0f} times as likely.",
        holds=better > 0.5 and worse < 0.02 and facts["right_beam"] > facts["right_greedy"] + 0.2,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, widths),
    )


def _phrase_book(dice: Dice) -> Book:
    """For each word a usual translation, more or less usual, and all endings of another stem, which share the rest."""
    book = np.zeros((WORDS, STEMS, ENDINGS))
    for word in book:
        usual, crowd = dice.choice(STEMS, size=2, replace=False)
        share = dice.uniform(*USUAL)
        word[crowd] = (1 - share) * dice.dirichlet(np.full(ENDINGS, 20.0))
        word[usual, dice.integers(ENDINGS)] = share
    return book.reshape(WORDS, -1)


def _sentences(dice: Dice, book: Book, count: int = 64) -> PairBatch:
    """Random sentences, each word translated as the book has it, the rare translations rarely."""
    words = dice.integers(WORDS, size=(count, SENTENCE))  # (B, S)
    chosen = (dice.random((count, SENTENCE, 1)) > book[words].cumsum(axis=-1)).sum(axis=-1)  # (B, S)
    chosen = chosen.clip(max=STEMS * ENDINGS - 1)
    target = np.stack((chosen // ENDINGS, STEMS + chosen % ENDINGS), axis=-1).reshape(count, -1)  # (B, 2 S)
    return pairs(words + SOURCE, target, START, END)


def _likeliest(book: Book) -> torch.Tensor:
    """The two tokens of each word's likeliest translation, (WORDS, 2)."""
    chosen = book.argmax(axis=-1)
    return torch.from_numpy(np.stack((chosen // ENDINGS, STEMS + chosen % ENDINGS), axis=-1))


def _judge(found: list[Hypothesis], best: torch.Tensor, source: torch.Tensor, book: Book) -> dict[str, float]:
    """How likely the outputs are by the model, and how many words got their likeliest translation."""
    right = total = 0
    for output, wanted in zip(found, best.tolist(), strict=True):
        for place in range(0, len(wanted), 2):
            right += output.tokens[place : place + 2] == wanted[place : place + 2]
            total += 1
    return {"log probability": float(np.mean([each.log_probability for each in found])), "likeliest": right / total}


def _story(output: Hypothesis, name: str) -> list[Row]:
    """One sentence, token by token: what it was, how likely, and the total so far."""
    sums = np.cumsum(output.log_probabilities).tolist()
    names = [_named(token) for token in output.tokens] + ["end"] * output.finished
    return [
        {"part": "sentence", "search": name, "place": place, "token": token, "total": total}
        for place, (token, total) in enumerate(zip(names, sums, strict=True), start=1)
    ]


def _named(token: int) -> str:
    return f"{'bdfgkl'[token]}a" if token < STEMS else f"-{'mnprst'[token - STEMS]}o"


def _draw(rows: list[Row], widths: Sequence[int]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 3.8), layout="constrained")
    score, quality, story = figure.subplots(1, 3, width_ratios=[1, 1, 1.5])
    own = [row for row in rows if row["part"] == "width"]
    score.plot(widths, [row["log probability"] for row in own], color=BLUE)
    score.set(title="Likelier outputs", ylabel="log-probability (mean)")
    quality.plot(widths, [row["likeliest"] for row in own], color=GREEN, marker="^")
    quality.set(title="Better words", ylabel="words with their likeliest translation", ylim=(0, 1.05))
    for axes in (score, quality):
        axes.set_xlabel("beam width (1: greedy)")
        axes.set_xticks(widths, widths)
    searches = dict.fromkeys(row["search"] for row in rows if row["part"] == "sentence")
    told = {name: [row for row in rows if row.get("search") == name] for name in searches}
    for name, colour, marker in zip(searches, (ORANGE, BLUE), "so", strict=True):
        places, totals = [row["place"] for row in told[name]], [row["total"] for row in told[name]]
        story.plot(places, totals, color=colour, marker=marker, label=name)
        (other,) = (each for each in told if each != name)
        for row, beside in zip(told[name], told[other], strict=False):
            lift = 8 if row["total"] >= beside["total"] else -15
            where = (row["place"], row["total"])
            story.annotate(row["token"], where, xytext=(0, lift), textcoords="offset points", ha="center", color=colour)
    story.set(title="Where greed goes wrong: one sentence", xlabel="token", ylabel="log-probability so far")
    story.set_xticks(places)
    story.margins(0.08, 0.15)
    story.legend(loc="lower left")
    return figure
