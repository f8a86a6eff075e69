"""The reference of all recipe keys, made from the classes themselves: `python -m glassformer.recipes.reference`."""

from __future__ import annotations

import sys
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from glassformer.recipe import Recipe
from glassformer.recipes import kinds_of, toml_value

HEAD = """# Every key of a recipe

Made by `python -m glassformer.recipes.reference > docs/recipe.md`; a test keeps it true. Values are the defaults; keys
without one must be given, keys behind a # may be left out. Change any for one run with `--set section.key=value`.
"""


def reference() -> str:
    """The whole reference, in Markdown."""
    tasks, sources = (
        [_block(name, each) for each in dict.fromkeys(kinds_of(name).values())] for name in ("task", "source")
    )
    others = [
        _block(name, field.annotation)
        for name, field in Recipe.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    ]
    chosen = ["## What is learned: one of these", *tasks, "## Where examples come from: one of these", *sources]
    return "\n".join([HEAD, *chosen, "## All else", *others])


def _block(name: str, section: type[BaseModel]) -> str:
    """One section as commented TOML."""
    lines = [f"[{name}]"]
    for key, field in sorted(section.model_fields.items(), key=lambda item: item[0] != "kind"):
        if key == "kind":
            kinds = get_args(field.annotation)
            others = f"  # or {', '.join(kinds[1:])}" if kinds[1:] else ""
            lines.append(f'kind = "{kinds[0]}"{others}')
            continue
        value = field.default
        known = "" if value is None or value is PydanticUndefined else f" {toml_value(value)}"
        shown = f"{'# ' if value is None else ''}{key} ={known}"
        lines.append(f"{shown}  # {field.description}{_choices(field.annotation)}")
    return f"\n{section.__doc__}\n\n```toml\n" + "\n".join(lines) + "\n```\n"


def _choices(annotation: Any) -> str:
    """The words that a key may have, where only some are right."""
    choices = [each for part in (annotation, *get_args(annotation)) for each in get_args(part)]
    words = [word for word in choices if isinstance(word, str)]
    return f" ({', '.join(words)})" if words else ""


if __name__ == "__main__":
    sys.stdout.write(reference())
