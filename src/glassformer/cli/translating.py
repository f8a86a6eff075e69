"""The command from texts to texts: translate, by its other name transform."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from glassformer.cli.options import Adapter, AsJson, Beam, Device, Int8, RunFolder
from glassformer.errors import ConfigurationError, InputError

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
    from glassformer.cli.lines import Lines
    from glassformer.cli.showing import each_line, name_of, tell_cut
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

    def translated(numbered: list[tuple[int, str]], progress: Any) -> list[Any]:
        texts = [line for _, line in numbered]
        answers: list[Any] = loaded.search(texts, beam=beam, best=nbest, int8=int8, progress=progress)
        cut = [number for (number, _), found in zip(numbered, answers, strict=True) if found[0].cut]
        tell_cut([f"{name_of(file)}:{number}" for number in cut], loaded.recipe.data.max_tokens)
        return answers

    lines = Lines("translating", "lines", _readable)
    for (number, line), found, wrong in lines.answered(enumerate(each_line(file), start=1), translated):
        if as_json:
            sys.stdout.write(_object(line, found, wrong))
        else:
            sys.stdout.write("\n" if wrong else _lines(number, found, nbest))
    lines.end()


def _readable(numbered: tuple[int, str]) -> tuple[int, str]:
    from glassformer.cli.showing import Garbled

    if isinstance(numbered[1], Garbled):
        raise InputError(numbered[1])
    return numbered


def _stream(run: Any, file: str) -> None:
    from glassformer.cli.lines import Lines
    from glassformer.cli.showing import each_line, name_of, tell_cut

    lines = Lines("translating", "lines", _readable)
    for found in lines.checked(enumerate(each_line(file), start=1)):
        if found is not None:
            if run.cuts(found[1]):
                tell_cut([f"{name_of(file)}:{found[0]}"], run.recipe.data.max_tokens)
            for piece in run.stream(found[1]):
                sys.stdout.write(piece.replace("\n", " "))
                sys.stdout.flush()
        sys.stdout.write("\n")
    lines.end()


def _lines(number: int, found: list[Any], nbest: int) -> str:
    """The outputs for a line: each a line, with its number and score where there may be several."""
    texts = [each.text.replace("\n", " ") for each in found]
    if nbest == 1:
        return f"{texts[0]}\n"
    return "".join(f"{number}\t{each.score:.4f}\t{text}\n" for each, text in zip(found, texts, strict=True))


def _object(line: str, found: list[Any], wrong: str) -> str:
    """The outputs for a line as an object: the best, and all of them with their scores; or what is wrong with it."""
    if wrong:
        return json.dumps({"error": wrong}, ensure_ascii=False) + "\n"
    outputs = [{"text": each.text, "score": each.score, "finished": each.finished} for each in found]
    return json.dumps({"source": line, "text": found[0].text, "outputs": outputs}, ensure_ascii=False) + "\n"
