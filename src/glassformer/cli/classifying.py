"""The command that classifies texts and images."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any

import typer

from glassformer.cli.options import Adapter, AsJson, Device, RunFolder


def classify(
    run: RunFolder,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="images, or files of a text a line (two with a tab between); none: standard input, texts or names",
        ),
    ] = None,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="the N likeliest labels of each")] = 1,
    as_json: AsJson = False,
    adapter: Adapter = None,
    device: Device = "auto",
) -> None:
    """Classify lines of text, or images: the label of each and how likely it is, in the same order.

    - `glassformer classify --run runs/topics news.txt`
    - `echo "what a film!" | glassformer classify --run runs/sentiment --json`
    - `glassformer classify --run runs/digits one.png two.png`
    - `find pictures -name "*.jpg" | glassformer classify --run runs/pets`
    """
    from glassformer.cli.showing import portions, read_lines
    from glassformer.run import Classifier, ImageClassifier, load_as

    loaded = load_as((Classifier, ImageClassifier), "classify", run, device, adapter)
    if isinstance(loaded, ImageClassifier):
        _images(loaded, iter(files) if files else read_lines("-"), top, as_json)
        return
    first = 1
    for lines in portions(chain.from_iterable(read_lines(file) for file in files or ["-"])):
        _texts(loaded, lines, first, top, as_json)
        first += len(lines)


def _texts(run: Any, lines: list[str], first: int, top: int, as_json: bool) -> None:
    """Write a line for each line; of an empty one, an empty one."""
    from glassformer.cli.showing import bar, tell_cut

    full = [number for number, line in enumerate(lines, start=first) if _full(line)]
    texts = [tuple(line.split("\t", 1)) if "\t" in line else line for line in lines if _full(line)]
    with bar("classifying", len(texts)) as progress:
        answers: Iterator[Any] = iter(run.classify(texts, progress))
    tell_cut([full[row] for row in run.longer(texts)], run.recipe.data.max_tokens)
    for line in lines:
        answer = next(answers) if _full(line) else None
        if as_json:
            _write(json.dumps(_facts(answer, top), ensure_ascii=False))
        else:
            _write("" if answer is None else _plain(answer, top))
    sys.stdout.flush()


def _full(line: str) -> bool:
    """Whether there is a text in a line, or two."""
    return all(text.strip() for text in line.split("\t", 1))


def _images(run: Any, names: Iterator[str], top: int, as_json: bool) -> None:
    """Write a line for each image; one that cannot be read gets a sentence instead."""
    from glassformer.cli.lines import Lines

    lines = Lines("classifying", "images", run.see)
    for name, answer, wrong in lines.answered(names, run.classify):
        if as_json:
            facts = {"error": wrong} if wrong else _facts(answer, top)
            _write(json.dumps({"image": name, **facts}, ensure_ascii=False))
        elif not wrong:
            _write(f"{name}\t{_plain(answer, top)}")
    lines.end()


def _facts(answer: Any, top: int) -> dict[str, Any]:
    if answer is None:
        return {"label": None, "probability": None, "probabilities": {}}
    likely = dict(list(answer.probabilities.items())[:top])
    return {"label": answer.label, "probability": answer.probability, "probabilities": likely}


def _plain(answer: Any, top: int) -> str:
    return "\t".join(f"{label}\t{share:.4f}" for label, share in list(answer.probabilities.items())[:top])


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
