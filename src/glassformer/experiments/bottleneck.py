"""bottleneck: a fixed context vector loses long sentences; attention looks back at every word.

An encoder without attention hands over its last state: as many numbers for thirty words as for three. The language here
is made up: every word has a translation, and an adjective comes after its noun.

B sentences, S source length, T target length
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from glassformer.decoding import Limits, greedy
from glassformer.evaluation import score
from glassformer.experiments.finding import Finding, Progress, Row, silent
from glassformer.experiments.learning import Dice, held_out, learn, pairs
from glassformer.looking.style import BLUE, GREEN, ORANGE
from glassformer.models import EncoderDecoder, recurrent, transformer
from glassformer.parts.alignment import MultiplicativeScore
from glassformer.tasks import PairBatch, translation_loss

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS, ADJECTIVES = 16, 5  # of the source; the target has as many others
START, END = 2 * WORDS, 2 * WORDS + 1
VOCABULARY = END + 1
WIDTH = 64
FIXED, LOOKS_BACK, TRANSFORMER = "LSTM, fixed vector", "LSTM with attention", "Transformer"
RATES = {FIXED: 1e-2, LOOKS_BACK: 1e-2, TRANSFORMER: 5e-3}
LOOKS = {FIXED: (ORANGE, "s"), LOOKS_BACK: (GREEN, "^"), TRANSFORMER: (BLUE, "o")}
MODELS: dict[str, Callable[[], object]] = {
    FIXED: lambda: recurrent(VOCABULARY, WIDTH, dropout=0.0, attention=None),
    LOOKS_BACK: lambda: recurrent(VOCABULARY, WIDTH, dropout=0.0, attention=MultiplicativeScore),
    TRANSFORMER: lambda: transformer(VOCABULARY, WIDTH, heads=4, layers=1, hidden=4 * WIDTH, dropout=0.0),
}


def run(
    seed: int = 0,
    progress: Progress = silent,
    steps: int = 700,
    lengths: Sequence[int] = (5, 10, 15, 20, 25, 30),
    count: int = 100,
) -> Finding:
    """Three models learn to translate sentences of all lengths, and are judged by length and by place."""
    rows: list[Row] = []
    longest = max(lengths)
    draw = partial(_sentences, longest=longest)
    for name, make in MODELS.items():
        torch.manual_seed(seed)
        model = cast(EncoderDecoder, make())
        learn(model, draw, translation_loss, steps, RATES[name], seed, progress, name)
        model.eval()
        for done, length in enumerate(lengths, start=1):
            batch = held_out(partial(_sentences, length=length, count=count), seed)
            rows.append({"part": "length", "model": name, "length": length, "bleu": _bleu(model, batch)})
            progress(f"{name}: translating", done, len(lengths))
        rows += [{"part": "place", "model": name, **row} for row in _by_place(model, longest, 4 * count, seed)]
    bleu = {(row["model"], row["length"]): row["bleu"] for row in rows if row["part"] == "length"}
    parts = {
        name: _thirds([row["accuracy"] for row in rows if (row["part"], row["model"]) == ("place", name)])
        for name in MODELS
    }
    facts: dict[str, float] = {
        **{f"short {name}": bleu[name, min(lengths)] for name in MODELS},
        **{f"long {name}": bleu[name, longest] for name in MODELS},
        **{f"{part} {name}": share for name, shares in parts.items() for part, share in shares.items()},
    }
    return Finding(
        method=f"Random sentences of 2 to {longest} out of {WORDS} words, {ADJECTIVES} of them adjectives; each word "
        "has one translation, and an adjective before a noun comes after it. Models of width "
        f"{WIDTH} (one LSTM layer to read and one to write, or one Transformer block each) learned for {steps} steps "
        "of 32 sentences. BLEU is sacreBLEU's, of "
        f"{count} new sentences of each length, translated greedily; words by place are those of {4 * count} "
        f"sentences of {longest} words, each with the right words before it given.",
        measured=f"From {min(lengths)} to {longest} words BLEU falls from {facts[f'short {FIXED}']:.0f} to "
        f"{facts[f'long {FIXED}']:.0f} with a fixed vector, from {facts[f'short {LOOKS_BACK}']:.0f} to "
        f"{facts[f'long {LOOKS_BACK}']:.0f} with attention, and from {facts[f'short {TRANSFORMER}']:.0f} to "
        f"{facts[f'long {TRANSFORMER}']:.0f} with a Transformer. Of {longest} words the fixed vector has "
        f"{parts[FIXED]['beginning']:.0%} of the first third right, {parts[FIXED]['middle']:.0%} of the middle and "
        f"{parts[FIXED]['end']:.0%} of the last: the beginning is lost, as the notes say"
        f"{', but the middle even more' if parts[FIXED]['middle'] < parts[FIXED]['beginning'] else ''}. With attention "
        f"these are {_shares(parts[LOOKS_BACK])}, with a Transformer {_shares(parts[TRANSFORMER])}.",
        holds=facts[f"long {FIXED}"] < 0.5 * facts[f"short {FIXED}"]
        and min(facts[f"long {LOOKS_BACK}"], facts[f"long {TRANSFORMER}"]) > facts[f"long {FIXED}"] + 15
        and parts[FIXED]["beginning"] < parts[LOOKS_BACK]["beginning"] - 0.1
        and min(parts[LOOKS_BACK]["beginning"], parts[TRANSFORMER]["beginning"]) > 0.85,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows, longest),
    )


def _sentences(dice: Dice, longest: int = 0, length: int | None = None, count: int = 32) -> PairBatch:
    """Sentences of one length and their translations; the length is drawn if it is not given."""
    lexicon = np.random.default_rng(0).permutation(WORDS) + WORDS  # the same language for everybody
    words = int(dice.integers(2, longest + 1)) if length is None else length
    source = dice.integers(WORDS, size=(count, words))  # (B, S)
    target = lexicon[source]  # (B, T)
    adjective = source < ADJECTIVES
    rows, places = np.nonzero(adjective[:, :-1] & ~adjective[:, 1:])  # an adjective, and then a noun
    target[rows, places], target[rows, places + 1] = target[rows, places + 1], target[rows, places]
    return pairs(source, target, START, END)


def _bleu(model: EncoderDecoder, batch: PairBatch) -> float:
    """BLEU of what a model writes by itself."""
    limits = Limits(START, END, max_length=batch.target_out.shape[1] + 5)
    written = [each.tokens for each in greedy(model, batch.source, batch.source_mask, limits=limits)]
    right = batch.target_out[:, :-1].tolist()
    return score([_text(each) for each in written], [_text(each) for each in right]).bleu


def _text(tokens: Sequence[int]) -> str:
    return " ".join(f"w{token}" for token in tokens)


@torch.no_grad()
def _by_place(model: EncoderDecoder, length: int, count: int, seed: int) -> list[Row]:
    """How often each word of long sentences is right, from the first to the last."""
    batch = held_out(partial(_sentences, length=length, count=count), seed)
    scores: Tensor = model(batch.source, batch.target_in, batch.source_mask)  # (B, T + 1, V)
    right = (scores.argmax(dim=-1) == batch.target_out).double().mean(dim=0)[:-1]  # (T)
    return [{"place": place, "accuracy": share} for place, share in enumerate(right.tolist(), start=1)]


def _thirds(shares: list[float]) -> dict[str, float]:
    """The mean of the beginning, of the middle and of the end."""
    cut = np.array_split(np.array(shares), 3)
    return {part: float(each.mean()) for part, each in zip(("beginning", "middle", "end"), cut, strict=True)}


def _shares(parts: dict[str, float]) -> str:
    first, second, third = (f"{share:.0%}" for share in parts.values())
    return f"{first}, {second} and {third}"


def _draw(rows: list[Row], longest: int) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.8), layout="constrained")
    by_length, by_place = figure.subplots(1, 2)
    for name, (colour, marker) in LOOKS.items():
        own = [row for row in rows if row["model"] == name]
        lengths = [(row["length"], row["bleu"]) for row in own if row["part"] == "length"]
        places = [(row["place"], row["accuracy"]) for row in own if row["part"] == "place"]
        by_length.plot(*zip(*lengths, strict=True), color=colour, marker=marker, markersize=6, label=name)
        by_place.plot(*zip(*places, strict=True), color=colour, marker=marker, markevery=3, label=name)
    by_length.set(title="Longer and longer sentences", xlabel="words in the sentence", ylabel="BLEU", ylim=(0, 103))
    by_place.set(title=f"Which words of {longest} are lost?", xlabel="place of the word", ylim=(0, 1.03))
    by_place.set_ylabel("right words (those before it given)")
    figure.legend(*by_length.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
