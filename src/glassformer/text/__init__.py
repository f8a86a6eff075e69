"""Text: how sentences become numbers, and numbers sentences again."""

from glassformer.text.habits import Habits, framed_habits, own_habits
from glassformer.text.tokenizer import MASKS, SENTINEL, SPACE, Tokenizer, on_a_line

__all__ = ["MASKS", "SENTINEL", "SPACE", "Habits", "Tokenizer", "framed_habits", "on_a_line", "own_habits"]
