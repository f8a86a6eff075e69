"""A run that answers: questions and contexts in, the words of the contexts that answer them out.

B windows, T length, K tokens of an answer at most
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.data.windows import ABSENT, Window, Windows, places, span_of, split
from glassformer.errors import InputError
from glassformer.evaluation import AnswerScores, answer_scores, best_threshold
from glassformer.recipe import AnsweringTask, Recipe
from glassformer.run.classifier import tells_segments
from glassformer.run.held_out import Progress, held_out, in_batches
from glassformer.tasks import segments_of, span_loss
from glassformer.text import Tokenizer

Question = tuple[str, str]  # the question, its context


@dataclass(frozen=True)
class Answer:
    """The words of a context that answer a question: `context[start:end]`, or nothing where it does not say.

    `score`, from 0 to 1, is how likely they are among all stretches of the context's windows.
    """

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Choice:
    """The best words for a question, and silence, which is `margin` likelier (as a logit, less than 0: unlikelier)."""

    words: Answer
    silence: Answer
    margin: float

    def made(self, threshold: float) -> Answer:
        """The words, unless silence is likelier by more than the threshold."""
        return self.silence if self.margin > threshold else self.words


@dataclass(frozen=True)
class AnswerEvaluation:
    """How a run does on some questions at a threshold: its answers, their scores, the loss per end of an answer."""

    choices: list[Choice]
    references: list[list[str]]  # the answers that people gave to each question
    loss: float
    threshold: float

    @cached_property
    def answers(self) -> list[Answer]:
        """The answers in the order of the questions."""
        return [each.made(self.threshold) for each in self.choices]

    @cached_property
    def scores(self) -> AnswerScores:
        """What they are worth."""
        return answer_scores([each.text for each in self.answers], self.references)

    def at(self, threshold: float) -> AnswerEvaluation:
        """The same at another threshold."""
        return replace(self, threshold=threshold)

    def best_threshold(self) -> float:
        """The threshold at which the F1 of these questions is best."""
        margins, words = ([each.margin for each in self.choices], [each.words.text for each in self.choices])
        return best_threshold(margins, words, self.references)


@dataclass(frozen=True)
class Row:
    """A window of a question's context, by the question's number, and the places of the right answer in it."""

    question: int
    window: Window
    right: tuple[int, int]


@dataclass(frozen=True)
class Found:
    """What a window holds: its best span of characters, and the logits of that, of all spans together, of none."""

    start: int
    end: int
    best: float
    all: float
    none: float


class Answerer:
    """A trained model that answers: `run.answer([("Who wrote it?", "It was written by Ada.")])`."""

    def __init__(self, recipe: Recipe, model: nn.Module, tokenizer: Tokenizer, path: Path | None = None) -> None:
        if not isinstance(recipe.task, AnsweringTask):
            raise InputError(f"this recipe is for {recipe.task.kind}, not for answering")
        self.recipe, self.model, self.tokenizer, self.path, self.task = recipe, model, tokenizer, path, recipe.task

    def pairs(self, split: str = "test") -> list[tuple[str, str]]:
        """The questions with their contexts, and the answers to them, that were kept out: "valid" or "test"."""
        return held_out(self.path, split)

    def with_model(self, model: nn.Module) -> Answerer:
        """The same with another model."""
        return Answerer(self.recipe, model, self.tokenizer, self.path)

    def answer(
        self, questions: Sequence[Question], progress: Progress | None = None, threshold: float | None = None
    ) -> list[Answer]:
        """The answer to each question, found in its context, in their order.

        Nothing is said where that is likelier by more than the threshold, the recipe's unless given; only if the run
        has learned from questions without an answer.
        """
        if threshold is not None and not self.task.unanswerable:
            raise InputError("this run has learned to answer every question (task.unanswerable): it has no threshold")
        limit = self.task.threshold if threshold is None else threshold
        return [each.made(limit) for each in self._choices(questions, self._rows(questions), progress)[0]]

    def evaluate(self, examples: Sequence[tuple[str, str]], progress: Progress | None = None) -> AnswerEvaluation:
        """Answer the questions of some examples, and compare with the answers that people gave."""
        if not examples:
            raise InputError("there is nothing to evaluate: no question")
        given = [json.loads(target) for _, target in examples]
        questions = [split(source) for source, _ in examples]
        choices, loss = self._choices(questions, self._rows(questions, given), progress)
        references = [[each["text"] for each in some] for some in given]
        return AnswerEvaluation(choices, references, loss, self.task.threshold)

    def measure(self, examples: Sequence[tuple[str, str]], most: int) -> dict[str, float]:
        """What validation tells of the first so many questions."""
        found = self.evaluate(examples[:most])
        return {"loss": found.loss, "exact": found.scores.exact, "f1": found.scores.f1}

    def _rows(self, questions: Sequence[Question], given: Sequence[list[dict[str, Any]]] | None = None) -> list[Row]:
        """The windows of all questions, each with the places of the answer that was given first, if any was."""
        for each in questions:
            if len(each) != 2:
                raise InputError("answer takes a list of pairs, each a question and its context")
            if not all(text.strip() for text in each):
                raise InputError(
                    f"there is nothing to answer: the {'context' if each[0].strip() else 'question'} is empty"
                )
        found = Windows(self.tokenizer, self.recipe.data.max_tokens, self.task.stride, self.task.max_question)(
            questions
        )
        answers = given or [[] for _ in questions]
        return [
            Row(number, window, right)
            for number, (windows, some) in enumerate(zip(found, answers, strict=True))
            for window, right in zip(windows, _right(windows, some), strict=True)
        ]

    @torch.inference_mode()
    def _choices(
        self, questions: Sequence[Question], rows: list[Row], progress: Progress | None
    ) -> tuple[list[Choice], float]:
        """What may be answered to all questions, and the mean loss of the right places; like lengths go together."""
        read, budget = [row.window.tokens for row in rows], self.recipe.train.batch_tokens
        found: list[list[Found]] = [[] for _ in questions]
        loss = 0.0
        for numbers, tokens, keep in in_batches(read, budget, self.tokenizer.pad, self.model, progress):
            some = [rows[number] for number in numbers]
            segments = segments_of(tokens, self.tokenizer.end) if tells_segments(self.model) else None
            logits = self.model(tokens, keep, segments).float()  # (B, T, 2)
            loss += float(span_loss(logits, keep, torch.tensor([row.right for row in some], device=tokens.device)))
            contexts = [questions[row.question][1] for row in some]
            for row, each in zip(some, self._best(some, contexts, logits.cpu()), strict=True):
                found[row.question].append(each)
        choices = [self._choice(each, context) for each, (_, context) in zip(found, questions, strict=True)]
        return choices, loss / max(1, 2 * len(rows))

    def _best(self, rows: list[Row], contexts: list[str], logits: Tensor) -> list[Found]:
        """The best span of each window: in the context, no longer than allowed, with something to see at its ends."""
        most = min(self.task.max_answer, logits.shape[1])
        ends = torch.full(logits.shape[:2], -torch.inf)  # (B, T), 0 where an answer may begin or end
        for row, context, at in zip(rows, contexts, ends, strict=True):
            for place, (start, end) in enumerate(row.window.spans, row.window.first):
                if context[start:end].strip():
                    at[place] = 0.0
        first, last = (logits[:, :, side] + ends for side in (0, 1))  # (B, T)
        last = F.pad(last, (0, most - 1), value=-torch.inf).unfold(1, most, 1)  # (B, T, K), of the tokens from each on
        spans = (first[:, :, None] + last).flatten(1)  # (B, T * K)
        values, where = (each.tolist() for each in spans.max(dim=1))
        weights, none = spans.logsumexp(dim=1).tolist(), logits[:, 0].sum(dim=1).tolist()
        found = []
        for number, (row, at) in enumerate(zip(rows, where, strict=True)):
            begin, length = divmod(at, most)
            there = values[number] > -math.inf  # else the context has nothing to point at
            start, end = row.window.characters(begin, begin + length) if there else (0, 0)
            found.append(Found(start, end, values[number], weights[number], none[number]))
        return found

    def _choice(self, found: list[Found], context: str) -> Choice:
        """The best of all windows beside nothing, which is no choice where that was not learned as an answer."""
        best = max(found, key=lambda each: each.best)
        weights = [each.all for each in found]
        none = min(each.none for each in found)
        if self.task.unanswerable:
            weights.append(none)
        total = float(torch.tensor(weights).logsumexp(dim=0))
        silence = Answer("", 0, 0, math.exp(none - total) if self.task.unanswerable else 0.0)
        if best.best == -math.inf:  # the context has nothing to point at
            return Choice(silence, silence, math.inf)
        text = context[best.start : best.end]
        start = best.start + len(text) - len(text.lstrip())
        words = Answer(text.strip(), start, start + len(text.strip()), math.exp(best.best - total))
        return Choice(words, silence, none - best.best if self.task.unanswerable else -math.inf)


def _right(windows: list[Window], given: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Where the answer that was given first stands in each window."""
    return places(windows, span_of(given[0])) if given else [ABSENT] * len(windows)
