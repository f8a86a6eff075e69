"""Labels for texts and images: `classify`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from glassformer.cli.items import Item
from glassformer.cli.template import Template, reads_texts
from glassformer.errors import InputError


@reads_texts("classify")
def classify(
    run: Any,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="the N likeliest labels of each")] = 1,
) -> Template[Any, Any]:
    """Classify texts, or images: a line for each with its label and the probability of that, in the same order.

    Of a run for images, each TEXT is the name of an image file. Two texts that are read together have a tab between.

    - `glassformer classify --run runs/sentiment "what a film!"`
    - `glassformer classify --run runs/topics --file news.txt --json`
    - `glassformer classify --run runs/digits one.png two.png`
    - `find pictures -name "*.jpg" | glassformer classify --run runs/pets`
    """
    sees = getattr(run, "see", None)  # a run that classifies images has this method

    def likely(found: Any) -> dict[str, float]:
        return dict(list(found.probabilities.items())[:top])

    def plain(item: Item, found: Any) -> str:
        labels = "\t".join(f"{label}\t{probability:.4f}" for label, probability in likely(found).items())
        return f"{item.text}\t{labels}" if sees else labels

    return Template(
        doing="classifying",
        things="images" if sees else "texts",
        check=(lambda name: _image(name, sees)) if sees else (lambda text: _text(text, run.texts)),
        work=run.classify,
        plain=plain,
        output=lambda found: found.label,
        details=lambda found: {"probability": found.probability, "probabilities": likely(found)},
        blank=None if sees else {"output": None, "probability": None, "probabilities": {}},
        was_cut=lambda found: found.cut,
        limit=run.recipe.data.max_tokens,
    )


def _image(name: str, sees: Any) -> Any:
    if not name.strip():
        raise InputError("an empty line names no image")
    return sees(name)


def _text(text: str, texts: int) -> str | tuple[str, ...]:
    """The text, or the two with a tab between that the run reads together."""
    parts = tuple(text.split("\t", texts - 1)) if texts > 1 else tuple(text.split("\t"))
    if len(parts) != texts:
        expected = "one text, without a tab" if texts == 1 else "two texts with a tab between"
        raise InputError(f"this run was trained on {expected}: found {len(parts)}")
    if not all(part.strip() for part in parts):
        raise InputError(f"the {'second' if parts[0].strip() else 'first'} text is empty")
    return parts if texts > 1 else text
