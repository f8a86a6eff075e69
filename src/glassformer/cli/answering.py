"""The command that answers questions."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli.options import Adapter, AsJson, Device, RunFolder
from glassformer.errors import InputError

SHAPE = 'a line is a question, a tab and its context, or {"question": …, "context": …}'


def answer(
    run: RunFolder,
    questions: Annotated[
        list[str] | None,
        typer.Argument(metavar="[QUESTION]...", help="questions about --context; none: lines of standard input"),
    ] = None,
    context: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="the text that all questions are about; else each line has its own"),
    ] = None,
    as_json: AsJson = False,
    adapter: Adapter = None,
    device: Device = "auto",
) -> None:
    """Answer questions with words of a text: one question in, its answer and how likely that is out, in order.

    - `glassformer answer --run runs/squad --context article.txt "Who wrote it?" "When?"`
    - `glassformer answer --run runs/squad --json < questions.jsonl`
    """
    from glassformer.cli.showing import bar, portions
    from glassformer.run import Answerer, load_as

    if questions and context is None:
        raise InputError("questions need a text to be answered from: name it with --context FILE")
    loaded = load_as(Answerer, "answer", run, device, adapter)
    text = None if context is None else _text(context)
    asked = iter([(each, text or "") for each in questions]) if questions else _asked(text)
    for pairs in portions(asked):
        with bar("answering", len(pairs)) as progress:
            answers = loaded.answer(pairs, progress)
        for (question, _), found in zip(pairs, answers, strict=True):
            facts = json.dumps({"question": question, **asdict(found)}, ensure_ascii=False)
            sys.stdout.write((facts if as_json else f"{' '.join(found.text.split())}\t{found.score:.4f}") + "\n")
        sys.stdout.flush()


def _text(path: Path) -> str:
    """A file as it is, so that letters can be counted in it."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start})") from None


def _asked(text: str | None) -> Iterator[tuple[str, str]]:
    """The questions of standard input, each with its context, or with the text that all are about."""
    from glassformer.cli.showing import read_lines

    for number, line in enumerate(read_lines("-"), 1):
        question, context = (line, text) if text is not None else _sides(line, f"standard input:{number}")
        if not question.strip() or not context.strip():
            raise InputError(f"standard input:{number}: the {'context' if question.strip() else 'question'} is empty")
        yield question, context


def _sides(line: str, place: str) -> tuple[str, str]:
    """The question and the context in a line of tab-separated texts, or of JSON."""
    if line.startswith("{"):
        try:
            told = json.loads(line)
            return str(told["question"]), str(told["context"])
        except (ValueError, KeyError):
            raise InputError(f"{place}: {SHAPE}") from None
    question, tab, context = line.partition("\t")
    if not tab:
        raise InputError(f"{place}: {SHAPE}")
    return question, context
