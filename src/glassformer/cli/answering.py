"""The command that answers questions."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli.options import Adapter, AsJson, Device, RunFolder, TextFile
from glassformer.errors import ConfigurationError, InputError

SHAPE = 'a line is a question, a tab and its context, or {"question": …, "context": …}'


def answer(
    run: RunFolder,
    questions: Annotated[
        list[str] | None,
        typer.Argument(metavar="[QUESTION]...", help="questions about --context; none: lines of a file"),
    ] = None,
    context: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="the text that all questions are about; else each line has its own"),
    ] = None,
    file: TextFile = "-",
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="say nothing where that is likelier by more than X, as a logit; the recipe's if not given; evaluate "
            "finds the best",
        ),
    ] = None,
    as_json: AsJson = False,
    adapter: Adapter = None,
    device: Device = "auto",
) -> None:
    """Answer questions with words of a text: one question in, its answer and how likely that is out, in order.

    - `glassformer answer --run runs/squad --context article.txt "Who wrote it?" "When?"`
    - `glassformer answer --run runs/squad --json < questions.jsonl`
    - `glassformer answer --run runs/squad2 --threshold 1.5 < questions.tsv`
    """
    from glassformer.cli.lines import Lines, given, readable
    from glassformer.cli.showing import name_of
    from glassformer.run import Answerer, load_as

    if questions and context is None:
        raise InputError("questions need a text to be answered from: name it with --context FILE")
    asked = enumerate(given(questions, file), 1)
    loaded = load_as(Answerer, "answer", run, device, adapter)
    if threshold is not None and math.isnan(threshold):
        raise ConfigurationError("--threshold is nan: it must be a number")
    if threshold is not None and not loaded.task.unanswerable:
        raise ConfigurationError(f"{run} has learned to answer every question: --threshold is for task.unanswerable")
    text = None if context is None else _text(context)
    name = "question " if questions else f"{name_of(file)}:"
    lines: Lines[tuple[int, str], tuple[str, str]] = Lines(
        "answering", "questions", lambda line: _sides(line[1], text, f"{name}{line[0]}")
    )
    for (_, line), found, wrong in lines.answered(
        asked, lambda good, progress: loaded.answer(good, progress, threshold)
    ):
        if as_json:
            facts = {"error": wrong} if wrong else asdict(found)
            question = readable(line) if wrong or text is not None else _sides(line, text, name)[0]
            sys.stdout.write(json.dumps({"question": question, **facts}, ensure_ascii=False) + "\n")
        else:
            sys.stdout.write("\n" if wrong else f"{' '.join(found.text.split())}\t{found.score:.4f}\n")
    lines.end()


def _text(path: Path) -> str:
    """A file as it is, so that letters can be counted in it."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start})") from None


def _sides(line: str, text: str | None, place: str) -> tuple[str, str]:
    """The question in a line, and its context: the text that all are about, or what the line says."""
    from glassformer.cli.showing import Garbled

    if isinstance(line, Garbled):
        raise InputError(line)
    question, context = (line, text) if text is not None else _told(line, place)
    if not question.strip() or not context.strip():
        raise InputError(f"{place}: the {'context' if question.strip() else 'question'} is empty")
    return question, context


def _told(line: str, place: str) -> tuple[str, str]:
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
