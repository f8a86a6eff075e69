"""Questions in SQuAD's layout: articles of paragraphs, each a context with questions about it and their answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from glassformer.data.examples import AnswerSpan, BadRow, Question
from glassformer.data.report import Report
from glassformer.data.source import FileSource, Found, Split
from glassformer.data.textfiles import checked, opened_text
from glassformer.errors import DataError

MOST = 1 << 27  # characters in a file: it is read whole
LAYOUT = '{"data": [{"paragraphs": [{"context": …, "qas": [{"question": …, "answers": [{"text", "answer_start"}]}]}]}]}'


class SquadSource(FileSource):
    """Questions, contexts and answers in SQuAD's JSON layout, version 1 or 2."""

    gives = Question
    endings = (".json",)
    kind: Literal["squad"]

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """The questions of a file; in version 2, one marked as impossible has no answers."""
        name: str = getattr(self, split)
        for number, (context, row) in enumerate(_rows(base / name, report), 1):
            place = f"{name}: question {row.get('id', number) if isinstance(row, dict) else number}"
            try:
                yield _question(context, row), place
            except BadRow as error:
                report.add_bad(error.kind, place, str(error))


def _rows(path: Path, report: Report) -> list[tuple[Any, Any]]:
    """The context and the JSON object of each question."""
    with opened_text(path, report) as file:
        text = file.read(MOST + 1)
    if len(text) > MOST:
        raise DataError(f"{path}: has more than {MOST:,} characters: cut it into smaller files")
    if isinstance(bad := checked(text), BadRow):
        raise DataError(f"{path}: is not UTF-8 text: {bad}")
    try:
        articles = json.loads(text)["data"]
        paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
        return [(paragraph["context"], row) for paragraph in paragraphs for row in paragraph["qas"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DataError(f"{path}: is not in SQuAD's layout, {LAYOUT}") from None


def _question(context: Any, row: Any) -> Question:
    try:
        question, answers = row["question"], [] if row.get("is_impossible") else row["answers"]
        spans = [(each["text"], each["answer_start"]) for each in answers]
    except (KeyError, TypeError) as error:
        raise BadRow("missing field", f"is not a question with its answers: {error}") from None
    if not isinstance(context, str) or not context.strip():
        raise BadRow("empty context", "the context is empty")
    if not isinstance(question, str) or not question.strip():
        raise BadRow("empty question", "the question is empty")
    for text, start in spans:
        if not isinstance(text, str) or not text.strip():
            raise BadRow("empty answer", "an answer is empty")
        if type(start) is not int or not 0 <= start <= len(context) - len(text):
            what = f"{text!r} at {start!r} is outside its context of {len(context):,} letters"
            raise BadRow("answer outside its context", what)
        if not context.startswith(text, start):
            found = context[start : start + len(text)]
            raise BadRow("answer not at its place", f"{text!r} does not stand at {start}: {found!r} does")
    return Question(question, context, tuple(AnswerSpan(*span) for span in spans))
