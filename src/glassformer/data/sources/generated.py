"""Generated sources: dates in many languages, letters to copy, reverse or sort, sentences with their words' tags.

They need no file and no network. A hash of the calendar day, of the letters or of the sentence decides its split, so
what is held out never occurs in training.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from glassformer.data.cleaning import content_hash, split_of
from glassformer.data.examples import Columns
from glassformer.data.report import Report
from glassformer.data.source import Found, Source, Split
from glassformer.errors import DataError
from glassformer.recipe.values import Count, Seed, Whole

Drawn = tuple[str, str] | None  # source and target; None if they belong to another split
HELD_OUT = 1_000  # examples in valid and in test each
HELD_OUT_RATIO = 1 / 20  # of the days, the strings or the sentences, for valid and for test each
MOST_MISSES = 2_000  # draws in a row without a new example, after which no more are expected
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = {  # of the grammar; a verb with an s has a singular subject, one without needs an auxiliary or a plural
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


class GeneratedSource(Source):
    """Examples drawn at random, all different. A subclass says how one is drawn."""

    makes_splits = True
    count: Count = Field(5_000, description="training examples")
    seed: Seed = Field(0, description="which examples are drawn")

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """As many different examples as asked for, or as exist."""
        name, count = f"{self.kind} {split}", self.count if split == "train" else HELD_OUT
        rng, draw = random.Random(f"{name} {self.seed}"), self._drawing(split)
        seen, misses = set[tuple[str, str]](), 0
        while len(seen) < count and misses < MOST_MISSES:
            drawn = draw(rng)
            if drawn is None or drawn in seen:
                misses += 1
            else:
                misses = 0
                seen.add(drawn)
                yield Columns(drawn), f"{name}:{len(seen)}"

    def _drawing(self, split: Split) -> Callable[[random.Random], Drawn]:
        """What draws an example of a split."""
        raise NotImplementedError

    def _split_of(self, text: str) -> str:
        return split_of(content_hash(text.encode(), self.seed), HELD_OUT_RATIO, HELD_OUT_RATIO)


class DatesSource(GeneratedSource):
    """Dates in many languages and styles, to ISO 8601: "सोमवार, 5 अगस्त 2013" to "2013-08-05". Made with Babel."""

    kind: Literal["dates"]
    count: Count = Field(20_000, description="training examples")
    locales: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        ("en_US", "en_GB", "it", "fr", "de", "es", "pt", "nl", "hi", "ta"), description="languages, as Babel names them"
    )
    first_year: Annotated[Whole, Field(ge=1, le=9999)] = Field(1950, description="the earliest year")
    last_year: Annotated[Whole, Field(ge=1, le=9999)] = Field(2049, description="the latest year")

    @model_validator(mode="after")
    def _in_order(self) -> DatesSource:
        if self.first_year > self.last_year:
            raise ValueError(f"source.first_year {self.first_year} is after source.last_year {self.last_year}")
        return self

    def versions(self, base: Path) -> dict[str, Any]:
        """Babel's."""
        import babel

        return {"babel": babel.__version__}

    def _drawing(self, split: Split) -> Callable[[random.Random], Drawn]:
        styles = [style for locale in self.locales for style in _styles(locale)]
        first, last = date(self.first_year, 1, 1), date(self.last_year, 12, 31)
        every = (first + timedelta(days) for days in range((last - first).days + 1))
        days = [day for day in every if self._split_of(day.isoformat()) == split]

        def draw(rng: random.Random) -> Drawn:
            if not days:
                return None
            day = rng.choice(days)
            return rng.choice(styles)(day), day.isoformat()

        return draw


def _styles(name: str) -> list[Callable[[date], str]]:
    """The ways in which a language writes a date: medium, long, full, and medium with the weekday."""
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
    return [lambda day, pattern=pattern: str(pattern.apply(day, locale)) for pattern in patterns]  # type: ignore[misc]


class ToySource(GeneratedSource):
    """Random letters, and the same letters copied, reversed or sorted: for tests."""

    kind: Literal["copy", "reverse", "sort"]
    symbols: Annotated[Whole, Field(ge=2, le=26)] = Field(12, description="different letters")
    length: Annotated[Count, Field(le=10_000)] = Field(10, description="the greatest number of letters")

    def _drawing(self, split: Split) -> Callable[[random.Random], Drawn]:
        def draw(rng: random.Random) -> Drawn:
            letters = rng.choices(LETTERS[: self.symbols], k=rng.randint(1, self.length))
            if self._split_of("".join(letters)) != split:
                return None
            target = {"copy": letters, "reverse": letters[::-1], "sort": sorted(letters)}[self.kind]
            return " ".join(letters), " ".join(target)

        return draw


class GrammarSource(GeneratedSource):
    """English sentences of a small grammar, and their words' tags: "the light can fish" to "DET NOUN AUX VERB".

    Many words have two tags, and only the context decides: in "the light can fishes" they are DET ADJ NOUN VERB.
    """

    kind: Literal["grammar"]

    def _drawing(self, split: Split) -> Callable[[random.Random], Drawn]:
        def draw(rng: random.Random) -> Drawn:
            words, tags = zip(*_sentence(rng), strict=True)
            text = " ".join(words)
            return (text, " ".join(tags)) if self._split_of(text) == split else None

        return draw


def _sentence(rng: random.Random) -> list[tuple[str, str]]:
    """A subject, a verb, and sometimes an object, a place or a time: words with their tags."""

    def some(*tags: str) -> list[tuple[str, str]]:
        return [(rng.choice(WORDS[tag]), tag.removesuffix("S")) for tag in tags]

    def thing() -> list[tuple[str, str]]:
        return some("DET", "ADJ", "NOUN") if rng.random() < 0.5 else some("DET", "NOUN")

    plural = rng.random() < 0.3
    subject = some("PRON") if plural else thing()
    auxiliary = rng.random() < 0.5
    verb = some("AUX", "VERB") if auxiliary else some("VERB") if plural else some("VERBS")
    rest = rng.choice(([], some("ADV"), thing(), [*some("PREP"), *thing()], [*thing(), *some("PREP"), *thing()]))
    return [*subject, *verb, *rest]
