"""What follows a text: `generate`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from glassformer.cli.options import Beam, Stream
from glassformer.cli.template import Template, reads_texts
from glassformer.errors import ConfigurationError


@reads_texts("generate")
def generate(
    run: Any,
    length: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="tokens to write at most; the recipe's if not given")
    ] = None,
    beam: Beam = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            metavar="X", min=0.0, help="0: the likeliest words; 1: drawn by their probabilities; else the recipe's"
        ),
    ] = None,
    top_k: Annotated[int | None, typer.Option(metavar="N", min=1, help="sample from the N likeliest tokens")] = None,
    top_p: Annotated[
        float | None,
        typer.Option(metavar="X", help="sample from the smallest set of tokens with total probability X"),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="random seed")] = 0,
    stream: Stream = False,
) -> Template[str, Any]:
    """Continue texts with a language model.

    - `glassformer generate --run runs/stories "Once upon a time" --length 200 --stream`
    - `glassformer generate --run runs/stories "The dog" --temperature 0.8 --top-p 0.9 --seed 7`
    - `glassformer generate --run runs/stories --json --file beginnings.txt`
    """
    from glassformer.decoding import Sampler, most_likely

    decode = run.recipe.decode
    drawn = temperature if temperature is not None else 0.0 if beam else decode.temperature
    if beam and (drawn or stream):
        raise ConfigurationError("--beam searches for the likeliest text: leave out --temperature and --stream")
    if not drawn and (top_k or top_p):
        raise ConfigurationError("--top-k and --top-p draw at random: give a --temperature as well, such as 0.8")
    choose, width = None, beam or decode.beam
    if drawn:
        choose, width = Sampler(drawn, top_k or decode.top_k, top_p or decode.top_p, decode.min_p, seed), None
    return Template(
        doing="generating",
        check=run.check,
        work=lambda prompts, progress: run.generate(prompts, length, choose, width, progress),
        plain=lambda item, found: found.text,
        output=lambda found: found.text,
        details=lambda found: {"finished": found.finished},
        stream=(lambda item, prompt: run.stream(prompt, choose or most_likely, length)) if stream else None,
    )
