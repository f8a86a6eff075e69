"""order-blind: without positions, "dog bites man" is "man bites dog".

Attention is a sum over the other words, and a sum does not know the order of its terms: swap two words and each takes
its vector along. So no model that reads such vectors can tell who bites whom.

B sentences, T length, D model width
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from matplotlib.figure import Figure

from glassformer.experiments.batches import Rng, texts
from glassformer.experiments.charts import bars, note, panels
from glassformer.experiments.finding import Finding, Row, Rows, Spread
from glassformer.experiments.measures import accuracy, logits, mean_loss
from glassformer.experiments.small import SCHEMES, Small, with_all_schemes
from glassformer.experiments.trial import Trial, told_rates
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
RATES = (2e-3, 5e-3)
EQUAL = 1e-4  # of a vector's length: rounding, not order


def run(trial: Trial, steps: int = 120, width: int = 32) -> Finding:
    """The two sentences through untrained models of every scheme; then each learns to say who does it to whom."""
    shape, seeds = Small(len(WORDS), width=width), trial.seeds()
    tuned = trial.tuned("learning who bites", partial(_learned, steps=steps, width=width), [*SCHEMES], RATES)
    rows = Rows(row | {"rate": each.rate} for each in tuned.values() for row in each.results)
    rows += [
        {"positions": MASKED, "seed": each.seed, "change": _change(each.begin(shape.language_model))} for each in seeds
    ]
    changes = rows.spreads("change", by="positions")
    right = Rows(row for row in rows if "accuracy" in row).spreads("accuracy", by="positions")
    others = [scheme for scheme in SCHEMES if scheme not in (BLIND, SYMMETRIC)]
    facts: dict[str, float] = {
        "change_masked": changes[MASKED],
        **{f"change {scheme}": changes[scheme] for scheme in SCHEMES},
        **{f"accuracy {scheme}": right[scheme] for scheme in SCHEMES},
    }
    return Finding(
        method=f'"dog bites man" and "man bites dog" went through untrained encoders of {shape.layers} layers, '
        f"{width} wide, that differ in nothing but their positions, and through a masked decoder without any. How much "
        "a word's vector changes is the length of the difference by the length of the vector, for the word that "
        f'changes most. Then each encoder read sentences such as "[CLS] cat sees fox" for {steps} steps, '
        f"{told_rates(RATES)}, and had to name the first of {len(NOUNS)} nouns; accuracy is that on 2,000 new "
        "sentences.",
        measured=f"Without positions no word's vector changes by more than {changes[BLIND].high:.0e} of its length "
        f"when dog and man are swapped, and who bites is guessed in {right[BLIND]:.0%} of sentences, which is a guess "
        f"between two nouns; with sinusoidal, learned, rotary or relative positions vectors change by at least "
        f"{min(changes[scheme].low for scheme in others):.1%}, and with any scheme at least "
        f"{min(right[scheme].low for scheme in SCHEMES if scheme != BLIND):.0%} are right. Two things the notes do not "
        f"say: ALiBi counts distances both ways alike, so it does not see that a whole sentence was reversed "
        f"({changes[SYMMETRIC].high:.0e}), and a causal mask tells order even without positions "
        f"({changes[MASKED]:.0%}).",
        holds=changes[BLIND].high < EQUAL
        and min(changes[scheme].low for scheme in others) > 10 * EQUAL
        and right[BLIND].low > 0.4
        and right[BLIND].high < 0.6
        and all(right[scheme].low > 0.95 for scheme in SCHEMES if scheme != BLIND),
        facts=facts,
        rows=rows,
        draw=lambda: _draw(changes, right),
        seeds=[each.seed for each in seeds],
    )


def _learned(trial: Trial, scheme: str, rate: float, steps: int, width: int) -> tuple[float, Row]:
    """The validation loss of a model, how much it changes before training, and how often it is right after."""
    small = with_all_schemes(Small(len(WORDS), width=width), length=8, bidirectional=True)[scheme]
    change, model = _change(trial.begin(small.reader)), trial.begin(small.classifier, len(NOUNS))
    trial.learn("", model, _sentences, classification_loss, steps, rate)
    new: TextBatch = trial.new(_sentences, count=2000)
    row: Row = {"positions": scheme, "seed": trial.seed, "change": change}
    row["accuracy"] = accuracy(logits(model, new.text), new.labels)
    return mean_loss(model, trial.held_out(_sentences, count=500), classification_loss), row


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


def _draw(changes: dict[str, Spread], right: dict[str, Spread]) -> Figure:
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
