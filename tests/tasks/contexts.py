"""What encoders are told, without a recipe around it."""

from types import SimpleNamespace
from typing import Any

from glassformer.data import Assets, Context
from glassformer.text import Tokenizer


def context(tokenizers: tuple[Tokenizer, ...], limit: int, labels: list[str] | None = None) -> Context:
    """The context of a recipe with so many tokens at most."""
    recipe: Any = SimpleNamespace(data=SimpleNamespace(max_tokens=limit))
    return Context(recipe, Assets(tokenizers, labels or []))
