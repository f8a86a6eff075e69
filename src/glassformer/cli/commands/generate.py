"""What follows a text: `generate`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from glassformer.cli.options import Seed, Stream, count
from glassformer.cli.template import Template, reads_texts
from glassformer.errors import ConfigurationError


@reads_texts("generate")
def generate(
    run: Any,
    length: Annotated[int, count("tokens to write at most")] = 100,
    temperature: Annotated[
        float, typer.Option(metavar="X", min=0.0, help="0: the likeliest words; 1: drawn by their probabilities")
    ] = 0.0,
    top_k: Annotated[int | None, count("sample from the N likeliest tokens")] = None,
    top_p: Annotated[
        float | None,
        typer.Option(metavar="X", help="sample from the smallest set of tokens with total probability X"),
    ] = None,
    seed: Seed = 0,
    stream: Stream = False,
) -> Template[str, Any]:
    """Continue texts with a language model.

    - `glassformer generate --run runs/stories "Once upon a time" --length 200 --stream`
    - `glassformer generate --run runs/stories "The dog" --temperature 0.8 --top-p 0.9 --seed 7`
    - `glassformer generate --run runs/stories --json --file beginnings.txt`
    """
    from glassformer.decoding import Sampler

    if not temperature and (top_k or top_p):
        raise ConfigurationError("--top-k and --top-p draw at random: give a --temperature as well, such as 0.8")
    sampler = Sampler(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed) if temperature else None
    return Template(
        doing="generating",
        check=run.check,
        work=lambda prompts, progress: run.generate(prompts, length, sampler, progress=progress),
        plain=lambda item, found: found.text,
        output=lambda found: found.text,
        details=lambda found: {"finished": found.finished},
        stream=(lambda item, prompt: run.stream(prompt, sampler, length)) if stream else None,
    )
