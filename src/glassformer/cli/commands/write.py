"""Commands that write text: `translate` and its other name `transform`, `caption`, `generate`, `fill`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer

from glassformer.cli.items import Item, notice_cut
from glassformer.cli.options import Beam, Images, Int8, Seed, Stream, count
from glassformer.cli.template import Template, reads_texts
from glassformer.errors import ConfigurationError

TRANSFORM = """Transform texts into whatever the run was trained to make of them: summaries, sounds. As translate does.

    - `glassformer transform --run runs/summaries --file articles.txt`
    - `head -1 articles.txt | glassformer transform --run runs/summaries --json`
    """


@reads_texts("translate", name="transform", description=TRANSFORM, several=True)
@reads_texts("translate", several=True)
def translate(
    run: Any,
    beam: Beam = None,
    nbest: Annotated[int, count("outputs for each text: its number, score, text; best first")] = 1,
    stream: Stream = False,
    int8: Int8 = False,
) -> Template[str, list[Any]]:
    """Translate texts: one line in, one line out, in the same order.

    - `glassformer translate --run runs/dates "5 May 2031"`
    - `glassformer translate --run runs/dates --file days.txt > iso.txt`
    - `echo "5 May 2031" | glassformer translate --run runs/dates --nbest 3`
    - `glassformer translate --run runs/seed-0 --run runs/seed-1 --run runs/seed-2 --beam 5 "5 May 2031"`
    """
    if stream and (nbest > 1 or (beam or 1) > 1 or int8):
        raise ConfigurationError("--stream prints the greedy output: leave out --beam, --nbest and --int8")
    limit = run.recipe.data.max_tokens

    def work(texts: list[str], progress: Any) -> list[list[Any]]:
        if nbest == 1:
            return [[best] for best in run.translate(texts, beam=beam, int8=int8, progress=progress)]
        width = max(nbest, beam or run.recipe.decode.beam)
        outputs: list[list[Any]] = run.search(texts, beam=width, best=nbest, int8=int8, progress=progress)
        return outputs

    def plain(item: Item, outputs: list[Any]) -> str:
        lines = [each.text.replace("\n", " ") for each in outputs]
        if nbest == 1:
            return str(lines[0])
        scored = zip(outputs, lines, strict=True)
        return "\n".join(f"{item.number}\t{each.score:.4f}\t{line}" for each, line in scored)

    def pieces(item: Item, text: str) -> Iterator[str]:
        if run.cuts(text):
            notice_cut([item.place], limit)
        return (piece.replace("\n", " ") for piece in run.stream(text))

    return Template(
        doing="translating",
        check=str,
        work=work,
        plain=plain,
        output=lambda outputs: outputs[0].text,
        details=lambda outputs: {
            "outputs": [{"text": each.text, "score": each.score, "finished": each.finished} for each in outputs]
        },
        was_cut=lambda outputs: outputs[0].cut,
        limit=limit,
        stream=pieces if stream else None,
    )


@reads_texts("caption", given=Images, several=True)
def caption(run: Any, beam: Beam = None, int8: Int8 = False) -> Template[Any, Any]:
    """Say what is to be seen in images: a line for each with its name and its caption, in the same order.

    Each IMAGE is the name of an image file. Of a run for films it is an animation, or a folder of a film's images.

    - `glassformer caption --run runs/scenes one.png two.png`
    - `glassformer caption --run runs/films film.gif --beam 4 --json`
    - `find pictures -name "*.jpg" | glassformer caption --run runs/scenes`
    """
    return Template(
        doing="writing captions",
        things="files",
        check=run.item,
        work=lambda images, progress: run.caption(images, beam=beam, int8=int8, progress=progress),
        plain=lambda item, found: f"{item.text}\t{' '.join(found.text.split())}",
        output=lambda found: found.text,
        details=lambda found: {"score": found.score, "finished": found.finished},
    )


@reads_texts("generate", several=True)
def generate(
    run: Any,
    length: Annotated[int | None, count("tokens to write at most; the recipe's if not given")] = None,
    beam: Beam = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            metavar="X", min=0.0, help="0: the likeliest words; 1: drawn by their probabilities; else the recipe's"
        ),
    ] = None,
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


@reads_texts("fill", several=True)
def fill(
    run: Any,
    top: Annotated[int, count("the N likeliest words for each gap")] = 5,
) -> Template[str, Any]:
    """Fill the gaps of texts, written [MASK]: a line for each text with the likeliest words and their probabilities.

    The words of several gaps are separated by |. A run that was trained by span corruption writes whole phrases
    instead, for <extra_id_0>, <extra_id_1> and so on: its line is the text with these phrases in the gaps.

    - `glassformer fill --run runs/masked "The [MASK] sat on the mat."`
    - `glassformer fill --run runs/masked --top 3 --json --file gaps.txt`
    """
    return Template(
        doing="filling",
        check=run.check,
        work=lambda texts, progress: run.fill(texts, top, progress),
        plain=lambda item, found: _plain(found),
        output=lambda found: found.text,
        details=lambda found: {"gaps": [[asdict(word) for word in gap] for gap in found.gaps]},
    )


def _plain(found: Any) -> str:
    """The words of each gap with their probabilities, or the text that was filled."""
    from glassformer.text import on_a_line

    if not found.gaps:
        return " ".join(found.text.split())
    gaps = [[f"{on_a_line(each.word)}\t{each.probability:.4f}" for each in gap] for gap in found.gaps]
    return "\t|\t".join("\t".join(gap) for gap in gaps)
