"""The reference of all recipe keys, made from the classes themselves: `python -m glassformer.recipe.reference`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from glassformer.recipe.model import Pretrained, section_of
from glassformer.recipe.reading import toml_value
from glassformer.recipe.recipe import Recipe
from glassformer.registry import FAMILIES, SOURCES, TASKS

HEAD = """# Every key of a recipe

Made by `python -m glassformer.recipe.reference > docs/recipe.md`; a test keeps it true. Values are the defaults; keys
without one must be given, keys behind a # may be left out. Change any for one run with `--set section.key=value`;
`--set section.key=` removes it. Some tasks have other defaults; a key that has no effect is reported.
"""


def reference() -> str:
    """The whole reference, in Markdown."""
    others = [
        _block(name, field.annotation)
        for name, field in Recipe.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    ]
    return "\n".join(
        [
            HEAD,
            "## What is learned: one of these",
            *_blocks("task", (task for _, task in TASKS.items())),
            "## Where examples come from: one of these",
            *_blocks("source", (source for _, source in SOURCES.items())),
            "## The model: a checkpoint, or one of these families",
            _block("model", Pretrained),
            *_families(),
            "## All else",
            *others,
        ]
    )


def _blocks(name: str, sections: Iterable[type[BaseModel]]) -> list[str]:
    own = dict.fromkeys(each for each in sections if each.__module__.startswith("glassformer."))
    return [_block(name, each) for each in own]


def _families() -> list[str]:
    """A section for each family; keys that serve some answers only say which."""
    found = []
    for name, family in FAMILIES.items():
        if family.__module__.startswith("glassformer.") and family.answers:
            sections = {answer: section_of(name, answer) for answer in family.answers}
            everything = max(sections.values(), key=lambda each: len(each.model_fields))
            known = {key: field for each in sections.values() for key, field in each.model_fields.items()}
            notes = {key: [answer for answer, each in sections.items() if key in each.model_fields] for key in known}
            some = {key: ", ".join(each) for key, each in notes.items() if len(each) < len(sections)}
            found.append(_block("model", everything, known, some))
    return found


def _block(
    name: str, section: type[BaseModel], fields: dict[str, Any] | None = None, only: dict[str, str] | None = None
) -> str:
    """One section as commented TOML."""
    lines = [f"[{name}]"]
    known = section.model_fields if fields is None else fields
    for key, field in sorted(known.items(), key=lambda item: item[0] not in ("kind", "family")):
        words = get_args(field.annotation)
        if key in ("kind", "family") and words:
            others = f"  # or {', '.join(words[1:])}" if words[1:] else ""
            lines.append(f'{key} = "{words[0]}"{others}')
            continue
        value = field.default
        shown = "" if value is None or value is PydanticUndefined else f" {toml_value(value)}"
        note = f" (answers: {only[key]})" if only and key in only else ""
        optional = "# " if value is None else ""
        lines.append(f"{optional}{key} ={shown}  # {field.description}{_choices(field.annotation)}{note}")
    return f"\n{section.__doc__}\n\n```toml\n" + "\n".join(lines) + "\n```\n"


def _choices(annotation: Any) -> str:
    """The words that a key may have, where only some are right."""
    choices = [each for part in (annotation, *get_args(annotation)) for each in get_args(part)]
    words = [word for word in choices if isinstance(word, str)]
    return f" ({', '.join(words)})" if words else ""


if __name__ == "__main__":
    sys.stdout.write(reference())
