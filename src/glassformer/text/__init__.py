"""Text: how sentences become numbers, and numbers sentences again."""

from glassformer.text.tokenizer import Tokenizer

__all__ = ["Tokenizer"]
