"""Commands that look inside: `look`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli.app import STUDY, app
from glassformer.cli.options import Adapter, Checkpoint, Device, RunFolder, check_new_file, count, out, path
from glassformer.errors import ConfigurationError

WHAT = (
    "attention, heads, lines, alignment, beam, positions, embeddings, gates, patches, patching, lens, why, parts, "
    "roles, rollout"
)


@app.command(rich_help_panel=STUDY)
def look(
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="a text; or the name of an image file")] = None,
    run: RunFolder = None,
    what: Annotated[str | None, typer.Option(metavar="NAME", help=f"what to look at: {WHAT}")] = None,
    layer: Annotated[int | None, count("a layer, from 0; else that of the sharpest head", 0)] = None,
    head: Annotated[int | None, count("a head, from 0; else the sharpest", 0)] = None,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="encoder.self, decoder.self or decoder.cross; else as fits")
    ] = None,
    words: Annotated[
        bool | None, typer.Option("--words/--pieces", metavar="", help="whole words, or tokens as the model has them")
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="TEXT", help="patching: another text, of as many tokens")
    ] = None,
    word: Annotated[
        str | None, typer.Option(metavar="WORD", help="why, parts: a word of the output, or a label, to explain")
    ] = None,
    instead: Annotated[
        str | None, typer.Option(metavar="WORD", help="why, parts: the word or label that it is compared with")
    ] = None,
    beam: Annotated[int | None, count("the width of the beam; the recipe's if not given")] = None,
    file: Annotated[
        Path | None, out("a file to write: .png, .svg, .pdf, .html, .csv, .trace; none: the terminal", metavar="FILE")
    ] = None,
    trace: Annotated[
        Path | None, path("--trace", metavar="FILE", meaning="a trace that was kept, in place of a run and a text")
    ] = None,
    born: Annotated[
        bool, typer.Option("--born", metavar="", help="how attention came to be: the looks of the run's training")
    ] = False,
    adapter: Adapter = None,
    checkpoint: Checkpoint = None,
    device: Device = "auto",
) -> None:
    """Look inside a model while it works on a text: a picture in the terminal, or a file.

    Without a run, the translator that ships is used. `--what` defaults to what the model has: attention, gates of a
    recurrent model, patches of an image. Layers and heads count from 0.

    - `glassformer look "Where is the old station?"`
    - `glassformer look "Where is the old station?" --what heads --out heads.svg`
    - `glassformer look --run runs/mine "Good morning." --what beam`
    - `glassformer look "The man is old." --what patching --against "The girl is old."`
    - `glassformer look "The woman is old." --what why --word Die --instead Der`
    - `glassformer look "Good morning." --out morning.trace`, then `glassformer look --trace morning.trace --what lines`
    - `glassformer look --run runs/mine --born --out born.png`
    """
    from glassformer.cli import looking

    if file is not None:
        check_new_file(file, "picture.png")
    asked = looking.Asked(what, layer, head, kind, words, against, word, instead, beam, file)
    if trace is not None and (run or text is not None or born):
        raise ConfigurationError("--trace takes the place of a run and a text: leave those out")
    if born:
        looking.show_born(run, text, asked)
    elif trace is not None:
        looking.show_trace(trace, asked)
    else:
        looking.show_run(run, _given(text), asked, {"device": device, "adapter": adapter, "checkpoint": checkpoint})


def _given(text: str | None) -> str:
    if text is None:
        raise ConfigurationError('there is no text to look at: glassformer look "Where is the station?"')
    return text
