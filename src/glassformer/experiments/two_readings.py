"""two-readings: what "it" refers to, and what "with a telescope" belongs to.

A small grammar has sentences whose last word decides ("The bear ate the honey because it was hungry": the bear;
"delicious": the honey), sentences that a word decides ("hit the thief with a hammer", "saw the thief with a beard"),
and one kind that nothing decides: "The man saw the astronomer with a telescope", of which both readings occur.

B sentences, T length, L layers, H heads
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from glassformer.experiments.batches import Rng
from glassformer.experiments.charts import bars, mark_level
from glassformer.experiments.finding import Finding, Rows, Spread
from glassformer.experiments.measures import logits, mean_loss
from glassformer.experiments.small import Small
from glassformer.experiments.trial import Trial
from glassformer.looking import record
from glassformer.looking.style import BLUE, ORANGE, SKY
from glassformer.models import EncoderOnly
from glassformer.parts.schemes import learned
from glassformer.tasks.gathering import TokenBatch, token_loss

CLAIM = (
    '"it" in "The bear ate the honey because it was …" is the bear or the honey, by the last word, and attention finds '
    'which; "saw the astronomer with a telescope" has two meanings, so one head of attention is not enough.'
)
ORDER = 112  # in the story

ANIMALS = ("bear", "dog", "fox", "cow", "mouse", "badger")
FOODS = ("honey", "apple", "bread", "cheese", "cake", "fish")
FEELS, TASTES = ("hungry", "greedy", "tired", "awake"), ("delicious", "sweet", "fresh", "ripe")
MEN = ("man", "woman", "boy", "girl", "astronomer", "thief")
SEES, HITS = ("saw", "watched", "noticed"), ("hit", "struck", "beat")
TELESCOPES, HAMMERS, BEARDS = ("telescope", "camera"), ("hammer", "stick"), ("beard", "hat")
SMALL_WORDS = ("the", "ate", "was", "eaten", "by", "because", "it", "with", "a", ".")
WORDS = (
    *SMALL_WORDS, *ANIMALS, *FOODS, *FEELS, *TASTES, *MEN, *SEES, *HITS, *TELESCOPES, *HAMMERS, *BEARDS
)  # fmt: skip
NUMBERS = {word: number for number, word in enumerate(WORDS)}
LENGTH = 11
BY_VERB = 0.7  # of the sentences that nothing decides, so many are meant of the verb
IT, WITH, EITHER = "it", "with, decided", "with a telescope"
HEADS = (1, 4)
COLOURS = {"1 head": ORANGE, "4 heads": BLUE}
RATES = (3e-3, 1e-2)
WIDTH, LAYERS = 32, 2


@dataclass(frozen=True)
class Sentence:
    """Words, the kind of the question, where it is asked, and where its answer and the other candidate stand."""

    words: list[str]
    kind: str
    place: int
    answer: int
    other: int


def run(trial: Trial, steps: int = 300) -> Finding:
    """Encoders with one and with several heads learn the grammar; then minimal pairs are read."""
    seeds = [each.seed for each in trial.seeds()]
    tuned = trial.tuned("learning", partial(_learned, steps=steps), list(HEADS), RATES)
    rows = Rows(
        {"heads": heads, "rate": found.rate, "seed": seed, **row}
        for heads, found in tuned.items()
        for seed, result in zip(seeds, found.results, strict=True)
        for row in result
    )
    right = rows.where(part="right").spreads("value", by=("heads", "what"))
    said = rows.where(part="verb").spreads("value", by="heads")
    looks = rows.where(part="attends").spreads("value", by=("heads", "what"))
    split = rows.where(part="split").spreads("value", by="heads")
    one, many = HEADS
    facts: dict[str, float] = {f"right {what}, {heads}": value for (heads, what), value in right.items()}
    facts |= {f"verb {heads}": said[heads] for heads in HEADS}
    facts |= {f"attends {what}, {heads}": value for (heads, what), value in looks.items()}
    facts |= {f"split {heads}": split[heads] for heads in HEADS}
    finds = (
        min(right[many, IT].low, right[many, WITH].low) > 0.95 and looks[many, "answer"].low > looks[many, "other"].high
    )
    several = max(right[one, IT].high, right[one, WITH].high) < 0.9 or abs(said[one] - BY_VERB) > 0.15
    return Finding(
        method=f"Encoders of {LAYERS} layers, {WIDTH} wide, with {one} or {many} heads learned for {steps} steps "
        'which word "it" stands for in sentences such as "the bear ate the honey because it was hungry" and "the '
        'honey was eaten by the bear because it was hungry", and to which word "with" belongs in sentences such as '
        '"the man hit the thief with a hammer" (hit) and "the man saw the thief with a beard" (thief). "saw … with a '
        f'telescope" belongs to the verb in {BY_VERB:.0%} of them, by chance. Three times each, at the better of the '
        f"rates {RATES[0]:g} and {RATES[1]:g}. Attention is that of the layer and head that attends most to the "
        "answer.",
        measured=f'With {many} heads "it" is the right noun in {right[many, IT]:.0%} of new sentences. The head that '
        f"looks most at it gives the right noun {looks[many, 'answer']:.0%} of its attention and the other one "
        f"{looks[many, 'other']:.0%}. "
        f'"with" is attached rightly in {right[many, WITH]:.0%} where a word decides it; where nothing does, '
        f"{said[many]:.0%} of the probability go to the verb, of {BY_VERB:.0%} in the grammar. With one head it is "
        f"{right[one, IT]:.0%}, {right[one, WITH]:.0%} and {said[one]:.0%}: "
        + (
            "one head is not enough."
            if several
            else "two readings do not need two heads, both are there as probabilities."
        )
        + f" Of the {many} heads of the last layer, those that look most at the verb and at the noun of an ambiguous "
        f"sentence are different ones in {split[many]:.0%}.",
        holds=finds and several,
        facts=facts | {"finds": float(finds), "several": float(several)},
        rows=rows,
        draw=lambda: _draw(right, said, rows),
        seeds=seeds,
    )


def _it(rng: Rng, last: str | None = None) -> Sentence:
    """The bear ate the honey because it was hungry; or the same in the passive."""
    animal, food = str(rng.choice(ANIMALS)), str(rng.choice(FOODS))
    last = last or str(rng.choice((*FEELS, *TASTES)))
    active = bool(rng.integers(2))
    told = f"the {animal} ate the {food}" if active else f"the {food} was eaten by the {animal}"
    words = f"{told} because it was {last}".split()
    meant, other = (animal, food) if last in FEELS else (food, animal)
    return Sentence(words, IT, words.index("it"), words.index(meant), words.index(other))


def _with(rng: Rng, kind: str | None = None) -> Sentence:
    """The man saw the astronomer with a telescope: seen through it, or owner of it."""
    who, whom = rng.choice(MEN, size=2, replace=False).tolist()
    kind = kind or (EITHER, WITH)[rng.integers(2)]
    if kind == EITHER:
        verb, thing, by_verb = rng.choice(SEES), rng.choice(TELESCOPES), rng.random() < BY_VERB
    elif rng.integers(2):
        verb, thing, by_verb = rng.choice(HITS), rng.choice(HAMMERS), True
    else:
        verb, thing, by_verb = rng.choice(SEES), rng.choice(BEARDS), False
    words = f"the {who} {verb} the {whom} with a {thing}".split()
    places = (2, 4) if by_verb else (4, 2)
    return Sentence(words, kind, words.index("with"), *places)


def _batch(sentences: list[Sentence]) -> TokenBatch:
    """Sentences, filled up with full stops; each is asked one question."""
    text = np.full((len(sentences), LENGTH), NUMBERS["."])
    labels, asked = np.zeros_like(text), np.zeros(text.shape, dtype=np.bool_)
    for row, each in enumerate(sentences):
        text[row, : len(each.words)] = [NUMBERS[word] for word in each.words]
        asked[row, each.place], labels[row, each.place] = True, text[row, each.answer]
    shown, wanted, where = (torch.from_numpy(each) for each in (text, labels, asked))
    return TokenBatch(shown, wanted, where, None, text.size, len(text))


def _mixed(rng: Rng, count: int = 64) -> TokenBatch:
    return _batch([(_it if rng.integers(2) else _with)(rng) for _ in range(count)])


def _learned(trial: Trial, heads: int, rate: float, steps: int) -> tuple[float, list[dict[str, Any]]]:
    """The loss on validation, and what the model makes of new sentences of each kind."""
    model = trial.begin(Small(len(WORDS), WIDTH, heads, LAYERS, learned, length=LENGTH).reader)
    trial.learn("", model, _mixed, token_loss, steps, rate)
    rng = np.random.default_rng([trial.seed, 7])
    kinds = {IT: [_it(rng) for _ in range(300)], WITH: [_with(rng, WITH) for _ in range(300)]}
    rows: list[dict[str, Any]] = []
    for kind, sentences in kinds.items():
        chances = _chances(model, sentences)  # (B, V)
        wanted = torch.tensor([NUMBERS[each.words[each.answer]] for each in sentences])
        right = (chances.argmax(dim=-1) == wanted).float().mean().item()
        rows.append({"part": "right", "what": kind, "value": right})
    open_ones = [_with(rng, EITHER) for _ in range(300)]
    verbs, nouns = (torch.tensor([NUMBERS[each.words[at]] for each in open_ones]) for at in (2, 4))
    chances = _chances(model, open_ones)
    both = [chances.gather(1, each[:, None])[:, 0] for each in (verbs, nouns)]  # (B) each
    rows.append({"part": "verb", "value": (both[0] / (both[0] + both[1])).mean().item()})
    rows += _attention(model, kinds[IT])
    rows.append({"part": "split", "value": _split(model, open_ones)})
    pair = [_pair(word) for word in ("hungry", "delicious")]
    for sentence, found in zip(pair, _chances(model, pair), strict=True):
        noun = {"bear": found[NUMBERS["bear"]].item(), "honey": found[NUMBERS["honey"]].item()}
        rows += [
            {"part": "pair", "what": f"{sentence.words[-1]}: {name}", "value": each} for name, each in noun.items()
        ]
    return mean_loss(model, trial.held_out(_mixed, count=500), token_loss), rows


def _pair(last: str) -> Sentence:
    """The sentence of the notes."""
    words = f"the bear ate the honey because it was {last}".split()
    return Sentence(words, IT, words.index("it"), *((1, 4) if last in FEELS else (4, 1)))


def _chances(model: EncoderOnly, sentences: list[Sentence]) -> Tensor:
    """The probability of each word (B, V) as the answer to each sentence's question."""
    batch = _batch(sentences)
    return logits(model, batch.text)[batch.label_mask].softmax(dim=-1)


