"""From texts to texts: `translate`, by its other name `transform`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from glassformer.cli.items import Item, notice_cut
from glassformer.cli.options import Beam, Int8, Stream, count
from glassformer.cli.template import Template, reads_texts
from glassformer.errors import ConfigurationError

TRANSFORM = """Transform texts into whatever the run was trained to make of them: summaries, sounds. As translate does.

    - `glassformer transform --run runs/summaries --file articles.txt`
    - `head -1 articles.txt | glassformer transform --run runs/summaries --json`
    """


@reads_texts("translate", name="transform", description=TRANSFORM)
@reads_texts("translate")
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
