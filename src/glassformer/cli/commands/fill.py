"""Words for the gaps of a text: `fill`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from glassformer.cli.options import count
from glassformer.cli.template import Template, reads_texts


@reads_texts("fill")
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
