"""three-shapes: what an encoder, a decoder and both together can and cannot see, on one task.

    Rome … [two words] … blue        the first word fits what stands on the left, the second what stands on the right

Two words are missing. Each comes in two styles that are equally good, but both words must have the same: as in "New
York" or "Los Angeles", and not "New Angeles".

B sentences, T length, V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from glassformer.experiments.batches import Rng, pairs, windows
from glassformer.experiments.charts import bars, heat, legend_below, panels
from glassformer.experiments.finding import Finding, Row, Rows
from glassformer.experiments.measures import logits, mean_loss
from glassformer.experiments.trial import Trial, told_rates
from glassformer.looking.style import BLUE, GREEN, ORANGE, PINK
from glassformer.models import bert, gpt2, t5
from glassformer.tasks.gathering import TokenBatch, token_loss
from glassformer.tasks.protocol import Batch, Loss
from glassformer.tasks.translation import PairBatch, translation_loss

CLAIM = (
    "BERT optimizes for understanding, GPT for creation, T5, which has both parts, for turning one text into another."
)
ORDER = 160  # in the story

CLUES, STYLES, FILLERS, FILLED = 8, 2, 6, 4  # kinds of clues, styles of words, kinds of fillers, fillers of a text
LEFT, RIGHT = 0, CLUES  # the first clue of each side, then the first words of each style, the second, the fillers
FIRST, SECOND = 2 * CLUES, 2 * CLUES + STYLES * CLUES
FILLER = SECOND + STYLES * CLUES
GAP, ASK, START, END = range(FILLER + FILLERS, FILLER + FILLERS + 4)
VOCABULARY, LENGTH = END + 1, FILLED + 7
SIZES: dict[str, Any] = {"width": 32, "heads": 4, "hidden": 64, "dropout": 0.0}
RATES = (3e-3, 1e-2)
BERT, GPT, T5, PROMPTED = SHAPES = ("BERT", "GPT", "T5", "GPT, told first")
COLOURS = dict(zip(SHAPES, (BLUE, ORANGE, GREEN, PINK), strict=True))
FITS = ("fits the left", "fits the right", "fit each other", "all of it")
SEES = ("left clue\n→ first word", "right clue\n→ second word", "first word\n→ second word")


@dataclass(frozen=True)
class Sentences:
    """The parts of some sentences (B), the fillers (B, FILLED), and how many of those stand before the gap (B)."""

    left: Tensor
    right: Tensor
    fillers: Tensor
    before: Tensor
    first: Tensor
    second: Tensor

    def filled(self, *middle: Tensor) -> Tensor:
        """Texts (B, T) with these tokens (B) in the place of the gap."""
        rows = zip(self.left, self.fillers, self.right, self.before.tolist(), *middle, strict=True)
        made = [[one[None], fill[:k], torch.stack(gap), fill[k:], two[None]] for one, fill, two, k, *gap in rows]
        return torch.stack([torch.cat(parts) for parts in made])

    def all(self, token: int) -> Tensor:
        """One token for each sentence, (B)."""
        return torch.full_like(self.left, token)


@dataclass(frozen=True)
class Shape:
    """How a shape is made and taught, and how it scores both missing words (B, 2, V), the second after the first."""

    make: Callable[[], nn.Module]
    batch: Callable[[Sentences], Batch]
    loss: Loss
    scores: Callable[[nn.Module, Sentences], Tensor]


def run(trial: Trial, steps: int = 300, count: int = 300) -> Finding:
    """All shapes fill gaps of two words; what fits is counted, and what changes a word is tried."""
    tuned = trial.tuned("learning", partial(_learned, steps=steps, count=count), SHAPES, RATES)
    rows = Rows({**row, "rate": each.rate} for each in tuned.values() for row in each.results)
    fits = {name: rows.spreads(name, by="shape") for name in FITS}
    sees = {name: rows.spreads(name, by="shape") for name in SEES}
    facts: dict[str, float] = {
        f"{shape} {name}".replace("\n", " "): found[shape] for name, found in (fits | sees).items() for shape in SHAPES
    }
    left, right, both, whole = (fits[name] for name in FITS)
    from_right, from_first = (sees[name] for name in SEES[1:])

    def told(shape: str) -> str:
        return f"{left[shape]:.0%}, {right[shape]:.0%} and {both[shape]:.0%}"

    return Finding(
        method="In sentences of eight tokens two words in a row are missing. The first fits the clue at the left end "
        f"of the sentence ({CLUES} kinds), the second the clue at the right end, and both have the same of {STYLES} "
        "styles, which nothing tells. A BERT of 2 layers reads the sentence with a mask for each missing word and "
        "fills both at once; a GPT of 2 layers reads what stands before the gap and writes; a T5 of 1 + 1 layers reads "
        "the sentence with the gap and writes; and the GPT was also given the sentence with its gap first, and wrote "
        f"after it. Each learned for {steps} steps, {told_rates(RATES)}, and filled {count} new gaps with their "
        "likeliest words. A clue or the first word was then exchanged for another: how much the probabilities of a "
        "word change (total variation) says whether it is seen.",
        measured="The first word fits the left side, the second the right side, and both fit each other: of BERT in "
        f"{told(BERT)}, of GPT in {told(GPT)}, of T5 in {told(T5)}. All of it is right in {whole[BERT]:.0%} of BERT's "
        f"gaps, {whole[GPT]:.0%} of GPT's, {whole[T5]:.0%} of T5's. BERT does not see its own first word (the second "
        f"changes by {from_first[BERT]:.2f} with it; T5's by {from_first[T5]:.2f}), GPT does not see the right side "
        f"(by {from_right[GPT]:.2f}; BERT's by {from_right[BERT]:.2f}). Told the whole sentence before it writes, "
        f"the same GPT is right in {whole[PROMPTED]:.0%}.",
        holds=min(left[BERT].low, right[BERT].low) > 0.9
        and both[BERT].high < 0.75
        and min(left[GPT].low, both[GPT].low) > 0.9
        and right[GPT].high < 0.3
        and whole[T5].low > 0.9
        and from_first[BERT].high == 0 == from_right[GPT].high,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(rows),
        seeds=[each.seed for each in trial.seeds()],
    )


def _learned(trial: Trial, name: str, rate: float, steps: int, count: int) -> tuple[float, Row]:
    """A shape that has learned: what of its words fits, and what they depend on."""
    shape = KNOWN[name]
    model = trial.begin(shape.make)
    trial.learn("", model, lambda rng: shape.batch(_sentences(rng)), shape.loss, steps, rate)
    new: Sentences = trial.new(_sentences, count=count)
    first = shape.scores(model, new)[:, 0].argmax(dim=-1)  # (B)
    written = replace(new, first=first)
    second = shape.scores(model, written)[:, 1].argmax(dim=-1)
    fits = [(first - FIRST) % CLUES == new.left - LEFT, (second - SECOND) % CLUES == new.right - RIGHT]
    fits += [(first - FIRST) // CLUES == (second - SECOND) // CLUES]
    fits += [fits[0] & fits[1] & fits[2]]
    others = (
        (0, replace(written, left=LEFT + (new.left - LEFT + 1) % CLUES)),
        (1, replace(written, right=RIGHT + (new.right - RIGHT + 1) % CLUES)),
        (1, replace(written, first=FIRST + (first - FIRST + CLUES) % (STYLES * CLUES))),
    )
    chances = shape.scores(model, written).softmax(dim=-1)  # (B, 2, V)
    row: Row = {"shape": name, "seed": trial.seed}
    row |= {fit: found.float().mean().item() for fit, found in zip(FITS, fits, strict=True)}
    for see, (word, other) in zip(SEES, others, strict=True):
        changed = shape.scores(model, other).softmax(dim=-1)[:, word] - chances[:, word]
        row[see] = changed.abs().sum(dim=-1).mean().item() / 2
    return mean_loss(model, shape.batch(trial.held_out(_sentences, count=count)), shape.loss), row


def _sentences(rng: Rng, count: int = 32) -> Sentences:
    """Sentences whose missing words fit both clues and each other."""
    left, right, style = (rng.integers(most, size=count) for most in (CLUES, CLUES, STYLES))
    fillers = FILLER + rng.integers(FILLERS, size=(count, FILLED))
    first, second = (word + CLUES * style + clue for word, clue in ((FIRST, left), (SECOND, right)))
    parts = (LEFT + left, RIGHT + right, fillers, rng.integers(FILLED + 1, size=count), first, second)
    return Sentences(*map(torch.from_numpy, parts))


# --- how each shape reads a sentence, and where it writes


def _masked(given: Sentences) -> TokenBatch:
    """A mask for each missing word; the words are asked for where the masks stand."""
    text, labels = given.filled(given.all(GAP), given.all(GAP)), given.filled(given.first, given.second)
    asked = text == GAP
    return TokenBatch(text, labels, asked, None, text.numel(), int(asked.sum()), torch.ones_like(asked))


def _causal(given: Sentences) -> TokenBatch:
    """The sentence from left to right; the words are asked for before they come."""
    text = given.filled(given.first, given.second)
    place = torch.arange(text.shape[1] - 1) - given.before[:, None]  # (B, T - 1)
    return windows(text, (place == 0) | (place == 1))


def _prompted(given: Sentences) -> TokenBatch:
    """The sentence with its gap, and then the words."""
    text = torch.cat((given.filled(given.all(GAP)), _columns(given.all(ASK), given.first, given.second)), dim=1)
    return windows(text, (torch.arange(text.shape[1] - 1) >= text.shape[1] - 3).expand(len(text), -1))


def _rewritten(given: Sentences) -> PairBatch:
    """The sentence with its gap as the source, the words as the target."""
    return pairs(given.filled(given.all(GAP)), _columns(given.first, given.second), START, END)


def _columns(*tokens: Tensor) -> Tensor:
    return torch.stack(tokens, dim=1)


def _asked(model: nn.Module, batch: TokenBatch) -> Tensor:
    """The scores (B, 2, V) at the two places where words are asked for."""
    return logits(model, batch.text)[batch.label_mask].reshape(len(batch.text), 2, -1)


def _written(model: nn.Module, batch: PairBatch) -> Tensor:
    """The scores (B, 2, V) of the first two words of the target."""
    return logits(model, batch.source, batch.target_in)[:, :2]


def _bert() -> nn.Module:
    return bert(VOCABULARY, **SIZES, layers=2, length=LENGTH, attention_dropout=0.0, answer="words")


def _gpt() -> nn.Module:
    return gpt2(VOCABULARY, **SIZES, layers=2, length=LENGTH, attention_dropout=0.0)


def _t5() -> nn.Module:
    return t5(VOCABULARY, **SIZES, layers=1, head_width=8)


KNOWN = {
    BERT: Shape(_bert, _masked, token_loss, lambda model, given: _asked(model, _masked(given))),
    GPT: Shape(_gpt, _causal, token_loss, lambda model, given: _asked(model, _causal(given))),
    T5: Shape(_t5, _rewritten, translation_loss, lambda model, given: _written(model, _rewritten(given))),
    PROMPTED: Shape(_gpt, _prompted, token_loss, lambda model, given: _asked(model, _prompted(given))),
}


def _draw(rows: Rows) -> Figure:
    figure, (quality, seen) = panels(2, 11, 3.8, width_ratios=[1.2, 1])
    found = {shape: [rows.spreads(name, by="shape")[shape] for name in FITS] for shape in SHAPES}
    bars(quality, FITS, found, COLOURS)
    quality.set(title="What the words of a gap fit", ylabel="of the gaps", ylim=(0, 1.05))
    table = np.array([[rows.spreads(name, by="shape")[shape] for name in SEES] for shape in SHAPES], float)
    heat(seen, table, bar="change of probabilities", vmin=0, vmax=1, aspect="auto")
    for (row, column), value in np.ndenumerate(table):
        style = {"ha": "center", "va": "center", "color": "white" if value < 0.6 else "black"}
        seen.text(column, row, f"{value:.2f}", **style)
    seen.set(title="What is seen: one exchanged, the other changes")
    seen.set_xticks(range(len(SEES)), SEES)
    seen.set_yticks(range(len(SHAPES)), SHAPES)
    legend_below(figure, quality, columns=4)
    return figure
