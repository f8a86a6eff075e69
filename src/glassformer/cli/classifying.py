"""The command that classifies texts and images."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any

import typer

from glassformer.cli.options import Adapter, AsJson, Device, RunFolder
from glassformer.errors import InputError


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
    from glassformer.cli.showing import each_line
    from glassformer.run import Classifier, ImageClassifier, load_as

    loaded = load_as((Classifier, ImageClassifier), "classify", run, device, adapter)
    if isinstance(loaded, ImageClassifier):
        _images(loaded, iter(files) if files else each_line("-"), top, as_json)
        return
    _texts(loaded, chain.from_iterable(_places(file) for file in files or ["-"]), top, as_json)


def _places(file: str) -> Iterator[tuple[str, str]]:
    """The lines of a file, each with where it stands."""
    from glassformer.cli.showing import each_line, name_of

    return ((f"{name_of(file)}:{number}", line) for number, line in enumerate(each_line(file), start=1))


def _texts(run: Any, placed: Iterator[tuple[str, str]], top: int, as_json: bool) -> None:
    """Write a line for each line: of an empty one, an empty one; one that cannot be used gets a sentence as well."""
    from glassformer.cli.lines import Lines
    from glassformer.cli.showing import tell_cut

    def classified(texts: list[tuple[str, Any]], progress: Any) -> list[Any]:
        full = [(place, text) for place, text in texts if text is not None]
        found = run.classify([text for _, text in full], progress)
        cut = [place for (place, _), answer in zip(full, found, strict=True) if answer.cut]
        tell_cut(cut, run.recipe.data.max_tokens)
        answers = iter(found)
        return [None if text is None else next(answers) for _, text in texts]

    def check(placed: tuple[str, str]) -> tuple[str, Any]:
        return placed[0], _text(placed[1], run.texts, placed[0])

    lines = Lines("classifying", "texts", check)
    for _, answer, wrong in lines.answered(placed, classified):
        if as_json:
            _write(json.dumps({"error": wrong} if wrong else _facts(answer, top), ensure_ascii=False))
        else:
            _write("" if answer is None else _plain(answer, top))
    lines.end()


def _text(line: str, texts: int, place: str) -> str | tuple[str, ...] | None:
    """The text of a line, or the two with a tab between, as the run has learned; None of an empty line."""
    from glassformer.cli.showing import Garbled

    if isinstance(line, Garbled):
        raise InputError(line)
    if not line.strip():
        return None
    parts = tuple(line.split("\t", texts - 1)) if texts > 1 else tuple(line.split("\t"))
    if len(parts) != texts:
        wanted = "one text, without a tab" if texts == 1 else "two texts with a tab between"
        raise InputError(f"{place}: this run has learned from {wanted}: the line has {len(parts)}")
    if not all(part.strip() for part in parts):
        raise InputError(f"{place}: the {'second' if parts[0].strip() else 'first'} text is empty")
    return parts if texts > 1 else line


def _images(run: Any, names: Iterator[str], top: int, as_json: bool) -> None:
    """Write a line for each image; one that cannot be read gets a sentence instead."""
    from glassformer.cli.lines import Lines

    def seen(name: str) -> Any:
        if not name.strip():
            raise InputError("an empty line names no image")
        return run.see(name)

    lines = Lines("classifying", "images", seen)
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
