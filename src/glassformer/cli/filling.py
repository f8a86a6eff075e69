"""The command that fills gaps."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from glassformer.cli.options import Adapter, AsJson, Device, RunFolder, TextFile


def fill(
    run: RunFolder,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="texts with [MASK] where a word is missing; none: lines of a file"),
    ] = None,
    file: TextFile = "-",
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
    from glassformer.cli.lines import Lines, given
    from glassformer.run import Denoiser, Filler, load_as

    asked = given(texts, file)
    loaded = load_as((Filler, Denoiser), "fill gaps", run, device, adapter)

    def filled(good: list[str], progress: Any) -> list[dict[str, Any]]:
        if isinstance(loaded, Denoiser):
            return [{"text": text} for text in loaded.restore(good, progress)]
        return [asdict(found) for found in loaded.fill(good, top, progress)]

    Lines("filling", "texts", loaded.check).write(asked, filled, _plain, as_json)


def _plain(answer: dict[str, Any]) -> str:
    """A line for people: the words of each gap with their probabilities, or the text that was mended."""
    from glassformer.text import on_a_line

    if "gaps" not in answer:
        return " ".join(answer["text"].split())
    gaps = [[f"{on_a_line(each['word'])}\t{each['probability']:.4f}" for each in gap] for gap in answer["gaps"]]
    return "\t|\t".join("\t".join(gap) for gap in gaps)
