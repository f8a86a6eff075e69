"""What a plot shows of a trace: which head, which tokens, how they are written.

L layers, H heads, T tokens that look, S tokens that are looked at
"""

from __future__ import annotations

import re
import unicodedata

from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.points import layer_of
from glassformer.looking.sharpest import Head, sharpest
from glassformer.looking.trace import Trace

MOST = 80  # tokens on a side of a plot with names
LONGEST = 18  # letters of a name
CONTROL, PICTURES = re.compile(r"[\x00-\x1f\x7f-\x9f]"), 0x2400  # Unicode has a picture of each from there on
LEFT, ISOLATE, END = "\u200e", "\u2068", "\u2069"  # marks of direction: left to right; a text of its own; its end


def head_of(trace: Trace, layer: int | None, head: int | None, kind: str | None, sentence: int) -> Head:
    """One head: that of some layer and number; of what is not named, the sharpest."""
    kind = kind_of(trace, kind)
    if layer is None and head is None:
        return _cut(sharpest(trace, kind, sentence), sentence, trace)
    names = trace.attentions(kind)
    number = {_layer(name): name for name in names}
    if layer is not None and layer not in number:
        raise InputError(f"there is no layer {layer}: {kind} attention has {_range('layer', list(number))}")
    chosen = [number[layer]] if layer is not None else names
    heads = trace.axes(chosen[0], sentence)["head"]
    if head is not None and head not in heads:
        raise InputError(f"there is no head {head}: {kind} attention has {_range('head', heads)}")
    found = [(_sharpness(trace[name][sentence, place]), name, place) for name in chosen for place in _of(heads, head)]
    _, name, place = max(found)
    axes = trace.axes(name, sentence)
    title = f"{called(kind)} of layer {_layer(name)}, head {heads[place]}"
    return _cut(
        Head(trace[name][sentence, place], axes["token"], axes["key"], name, heads[place], title), sentence, trace
    )


def _of(heads: list[int], head: int | None) -> list[int]:
    """Where a head is among those that were kept; all, if none is named."""
    return list(range(len(heads))) if head is None else [heads.index(head)]


def _sharpness(weights: Tensor) -> float:
    """How much a head is like an alignment: see `sharpest`."""
    return float(weights.amax(dim=1).mean() * weights.amax(dim=0).mean())


def _layer(name: str) -> int:
    return layer_of(name) or 0


def _range(what: str, numbers: list[int]) -> str:
    """What there is, in words."""
    if len(numbers) == 1:
        return f"one {what}, number {numbers[0]}"
    if numbers == list(range(len(numbers))):
        return f"{len(numbers)} {what}s, 0 to {len(numbers) - 1}"
    return f"the {what}s {', '.join(map(str, numbers))}"


def kind_of(trace: Trace, kind: str | None) -> str:
    """The kind of attention that is drawn; a sentence, if there is none."""
    if not trace.kinds:
        has = sorted({name.split(".")[-1] for name in trace.names if not name.endswith("tokens")})
        known = f"there is {', '.join(has[:6])}" if has else "only tokens were kept"
        raise InputError(f"this model has no attention, or it was not recorded: {known}")
    if kind is None:
        return trace.shows
    if not trace.attentions(kind):
        raise InputError(f'there is no attention "{kind}": there is {", ".join(trace.kinds)}')
    return kind


def called(kind: str) -> str:
    """A kind of attention in words."""
    stack, _, what = kind.rpartition(".")
    return f"{stack} self-attention" if what == "self" else f"{what} attention"


def _cut(head: Head, sentence: int, trace: Trace) -> Head:
    """A head over the tokens that a sentence has, which may be shorter than others in the trace."""
    axes = trace.axes(head.name, sentence)
    rows, columns = (_real(axes[axis]) for axis in ("token", "key"))
    weights = head.weights[:rows, :columns].float()
    return Head(weights, names(axes["token"][:rows]), names(axes["key"][:columns]), head.name, head.head, head.title)


def _real(labels: list[str]) -> int:
    """How many tokens a sentence has: those after them have no name."""
    return max((place + 1 for place, label in enumerate(labels) if label != ""), default=len(labels))


def names(labels: list[str]) -> list[str]:
    """Tokens as a plot writes them: spaces and line breaks can be seen, long ones are cut."""
    return [name(label) for label in labels]


def name(label: object) -> str:
    """A token as a plot writes it; a dot in front is a space."""
    text = visible(re.sub(r"[\n\r]", "↵", str(label)).replace("\t", "⇥"))
    text = text if text.strip(" ▁") else "␣" * max(len(text), 1)
    text = re.sub(r"^[▁ ](?=.)|(?<=/)▁", "·", text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def visible(text: str) -> str:
    """A text with a sign for each control character, such as ␛ for an escape, which would steer a terminal."""
    return CONTROL.sub(lambda found: chr(PICTURES + ord(found[0])) if ord(found[0]) < ord(" ") else "�", text)


def check_size(*sides: int) -> None:
    """Refuse to draw what nobody can read."""
    if max(sides) > MOST:
        raise InputError(
            f"there are {max(sides):,} tokens, and a plot with names has room for {MOST}: take a shorter text, draw "
            "all heads, which have no names, or keep the numbers as .csv or .trace"
        )


def wrapped(text: str, width: int) -> str:
    """A text in two lines at most; what was isolated and is cut stays isolated in the second."""
    from textwrap import wrap

    lines = wrap(text, width, max_lines=2, placeholder=" …", break_long_words=True)
    if ISOLATE in text:
        lines = [f"{LEFT}{ISOLATE * (line.count(END) > line.count(ISOLATE))}{line}" for line in lines]
    return "\n".join(lines)


def isolated(text: str) -> str:
    """A text whose right-to-left letters turn round nothing but itself, such as an arrow behind it."""
    turns = any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in text)
    return f"{LEFT}{ISOLATE}{text}{END}" if turns else text


def heading(trace: Trace) -> str:
    """What a trace is of: the input and the output."""
    parts = [visible(re.sub(r"\s+", " ", part).strip()) for part in (trace.input, trace.output)]
    return " → ".join(isolated(part) for part in parts if part)
