"""A question and its context, given in a line: with a tab between, or as an object of JSON."""

from __future__ import annotations

import json

from glassformer.errors import InputError

FORM = (
    'expected a question, a tab and its context, or {"question": …, "context": …}; '
    "or give the context of all questions with --context FILE"
)


def question_of(text: str, shared: str | None = None) -> tuple[str, str]:
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
