"""Scenes: coloured shapes in relations, and short films of them; how they are described, and what a description says.

    a small red circle left of a blue square           a scene of two things
    a red circle moves from left to right              a film of one thing, and what becomes of it
    a red circle turns blue while a green cross grows

A description is made from a scene and read back: two descriptions are equally right where both say the same.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import NamedTuple

SIZES = ("small", "", "large")  # nothing is said of what is neither
COLOURS = {
    "red": (214, 39, 40),
    "green": (34, 150, 60),
    "blue": (40, 90, 210),
    "yellow": (240, 195, 25),
    "purple": (145, 60, 185),
    "black": (35, 35, 40),
}
SHAPES = ("circle", "square", "triangle", "cross")
INVERSE = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
FIRST = ("left of", "above")  # the relations that a scene is remembered by
OPPOSITE = {"left": "right", "right": "left", "top": "bottom", "bottom": "top"}
PATHS = {f"from {start} to {end}": start for start, end in OPPOSITE.items()}  # and where they begin
ACTIONS = {  # what becomes of a thing, as a verb and as a participle
    **{f"moves {path}": f"moving {path}" for path in PATHS},
    "grows": "growing",
    "shrinks": "shrinking",
    **{f"turns {colour}": f"turning {colour}" for colour in COLOURS},
}


class Thing(NamedTuple):
    """A shape of some size and colour."""

    size: str
    colour: str
    shape: str

    def __str__(self) -> str:
        """Its description: "a small red circle"."""
        return " ".join(filter(None, ("a", *self)))


class Scene(NamedTuple):
    """One thing; or two, the first of which is left of the other or above it."""

    things: tuple[Thing, ...]
    relation: str = ""

    @classmethod
    def of(cls, first: Thing, relation: str, second: Thing) -> Scene:
        """The scene in which the first thing has some relation to the second."""
        if relation in FIRST:
            return cls((first, second), relation)
        return cls((second, first), INVERSE[relation])


class Event(NamedTuple):
    """A thing, and what becomes of it: "moves from left to right", "grows", "turns blue"."""

    thing: Thing
    action: str


class Film(NamedTuple):
    """One or two things, and what becomes of each meanwhile."""

    events: tuple[Event, ...]

    @classmethod
    def of(cls, *events: Event) -> Film:
        """The film of some events, which have no order among each other."""
        return cls(tuple(sorted(events)))


# Each grammar tells of one thing, of two things in a relation, and of what becomes of one thing or two. It tells of two
# things from the side of the first, which is on the left or above, or of the second.
GRAMMARS: dict[str, tuple[str, str, str, str]] = {
    "phrase": ("{a}", "{a} {relation} {b}", "{a} {doing}", "{first} and {second}"),
    "sentence": ("this is {a}", "{a} is {relation} {b}", "{a} {does}", "{first} while {second}"),
    "existence": ("there is {a}", "there is {b} {inverse} {a}", "there is {a} {doing}", "{first} and {second}"),
    "place": ("here is {a}", "{inverse} {a} is {b}", "here {a} {does}", "{first} while {second}"),
}
NAMES = tuple(GRAMMARS)


def descriptions(told: Scene | Film, grammars: Sequence[str] = NAMES) -> tuple[str, ...]:
    """What is said of a scene or a film in each of some grammars."""
    return tuple(_told(told, GRAMMARS[name]) for name in grammars)


def _told(told: Scene | Film, grammar: tuple[str, str, str, str]) -> str:
    alone, related, event, both = grammar
    if isinstance(told, Film):
        made = [event.format(a=thing, does=action, doing=ACTIONS[action]) for thing, action in told.events]
        begin = event.partition("{")[0]  # which is said once: "there is … and …"
        return made[0] if len(made) == 1 else both.format(first=made[0], second=made[1].removeprefix(begin))
    if len(told.things) == 1:
        return alone.format(a=told.things[0])
    first, second = told.things
    return related.format(a=first, relation=told.relation, inverse=INVERSE[told.relation], b=second)


def _any(words: Sequence[str]) -> str:
    return "|".join(filter(None, words))


THING = rf"a (?:(?:{_any(SIZES)}) )?(?:{_any([*COLOURS])}) (?:{_any(SHAPES)})"
PARTS = {
    "a": rf"(?P<a>{THING})",
    "b": rf"(?P<b>{THING})",
    **{name: rf"(?P<{name}>{_any([*INVERSE])})" for name in ("relation", "inverse")},
    "does": rf"(?P<does>{_any([*ACTIONS])})",
    "doing": rf"(?P<doing>{_any([*ACTIONS.values()])})",
}
VERBS = {participle: verb for verb, participle in ACTIONS.items()}


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(template.format(**PARTS))


PATTERNS = [
    (_pattern(alone), _pattern(related), _pattern(event), both.format(first="", second=""), event.partition("{")[0])
    for alone, related, event, both in GRAMMARS.values()
]


def meaning(text: str) -> Scene | Film | None:
    """The scene or the film that a description tells of; None: it is no description in any of the grammars."""
    for alone, related, event, joint, begin in PATTERNS:
        if found := alone.fullmatch(text):
            return Scene((_thing(found["a"]),))
        if found := related.fullmatch(text):
            first, second, words = _thing(found["a"]), _thing(found["b"]), found.groupdict()
            return Scene.of(first, words.get("relation") or INVERSE[words["inverse"]], second)
        one, _, other = text.partition(joint)
        events = [event.fullmatch(each) for each in ([one, begin + other] if other else [one])]
        if all(events):
            return Film.of(*(_event(each) for each in events if each))
    return None


def _thing(text: str) -> Thing:
    *size, colour, shape = text.split()[1:]  # without "a"
    return Thing(size[0] if size else "", colour, shape)


def _event(found: re.Match[str]) -> Event:
    words = found.groupdict()
    return Event(_thing(words["a"]), words.get("does") or VERBS[words["doing"]])


# --- drawn at random


def random_thing(rng: random.Random) -> Thing:
    """Any thing."""
    return Thing(rng.choice(SIZES), rng.choice([*COLOURS]), rng.choice(SHAPES))


def random_scene(rng: random.Random, things: int) -> Scene:
    """A scene of one thing, or of two different ones if so many may be: nine times out of ten."""
    first, second = random_thing(rng), random_thing(rng)
    if things == 1 or first == second or rng.random() < 0.1:
        return Scene((first,))
    return Scene((first, second), rng.choice(FIRST))


def random_film(rng: random.Random, things: int) -> Film:
    """A film of one thing, or of two if so many may be: every other time."""
    count = 1 if things == 1 or rng.random() < 0.5 else 2
    events = {_random_event(rng) for _ in range(count)}
    return Film.of(*events)


def _random_event(rng: random.Random) -> Event:
    """Whatever changes its size has none that is said; nothing turns into the colour that it has."""
    thing = random_thing(rng)
    kind = rng.choice(("moves", "moves", "changes", "turns"))  # there are four ways to move
    if kind == "moves":
        return Event(thing, f"moves {rng.choice([*PATHS])}")
    if kind == "changes":
        return Event(thing._replace(size=""), rng.choice(("grows", "shrinks")))
    return Event(thing, f"turns {rng.choice([each for each in COLOURS if each != thing.colour])}")
