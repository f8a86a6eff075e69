"""Points: the names of the places in a model where somebody may look, or put a hand in.

    encoder.tokens               encoder.embedding           encoder.positions
    encoder.0.before             encoder.0.self.weights      encoder.0.self.after
    decoder.2.cross.weights      decoder.2.ff.hidden         decoder.2.after
    encoder.output               logits                      encoder.0.gates.forget

A name is where a part stands (stack, layer, part) and what passes there. `before` and `after` are the residual stream:
before the first block, after a part, after a block. Some places have a second name: `decoder.2.cross` is its weights,
`decoder.2.before` is `decoder.1.after`, `decoder.2.ff.after` is `decoder.2.after`.

B batch, T length, S key length, H heads, D width
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from glassformer.decoding.ensemble import Ensemble
from glassformer.errors import InputError
from glassformer.parts.alignment import Alignment
from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.blocks import Decoder, DecoderBlock, Encoder, EncoderBlock
from glassformer.parts.norms import ResidualBranch
from glassformer.parts.observing import Axes, Observable
from glassformer.parts.recurrent import Recurrent
from glassformer.parts.recurrent_stacks import RecurrentDecoder, RecurrentEncoder
from glassformer.parts.values import NumberHead

Names = str | Sequence[str]
Numbers = int | Iterable[int]
# What a part is called inside the part that holds it, where that is not the name of the attribute; "": not at all.
CALLED: dict[type[nn.Module], dict[str, str]] = {
    Encoder: {"blocks": ""},
    Decoder: {"blocks": ""},
    EncoderBlock: {"attention": "self", "feed_forward": "ff"},
    DecoderBlock: {"self_attention": "self", "cross_attention": "cross", "feed_forward": "ff"},
    ResidualBranch: {"part": ""},
    RecurrentEncoder: {"layers": ""},
    RecurrentDecoder: {"layers": "", "attention": "cross"},
}
ALONE: dict[type[nn.Module], str] = {  # what a part is called that is looked at by itself
    Encoder: "encoder",
    Decoder: "decoder",
    RecurrentEncoder: "encoder",
    RecurrentDecoder: "decoder",
    MultiHeadAttention: "attention",
    Alignment: "attention",
    Recurrent: "layers",
}
STACKS = (Encoder, Decoder, RecurrentEncoder, RecurrentDecoder)
WRAPPED = ("_orig_mod", "module")  # what wrappers call the model in them
LATE = ("after", "output", "logits")  # points that a part passes after those of the parts in it
LAYER = re.compile(r"^(.*?)\b(\d+)\b")


@dataclass(frozen=True)
class Point:
    """A place in a model: its name, the part it belongs to and its name there, its axes, and the width of the model."""

    name: str
    part: Observable
    local: str
    axes: Axes
    width: int

    @property
    def layer(self) -> int | None:
        """The number of its layer, if it is in one."""
        return layer_of(self.name)

    def size(self, lengths: dict[str, int]) -> int:
        """How many numbers pass, given the lengths of the axes that the input decides."""
        product = 1
        for axis, length in self.axes.items():
            product *= length or lengths.get(axis, self.width)
        return product


def points(model: Any) -> list[str]:
    """The names of all points of a model, or of a run's model, in the order of its parts."""
    return list(points_of(model_of(model)))


def model_of(model: Any) -> nn.Module:
    """The model itself, or that of a run; what `torch.compile` or a data-parallel wrapper has wrapped."""
    found = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    while (inside := next((part for name, part in _children(found) if name in WRAPPED), None)) is not None:
        found = inside
    if isinstance(found, Ensemble):
        raise InputError(f"an ensemble of {len(found.members)} models cannot be looked into: look into one of its runs")
    if not isinstance(found, nn.Module):
        raise InputError(f"a model or a run is expected to look into, not a {type(model).__name__}")
    return found


def _children(model: Any) -> Iterator[tuple[str, nn.Module]]:
    return model.named_children() if isinstance(model, nn.Module) else iter(())


def tells_numbers(model: Any) -> bool:
    """Whether a model, or a run's, answers with numbers, such as a forecast, and not with scores of words or labels."""
    return isinstance(getattr(model_of(model), "head", None), NumberHead)


