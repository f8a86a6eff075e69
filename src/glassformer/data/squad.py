"""Questions in SQuAD's layout: articles of paragraphs, each a context with questions about it and their answers.

An example is the question and the context with `BETWEEN` between them; its target is a JSON list of the answers that
were given, `[{"text": "308", "start": 34}]`, empty where the context has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glassformer.data.files import BETWEEN, Row, opened
from glassformer.data.report import Report
from glassformer.errors import DataError

LAYOUT = '{"data": [{"paragraphs": [{"context": …, "qas": [{"question": …, "answers": [{"text", "answer_start"}]}]}]}]}'


def question_rows(path: Path, name: str, report: Report, strict: bool) -> Iterator[Row]:
    """The questions of a file, of SQuAD's version 1 or 2."""
    with opened(path) as file:
        try:
            articles = json.loads(file.read().decode("utf-8-sig"))["data"]
            paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
            asked = [(paragraph["context"], question) for paragraph in paragraphs for question in paragraph["qas"]]
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: is not UTF-8 text (byte {error.start})") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise DataError(f"{path}: is not in SQuAD's layout, {LAYOUT}") from None
    for number, (context, question) in enumerate(asked, 1):
        place = f"{name}: question {question.get('id', number) if isinstance(question, dict) else number}"
        problem = _problem(context, question)
        if problem is not None:
            report.add_bad(problem[0], place, problem[1], strict)
            continue
        answers = [{"text": each["text"], "start": each["answer_start"]} for each in _answers(question)]
        yield f"{question['question']}{BETWEEN}{context}", json.dumps(answers, ensure_ascii=False), place


def _answers(question: dict[str, Any]) -> list[Any]:
    """The answers of a question; one that is marked as impossible has none."""
    return [] if question.get("is_impossible") else list(question["answers"])


def _problem(context: Any, question: Any) -> tuple[str, str] | None:
    """What is wrong with a question, in a word and in a sentence."""
    try:
        asked, answers = question["question"], _answers(question)
        found = [(each["text"], each["answer_start"]) for each in answers]
    except (KeyError, TypeError) as error:
        return "missing field", f"is not a question with its answers: {error}"
    if not isinstance(context, str) or not context.strip():
        return "empty context", "the context is empty"
    if not isinstance(asked, str) or not asked.strip():
        return "empty question", "the question is empty"
    for text, start in found:
        if not isinstance(text, str) or not text.strip():
            return "empty answer", "an answer is empty"
        if type(start) is not int or not 0 <= start <= len(context) - len(text):
            return (
                "answer outside its context",
                f"{text!r} at {start!r} is outside its context of {len(context):,} letters",
            )
        if not context.startswith(text, start):
            there = context[start : start + len(text)]
            return "answer not at its place", f"{text!r} does not stand at {start}: {there!r} does"
    return None
