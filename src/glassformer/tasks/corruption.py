"""Span corruption, as T5 learns first: spans of a text are cut out of the source, and the target holds them.

    text      Thank you for inviting me to your party last week
    source    Thank you <extra_id_0> me to your party <extra_id_1> week
    target    <extra_id_0> for inviting <extra_id_1> last <extra_id_2>

N spans, B texts in a batch, S source length, T target length
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from glassformer.data import Context, Encode, Encoded, Rows
from glassformer.data.encoding import DocumentEncoder
from glassformer.recipe import Recipe
from glassformer.recipe.values import Fraction, Number
from glassformer.tasks.documents import UNUSED, DocumentEvaluation, DocumentTask, defaults_with
from glassformer.tasks.gaps import SEED, Filled, GapFiller
from glassformer.tasks.losses import row_losses
from glassformer.tasks.protocol import Loss
from glassformer.tasks.run import Progress, Run, check_list
from glassformer.tasks.showing import one_line
from glassformer.tasks.translation import PairBatch, PairCollator, translation_loss
from glassformer.tasks.writing import SourceReader
from glassformer.text import SENTINEL, SpecialTokens, Tokenizer, own_special_tokens

Corrupt = Callable[[Sequence[int], np.random.Generator], tuple[list[int], list[int]]]
MOST_ADDED = 3  # tokens by which a target may be longer than its text: the start and two sentinels


def draw_spans(
    length: int, mask_ratio: float, mean_span: float, most: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """How many tokens are kept and then hidden, in turn, (N, 2): `mask_ratio` of a text, in spans of `mean_span`.

    All ways of cutting out so many spans are equally likely, also those at the very beginning or end; there are at
    most `most` of them, and at least one token between two. In a text of fewer than two tokens nothing is hidden.
    """
    if length < 2:
        return np.zeros((0, 2), np.int64)
    hidden = min(max(round(length * mask_ratio), 1), length - 1)
    count = min(max(round(hidden / mean_span), 1), hidden, length - hidden + 1, most)
    kept = _parts(length - hidden + 2, count + 1, rng)  # one more at both ends, which may be empty
    kept[0] -= 1
    return np.stack((kept[:-1], _parts(hidden, count, rng)), axis=1)


def _parts(total: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """A number as a sum of `count` numbers, none of them 0."""
    cuts = np.sort(rng.choice(total - 1, count - 1, replace=False)) + 1
    return np.diff(np.concatenate(([0], cuts, [total])))


def corrupted(tokens: Sequence[int], spans: NDArray[np.int64], sentinels: Sequence[int]) -> tuple[list[int], list[int]]:
    """Source and target of a text: each hidden span is a sentinel in one, and stands after it in the other."""
    source, target, at = list[int](), list[int](), 0
    for (kept, hidden), sentinel in zip(spans.tolist(), sentinels, strict=False):
        source += [*tokens[at : at + kept], sentinel]
        target += [sentinel, *tokens[at + kept : at + kept + hidden]]
        at += kept + hidden
    return source + list(tokens[at:]), [*target, sentinels[len(spans)]]


def spans_of(target: Sequence[int], sentinels: Sequence[int]) -> dict[int, list[int]]:
    """What a target puts in the place of each sentinel; one that it does not explain is missing."""
    known = set(sentinels)
    spans: dict[int, list[int]] = {}
    span: list[int] = []
    for token in target:
        if token in known:
            span = spans.setdefault(token, [])
        else:
            span.append(token)
    return spans


@dataclass(frozen=True)
class CorruptCollator:
    """Makes batches of texts in which other spans are hidden each time."""

    pairs: Rows
    tokenizer: Tokenizer
    corrupt: Corrupt

    def __call__(self, rows: NDArray[Any], rng: np.random.Generator) -> PairBatch:
        made = Encoded.of([self.corrupt(self.pairs.source(row).tolist(), rng) for row in rows.tolist()]).rows()
        batch = PairCollator(made, self.tokenizer.pad, self.tokenizer)(np.arange(len(rows)), rng)
        return replace(batch, rows=torch.from_numpy(rows.astype(np.int64)))


class Denoiser(GapFiller[DocumentEvaluation], SourceReader):
    """A trained model that writes what is missing: `run.restore(["Thank you <extra_id_0> me to your party"])`."""

    opens_with: ClassVar[str] = "AutoModelForSeq2SeqLM and AutoTokenizer"
    exports: ClassVar[dict[str, Any]] = {"splits_special": False}  # the tokenizer knows sentinels in a text
    gap: ClassVar[str] = SENTINEL.format(0)
    stands_for: ClassVar[str] = "words are"
    hides: ClassVar[str] = "of two tokens"

    @property
    def special(self) -> SpecialTokens:
        """The special tokens of what it writes: sentinels are written, unlike other special tokens."""
        never = {self.tokenizer.pad, self.tokenizer.start, self.tokenizer.unknown} - {self.tokenizer.end}
        return replace(own_special_tokens(self.tokenizer, self.tokenizer), suppressed=sorted(never))

    def restore(self, texts: Sequence[str], progress: Progress | None = None) -> list[str]:
        """Each text with what the model writes in place of `<extra_id_0>`, `<extra_id_1>` and so on."""
        check_list(texts, "restore")
        return [each.text for each in self.fill(texts, progress=progress)]

    def fill(self, texts: Sequence[str], top: int = 5, progress: Progress | None = None) -> list[Filled]:
        """The same; there is one filling for each gap, whatever `top` is, and no list of likely words."""
        check_list(texts, "fill")
        rows = [self.read_gaps(text) for text in texts]
        found = self.outputs(rows, [self.limits] * len(rows), progress=progress)
        filled = []
        for text, ids, (best, *_) in zip(texts, rows, found, strict=True):
            parts = self._filled(text, ids, best.tokens)
            filled.append(Filled("".join(parts), [], parts))
        return filled

    def read(self, text: str) -> list[int]:
        """A text as the tokens that the model reads, with sentinels in its gaps."""
        return [*self.encoded(text), *self.tokenizer.framed("")]

    @property
    def names(self) -> dict[str, int]:
        return {SENTINEL.format(number): token for number, token in enumerate(self.tokenizer.sentinels)}

    def _filled(self, text: str, ids: list[int], written: list[int]) -> list[str]:
        """A text in parts, every other one of which was written for a gap; all else stays as it is."""
        names, spans = self.names, spans_of(written, self.tokenizer.sentinels)
        gaps = [spans.get(token, []) for token in ids if token in names.values()]
        return self.tokenizer.filled_parts(self.normalised(text), names, gaps)

    def corrupted(self, text: str) -> str:
        """A text with spans cut out, as in training; one of fewer than two tokens stays whole."""
        ids = self.tokenizer.encode(self.normalised(text))[: self.recipe.data.max_tokens]
        source, _ = self.task.corruption(self.tokenizer)(ids, np.random.default_rng(SEED))
        names, text = {token: name for name, token in self.names.items()}, ""
        for hidden, run in groupby(source, lambda token: token in names):
            tokens = list(run)
            shown = self.tokenizer.part(tokens) if text else self.tokenizer.decode(tokens)
            text += "".join(names[token] for token in tokens) if hidden else shown
        return text

    @torch.inference_mode()
    def measured(self, examples: Sequence[tuple[Any, ...]], progress: Progress | None = None) -> DocumentEvaluation:
        found = [np.zeros((2, 0))]
        for batch in self.batches(examples, progress):
            hidden = self.model.hidden(batch.source, batch.target_in, batch.source_mask)  # (B, T, D)
            nats = row_losses(hidden, batch.target_out, batch.target_mask, self.model.head)
            found.append(np.stack((nats.numpy(), batch.target_mask.sum(dim=1).cpu().numpy())))
        return DocumentEvaluation.of(np.concatenate(found, axis=1), len(examples))

    def output_text(self, text: str, written: list[int]) -> str:
        return "".join(self._filled(text, self.read(text), written))

    def gapped(self, examples: Sequence[tuple[Any, ...]]) -> Iterator[str]:
        """Documents with spans cut out; those of fewer than two tokens are left out."""
        texts = (self.corrupted(example[0]) for example in examples)
        return (text for text in texts if self.gap in text)

    def next_commands(self, examples: Sequence[tuple[Any, ...]]) -> list[str]:
        """Fill; then train something else from here."""
        text = next((line for line in map(one_line, self.gapped(examples)) if self.gap in line), self.gap)
        return [
            f"fill --run RUN {shlex.quote(text)}",
            "recipes summarise > my.toml",
            "train my.toml --set model.pretrained=RUN",
        ]


class CorruptionTask(DocumentTask):
    """From a text with spans cut out to these spans, as T5 learns first."""

    kind: Literal["span-corruption"] = "span-corruption"
    mask_ratio: Annotated[Fraction, Field(gt=0)] = Field(0.15, description="fraction of the tokens that are cut out")
    mean_span: Annotated[Number, Field(ge=1)] = Field(3.0, description="tokens in a span, on average")

    answer: ClassVar[str] = "target"
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = defaults_with("t5")
    unused: ClassVar[Mapping[str, str]] = UNUSED | {"decode.count_prompt": "there is no prompt"}
    drawn: ClassVar[set[str]] = {"mask_ratio", "mean_span"}
    adds_tokens: ClassVar[bool] = True
    least: ClassVar[int] = 2  # one is hidden, one is kept
    loss: ClassVar[Loss] = staticmethod(translation_loss)
    Run: ClassVar[type[Run]] = Denoiser

    def add_special_tokens(self, tokenizer: Tokenizer) -> None:
        tokenizer.add_sentinels()

    def keeps(self, tokenizer: Tokenizer) -> Callable[[Sequence[int]], bool]:
        """One token is cut out, another is left."""
        return lambda ids: len(ids) >= self.least

    def corruption(self, tokenizer: Tokenizer) -> Corrupt:
        """What makes source and target of a text, by a tokenizer's sentinels and the end that it puts after a text."""
        sentinels, closing = tokenizer.sentinels, tokenizer.framed("")

        def corrupt(tokens: Sequence[int], rng: np.random.Generator) -> tuple[list[int], list[int]]:
            spans = draw_spans(len(tokens), self.mask_ratio, self.mean_span, len(sentinels) - 1, rng)
            source, target = corrupted(tokens, spans, sentinels)
            return [*source, *closing], target

        return corrupt

    def length(self, recipe: Recipe) -> int:
        """A target has sentinels as well as tokens, and what is written may be longer."""
        return max(recipe.data.max_tokens + MOST_ADDED, recipe.decode.max_length + 1)

    def encoder(self, context: Context) -> Encode:
        """Documents in pieces within the limit, of at least two tokens: fewer cannot be cut."""
        return DocumentEncoder(context.tokenizer, context.max_tokens, False, self.keeps(context.tokenizer))

    def collate(self, rows: Rows, tokenizer: Tokenizer) -> CorruptCollator:
        return CorruptCollator(rows, tokenizer, self.corruption(tokenizer))
