"""Answers to questions about a text: `answer`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer.cli.options import path
from glassformer.cli.template import Template, reads_texts
from glassformer.errors import ConfigurationError, InputError

FORM = (
    'expected a question, a tab and its context, or {"question": …, "context": …}; '
    "or give the context of all questions with --context FILE"
)


@reads_texts("answer")
def answer(
    run: Any,
    context: Annotated[
        Path | None,
        path(metavar="FILE", meaning="the text that all questions are about; else each question has its own"),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="answer nothing where the logit of no answer is higher by more than X; the recipe's if not given; "
            "evaluate finds the best",
        ),
    ] = None,
) -> Template[tuple[str, str], Any]:
    """Answer questions with words of a text: a line for each question with the answer and its probability.

    - `glassformer answer --run runs/squad --context article.txt "Who wrote it?" "When?"`
    - `glassformer answer --run runs/squad --json --file questions.jsonl`
    - `glassformer answer --run runs/squad2 --threshold 1.5 --file questions.tsv`
    """
    if threshold is not None and math.isnan(threshold):
        raise ConfigurationError("--threshold is nan: it must be a number")
    if threshold is not None and not run.task.unanswerable:
        raise ConfigurationError(
            f"{run.path} was trained to answer every question: --threshold is for task.unanswerable"
        )
    shared = None if context is None else _read(context)
    return Template(
        doing="answering",
        things="questions",
        check=lambda text: _question(text, shared),
        work=lambda questions, progress: run.answer(questions, progress, threshold),
        plain=lambda item, found: f"{' '.join(found.text.split())}\t{found.score:.4f}",
        output=lambda found: found.text,
        details=lambda found: {"start": found.start, "end": found.end, "score": found.score},
    )


def _read(path: Path) -> str:
    """A file as it is, so that `start` and `end` count its characters."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start})") from None


def _question(text: str, shared: str | None) -> tuple[str, str]:
    """A question and its context: the shared one, or the one in the same text."""
    question, context = (text, shared) if shared is not None else _both(text)
    if any("\ud800" <= letter <= "\udfff" for letter in question + context):
        raise InputError("the question or its context is not Unicode text: half of a surrogate pair stands alone")
    if not question.strip() or not context.strip():
        raise InputError(f"the {'context' if question.strip() else 'question'} is empty")
    return question, context


def _both(text: str) -> tuple[str, str]:
    if text.startswith("{"):
        try:
            row = json.loads(text)
            question, context = row["question"], row["context"]
        except (ValueError, KeyError, RecursionError):
            raise InputError(FORM) from None
        if not isinstance(question, str) or not isinstance(context, str):
            raise InputError(FORM)
        return question, context
    question, tab, context = text.partition("\t")
    if not tab:
        raise InputError(FORM)
    return question, context
