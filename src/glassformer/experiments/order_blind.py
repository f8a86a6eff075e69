"""order-blind: without positions, "dog bites man" is "man bites dog".

Attention is a sum over the other words, and a sum does not know the order of its terms: swap two words and each takes
its vector along. So no model that reads such vectors can tell who bites whom.

B sentences, T length, D model width
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from glassformer.experiments.finding import Finding, Progress, Row, silent
from glassformer.experiments.learning import Dice, held_out, learn, right_share, texts
from glassformer.experiments.small import Small, schemes
from glassformer.looking.style import BLUE, GREY, ORANGE
from glassformer.models import DecoderOnly, EncoderOnly
from glassformer.tasks import TextBatch, classification_loss

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS = ("[CLS]", "bites", "sees", "chases", "dog", "man", "cat", "fox", "child", "bird", "cow", "horse")
NOUNS = range(WORDS.index("dog"), len(WORDS))
VERBS = range(WORDS.index("bites"), WORDS.index("dog"))
BLIND = "none"
MASKED = "none, but masked"
EQUAL = 1e-4  # of a vector's length: rounding, not order


def run(seed: int = 0, progress: Progress = silent, steps: int = 200, width: int = 32) -> Finding:
    """The two sentences through untrained models of every scheme; then each learns to say who does it to whom."""
    shape = Small(len(WORDS), width=width)
    rows: list[Row] = []
    for scheme, small in schemes(shape, length=8, both_ways=True).items():
        change = _change(small.reader())
        model = small.classifier(len(NOUNS))
        learn(model, _sentences, classification_loss, steps, seed=seed, progress=progress, name=f"positions: {scheme}")
        batch = held_out(partial(_sentences, count=2000), seed)
        rows.append({"positions": scheme, "change": change, "accuracy": right_share(model(batch.text), batch.right)})
    rows.append({"positions": MASKED, "change": _change(shape.language_model())})
    by_name = {row["positions"]: row for row in rows}
    blind, seeing = by_name[BLIND], [row for row in rows if "accuracy" in row and row["positions"] != BLIND]
    facts = {
        "change_blind": blind["change"],
        "change_masked": by_name[MASKED]["change"],
        "change_alibi": by_name["ALiBi"]["change"],
        "change_others": min(row["change"] for row in seeing if row["positions"] != "ALiBi"),
        "accuracy_blind": blind["accuracy"],
        "accuracy_others": min(row["accuracy"] for row in seeing),
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
        draw=lambda: _draw(rows),
    )


@torch.no_grad()
def _change(model: EncoderOnly | DecoderOnly) -> float:
    """How much the vector of a word changes, at most, when its sentence is turned round."""
    dog, bites, man = (WORDS.index(word) for word in ("dog", "bites", "man"))
    there, back = model.eval().hidden(torch.tensor([[dog, bites, man], [man, bites, dog]]))  # (T, D) each
    back = back.flip(0)  # each word under itself
    change: Tensor = (there - back).norm(dim=-1) / there.norm(dim=-1)  # (T)
    return change.max().item()


def _sentences(dice: Dice, count: int = 64) -> TextBatch:
    """Sentences of two nouns and a verb; the first noun is the answer."""
    first = dice.integers(len(NOUNS), size=count)
    second = (first + dice.integers(1, len(NOUNS), size=count)) % len(NOUNS)
    verb = dice.integers(VERBS[0], VERBS[-1] + 1, size=count)
    return texts(np.stack((np.zeros_like(first), first + NOUNS[0], verb, second + NOUNS[0]), axis=1), first)


def _draw(rows: list[Row]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.4), layout="constrained")
    change, accuracy = figure.subplots(1, 2)
    names = [row["positions"] for row in rows]
    places = range(len(rows))
    colours = [ORANGE if row["change"] < EQUAL else BLUE for row in rows]
    change.barh(places, [row["change"] for row in rows], color=colours)
    change.axvline(EQUAL, color=GREY, linestyle=":")
    change.annotate("rounding", (EQUAL, -0.3), xytext=(-4, 0), textcoords="offset points", ha="right", color=GREY)
    change.set(xscale="log", xlim=(1e-8, 4), title="dog bites man → man bites dog", yticks=places, yticklabels=names)
    change.set_xlabel("how much a word's vector changes (share of its length)")
    asked = [row for row in rows if "accuracy" in row]
    accuracy.barh(places[: len(asked)], [row["accuracy"] for row in asked], color=[ORANGE] + [BLUE] * (len(asked) - 1))
    accuracy.axvline(0.5, color=GREY, linestyle=":")
    accuracy.annotate("a guess between two nouns", (0.5, 0), xytext=(6, 0), textcoords="offset points", va="center")
    accuracy.set(title="Trained: who bites?", xlabel="right answers on new sentences", xlim=(0, 1.05))
    accuracy.set_yticks(places[: len(asked)], names[: len(asked)])
    for axes in (change, accuracy):
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
    return figure
