"""bottleneck: a fixed context vector loses long sentences; attention looks back at every word.

An encoder without attention hands over its last state: as many numbers for thirty words as for three. The language here
is made up: every word has a translation, and an adjective comes after its noun.

B sentences, S source length, T target length, V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import numpy as np
from matplotlib.figure import Figure

from glassformer.decoding import Limits, greedy
from glassformer.evaluation import score
from glassformer.experiments.batches import Rng, pairs
from glassformer.experiments.charts import legend_below, lines, panels
from glassformer.experiments.finding import Finding, Rows
from glassformer.experiments.measures import accuracy_by_place, logits
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLUE, GREEN, ORANGE
from glassformer.models import EncoderDecoder, recurrent, transformer
from glassformer.parts.alignment import MultiplicativeScore
from glassformer.tasks.translation import PairBatch, translation_loss

CLAIM = "A fixed context vector loses the beginning of long sentences, of about 30 words; attention looks back at it."
ORDER = 40  # in the story

WORDS, ADJECTIVES = 16, 5  # of the source; the target has as many others
START, END = 2 * WORDS, 2 * WORDS + 1
VOCABULARY = END + 1
WIDTH = 64
FIXED, LOOKS_BACK, TRANSFORMER = "LSTM, fixed vector", "LSTM with attention", "Transformer"
RATES = {FIXED: 1e-2, LOOKS_BACK: 1e-2, TRANSFORMER: 5e-3}
COLOURS = {FIXED: ORANGE, LOOKS_BACK: GREEN, TRANSFORMER: BLUE}
MODELS: dict[str, Callable[[], object]] = {
    FIXED: lambda: recurrent(VOCABULARY, WIDTH, dropout=0.0, attention=None),
    LOOKS_BACK: lambda: recurrent(VOCABULARY, WIDTH, dropout=0.0, attention=MultiplicativeScore),
    TRANSFORMER: lambda: transformer(VOCABULARY, WIDTH, heads=4, layers=1, hidden=4 * WIDTH, dropout=0.0),
}


def run(trial: Trial, steps: int = 700, lengths: Sequence[int] = (5, 10, 15, 20, 25, 30), count: int = 100) -> Finding:
    """Three models learn to translate sentences of all lengths, and are judged by length and by place."""
    rows = Rows()
    shortest, longest = min(lengths), max(lengths)
    thirds: dict[str, dict[str, float]] = {}
    for name, make in MODELS.items():
        model = cast(EncoderDecoder, trial.begin(make))
        trial.learn(name, model, partial(_sentences, longest=longest), translation_loss, steps, RATES[name])
        model.eval()
        for length in trial.each(f"{name}: translating", lengths):
            bleu = _bleu(model, trial.new(_sentences, length=length, count=count))
            rows.append({"part": "length", "model": name, "length": length, "bleu": bleu})
        new: PairBatch = trial.new(_sentences, length=longest, count=4 * count)
        scores = logits(model, new.source, new.target_in, new.source_mask)[:, :-1]  # (B, T, V), without the end
        right = accuracy_by_place(scores, new.target_out[:, :-1])
        rows += [{"part": "place", "model": name, "place": n, "accuracy": r} for n, r in enumerate(right, start=1)]
        cut = [float(third.mean()) for third in np.array_split(np.array(right), 3)]
        thirds[name] = dict(zip(("beginning", "middle", "end"), cut, strict=True))
    bleus = rows.where(part="length").values("bleu", by=("model", "length"))
    facts: dict[str, float] = {
        **{f"short {name}": bleus[name, shortest] for name in MODELS},
        **{f"long {name}": bleus[name, longest] for name in MODELS},
        **{f"{part} {name}": right for name, parts in thirds.items() for part, right in parts.items()},
    }
    fall = {name: f"from {facts[f'short {name}']:.0f} to {facts[f'long {name}']:.0f}" for name in MODELS}
    shares = {name: "{beginning:.0%}, {middle:.0%} and {end:.0%}".format(**thirds[name]) for name in MODELS}
    fixed = thirds[FIXED]
    return Finding(
        method=f"Random sentences of 2 to {longest} out of {WORDS} words, {ADJECTIVES} of them adjectives; each word "
        f"has one translation, and an adjective before a noun comes after it. Models of width {WIDTH} (one LSTM layer "
        f"to read and one to write, or one Transformer block each) learned for {steps} steps of 32 sentences. BLEU is "
        f"sacreBLEU's, of {count} new sentences of each length, translated greedily; words by place are those of "
        f"{4 * count} sentences of {longest} words, each with the right words before it given.",
        measured=f"From {shortest} to {longest} words BLEU falls {fall[FIXED]} with a fixed vector, {fall[LOOKS_BACK]} "
        f"with attention, and {fall[TRANSFORMER]} with a Transformer. Of {longest} words the fixed vector has "
        f"{fixed['beginning']:.0%} of the first third right, {fixed['middle']:.0%} of the middle and "
        f"{fixed['end']:.0%} of the last: the beginning is lost, as the notes say"
        f"{', but the middle even more' if fixed['middle'] < fixed['beginning'] else ''}. With attention "
        f"these are {shares[LOOKS_BACK]}, with a Transformer {shares[TRANSFORMER]}.",
        holds=facts[f"long {FIXED}"] < 0.5 * facts[f"short {FIXED}"]
        and min(facts[f"long {LOOKS_BACK}"], facts[f"long {TRANSFORMER}"]) > facts[f"long {FIXED}"] + 15
        and fixed["beginning"] < thirds[LOOKS_BACK]["beginning"] - 0.1
        and min(thirds[LOOKS_BACK]["beginning"], thirds[TRANSFORMER]["beginning"]) > 0.85,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, longest),
    )


def _sentences(rng: Rng, longest: int = 0, length: int | None = None, count: int = 32) -> PairBatch:
    """Sentences of one length and their translations; the length is drawn if it is not given."""
    lexicon = np.random.default_rng(0).permutation(WORDS) + WORDS  # the same language for everybody
    words = int(rng.integers(2, longest + 1)) if length is None else length
    source = rng.integers(WORDS, size=(count, words))  # (B, S)
    target = lexicon[source]  # (B, T)
    adjective = source < ADJECTIVES
    rows, places = np.nonzero(adjective[:, :-1] & ~adjective[:, 1:])  # an adjective, and then a noun
    target[rows, places], target[rows, places + 1] = target[rows, places + 1], target[rows, places]
    return pairs(source, target, START, END)


def _bleu(model: EncoderDecoder, batch: PairBatch) -> float:
    """BLEU of what a model writes by itself."""
    limits = Limits(START, END, max_length=batch.target_out.shape[1] + 5)
    written = [each.tokens for each in greedy(model, batch.source, batch.source_mask, limits=limits)]
    outputs, references = (
        [" ".join(f"w{token}" for token in tokens) for tokens in texts]
        for texts in (written, batch.target_out[:, :-1].tolist())
    )
    return score(outputs, references).bleu


def _draw(rows: Rows, longest: int) -> Figure:
    figure, (by_length, by_place) = panels(2, 10, 3.8)
    lines(by_length, rows.where(part="length"), "length", "bleu", "model", COLOURS, markersize=6)
    lines(by_place, rows.where(part="place"), "place", "accuracy", "model", COLOURS, markevery=3)
    by_length.set(title="Longer and longer sentences", xlabel="words in the sentence", ylabel="BLEU", ylim=(0, 103))
    by_place.set(title=f"Which words of {longest} are lost?", xlabel="place of the word", ylim=(0, 1.03))
    by_place.set_ylabel("right words (those before it given)")
    legend_below(figure, by_length, columns=3)
    return figure
