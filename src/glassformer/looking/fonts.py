"""Fonts: which of those that are installed have the letters of a text.

matplotlib itself orders right-to-left text and joins Arabic letters; it only needs a font that has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

FIRST = "DejaVu Sans"  # comes with matplotlib: Latin, Greek, Cyrillic, Hebrew, Arabic, Armenian, Georgian
GOOD = ("Noto Sans", "Source Han", "PingFang", "Hiragino", "Yu Gothic", "Microsoft", "WenQuanYi", "Nirmala", "Lohit")
BOXES = "Last Resort"  # a font that comes with matplotlib and has a box for each letter of every script
NAMED = 3  # letters in a sentence


def families(texts: Iterable[str]) -> list[str]:
    """The families of fonts to draw texts with: what the first one does not have is taken from the next."""
    return [FIRST, *_beside(_letters(texts))[0]]


def missing(texts: Iterable[str]) -> str:
    """A sentence that says which letters no installed font has; empty, if there are none."""
    left = sorted(_beside(_letters(texts))[1])
    if not left:
        return ""
    more = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
    return (
        f"no installed font has the letters {' '.join(left[:NAMED])}{more}, which are drawn as boxes: "
        "install one that has them, for example from the Noto family (fonts.google.com/noto)"
    )


def _letters(texts: Iterable[str]) -> frozenset[str]:
    """The letters beyond Latin: of those the first font has all."""
    return frozenset(letter for text in texts for letter in text if letter > "\u024f" and letter.isprintable())


@lru_cache(maxsize=64)
def _beside(letters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """The families that are needed beside the first one for some letters, and the letters that none has."""
    if not letters:
        return (), letters
    from matplotlib import font_manager

    manager = font_manager.fontManager
    left = letters - _known(font_manager.findfont(FIRST), letters)
    chosen: list[str] = []
    fonts = [each for each in manager.ttflist if each.style == "normal" and not each.name.startswith(BOXES)]
    for font in sorted(fonts, key=lambda each: (not each.name.startswith(GOOD), abs(int(each.weight) - 400))):
        if not left:
            break
        if found := _known(font.fname, left):
            left -= found
            chosen.append(font.name)
    return tuple(chosen), left


def _known(file: str, letters: frozenset[str]) -> frozenset[str]:
    """Those of some letters that a font has."""
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(file)
    except (OSError, RuntimeError):  # a font that cannot be read is no help
        return frozenset()
    return frozenset(letter for letter in letters if font.get_char_index(ord(letter)))
