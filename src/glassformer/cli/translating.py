"""The command from texts to texts: translate, by its other name transform."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from glassformer.cli.options import Adapter, AsJson, Beam, Device, Int8, RunFolder
from glassformer.errors import ConfigurationError

TRANSFORM = """Transform lines, whatever the run has learned to make of them: summaries, sounds. As translate does.

    - `glassformer transform --run runs/summaries articles.txt`
    - `head -1 articles.txt | glassformer transform --run runs/summaries --json`
    """


def translate(
    run: RunFolder,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="a text file, a sentence a line; - for standard input")
    ] = "-",
    beam: Beam = None,
    nbest: Annotated[
        int, typer.Option(metavar="N", min=1, help="outputs for each line: its number, score, text; best first")
    ] = 1,
    stream: Annotated[
        bool, typer.Option("--stream", metavar="", help="show each word as it is written (greedy)")
    ] = False,
    int8: Int8 = False,
    as_json: AsJson = False,
    adapter: Adapter = None,
    device: Device = "auto",
) -> None:
    """Translate lines: one line in, one line out, in the same order.

    - `glassformer translate --run runs/dates days.txt > iso.txt`
    - `echo "5 May 2031" | glassformer translate --run runs/dates --nbest 3`
    """
    from glassformer.cli.showing import bar, name_of, portions, read_lines, tell_cut
    from glassformer.run import Run, load_as

    if stream and (nbest > 1 or (beam or 1) > 1 or int8 or as_json):
        raise ConfigurationError(
            "--stream shows the greedy output as it is written: no --beam, --nbest, --int8, --json"
        )
    loaded = load_as(Run, "translate", run, device, adapter)
    if stream:
        _stream(loaded, file)
        return
    if nbest > 1:
        beam = max(nbest, beam or loaded.recipe.decode.beam)
    first = 1
    for lines in portions(read_lines(file)):
        with bar("translating", len(lines)) as progress:
            answers = loaded.search(lines, beam=beam, best=nbest, int8=int8, progress=progress)
        cut = [f"{name_of(file)}:{row}" for row, found in enumerate(answers, start=first) if found[0].cut]
        tell_cut(cut, loaded.recipe.data.max_tokens)
        for number, (line, found) in enumerate(zip(lines, answers, strict=True), start=first):
            sys.stdout.write(_object(line, found) if as_json else _lines(number, found, nbest))
        sys.stdout.flush()
        first += len(lines)


def _stream(run: Any, file: str) -> None:
    from glassformer.cli.showing import read_lines

    for line in read_lines(file):
        for piece in run.stream(line):
            sys.stdout.write(piece.replace("\n", " "))
            sys.stdout.flush()
        sys.stdout.write("\n")


def _lines(number: int, found: list[Any], nbest: int) -> str:
    """The outputs for a line: each a line, with its number and score where there may be several."""
    texts = [each.text.replace("\n", " ") for each in found]
    if nbest == 1:
        return f"{texts[0]}\n"
    return "".join(f"{number}\t{each.score:.4f}\t{text}\n" for each, text in zip(found, texts, strict=True))


def _object(line: str, found: list[Any]) -> str:
    """The outputs for a line as an object: the best, and all of them with their scores."""
    outputs = [{"text": each.text, "score": each.score, "finished": each.finished} for each in found]
    return json.dumps({"source": line, "text": found[0].text, "outputs": outputs}, ensure_ascii=False) + "\n"