def _weights(model: EncoderOnly, sentences: list[Sentence]) -> Tensor:
    """What each head attends to from the place of the question, (L, B, H, T)."""
    batch = _batch(sentences)
    with record(model, keep="weights") as trace:
        logits(model, batch.text)
    every = trace.attention("encoder.self")  # (L, B, H, T, T)
    places = torch.tensor([each.place for each in sentences])
    return every[:, torch.arange(len(sentences)), :, places].transpose(0, 1)  # (L, B, H, T)


def _attention(model: EncoderOnly, sentences: list[Sentence]) -> list[dict[str, Any]]:
    """How much the head that looks most at the answer gives to it, and to the other candidate."""
    found, rows = _weights(model, sentences), torch.arange(len(sentences))
    answer, other = (
        found[:, rows, :, torch.tensor([getattr(each, name) for each in sentences])].mean(dim=0)  # (L, H)
        for name in ("answer", "other")
    )
    best = answer.argmax()
    return [
        {"part": "attends", "what": "answer", "value": answer.flatten()[best].item()},
        {"part": "attends", "what": "other", "value": other.flatten()[best].item()},
    ]


def _split(model: EncoderOnly, sentences: list[Sentence]) -> float:
    """How often the head of the last layer that looks most at the verb is not the one that looks most at the noun."""
    found = _weights(model, sentences)[-1]  # (B, H, T)
    return (found[:, :, 2].argmax(dim=1) != found[:, :, 4].argmax(dim=1)).float().mean().item()


