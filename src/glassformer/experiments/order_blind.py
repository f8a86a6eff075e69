"""order-blind: without positions, "dog bites man" is "man bites dog".

Attention is a sum over the other words, and a sum does not know the order of its terms: swap two words and each takes
its vector along. So no model that reads such vectors can tell who bites whom.

B sentences, T length, D model width
"""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.figure import Figure

from glassformer.experiments.batches import Rng, texts
from glassformer.experiments.charts import bars, note, panels
from glassformer.experiments.finding import Finding, Rows
from glassformer.experiments.measures import accuracy, logits
from glassformer.experiments.small import Small, with_all_schemes
from glassformer.experiments.trial import Trial
from glassformer.looking.style import BLUE, GREY, ORANGE
from glassformer.models import DecoderOnly, EncoderOnly
from glassformer.tasks.classification import classification_loss
from glassformer.tasks.gathering import TextBatch

CLAIM = 'Without positions "dog bites man" is "man bites dog".'
ORDER = 70  # in the story

WORDS = ("[CLS]", "bites", "sees", "chases", "dog", "man", "cat", "fox", "child", "bird", "cow", "horse")
NOUNS = range(WORDS.index("dog"), len(WORDS))
VERBS = range(WORDS.index("bites"), WORDS.index("dog"))
BLIND, SYMMETRIC, MASKED = "none", "ALiBi", "none, but masked"
EQUAL = 1e-4  # of a vector's length: rounding, not order


def run(trial: Trial, steps: int = 200, width: int = 32) -> Finding:
    """The two sentences through untrained models of every scheme; then each learns to say who does it to whom."""
    shape = Small(len(WORDS), width=width)
    rows = Rows()
    new: TextBatch = trial.new(_sentences, count=2000)
    for scheme, small in with_all_schemes(shape, length=8, bidirectional=True).items():
        change, model = _change(small.reader()), small.classifier(len(NOUNS))
        trial.learn(f"positions: {scheme}", model, _sentences, classification_loss, steps, 3e-3)
        rows.append({"positions": scheme, "change": change, "accuracy": accuracy(logits(model, new.text), new.labels)})
    rows.append({"positions": MASKED, "change": _change(shape.language_model())})
    changes = rows.values("change", by="positions")
    right = Rows(rows[:-1]).values("accuracy", by="positions")
    facts = {
        "change_blind": changes[BLIND],
        "change_masked": changes[MASKED],
        "change_alibi": changes[SYMMETRIC],
        "change_others": min(changes[scheme] for scheme in right if scheme not in (BLIND, SYMMETRIC)),
        "accuracy_blind": right[BLIND],
        "accuracy_others": min(right[scheme] for scheme in right if scheme != BLIND),
    }
    return Finding(
        method=f'"dog bites man" and "man bites dog" went through untrained encoders of {shape.layers} layers, '
        f"{width} wide, that differ in nothing but their positions, and through a masked decoder without any. How much "
        "a word's vector changes is the length of the difference by the length of the vector, for the word that "
        f'changes most. Then each encoder read sentences such as "[CLS] cat sees fox" for {steps} steps and had to '
        f"name the first of {len(NOUNS)} nouns; accuracy is that on 2,000 new sentences.",
        measured=f"Without positions no word's vector changes by more than {facts['change_blind']:.0e} of its length "
        f"when dog and man are swapped, and who bites is guessed in {facts['accuracy_blind']:.0%} of sentences; "
        f"with sinusoidal, learned, rotary or relative positions vectors change by at least "
        f"{facts['change_others']:.1%}, and with any scheme at least {facts['accuracy_others']:.0%} are right. "
        f"Two things the notes do not say: ALiBi counts distances both ways alike, so it does not see that a whole "
        f"sentence was reversed ({facts['change_alibi']:.0e}), and a causal mask tells order even without positions "
        f"({facts['change_masked']:.0%}).",
        holds=facts["change_blind"] < EQUAL
        and facts["change_others"] > 10 * EQUAL
        and facts["accuracy_blind"] < 0.6
        and facts["accuracy_others"] > 0.9,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(changes, right),
    )


@torch.no_grad()
def _change(model: EncoderOnly | DecoderOnly) -> float:
    """How much the vector of a word changes, at most, when its sentence is turned round."""
    dog, bites, man = (WORDS.index(word) for word in ("dog", "bites", "man"))
    there, back = model.eval().hidden(torch.tensor([[dog, bites, man], [man, bites, dog]]))  # (T, D) each
    change = (there - back.flip(0)).norm(dim=-1) / there.norm(dim=-1)  # (T), each word by itself
    return change.max().item()  # type: ignore[no-any-return]


def _sentences(rng: Rng, count: int = 64) -> TextBatch:
    """Sentences of two nouns and a verb; the first noun is the answer."""
    first = rng.integers(len(NOUNS), size=count)
    second = (first + rng.integers(1, len(NOUNS), size=count)) % len(NOUNS)
    verb = rng.integers(VERBS[0], VERBS[-1] + 1, size=count)
    return texts(np.stack((np.zeros_like(first), first + NOUNS[0], verb, second + NOUNS[0]), axis=1), first)


def _draw(changes: dict[str, float], right: dict[str, float]) -> Figure:
    figure, (change, told) = panels(2, 10, 3.4)
    colours = [ORANGE if value < EQUAL else BLUE for value in changes.values()]
    bars(change, [*changes], {"": [*changes.values()]}, {"": colours}, lying=True)
    change.axvline(EQUAL, color=GREY, linestyle=":")
    note(change, "rounding", (EQUAL, -0.3), (-4, 0), ha="right", color=GREY)
    change.set(title="dog bites man → man bites dog", xscale="log", xlim=(1e-8, 4))
    change.set(xlabel="how much a word's vector changes (share of its length)")
    colours = [ORANGE if scheme == BLIND else BLUE for scheme in right]
    bars(told, [*right], {"": [*right.values()]}, {"": colours}, lying=True)
    told.axvline(0.5, color=GREY, linestyle=":")
    note(told, "a guess between two nouns", (0.5, 0), (6, 0), va="center")
    told.set(title="Trained: who bites?", xlabel="right answers on new sentences", xlim=(0, 1.05))
    return figure
