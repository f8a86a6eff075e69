"""The command that goes on with texts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from glassformer.cli.options import Adapter, AsJson, Device, RunFolder, TextFile
from glassformer.errors import ConfigurationError


def generate(
    run: RunFolder,
    prompts: Annotated[
        list[str] | None, typer.Argument(metavar="[PROMPT]...", help="texts to go on with; none: lines of a file")
    ] = None,
    file: TextFile = "-",
    length: Annotated[int, typer.Option(metavar="N", min=1, help="tokens to write at most")] = 100,
    temperature: Annotated[
        float, typer.Option(metavar="X", min=0.0, help="0: the likeliest words; 1: drawn as the model likes them")
    ] = 0.0,
    top_k: Annotated[int | None, typer.Option(metavar="N", min=1, help="draw from the N likeliest tokens only")] = None,
    top_p: Annotated[
        float | None, typer.Option(metavar="X", help="draw from the likeliest, X of the probability")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="another seed, another text")] = 0,
    stream: Annotated[bool, typer.Option("--stream", metavar="", help="show each word as it is written")] = False,
    as_json: AsJson = False,
    adapter: Adapter = None,
    device: Device = "auto",
) -> None:
    """Let a language model go on with a text.

    - `glassformer generate --run runs/stories "Once upon a time" --length 200 --stream`
    - `glassformer generate --run runs/stories "The dog" --temperature 0.8 --top-p 0.9 --seed 7`
    - `glassformer generate --run runs/stories --json < beginnings.txt`
    """
    from glassformer.cli.lines import Lines, given, readable
    from glassformer.decoding import Sampler
    from glassformer.run import LanguageModel, load_as

    if not temperature and (top_k or top_p):
        raise ConfigurationError("--top-k and --top-p draw at random: give a --temperature as well, such as 0.8")
    if stream and as_json:
        raise ConfigurationError("--stream shows words as they are written: no --json")
    texts = given(prompts, file)
    loaded = load_as(LanguageModel, "generate", run, device, adapter)
    sampler = Sampler(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed) if temperature else None
    lines = Lines("generating", "prompts", loaded.check)
    if stream:
        _stream(loaded, lines.checked(texts), length, sampler)
        lines.end()
        return
    for prompt, found, wrong in lines.answered(
        texts, lambda good, progress: loaded.generate(good, length, sampler, progress=progress)
    ):
        if as_json:
            facts = {"error": wrong} if wrong else {"text": found.text, "finished": found.finished}
            sys.stdout.write(json.dumps({"prompt": readable(prompt), **facts}, ensure_ascii=False) + "\n")
        else:
            sys.stdout.write(f"{'' if wrong else found.text}\n")
    lines.end()


def _stream(run: Any, texts: Iterator[str | None], length: int, sampler: Any) -> None:
    """Write what follows each text piece by piece; nothing where there is none."""
    for text in texts:
        for piece in () if text is None else run.stream(text, sampler, length):
            sys.stdout.write(piece)
            sys.stdout.flush()
        sys.stdout.write("\n")
