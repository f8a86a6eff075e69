"""Invented names: a pair that has the same name on both sides, with a name that nobody has.

A corpus that knows two names teaches these two; with invented ones, a model learns that names are copied.

    Tom is at home. → Tom ist zu Hause.        Velandra is at home. → Velandra ist zu Hause.
"""

from __future__ import annotations

import re
from random import Random

WORD = re.compile(r"\b[^\W\d_]{3,}\b")
ONSETS = [*"bcdfghjklmnprstvwxyz", "ch", "kh", "kr", "ng", "pr", "sch", "sh", "st", "th", "tr", "zh"]
VOWELS = [*"aaeeiioouyöé", "ai", "au", "ea", "ee", "ia", "ie", "io", "oo", "ou"]
CODAS = [*"dklmnrstwxz", *[""] * 8, "ll", "nd", "ng", "rt", "sk", "ski", "son", "ss", "tz"]


def with_other_name(source: str, target: str, probability: float, seed: int) -> tuple[str, str]:
    """The pair with an invented name, with some probability, if it has a name on both sides.

    What is drawn depends on the source, the target and the seed only.
    """
    rng = Random(f"{seed} {source}\t{target}")
    names = [] if rng.random() >= probability else shared_names(source, target)
    for name in names:
        other, pattern = invented(rng), re.compile(rf"\b{name}\b")
        source, target = pattern.sub(other, source), pattern.sub(other, target)
    return source, target


def shared_names(source: str, target: str) -> list[str]:
    """The words that begin with a capital and are the same on both sides."""
    found = dict.fromkeys(WORD.findall(target))
    return [word for word in dict.fromkeys(WORD.findall(source)) if word in found and word.istitle()]


def invented(rng: Random) -> str:
    """A name of one to four syllables."""
    syllables = rng.choice((1, 2, 2, 2, 3, 3, 4))
    return "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS) for _ in range(syllables)).capitalize()