def points_of(model: nn.Module) -> dict[str, Point]:
    """All points of a model by name."""
    found: dict[str, Point] = {}
    for point in _within(model, ALONE.get(type(model), ""), 0):
        found[point.name] = point
    return found


def _within(module: nn.Module, path: str, width: int) -> Iterator[Point]:
    """The points of a module and of the parts in it, in the order in which they are passed."""
    if isinstance(module, STACKS):
        width = module.embedding.width
    own = module.points() if isinstance(module, Observable) else {}
    called = next((names for kind, names in CALLED.items() if isinstance(module, kind)), {})
    inside = [(called.get(attribute, attribute), child) for attribute, child in module.named_children()]
    late = [local for local in own if local in LATE or any(local.startswith(f"{name}.") for name, _ in inside if name)]
    holds_others = any(isinstance(part, Observable) for part in module.modules() if part is not module)

    def of(local: str) -> Point:
        axes = own[local]
        if path.endswith("cross") and local in ("keys", "values"):  # they are of the tokens that are looked at
            axes = {("key" if axis == "token" else axis): length for axis, length in axes.items()}
        return Point(f"{path}.{local}" if path else local, module, local, axes, width)  # type: ignore[arg-type]

    yield from (of(local) for local in own if not (holds_others and local in late))
    for name, child in inside:
        yield from _within(child, ".".join(filter(None, (path, name))), width)
        yield from (of(local) for local in late if name and local.startswith(f"{name}.") and holds_others)
    yield from (of(local) for local in late if local in LATE and holds_others)


def layer_of(name: str) -> int | None:
    """The number of the layer that a point is in; None: it is in none."""
    found = LAYER.match(name)
    return int(found[2]) if found else None


def stack_of(name: str) -> str:
    """The stack that a point is in: what its name begins with."""
    return name.split(".")[0]


def find(name: str, known: Iterable[str]) -> str:
    """The first name of a point, by this or its second name."""
    known = list(known)
    for candidate in (name, *_second(name)):
        if candidate in known:
            return candidate
    raise InputError(f'there is no point "{name}"{_nearest(name, known)}')


def find_all(names: Names, known: Iterable[str]) -> list[str]:
    """The points that names or patterns say, in their order: `weights`, `decoder.*.cross`, `encoder.0.*`.

    A pattern is a name or the end of one, with `*` for anything.
    """
    known = list(known)
    chosen: set[str] = set()
    for name in [names] if isinstance(names, str) else names:
        if name in known:
            found = {name}
        else:
            ways = (name, *_second(name))
            found = {each for each in known for way in ways if fnmatchcase(f".{each}", f"*.{way}")}
        if not found:
            raise InputError(f'there is no point "{name}"{_nearest(name, known)}')
        chosen |= found
    return [name for name in known if name in chosen]


def _second(name: str) -> Iterator[str]:
    """The first name of a point by its second name, if it is one."""
    yield f"{name}.weights"
    if name.endswith(".ff.after"):
        yield f"{name.removesuffix('.ff.after')}.after"
    if (found := re.fullmatch(r"(.*?)(\d+)\.before", name)) and int(found[2]):
        yield f"{found[1]}{int(found[2]) - 1}.after"


def _nearest(name: str, known: Sequence[str]) -> str:
    """The end of a sentence: which names come near, or which there are."""
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    near = near or [each for each in known if name.split(".")[-1] in each.split(".")][:3]
    if near:
        return f": did you mean {' or '.join(near)}?"
    return f": there are {', '.join(known[:8])}{' and others' * (len(known) > 8)}" if known else ": there are none"


def numbers(given: Numbers | None, what: str) -> list[int] | None:
    """Numbers of layers, heads or positions as a list; None: all of them."""
    if given is None:
        return None
    found = [given] if isinstance(given, int) else list(given)
    if not found:
        raise InputError(f"no {what} is named: leave {what}s out for all of them")
    for each in found:
        if type(each) is not int or each < 0:
            raise InputError(f"a {what} is a number from 0, not {each!r}")
    return found
