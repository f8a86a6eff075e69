"""Answering: a question and a context are read together, and words of the context are the answer.

The model points at two tokens, the ends of the answer:

    loss = -log p(first token of the answer) - log p(last token of the answer)

each p over the real tokens of the row; where the answer is not in it, both point at the start token.

B rows in a batch, T length
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from glassformer.data import Assets, Context, Corpus, Encoded
from glassformer.data.cleaning import folded
from glassformer.data.examples import Question, to_line
from glassformer.interop.huggingface import Checkpoint
from glassformer.models.family import blueprint_of, longest
from glassformer.recipe import Data, Recipe
from glassformer.recipe.values import Count, Number, Switch
from glassformer.tasks.answering.answerer import Answer as Answer
from glassformer.tasks.answering.answerer import Answerer as Answerer
from glassformer.tasks.answering.windows import ABSENT, positions, windows_of
from glassformer.tasks.gathering import TextBatch, TextCollator
from glassformer.tasks.losses import span_loss
from glassformer.tasks.protocol import Learner, Loss
from glassformer.tasks.run import Run
from glassformer.tasks.task import Task, encodes_for

MOST_TOKENS = 2**16  # of a window: rows also hold positions in it, in 16 bits at least


def answering_loss(learner: Learner, batch: TextBatch) -> Tensor:
    """The summed loss of the positions of answers."""
    logits = learner.head(learner.hidden(batch.text, batch.mask, batch.segments))  # (B, T, 2)
    return span_loss(logits, batch.mask, batch.labels, learner.smoothing)


class AnsweringTask(Task):
    """From a question and a context to the words of the context that answer it."""

    kind: Literal["answering"]
    stride: Count = Field(128, description="tokens that one window of a long context shares with the next")
    max_question: Count = Field(64, description="tokens of a question at most; a longer one is truncated")
    max_answer: Count = Field(30, description="tokens of an answer at most")
    unanswerable: Switch = Field(
        False, description="train on questions without an answer, too, and give none where that is likelier"
    )
    threshold: Number = Field(
        0.0, description="unanswerable: how much higher the logit of no answer must be than that of the best words"
    )

    answer: ClassVar[str] = "span"
    reads: ClassVar[tuple[type, ...]] = (Question,)
    scores: ClassVar[tuple[str, ...]] = ("loss", "exact", "f1")
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "data": {"normalise": "none", "strip": False, "max_characters": 1_000_000, "max_tokens": 384},
        "model": {"family": "bert"},
        "train": {"smoothing": 0.0, "watch": "f1"},
    }
    unused: ClassVar[dict[str, str]] = {
        "data.max_ratio": "an answer is shorter than its context",
        "data.long": "long contexts are read in windows",
        "tokenizer.joint": "there is one tokenizer",
        "decode.*": "nothing is written",
    }
    drawn: ClassVar[set[str]] = {"max_answer", "threshold"}
    framed: ClassVar[bool] = True
    left_out: ClassVar[dict[str, str]] = {
        "apart": "answer in no window",
        "unanswerable": "without an answer (task.unanswerable is off)",
    }
    Example: ClassVar[type[Question]] = Question
    loss: ClassVar[Loss] = staticmethod(answering_loss)
    Run: ClassVar[type[Run]] = Answerer

    @model_validator(mode="after")
    def _has_threshold(self) -> AnsweringTask:
        if self.threshold and not self.unanswerable:
            raise ValueError("task.threshold is for questions without an answer: set task.unanswerable as well")
        return self

    def check(self, recipe: Recipe) -> None:
        """Contexts stay as they are."""
        super().check(recipe)
        if recipe.data.normalise != "none" or recipe.data.strip:
            raise ValueError('answers are found by counting letters: data.normalise must be "none", data.strip false')
        if recipe.data.max_tokens > MOST_TOKENS:
            raise ValueError(f"data.max_tokens is {recipe.data.max_tokens}: a window has at most {MOST_TOKENS} tokens")

    def file_source(self, path: str, recipe: Recipe) -> dict[str, Any]:
        """A file in SQuAD's layout."""
        return {"kind": "squad", "train": path}

    def example(self, found: Question) -> Question:
        return found

    def clean(self, example: Question, data: Data) -> Question:
        """As it is: answers are found by counting letters."""
        return example

    def split_key(self, example: Question) -> bytes:
        """The context: all questions about it are in the same split."""
        return folded(example.context)

    def identity(self, example: Question) -> bytes:
        return to_line(example).encode()

    def texts(self, example: Question, side: int) -> tuple[str, str]:
        return example.question, example.context

    def largest_number(self, assets: Assets) -> int:
        """Of tokens and of positions."""
        return max(super().largest_number(assets), MOST_TOKENS - 1)

    def encode(self, examples: list[Question], context: Context) -> Encoded:
        """One row a window: what is read, then the first and the last token of the answer. The first answer counts."""
        counts: Counter[str] = Counter()
        rows: list[tuple[list[int], tuple[int, int]]] = []
        pairs = [(example.question, example.context) for example in examples]
        found = windows_of(pairs, context.tokenizer, context.max_tokens, self.stride, self.max_question)
        for windows, example in zip(found, examples, strict=True):
            where = positions(windows, example.answers)
            if not example.answers and not self.unanswerable:
                counts["unanswerable"] += 1
            elif example.answers and set(where) == {ABSENT}:
                counts["apart"] += 1
            else:
                rows += [(window.tokens, ends) for window, ends in zip(windows, where, strict=True)]
        return Encoded.of(rows, counts)

    def collator(self, recipe: Recipe, corpus: Corpus, model: nn.Module) -> TextCollator:
        return TextCollator.of(corpus, model)

    @classmethod
    def adopts(cls, model: nn.Module) -> bool:
        """An encoder with a head for the ends of an answer."""
        return encodes_for(model, cls.answer)

    def kept_of(self, checkpoint: Checkpoint) -> dict[str, dict[str, Any]]:
        """Windows and questions that fit into what the model reads."""
        fourth = max(1, (longest(blueprint_of(checkpoint.model)) or 4 * self.stride) // 4)
        return {"task": {"stride": min(self.stride, fourth), "max_question": min(self.max_question, fourth)}}
