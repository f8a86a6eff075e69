"""Habits: the special tokens that a model which writes has learned to expect, its own or a checkpoint's.

source: before … after; what the decoder reads: start lead …; what it writes: lead … end
"""

from __future__ import annotations

from dataclasses import dataclass, field

from glassformer.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Habits:
    """The numbers of special tokens.

    `start` is what a decoder reads first, `end` ends an output, `pad` fills up; it must `never` write some. Sources
    stand between `before` and `after`; `lead` comes before every target, written like its words.
    """

    start: int
    end: int
    pad: int
    never: list[int] = field(default_factory=list)
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    lead: list[int] = field(default_factory=list)

    def room(self, limit: int) -> int:
        """How many tokens of a text, on either side, a limit leaves beside the special ones."""
        return max(1, limit - max(len(self.before) + len(self.after), len(self.lead)))


def own_habits(source: Tokenizer, target: Tokenizer, alone: bool = False) -> Habits:
    """The habits of a model that began here: sources have no frame; texts that a model goes on with `alone` a start."""
    never = sorted(target.special - {target.end})
    return Habits(target.start, target.end, source.pad, never, before=[source.start] if alone else [])


def framed_habits(start: int, end: int, pad: int, never: list[int], source: Tokenizer, target: Tokenizer) -> Habits:
    """The habits of a checkpoint: texts on both sides are framed as its tokenizers' files ask for.

    Of a target's frame, what the decoder is given anyway, its start and its end, is not repeated.
    """
    before, after = source.around()
    lead, _ = target.around()
    return Habits(start, end, pad, never, before, after, lead[1:] if lead[:1] == [start] else lead)
