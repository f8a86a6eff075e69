"""The command that fills gaps."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from glassformer.cli.options import Adapter, AsJson, Device, RunFolder
from glassformer.errors import InputError


def fill(
    run: RunFolder,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="texts with [MASK] where a word is missing; none: lines of a file"),
    ] = None,
    file: Annotated[str, typer.Option(metavar="FILE", help="a text a line; - for standard input")] = "-",
    top: Annotated[int, typer.Option(metavar="N", min=1, help="the N likeliest words for each gap")] = 5,
    as_json: AsJson = False,
    adapter: Adapter = None,
    device: Device = "auto",
) -> None:
    """Fill the gaps of texts: one text in, the likeliest words and how likely they are out, in the same order.

    Where a text has several gaps, a | stands between their words. A run that learned by span corruption writes whole
    stretches instead, for <extra_id_0>, <extra_id_1> and so on: it gives the text with these filled in.

    - `glassformer fill --run runs/masked "The [MASK] sat on the mat."`
    - `glassformer fill --run runs/masked --top 3 --json < gaps.txt`
    """
    from glassformer.cli.showing import bar, portions, read_lines
    from glassformer.run import Denoiser, Filler, load_as

    if texts and file != "-":
        raise InputError("give texts or a --file, not both")
    loaded = load_as((Filler, Denoiser), "fill gaps", run, device, adapter)
    for lines in portions(iter(texts) if texts else read_lines(file)):
        with bar("filling", len(lines)) as progress:
            if isinstance(loaded, Denoiser):
                answers: list[Any] = [{"text": text} for text in loaded.restore(lines, progress)]
            else:
                answers = [asdict(found) for found in loaded.fill(lines, top, progress)]
        for answer in answers:
            sys.stdout.write((json.dumps(answer, ensure_ascii=False) if as_json else _plain(answer)) + "\n")
        sys.stdout.flush()


def _plain(answer: dict[str, Any]) -> str:
    """A line for people: the words of each gap with their probabilities, or the text that was mended."""
    if "gaps" not in answer:
        return " ".join(answer["text"].split())
    gaps = [[f"{each['word']}\t{each['probability']:.4f}" for each in gap] for gap in answer["gaps"]]
    return "\t|\t".join("\t".join(gap) for gap in gaps)
