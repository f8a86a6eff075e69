"""Words: which tokens of a text are pieces of one word.

A word is a run of letters, marks and digits, or a run of other signs, as the tokenizers cut texts; in scripts without
spaces each letter is one. A token belongs to the word that its first letter is in; a space before a word belongs to it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

ALONE = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")  # ideographs, kana


def group(tokens: Sequence[bytes | None]) -> list[list[int]]:
    """The numbers of the tokens of each word, given the text of each as bytes; None: a special token, which is one."""
    found: list[list[int]] = []
    stretch: list[int] = []
    for number, token in enumerate([*tokens, None]):
        if token is not None:
            stretch.append(number)
            continue
        found += _in_stretch([tokens[each] or b"" for each in stretch], stretch)
        found += [[number]] if number < len(tokens) else []
        stretch = []
    return found


def _in_stretch(pieces: Sequence[bytes], numbers: Sequence[int]) -> list[list[int]]:
    """The same for tokens without special ones between them."""
    text, letter_of = _letters(b"".join(pieces))
    word_of = _words_of(text)
    found: list[list[int]] = []
    last: int | None = None
    waiting: list[int] = []  # spaces, which belong to what follows
    begin = 0
    for piece, number in zip(pieces, numbers, strict=True):
        letters = [letter_of[at] for at in range(begin, begin + len(piece))]
        begin += len(piece)
        word = next((word_of[letter] for letter in letters if letter in word_of), None)
        if word is None:
            waiting.append(number)
        elif word == last and not waiting:
            found[-1].append(number)
        else:
            found.append([*waiting, number])
            waiting = []
        last = last if word is None else word
    return [*found, *([waiting] if waiting else [])]


def _words_of(text: str) -> dict[int, int]:
    """Where the word of each letter begins, but for spaces."""
    found: dict[int, int] = {}
    begin, last = 0, ""
    for at, letter in enumerate(text):
        kind = "space" if letter.isspace() else _kind(letter)
        if kind != last or kind == "alone":
            begin = at
        if kind != "space":
            found[at] = begin
        last = kind
    return found


def _kind(letter: str) -> str:
    if ALONE.match(letter):
        return "alone"
    return "letter" if letter == "_" or unicodedata.category(letter)[0] in "LMN" else "sign"


def _letters(data: bytes) -> tuple[str, list[int]]:
    """Bytes as a text, and which letter of it each byte is in; what is no text is a sign for each byte."""
    text, letter_of, at = "", list[int](), 0
    while at < len(data):
        for length in range(1, 5):
            try:
                letter = data[at : at + length].decode()
            except UnicodeDecodeError:
                continue
            break
        else:
            length, letter = 1, "\ufffd"
        letter_of += [len(text)] * min(length, len(data) - at)
        text, at = text + letter, at + length
    return text, letter_of
