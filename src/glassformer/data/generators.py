"""Examples made here: dates in many languages, letters to copy, reverse or sort, sentences with their words' tags.

They need no file and no network. What is held out is decided by a hash of the calendar day, of the letters or of the
sentence, so that it never occurs in training.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING

from glassformer.data.cleaning import content_hash
from glassformer.data.files import Row
from glassformer.errors import DataError
from glassformer.recipe import DatesSource, GrammarSource, ToySource

if TYPE_CHECKING:
    from babel.core import Locale
    from babel.dates import DateTimePattern

HELD_OUT = 1_000  # pairs in valid and in test each
SHARE = 1 / 20  # of the days, or of the strings, for valid and for test each
WORDS = {  # of the grammar; a verb with an s has somebody who does it, one without needs an auxiliary or several
    tag: words.split()
    for tag, words in {
        "DET": "the a this every",
        "ADJ": "old young small cold light",
        "NOUN": "cat child doctor river watch play walk fish duck plant visit light can will",
        "VERB": "watch play walk fish duck plant visit light see like",
        "VERBS": "watches plays walks fishes ducks plants visits lights sees likes",
        "AUX": "can will must",
        "PRON": "they we you",
        "ADV": "today here quickly",
        "PREP": "near with under",
    }.items()
}
PATIENCE = 2_000  # draws in vain after which there is taken to be nothing left


def split_of(text: str, seed: int) -> str:
    """Where a day or a string belongs: train, valid or test."""
    place = content_hash(text, seed) / 2**64
    return "test" if place < SHARE else "valid" if place < 2 * SHARE else "train"


def dates(source: DatesSource, split: str) -> Iterator[Row]:
    """Dates as people write them, to ISO 8601: "सोमवार, 5 अगस्त 2013" to "2013-08-05"."""
    styles = [style for locale in source.locales for style in _styles(locale)]
    first, last = date(source.first_year, 1, 1), date(source.last_year, 12, 31)
    every = (first + timedelta(days) for days in range((last - first).days + 1))
    days = [day for day in every if split_of(day.isoformat(), source.seed) == split]

    def draw(dice: random.Random) -> tuple[str, str] | None:
        if not days:
            return None
        day = dice.choice(days)
        return dice.choice(styles)(day), day.isoformat()

    return _drawn(draw, f"dates {split}", source.count if split == "train" else HELD_OUT, source.seed)


def _styles(name: str) -> list[Callable[[date], str]]:
    """The ways in which a language writes a date: medium, medium with the weekday, long, full."""
    from babel.core import Locale, UnknownLocaleError
    from babel.dates import get_date_format, parse_pattern
    from babel.localedata import locale_identifiers

    try:
        locale = Locale.parse(name)
    except (UnknownLocaleError, ValueError):
        near = difflib.get_close_matches(name, locale_identifiers(), n=1)
        known = f": did you mean {near[0]}?" if near else ""
        raise DataError(f"source.locales holds {name!r}, which Babel does not know{known}") from None
    patterns = [get_date_format(style, locale) for style in ("medium", "long", "full")]
    if "yMMMEd" in locale.datetime_skeletons:
        patterns.append(parse_pattern(locale.datetime_skeletons["yMMMEd"]))
    return [partial(_written, pattern, locale) for pattern in patterns]


def _written(pattern: DateTimePattern, locale: Locale, day: date) -> str:
    return str(pattern.apply(day, locale))


def toys(source: ToySource, split: str) -> Iterator[Row]:
    """Random letters, and the same copied, reversed or sorted."""
    letters = "abcdefghijklmnopqrstuvwxyz"[: source.symbols]
    change: dict[str, Callable[[list[str]], list[str]]] = {
        "copy": list,
        "reverse": lambda drawn: drawn[::-1],
        "sort": sorted,
    }

    def draw(dice: random.Random) -> tuple[str, str] | None:
        drawn = dice.choices(letters, k=dice.randint(1, source.length))
        if split_of("".join(drawn), source.seed) != split:
            return None
        return " ".join(drawn), " ".join(change[source.kind](drawn))

    return _drawn(draw, f"{source.kind} {split}", source.count if split == "train" else HELD_OUT, source.seed)


def sentences(source: GrammarSource, split: str) -> Iterator[Row]:
    """English sentences and their words' tags: "the light can fish" to "DET NOUN AUX VERB".

    In "the light can fishes" the same words are DET ADJ NOUN VERB: only what comes later tells.
    """

    def draw(dice: random.Random) -> tuple[str, str] | None:
        drawn = _sentence(dice)
        text = " ".join(word for word, _ in drawn)
        if split_of(text, source.seed) != split:
            return None
        return text, " ".join(tag for _, tag in drawn)

    return _drawn(draw, f"grammar {split}", source.count if split == "train" else HELD_OUT, source.seed)


def _sentence(dice: random.Random) -> list[tuple[str, str]]:
    """Somebody, what they do, and with luck to whom, where or when."""

    def some(*tags: str) -> list[tuple[str, str]]:
        return [(dice.choice(WORDS[tag]), tag.removesuffix("S")) for tag in tags]

    def thing() -> list[tuple[str, str]]:
        return some("DET", "ADJ", "NOUN") if dice.random() < 0.5 else some("DET", "NOUN")

    several = dice.random() < 0.3
    subject = some("PRON") if several else thing()
    helped = dice.random() < 0.5
    does = some("AUX", "VERB") if helped else some("VERB") if several else some("VERBS")
    more = dice.choice(([], some("ADV"), thing(), [*some("PREP"), *thing()], [*thing(), *some("PREP"), *thing()]))
    return [*subject, *does, *more]


def _drawn(draw: Callable[[random.Random], tuple[str, str] | None], name: str, count: int, seed: int) -> Iterator[Row]:
    """So many different pairs, or as many as there are."""
    dice, seen, misses = random.Random(f"{name} {seed}"), set[tuple[str, str]](), 0
    while len(seen) < count and misses < PATIENCE:
        pair = draw(dice)
        if pair is None or pair in seen:
            misses += 1
        else:
            misses = 0
            seen.add(pair)
            yield *pair, f"{name}:{len(seen)}"