def _draw(right: dict[Any, Spread], said: dict[int, Spread], rows: Rows) -> Figure:
    figure = Figure(figsize=(11, 3.9), layout="constrained")
    pair, told, either = figure.subplots(1, 3, width_ratios=[1.1, 1, 0.8])
    found = rows.where(part="pair", heads=max(HEADS)).spreads("value", by="what")
    values = {noun: [found[f"{last}: {noun}"] for last in ("hungry", "delicious")] for noun in ("bear", "honey")}
    bars(pair, ["… it was hungry", "… it was delicious"], values, {"bear": BLUE, "honey": SKY})
    pair.set(title="The bear ate the honey because …", ylabel='probability that "it" is', ylim=(0, 1.05))
    pair.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
    names = dict(zip(HEADS, COLOURS, strict=True))
    values = {names[heads]: [right[heads, kind] for kind in (IT, WITH)] for heads in HEADS}
    bars(told, ['"it"', '"with", where\na word decides'], values, COLOURS)
    mark_level(told, 0.5, "guessing")
    told.set(title="Right in new sentences", ylim=(0, 1.05))
    told.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    bars(either, [*COLOURS], {"": [said[heads] for heads in HEADS]}, {"": [*COLOURS.values()]})
    mark_level(either, BY_VERB, "in the grammar")
    either.set(title="saw … with a telescope", ylabel='probability that it is "saw"', ylim=(0, 1.05))
    return figure
