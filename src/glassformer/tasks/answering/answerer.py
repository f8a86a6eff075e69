"""An answerer: a trained model that answers questions with words of their contexts, in use.

B windows, T length, K tokens of an answer at most
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.errors import InputError
from glassformer.evaluation import AnswerScores, answer_scores, best_threshold, drawn
from glassformer.evaluation.answers import answer_statistics, word_f1
from glassformer.evaluation.bootstrap import Statistic
from glassformer.evaluation.judging import Judged
from glassformer.looking.trace import Trace
from glassformer.tasks.answering.asking import question_of
from glassformer.tasks.answering.windows import Window, positions, windows_of
from glassformer.tasks.encoding import TextEncoder
from glassformer.tasks.losses import span_loss
from glassformer.tasks.run import Evaluation, Progress, in_batches
from glassformer.tasks.showing import Likely, Part, Reply, Sample, Score

Asked = Sequence[tuple[str, str]]  # questions, contexts
Examples = Sequence[tuple[str, str, Any]]  # questions, contexts, answers that people gave


@dataclass(frozen=True)
class Answer:
    """The words of a context that answer a question: `context[start:end]`, or nothing if it has no answer.

    `score`, from 0 to 1, is their probability among all spans of the context's windows.
    """

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Choice:
    """The best words for a question, and no answer, whose logit is higher by `margin` (below 0: lower)."""

    words: Answer
    silence: Answer
    margin: float

    def made(self, threshold: float) -> Answer:
        """The words, unless the margin is over the threshold."""
        return self.silence if self.margin > threshold else self.words


@dataclass(frozen=True)
class AnswerEvaluation(Evaluation):
    """How a run does on some questions at a threshold: its answers, their scores, the loss per end of an answer."""

    choices: list[Choice]
    references: list[list[str]]  # the answers that people gave to each question
    loss: float
    threshold: float
    on_valid: Callable[[], AnswerEvaluation | None] | None = None  # the same for valid, where a threshold matters

    @cached_property
    def answers(self) -> list[Answer]:
        """The answers in the order of the questions."""
        return [each.made(self.threshold) for each in self.choices]

    @cached_property
    def scores(self) -> AnswerScores:
        """Their scores."""
        return answer_scores([each.text for each in self.answers], self.references)

    def resampled(self) -> tuple[int, dict[str, Statistic]]:
        return len(self.answers), answer_statistics([each.text for each in self.answers], self.references)

    def at(self, threshold: float) -> AnswerEvaluation:
        """The same at another threshold."""
        return replace(self, threshold=threshold)

    def best_threshold(self) -> float:
        """The threshold at which the F1 of these questions is best."""
        margins, words = ([each.margin for each in self.choices], [each.words.text for each in self.choices])
        return best_threshold(margins, words, self.references)

    @cached_property
    def best_on_valid(self) -> AnswerEvaluation | None:
        """The same at the threshold that is best for the questions of valid, if any were kept."""
        valid = self.on_valid() if self.on_valid is not None else None
        return None if valid is None else self.at(valid.best_threshold())

    def summary(self) -> dict[str, float]:
        return {"loss": self.loss, "exact": self.scores.exact, "f1": self.scores.f1}

    def facts(self) -> dict[str, Any]:
        """The scores; where a threshold matters, also at the one that is best on valid."""
        facts: dict[str, Any] = {"questions": len(self.answers), "loss": self.loss, **asdict(self.scores)}
        if self.on_valid is not None:
            facts["threshold"] = self.threshold
        if (best := self.best_on_valid) is not None:
            facts["best_on_valid"] = {"threshold": best.threshold, **asdict(best.scores)}
        return facts

    def table(self) -> list[Score]:
        return [
            self.score("exact match", self.scores.exact, ".2%", "exact"),
            self.score("F1", self.scores.f1, ".2%", "f1"),
        ]

    def lines(self) -> list[str]:
        lines = self._lines()
        if (best := self.best_on_valid) is not None:
            lines.append(f"threshold {self.threshold:g}; the best on valid is {best.threshold:.4f}, and with that:")
            lines += best._lines()
        return lines

    def _lines(self) -> list[str]:
        scores = self.scores
        with_exact, with_f1, without = (
            self.interval(name, ".2%") for name in ("answerable_exact", "answerable_f1", "unanswerable_exact")
        )
        both = ", ".join(f"{each.name} {each}" for each in self.table())
        lines = [f"{len(self.answers):,} questions: {both}"]
        if scores.answerable_exact is not None and scores.unanswerable_exact is not None:
            both = f"{scores.answerable_exact:.2%}{with_exact}, {scores.answerable_f1:.2%}{with_f1}"
            lines += [
                f"{scores.answerable:,} with an answer: {both}",
                f"{scores.unanswerable:,} without one: {scores.unanswerable_exact:.2%}{without} left unanswered",
            ]
        return lines


class Row(NamedTuple):
    """A window of a question's context, by the question's number, and the positions of the true answer in it."""

    question: int
    window: Window
    answer: tuple[int, int]


class Found(NamedTuple):
    """The best span of characters in a window, and the logits of that, of all spans together, of no answer."""

    start: int
    end: int
    best: float
    all: float
    none: float


class Answerer(TextEncoder):
    """A trained model that answers: `run.answer([("Who wrote it?", "It was written by Ada.")])`."""

    opens_with: ClassVar[str] = "AutoModelForQuestionAnswering and AutoTokenizer"
    exports: ClassVar[dict[str, Any]] = {"encodes": True}

    def answer(
        self, questions: Asked, progress: Progress | None = None, threshold: float | None = None
    ) -> list[Answer]:
        """The answer to each question, found in its context, in their order.

        There is none where the logit of no answer is higher by more than the threshold, the recipe's unless given;
        only if the run was trained on questions without an answer.
        """
        if threshold is not None and not self.task.unanswerable:
            raise InputError("this run has learned to answer every question (task.unanswerable): it has no threshold")
        limit = self.task.threshold if threshold is None else threshold
        return [each.made(limit) for each in self._choices(questions, self._rows(questions), progress)[0]]

    def evaluate(self, examples: Examples, progress: Progress | None = None) -> AnswerEvaluation:
        if not examples:
            raise InputError("there is nothing to evaluate: no question")
        questions, answers = [(question, context) for question, context, _ in examples], [each[2] for each in examples]
        choices, loss = self._choices(questions, self._rows(questions, answers), progress)
        references = [[text for text, _ in some] for some in answers]
        valid = self._on_valid if self.task.unanswerable else None
        return AnswerEvaluation(choices, references, loss, self.task.threshold, valid)

    def _on_valid(self) -> AnswerEvaluation | None:
        try:
            return self.evaluate(self.examples("valid"))
        except InputError:  # none were kept
            return None

    def measure(self, examples: Examples, most: int) -> dict[str, float]:
        return self.evaluate(drawn(examples, most)).summary()

    def judge(self, examples: Examples, progress: Progress | None = None) -> Judged:
        """The F1 of each question."""
        found = self.evaluate(examples, progress)
        pairs = zip(found.answers, found.references, strict=True)
        f1 = [100.0 * word_f1(answer.text, some or [""]) for answer, some in pairs]
        return Judged("F1 (%)", "higher", f1, [1.0] * len(f1))

    def _rows(self, questions: Asked, answers: Sequence[Any] | None = None) -> list[Row]:
        """The windows of all questions, each with the positions of the answer that was given first, if any was."""
        for each in questions:
            if len(each) != 2:
                raise InputError("answer takes a list of pairs, each a question and its context")
            if not all(text.strip() for text in each):
                raise InputError(
                    f"there is nothing to answer: the {'context' if each[0].strip() else 'question'} is empty"
                )
        given = answers if answers is not None else [()] * len(questions)
        most, task = self.recipe.data.max_tokens, self.task
        found = windows_of(questions, self.tokenizer, most, task.stride, task.max_question)
        return [
            Row(number, window, ends)
            for number, (windows, some) in enumerate(zip(found, given, strict=True))
            for window, ends in zip(windows, positions(windows, some), strict=True)
        ]

    @torch.inference_mode()
    def _choices(self, questions: Asked, rows: list[Row], progress: Progress | None) -> tuple[list[Choice], float]:
        """What may be answered to all questions, and the mean loss of the true positions."""
        found: list[list[Found]] = [[] for _ in questions]
        loss = 0.0
        for numbers, tokens, keep in in_batches([row.window.tokens for row in rows], self, progress):
            some = [rows[number] for number in numbers]
            logits = self.model(*self.inputs(tokens, keep)).float()  # (B, T, 2)
            loss += float(span_loss(logits, keep, torch.tensor([row.answer for row in some], device=tokens.device)))
            contexts = [questions[row.question][1] for row in some]
            for row, each in zip(some, self._best(some, contexts, logits.cpu()), strict=True):
                found[row.question].append(each)
        choices = [self._choice(each, context) for each, (_, context) in zip(found, questions, strict=True)]
        return choices, loss / max(1, 2 * len(rows))

    def _best(self, rows: list[Row], contexts: list[str], logits: Tensor) -> list[Found]:
        """The best span of each window: in the context, no longer than allowed, with something visible at its ends."""
        most = min(self.task.max_answer, logits.shape[1])
        ends = torch.full(logits.shape[:2], -torch.inf)  # (B, T), 0 where an answer may begin or end
        for row, context, at in zip(rows, contexts, ends, strict=True):
            for position, (start, end) in enumerate(row.window.spans, row.window.first):
                if context[start:end].strip():
                    at[position] = 0.0
        first, last = (logits[:, :, side] + ends for side in (0, 1))  # (B, T)
        last = F.pad(last, (0, most - 1), value=-torch.inf).unfold(1, most, 1)  # (B, T, K), of the tokens from each on
        spans = (first[:, :, None] + last).flatten(1)  # (B, T * K)
        values, where = (each.tolist() for each in spans.max(dim=1))
        weights, none = spans.logsumexp(dim=1).tolist(), logits[:, 0].sum(dim=1).tolist()
        found = []
        for number, (row, at) in enumerate(zip(rows, where, strict=True)):
            begin, length = divmod(at, most)
            visible = values[number] > -math.inf  # else the context has nothing to point at
            start, end = row.window.characters(begin, begin + length) if visible else (0, 0)
            found.append(Found(start, end, values[number], weights[number], none[number]))
        return found

    def _choice(self, found: list[Found], context: str) -> Choice:
        """The best of all windows beside no answer, which can only be chosen if it was trained."""
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

    def item(self, text: str) -> tuple[str, str]:
        """A question and its context."""
        return question_of(text)

    @property
    def fields(self) -> tuple[str, ...]:
        return ("question", "context")

    def from_page(self, text: str) -> tuple[str, str]:
        question, _, context = text.partition("\t")
        return question_of(question, context)

    def reply(self, text: tuple[str, str], trace: Trace) -> Reply:
        """The context with the answer marked in it."""
        found, context = self.answer([text])[0], text[1]
        if not found.text:
            return Reply((Part(context),), note=f"There is no answer in the context ({found.score:.0%}).")
        words = Part(found.text, marked=True, likely=(Likely(found.text, found.score),))
        parts = (Part(context[: found.start]), words, Part(context[found.end :]))
        return Reply(tuple(part for part in parts if part.text))

    def suggestion(self, example: Any) -> str:
        """The question and its context: a context may have lines."""
        return "\t".join(text.replace("\t", " ") for text in example[:2])

    def read(self, text: tuple[str, str]) -> list[int]:
        """A question and its context as the tokens that the model reads: of a long context, the first window."""
        return self._rows([text])[0].window.tokens

    def output_of(self, text: tuple[str, str]) -> str:
        return self.answer([text])[0].text

    def samples(self, examples: Examples, found: AnswerEvaluation) -> list[Sample]:
        """Questions and answers, with the true ones."""
        made = []
        for row in self.rows_shown(examples):
            answer, some = found.answers[row], found.references[row]
            true, text = list(dict.fromkeys(some)) or ["nothing"], answer.text or "nothing"
            reference, detail = text if text in true else " or ".join(true), f"{answer.score:.0%}"
            made.append(Sample(examples[row][0], text, reference, text in true, "true answer", detail))
        return made

    def next_commands(self, examples: Examples) -> list[str]:
        return [f"answer --run RUN --context FILE {shlex.quote(examples[0][0])}", "evaluate --run RUN"]
