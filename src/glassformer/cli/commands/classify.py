"""Labels for texts and images: `classify`."""

from __future__ import annotations

from typing import Annotated, Any

from glassformer.cli.items import Item
from glassformer.cli.options import count
from glassformer.cli.template import Template, reads_texts
from glassformer.errors import InputError


@reads_texts("classify")
def classify(
    run: Any,
    top: Annotated[int, count("the N likeliest labels of each")] = 1,
) -> Template[Any, Any]:
    """Classify texts, or images: a line for each with its label and the probability of that, in the same order.

    Of a run for images, each TEXT is the name of an image file. Two texts that are read together have a tab between.

    - `glassformer classify --run runs/sentiment "what a film!"`
    - `glassformer classify --run runs/topics --file news.txt --json`
    - `glassformer classify --run runs/digits one.png two.png`
    - `find pictures -name "*.jpg" | glassformer classify --run runs/pets`
    """

    def likely(found: Any) -> dict[str, float]:
        return dict(list(found.probabilities.items())[:top])

    def plain(item: Item, found: Any) -> str:
        labels = "\t".join(f"{label}\t{probability:.4f}" for label, probability in likely(found).items())
        return f"{item.text}\t{labels}" if run.reads_images else labels

    return Template(
        doing="classifying",
        things="images" if run.reads_images else "texts",
        check=(lambda name: _image(name, run)) if run.reads_images else (lambda text: _text(text, run.texts)),
        work=run.classify,
        plain=plain,
        output=lambda found: found.label,
        details=lambda found: {"probability": found.probability, "probabilities": likely(found)},
        blank=None if run.reads_images else {"output": None, "probability": None, "probabilities": {}},
        was_cut=lambda found: found.cut,
        limit=run.recipe.data.max_tokens,
    )


def _image(name: str, run: Any) -> Any:
    if not name.strip():
        raise InputError("the line is empty: expected the name of an image file")
    return run.see(name)


def _text(text: str, texts: int) -> str | tuple[str, ...]:
    """The text, or the two with a tab between that the run reads together."""
    parts = tuple(text.split("\t", texts - 1)) if texts > 1 else tuple(text.split("\t"))
    if len(parts) != texts:
        expected = "one text, without a tab" if texts == 1 else "two texts with a tab between"
        raise InputError(f"this run was trained on {expected}: found {len(parts)}")
    if not all(part.strip() for part in parts):
        raise InputError(f"the {'second' if parts[0].strip() else 'first'} text is empty")
    return parts if texts > 1 else text
