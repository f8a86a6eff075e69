"""SentencePiece's normalisation of a text: at each place the longest rule of a table, then its spaces.

The table (`precompiled_charsmap`) is a trie of what is replaced, as a double array, and the texts that replace it. The
tokenizers library reads it, too, but takes the shortest rule of a letter with its marks, and drops the marks.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence

from tokenizers import PreTokenizedString, Regex, normalizers

SPACE = "▁"
LONGEST = 16  # characters of a rule at most; those of SentencePiece have four
ASCII = re.compile(r"[!-~]+(?: [!-~]+)*(?![^\x00-\x7f])")  # and no mark after it: rules have ASCII in front only
NOTHING = r"(?!)"
ANY = Regex(r"[\s\S]")
LABEL, VALUE = 0x800000FF, 0x7FFFFFFF  # bits of a unit of the trie: the byte that leads to it; where its text begins

Span = tuple[int, int]  # of characters in a text: the first, and the one after the last


class Normaliser:
    """A text as the pieces of a SentencePiece model spell it.

    With `first_space` one stands before each text; with `single_spaces` there are none at its ends, and one between
    words. The `untouched` pieces, which a user has defined, stay as they are.
    """

    def __init__(self, table: bytes, first_space: bool, single_spaces: bool, untouched: Iterable[str] = ()) -> None:
        table = table or struct.pack("<II", 4, 0)  # of one unit: no rule
        (size,) = struct.unpack_from("<I", table)
        self._units: tuple[int, ...] = struct.unpack_from(f"<{size // 4}I", table, 4)
        self._texts = table[4 + size :]
        self._first_space, self._single_spaces = first_space, single_spaces
        self.untouched = sorted(untouched, key=len, reverse=True)  # the longest is found first
        self._kept = re.compile("|".join(map(re.escape, self.untouched)) or NOTHING)
        self._ascii = {code: self._rewritten(chr(code), 0)[0] for code in range(128)}

    def __call__(self, text: str) -> str:
        """The normalised text."""
        return self._without_end("".join(new for new, _ in self._spaced(text)))

    def aligned(self, text: str) -> tuple[str, list[Span]]:
        """The same, and which characters of the text each of its characters stands for."""
        whole, spans = "", list[Span]()
        for new, (first, last) in self._spaced(text):
            whole += new
            each = len(new) == last - first  # one for one
            spans += [(first + i, first + i + 1) if each else (first, last) for i in range(len(new))]
        whole = self._without_end(whole)
        return whole, spans[: len(whole)]

    def _spaced(self, text: str) -> Iterator[tuple[str, Span]]:
        """The pieces that the text becomes, with the spaces that shall be there, each with what it replaces."""
        if text and self._first_space:
            yield SPACE, (0, 0)
        after_space = self._single_spaces
        for piece, span in self._pieces(text):
            new = piece.lstrip(" ") if after_space else piece
            if new:
                after_space = self._single_spaces and new.endswith(" ")
                yield new.replace(" ", SPACE), span

    def _without_end(self, text: str) -> str:
        return text.rstrip(SPACE) if self._single_spaces else text

    def _pieces(self, text: str) -> Iterator[tuple[str, Span]]:
        """The pieces that the text becomes by the rules, from left to right, each with what it replaces."""
        at, kept = 0, self._kept.search(text)
        while at < len(text):
            if kept and kept.start() < at:  # a rule took its beginning
                kept = self._kept.search(text, at)
            limit = kept.start() if kept else len(text)
            if kept and limit == at:
                new, end = kept[0], kept.end()
            elif plain := ASCII.match(text, at, limit + 1):  # with the letter after it, which may be a mark
                end = min(plain.end(), limit)
                new = text[at:end].translate(self._ascii)
            else:
                new, end = self._rewritten(text, at)
            yield new, (at, end)
            at = end

    def _rewritten(self, text: str, at: int) -> tuple[str, int]:
        """What the longest rule that begins here gives, or else the character itself; and where it ends."""
        units, new, end = self._units, text[at], at + 1
        node = _followers(units[0])
        for place in range(at, min(len(text), at + LONGEST)):
            for byte in text[place].encode("utf-8", "surrogatepass"):
                node ^= byte
                if node >= len(units) or units[node] & LABEL != byte:
                    return new, end
                ends = units[node] & 0x100
                node ^= _followers(units[node])
            if ends and node < len(units):
                start = units[node] & VALUE
                new, end = self._texts[start : self._texts.find(b"\0", start)].decode("utf-8", "replace"), place + 1
        return new, end


class Prepared:
    """A normaliser for texts to which the tokenizers library has done `steps` before."""

    def __init__(self, steps: normalizers.Normalizer, then: Normaliser) -> None:
        self._steps, self._then, self.untouched = steps, then, then.untouched

    def __call__(self, text: str) -> str:
        """The normalised text."""
        return self._then(self._steps.normalize_str(text))

    def aligned(self, text: str) -> tuple[str, list[Span]]:
        """The same, and which characters of the text each of its characters stands for."""
        letters = PreTokenizedString(text)
        letters.normalize(self._steps.normalize)
        letters.split(lambda _, whole: whole.split(ANY, "isolated"))  # a slice of it would count from its beginning
        splits = letters.get_splits("original", "char")
        whole, spans = self._then.aligned("".join(letter for letter, _, _ in splits))
        before = [span for _, span, _ in splits]
        return whole, [covered(before, part) for part in spans]


def _followers(unit: int) -> int:
    """Where a unit's followers are: to be combined with its own place, and each with its byte."""
    return unit >> 10 << ((unit & 0x200) >> 6)


def covered(spans: Sequence[Span], part: Span) -> Span:
    """Which characters of a text a part of the normalised text stands for."""
    first, last = part
    return (spans[first][0], spans[last - 1][1]) if first < last else (0, 0)
