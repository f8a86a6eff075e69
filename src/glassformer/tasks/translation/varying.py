"""Varied pairs: what a corpus lacks and users type.

Invented names: a corpus that knows two names teaches these two; with invented ones, a model learns that names are
copied. Informal texts: where every sentence has a capital and a full stop, a model is lost without them.

    Tom is at home. → Tom ist zu Hause.        Velandra is at home. → Velandra ist zu Hause.
    Is he at home? → Ist er zu Hause?          Is Orven at home? → Ist Orven zu Hause?
    It is late. → Es ist spät.                 it is late → Es ist spät
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

WORD = re.compile(r"\b[^\W\d_]{3,}\b")
END = re.compile(r"\s*[.!。！]$")  # not a question mark, which tells what is asked
RARE_ONSETS = (
    "x br ch chr dm dr fl gb gl gr gw kh kr kw lj mb mw ng nd ny pr qu sch sh sk sl st sv sz th tr ts wh zb zh"
)
RARE_VOWELS = "y ö é à aa ai au ea ee ei eo ia ie io oo ou ua ui"
RARE_CODAS = "b d f g h k t v x y z ck ff ll nd ng nk nn nz rg rt sk ski son ss tt tz"
# Parts of syllables: the common ones, and the rare ones
ONSETS = [*"bcdfghjklmnprstvwyz"], RARE_ONSETS.split()
VOWELS = [*"aaaeeeiioouu"], RARE_VOWELS.split()
CODAS = ["", "", "", *"lmnrs"], RARE_CODAS.split()
RARE, FIRST_VOWEL = 0.2, 0.2  # of the parts are rare; of the names begin with a vowel


def with_other_name(
    source: str, target: str, probability: float, seed: int, words: Sequence[tuple[str, str]] = ()
) -> tuple[str, str]:
    """The pair with an invented name, with some probability, if it has a name on both sides.

    What is drawn depends on the source, the target and the seed only. `words` are (source, target) pairs of words that
    count as names, such as he and er, Mary and Maria.
    """
    rng = Random(f"{seed} {source}\t{target}")
    if rng.random() >= probability:
        return source, target
    for word, translated in [*((name, name) for name in shared_names(source, target)), *words]:
        ours, theirs = _anywhere(word), _anywhere(translated)
        if word == translated or len(ours.findall(source)) == len(theirs.findall(target)) == 1:
            other = invented(rng)
            source, target = ours.sub(other, source), theirs.sub(other, target)
    return source, target


def as_typed(source: str, target: str, probability: float, seed: int) -> tuple[str, str]:
    """The pair without the full stop that both sides end with; and half of these sources without a capital."""
    rng = Random(f"{seed} informal {source}\t{target}")
    if rng.random() >= probability or not (END.search(source) and END.search(target)):
        return source, target
    source, target = END.sub("", source), END.sub("", target)
    return (source[:1].lower() + source[1:] if rng.random() < 0.5 else source), target


def shared_names(source: str, target: str) -> list[str]:
    """The words that begin with a capital and are the same on both sides."""
    found = dict.fromkeys(WORD.findall(target))
    return [word for word in dict.fromkeys(WORD.findall(source)) if word in found and word.istitle()]


def _anywhere(word: str) -> re.Pattern[str]:
    """A word of its own; what is written small may begin a sentence."""
    first = f"[{word[0]}{word[0].upper()}]" if word[0].islower() else re.escape(word[0])
    return re.compile(rf"\b{first}{re.escape(word[1:])}\b")


def invented(rng: Random) -> str:
    """A name of two to four syllables."""
    name = ""
    for _ in range(rng.choice((2, 2, 2, 3, 3, 4))):
        onset = "" if not name and rng.random() < FIRST_VOWEL else _part(rng, ONSETS)
        name += onset + _part(rng, VOWELS) + _part(rng, CODAS)
    return name.capitalize()


def _part(rng: Random, kinds: tuple[list[str], list[str]]) -> str:
    return rng.choice(kinds[rng.random() < RARE])
