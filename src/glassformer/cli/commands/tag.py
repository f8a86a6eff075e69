"""A tag for each word: `tag`."""

from __future__ import annotations

from typing import Any

from glassformer.cli.template import Template, reads_texts


@reads_texts("tag")
def tag(run: Any) -> Template[list[str], Any]:
    """Tag the words of texts: a line for each text with its words, a tab, and as many tags, in the same order.

    Words are separated by spaces. Tagged texts for training have the same form. An empty line gives an empty line.

    - `glassformer tag --run runs/tags "they can fish"`
    - `glassformer tag --run runs/tags --json --file sentences.txt`
    """
    return Template(
        doing="tagging",
        check=run.check,
        work=run.tag_words,
        plain=lambda item, found: f"{' '.join(found.words)}\t{' '.join(found.tags)}",
        output=lambda found: found.tags,
        details=lambda found: {"words": found.words, "probabilities": found.probabilities},
        blank={"output": [], "words": [], "probabilities": []},
    )
