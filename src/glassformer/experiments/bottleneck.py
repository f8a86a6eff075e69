"""bottleneck: a fixed context vector loses long sentences; attention looks back at every word.

An encoder without attention hands over its last state: as many numbers for thirty words as for three. The language here
is made up: every word has a translation, and an adjective comes after its noun. As in any language not every word can
follow every other: so there is less to remember, and the vector holds what it can within few minutes of training.

B sentences, S source length, T target length, V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import cast

import numpy as np
from matplotlib.figure import Figure

from glassformer.decoding import Limits, greedy
from glassformer.evaluation import score
from glassformer.experiments.batches import Rng, pairs
from glassformer.experiments.charts import bands, legend_below, panels
from glassformer.experiments.finding import Finding, Row, Rows
from glassformer.experiments.measures import accuracy_by_place, logits, mean_loss, still_falling
from glassformer.experiments.trial import Trial, told_rates
from glassformer.looking.style import BLUE, GREEN, ORANGE
from glassformer.models import EncoderDecoder, recurrent, transformer
from glassformer.parts.alignment import MultiplicativeScore
from glassformer.tasks.translation import PairBatch, translation_loss

CLAIM = "A fixed context vector loses the beginning of long sentences, of about 30 words; attention looks back at it."
ORDER = 40  # in the story

WORDS, ADJECTIVES = 12, 4  # of the source; the target has as many others
FOLLOWERS = 3  # how many words can follow each
START, END = 2 * WORDS, 2 * WORDS + 1
VOCABULARY = END + 1
WIDTH = 32
FIXED, LOOKS_BACK, TRANSFORMER = "LSTM, fixed vector", "LSTM with attention", "Transformer"
RATES = (5e-3, 1e-2)
PATIENCE = {FIXED: 6, LOOKS_BACK: 2, TRANSFORMER: 2}  # times as many steps: until curves have settled
SETTLED = 0.02  # a curve has, if no more than this of its fall is in the last quarter of the training
PARTS = 16  # of the training, after each of which the validation loss is taken
THIRDS = ("first third", "second third", "last third")
COLOURS = {FIXED: ORANGE, LOOKS_BACK: GREEN, TRANSFORMER: BLUE}
MODELS: dict[str, Callable[[], object]] = {
    FIXED: lambda: recurrent(VOCABULARY, WIDTH, dropout=0.0, attention=None),
    LOOKS_BACK: lambda: recurrent(VOCABULARY, WIDTH, dropout=0.0, attention=MultiplicativeScore),
    TRANSFORMER: lambda: transformer(VOCABULARY, WIDTH, heads=4, layers=1, hidden=4 * WIDTH, dropout=0.0),
}


def run(trial: Trial, steps: int = 500, lengths: Sequence[int] = (5, 10, 20, 30), count: int = 100) -> Finding:
    """Three models learn to translate sentences of all lengths, and are judged by length and by place."""
    work = partial(_translator, steps=steps, lengths=lengths, count=count)
    tuned = trial.tuned("learning to translate", work, [*MODELS], RATES)
    rows = Rows(row for each in tuned.values() for result in each.results for row in result)
    shortest, longest = min(lengths), max(lengths)
    bleus = rows.where(part="length").spreads("bleu", by=("model", "length"))
    thirds = rows.where(part="third").spreads("accuracy", by=("model", "third"))
    falling = rows.where(part="settled").spreads("falling", by="model")
    open_ended = [name for name in MODELS if falling[name].high > SETTLED]
    seeds = [each.seed for each in trial.seeds()]
    facts: dict[str, float] = {
        **{f"short {name}": bleus[name, shortest] for name in MODELS},
        **{f"long {name}": bleus[name, longest] for name in MODELS},
        **{f"{third} {name}": right for (name, third), right in thirds.items()},
        **{f"still falling {name}": each for name, each in falling.items()},
    }
    told = {name: ", ".join(f"{thirds[name, third]:.0%} of the {third}" for third in THIRDS) for name in MODELS}
    fall = {
        name: f"{bleus[name, shortest]:.0f} at {shortest} words, {bleus[name, longest]:.0f} at {longest}"
        for name in MODELS
    }
    many = {name: f"{PATIENCE[name] * steps:,}" for name in MODELS}
    each_seed = [rows.where(part="third", model=FIXED, seed=seed).values("accuracy", by="third") for seed in seeds]
    first_worst = [min(one, key=one.__getitem__) == THIRDS[0] for one in each_seed]
    first_best = [max(one, key=one.__getitem__) == THIRDS[0] for one in each_seed]
    shorter = all(
        long < 0.5 * short
        for short, long in zip(bleus[FIXED, shortest].values, bleus[FIXED, longest].values, strict=True)
    )
    looks_back = all(
        thirds[name, THIRDS[0]].low > max(0.9, thirds[FIXED, THIRDS[0]].high) for name in (LOOKS_BACK, TRANSFORMER)
    )
    which = (
        "the beginning is what is lost most"
        if all(first_worst)
        else "the beginning is not what is lost most" + (": it is what is kept best" if all(first_best) else "")
    )
    return Finding(
        method=f"Random sentences of 2 to {longest} out of {WORDS} words, {ADJECTIVES} of them adjectives, each of "
        f"which can be followed by {FOLLOWERS}; every second batch has {longest} words. Each word has one translation, "
        f"and an adjective before a noun comes after it. Models of width {WIDTH} (one LSTM layer to read and one to "
        f"write, or one Transformer block each) learned from new batches of 32 sentences for {many[FIXED]} steps "
        f"(fixed vector), {many[LOOKS_BACK]} (attention) and {many[TRANSFORMER]} (Transformer), each "
        f"{told_rates(RATES)}. A curve has settled if no more than {SETTLED:.0%} of all that the validation loss falls "
        "is in the last quarter of the training, at every seed. BLEU is sacreBLEU's, of "
        f"{count} new sentences of each length, translated greedily; words by place are those of {4 * count} sentences "
        f"of {longest} words, each with the right words before it given, so that one that is lost is still guessed "
        f"right once in {FOLLOWERS}.",
        measured=f"BLEU with a fixed vector is {fall[FIXED]}; with attention {fall[LOOKS_BACK]}; with a Transformer "
        f"{fall[TRANSFORMER]}. Of sentences of {longest} words the fixed vector has right {told[FIXED]}: {which}. With "
        f"attention it is {told[LOOKS_BACK]}; with a Transformer {told[TRANSFORMER]}. In the last quarter of the "
        f"training the validation loss falls by {falling[FIXED]:.1%} of all that it falls with a fixed vector, by "
        f"{falling[LOOKS_BACK]:.1%} with attention and by {falling[TRANSFORMER]:.1%} with a Transformer: "
        + (f"the curve of {' and '.join(open_ended)} has not settled." if open_ended else "the curves have settled."),
        holds=shorter and all(first_worst) and looks_back and not open_ended,
        facts={
            **facts,
            "first third lost most": float(sum(first_worst)),
            "first third kept best": float(sum(first_best)),
        },
        rows=rows,
        draw=lambda: _draw(rows, longest),
        seeds=seeds,
    )


def _translator(
    trial: Trial, name: str, rate: float, steps: int, lengths: Sequence[int], count: int
) -> tuple[float, list[Row]]:
    """The validation loss of a model, its BLEU by length, how often its words are right by place, and its course."""
    model, longest, many = cast(EncoderDecoder, trial.begin(MODELS[name])), max(lengths), PATIENCE[name] * steps
    held = [trial.held_out(_sentences, length=length, count=count) for length in lengths]

    def validated() -> float:
        loss = fmean(mean_loss(model, batch, translation_loss) for batch in held)
        model.train()
        return loss

    course, told = [validated()], {round(many * part / PARTS) for part in range(1, PARTS + 1)}

    def watch(_: str, step: int, __: int | None) -> None:
        if step in told:
            course.append(validated())

    draw = partial(_practice, longest=longest)
    replace(trial, progress=watch).learn("", model, draw, translation_loss, many, rate)
    model.eval()
    of: Row = {"model": name, "seed": trial.seed}
    bleus = {length: _bleu(model, trial.new(_sentences, length=length, count=count)) for length in lengths}
    rows: list[Row] = [{"part": "length", **of, "length": length, "bleu": bleu} for length, bleu in bleus.items()]
    rows.append({"part": "settled", **of, "falling": still_falling(course)})
    done = [100 * part / (len(course) - 1) for part in range(len(course))]
    rows += [{"part": "course", **of, "done": at, "loss": loss} for at, loss in zip(done, course, strict=True)]
    new: PairBatch = trial.new(_sentences, length=longest, count=4 * count)
    scores = logits(model, new.source, new.target_in, new.source_mask)[:, :-1]  # (B, T, V), without the end
    right = accuracy_by_place(scores, new.target_out[:, :-1])
    rows += [{"part": "place", **of, "place": place, "accuracy": each} for place, each in enumerate(right, start=1)]
    cut = np.array_split(np.array(right), 3)
    rows += [
        {"part": "third", **of, "third": third, "accuracy": float(each.mean())}
        for third, each in zip(THIRDS, cut, strict=True)
    ]
    return course[-1], rows


def _practice(rng: Rng, longest: int) -> PairBatch:
    """Sentences of one length: of the longest in every second batch, or else the last places are hardly trained."""
    length = longest if rng.random() < 0.5 else int(rng.integers(2, longest + 1))
    return _sentences(rng, length)


def _sentences(rng: Rng, length: int, count: int = 32) -> PairBatch:
    """Sentences of one length and their translations."""
    language = np.random.default_rng(0)  # the same for everybody
    lexicon = language.permutation(WORDS) + WORDS
    followers = language.permuted(np.tile(np.arange(WORDS), (WORDS, 1)), axis=1)[:, :FOLLOWERS]
    words = [rng.integers(WORDS, size=count)]
    for choice in rng.integers(FOLLOWERS, size=(length - 1, count)):
        words.append(followers[words[-1], choice])
    source = np.stack(words, axis=1)  # (B, S)
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
    figure, (by_length, by_place, training) = panels(3, 12, 3.8)
    bands(by_length, rows.where(part="length"), "length", "bleu", "model", COLOURS, markersize=6)
    bands(by_place, rows.where(part="place"), "place", "accuracy", "model", COLOURS, markevery=3)
    by_length.set(title="Longer and longer sentences", xlabel="words in the sentence", ylabel="BLEU", ylim=(0, 103))
    by_place.set(title=f"Which words of {longest} are lost?", xlabel="place of the word", ylim=(0, 1.03))
    by_place.set_ylabel("right words (those before it given)")
    bands(training, rows.where(part="course"), "done", "loss", "model", COLOURS, markevery=3)
    training.set(
        title="Have they learned all they will?", xlabel="% of the training", ylabel="validation loss (nats a word)"
    )
    training.set_ylim(bottom=0)
    legend_below(figure, by_length, columns=3)
    return figure
