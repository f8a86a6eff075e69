"""Gaps: what runs have in common that put words where some are missing: one for each mask, or many for a sentinel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from glassformer.data import Batches, Context, Document
from glassformer.errors import InputError
from glassformer.evaluation.choosing import spread
from glassformer.evaluation.judging import Judged
from glassformer.looking.trace import Trace
from glassformer.tasks.documents import SAMPLES, DocumentEvaluation, judge_each
from glassformer.tasks.run import Progress, Run, quoted
from glassformer.tasks.showing import Likely, Part, Reply, Sample
from glassformer.text import on_a_line

Found = TypeVar("Found", bound=DocumentEvaluation)
SEED = 0  # which tokens of held-out documents are hidden: always the same


@dataclass(frozen=True)
class Word:
    """A word that may stand in a gap, and how likely it is."""

    word: str
    probability: float


@dataclass(frozen=True)
class Filled:
    """A text with the likeliest word in each gap, and the likeliest words for each, likeliest first, if known."""

    text: str
    gaps: list[list[Word]]
    parts: list[str] = field(default_factory=list, compare=False)  # of the text: every other one fills a gap


class GapFiller(Run, Generic[Found]):
    """A run that fills the gaps of texts, and is evaluated by what is hidden of documents."""

    gap: ClassVar[str]  # how to write a gap
    stands_for: ClassVar[str]  # what is missing there
    hides: ClassVar[str]  # what a text must have for something of it to be hidden

    @property
    def names(self) -> dict[str, int]:
        """The ways to write a gap, and the token for each."""
        raise NotImplementedError

    def gapped(self, examples: Sequence[tuple[Any, ...]]) -> Iterator[str]:
        """Documents, or their beginnings, with gaps, to show what the run does with them."""
        raise NotImplementedError

    def measured(self, examples: Sequence[tuple[Any, ...]], progress: Progress | None = None) -> Found:
        """How well is predicted what is hidden of some documents; that may be nothing."""
        raise NotImplementedError

    def check(self, text: str) -> str:
        """The text, if it has a gap and is no longer than the model reads."""
        self.read_gaps(text)
        return text

    def read_gaps(self, text: str) -> list[int]:
        """The tokens of a text that has a gap."""
        ids = self.read(text)
        if not {*ids} & {*self.names.values()}:
            raise InputError(f"there is no gap in {quoted(text)}: write {self.gap} where {self.stands_for} missing")
        return list(ids)

    def encoded(self, text: str, around: Sequence[int] = ()) -> list[int]:
        """The tokens of a text with gaps; they and those `around` must fit into the model."""
        ids, most = self.tokenizer.encode_with(self.normalised(text), self.names), self.recipe.data.max_tokens
        if (count := len(ids) + len(around)) > most:
            special = " with start and end" if around else ""
            raise InputError(f"{quoted(text)} has {count} tokens{special}: the model reads {most}")
        return ids

    def reply(self, text: str, trace: Trace) -> Reply:
        """The text with its gaps filled, and what else might stand in each; one without a gap is only read."""
        if not {*self.read(text)} & {*self.names.values()}:
            return Reply((Part(text),), note=f"There is no gap: write {self.gap} where {self.stands_for} missing.")
        filled = self.fill([text])[0]
        parts = []
        for number, piece in enumerate(filled.parts):
            gap, of_gap = divmod(number, 2)
            words = filled.gaps[gap] if of_gap and gap < len(filled.gaps) else []
            likely = tuple(Likely(on_a_line(each.word), each.probability) for each in words)
            parts.append(Part(piece, marked=bool(of_gap), likely=likely))
        return Reply(tuple(part for part in parts if part.text or part.marked))

    def suggestion(self, example: tuple[Any, ...]) -> str | None:
        return next((" ".join(text.split()) for text in self.gapped([example])), None)

    def evaluate(self, examples: Sequence[tuple[Any, ...]], progress: Progress | None = None) -> Found:
        """Hide something of some documents, always the same, and predict it."""
        found = self.measured(examples, progress)
        if not found.tokens:
            raise InputError(f"there is nothing to evaluate: no text {self.hides}")
        return found

    def judge(self, examples: Sequence[tuple[Any, ...]], progress: Progress | None = None) -> Judged:
        return judge_each("loss", self.measured, examples, progress)

    def batches(self, examples: Sequence[tuple[Any, ...]], progress: Progress | None) -> Iterator[Any]:
        """Batches of some documents on the model's device; what is drawn for them is always the same."""
        documents = [Document(self.normalised(example[0])) for example in examples]
        rows = self.task.encoder(Context(self.recipe, self.assets, keep_all=True))(documents).rows()
        if not len(rows):
            return
        collate = self.task.collate(rows, self.tokenizer)
        batches = Batches(rows, self.recipe.train.batch_tokens, collate, SEED, shuffle=False)
        for number, batch in enumerate(batches, start=1):
            yield batch.to(self.device)
            if progress is not None:
                progress(number, batches.batches_per_epoch)

    def samples(self, examples: Sequence[tuple[Any, ...]], found: Found | None) -> list[Sample]:
        """Documents with gaps; the likeliest words for the first gap, or the text with all of them filled."""
        gapped = [*self.gapped([examples[row] for row in self.rows_shown(examples, 10 * SAMPLES)])]
        texts, made = [gapped[row] for row in spread(gapped, [*map(len, gapped)], SAMPLES)], []
        for text, filled in zip(texts, self.fill(texts, 3), strict=True):
            likely = (f"{on_a_line(each.word)} {each.probability:.0%}" for gap in filled.gaps[:1] for each in gap)
            made.append(Sample(text, ", ".join(likely) or filled.text))
        return made

    def new_samples(self, examples: Sequence[tuple[Any, ...]]) -> list[Sample]:
        return self.samples(examples, None)
