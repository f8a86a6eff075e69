"""Two runs on one text: where their models begin to differ, layer by layer and head by head.

Both read the text, and both write what the first one writes, so that the same tokens stand at the same places.

    difference of two streams   |a - b| / |a|, over all tokens; 0 is the same
    distance of two heads       ½ Σ |a - b| of a row of weights, the mean of all rows; 0 is the same, 1 is nothing alike

L layers, H heads, T tokens, S keys, D width
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.patching import Forced
from glassformer.looking.points import layer_of, points, tells_numbers
from glassformer.looking.recording import record
from glassformer.looking.trace import Description, Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WRITTEN = 20  # tokens at most that a run writes after a text
MOST = 1 << 31  # pairs of weights that are compared, for some seconds
SAME = 1e-4  # a difference up to which two streams are the same: that of another order of summing
STREAM = ("embedding", "after", "output")


@dataclass(frozen=True)
class Stream:
    """How much two models differ at one point of the residual stream."""

    point: str
    difference: float


@dataclass(frozen=True)
class HeadPair:
    """A head of the first model: how far it is from the same one of the second, and which of all is the nearest."""

    kind: str
    layer: int
    head: int
    distance: float | None  # None: the second model has no head of these numbers
    nearest: tuple[int, int]  # layer and head
    nearest_distance: float


@dataclass(frozen=True)
class Scored:
    """How likely something is for both models."""

    what: str
    first: float | None
    second: float | None


@dataclass(frozen=True)
class Comparison:
    """What two runs make of one text. What cannot be compared is told in `notes`, a sentence each."""

    text: str
    outputs: tuple[str, str]
    tokens: tuple[list[str], list[str]]  # that are read
    scores: list[Scored]
    streams: list[Stream]
    heads: list[HeadPair]
    notes: list[str]
    traces: tuple[Trace, Trace] | None = field(default=None, compare=False, repr=False)  # what heads were taken from

    @property
    def diverges(self) -> Stream | None:
        """The first point at which the models differ; None: they do not."""
        return next((each for each in self.streams if each.difference > SAME), None)

    def figure(self) -> Figure:
        """The differences of streams and heads as a figure."""
        from glassformer.looking.plots.comparing import difference

        return difference(self)

    def rows(self) -> Iterator[Sequence[Any]]:
        """Everything as a table, for a file."""
        yield ("what", "name", "layer", "head", "first", "second", "difference", "nearest_layer", "nearest_head")
        yield ("output", "", "", "", *self.outputs, "", "", "")
        yield ("tokens", "", "", "", " ".join(self.tokens[0]), " ".join(self.tokens[1]), "", "", "")
        for score in self.scores:
            yield ("log_probability", score.what, "", "", _number(score.first), _number(score.second), "", "", "")
        for stream in self.streams:
            yield ("stream", stream.point, "", "", "", "", _number(stream.difference), "", "")
        for pair in self.heads:
            yield ("head", pair.kind, pair.layer, pair.head, "", "", _number(pair.distance), *pair.nearest)
        yield from (("note", note, *[""] * 7) for note in self.notes)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def compare(one: Any, two: Any, text: str) -> Comparison:
    """Compare what two runs make of a text."""
    return compare_items(one, two, (one.item(text), two.item(text)), text)


def compare_items(one: Any, two: Any, items: tuple[Any, Any], text: str) -> Comparison:
    """Compare what two runs make of a text, or an image, that was read by each already; `text` says what it is."""
    forced = one.forced(items[0])
    notes: list[str] = []
    alike = [_spelled(each) for each in (one, two)]
    if alike[0] == alike[1] and (forced.written is None) == (two.attention_kind != "decoder.cross"):
        forced = one.forced(items[0], forced.written)  # to the same end as the other, also where the output was cut
        other = two.forced(items[1], forced.written)
    else:
        other = two.forced(items[1])
        notes.append("the runs have different tokenizers: what can be compared is compared word by word")
    ours, theirs = _recorded(one, forced), _recorded(two, other)
    if alike[0] != alike[1]:
        ours, theirs = (trace.words() if trace.about.words else trace for trace in (ours, theirs))
    outputs = _output(one, items[0], notes), _output(two, items[1], notes)
    stack = next(iter(forced.tokens))
    return Comparison(
        text,
        outputs,
        (forced.tokens[stack][0], next(iter(other.tokens.values()))[0]),
        _scores(one, two, items, forced, alike[0] == alike[1]),
        _streams(ours, theirs, notes),
        _heads(ours, theirs, notes),
        list(dict.fromkeys(notes)),
        (ours, theirs),
    )


def _output(run: Any, item: Any, notes: list[str]) -> str:
    """What a run answers, or writes after a text."""
    if not run.extends:
        return str(run.look(item, keep=points(run)[:1]).output)
    try:
        return str(run.look(item, keep=points(run)[:1], length=WRITTEN).output)
    except InputError as error:  # there is no room after the text, which can be compared all the same
        notes.append(str(error))
        return ""


def _spelled(run: Any) -> list[str]:
    """The tokenizers of a run, as text."""
    return [tokenizer.to_json() for tokenizer in run.assets.tokenizers]


def _recorded(run: Any, forced: Forced) -> Trace:
    """The stream and the weights of a run's model over some tokens."""
    known = points(run)
    keep = [name for name in known if name.endswith(".weights") or name.split(".")[-1] in STREAM]
    with record(run, keep=[*keep, "tokens"] if run.assets.tokenizers else keep) as trace, torch.inference_mode():
        run.model(*forced.inputs)
    return trace.described(Description(tokens=forced.tokens, words=forced.words, shows=run.attention_kind))


def _streams(one: Trace, two: Trace, notes: list[str]) -> list[Stream]:
    """The differences at all points of the stream that both models have."""
    found = []
    for name in (name for name in one.names if name.split(".")[-1] in STREAM and ".ff.output" not in name):
        if name.endswith((".self.output", ".cross.output")) or name not in two.names:
            continue
        if (why := _why_not(one, two, name)) is not None:
            notes.append(why)
            continue
        a, b = one[name][0].float(), two[name][0].float()
        found.append(Stream(name, float((a - b).norm() / a.norm().clamp_min(1e-30))))
    return found


def _why_not(one: Trace, two: Trace, name: str) -> str | None:
    """Why what passes a point cannot be compared; None: it can."""
    shapes = one[name].shape[1:], two[name].shape[1:]
    axes = one.axes(name), two.axes(name)
    if any(axes[0].get(axis) != axes[1].get(axis) for axis in ("token", "key")):
        return f"the {name.split('.')[0]}s have different tokens"
    if shapes[0] != shapes[1]:
        sizes = [" x ".join(map(str, shape)) for shape in shapes]
        return f"the streams of the {name.split('.')[0]}s have different widths ({sizes[0]} and {sizes[1]})"
    return None


def _heads(one: Trace, two: Trace, notes: list[str]) -> list[HeadPair]:
    """Each head of the first model beside the same one of the second, and beside the nearest."""
    found: list[HeadPair] = []
    if not one.kinds or not two.kinds:
        notes.append("one of the models has no attention, so heads are not compared")
    for kind in (kind for kind in one.kinds if kind in two.kinds):
        ours, theirs = (_weights(trace, kind) for trace in (one, two))
        axes = [trace.axes(trace.attentions(kind)[0]) for trace in (one, two)]
        if any(axes[0][axis] != axes[1][axis] for axis in ("token", "key")):
            notes.append(f"{kind} attention is over different tokens, so its heads are not compared")
            continue
        few = sum(each.numel() for each in ours.values()) * len(theirs) <= MOST
        if not few:
            notes.append(f"{kind} attention is long, so each head is compared with the one of its place alone")
        for place, weights in ours.items():
            others = theirs if few else {other: each for other, each in theirs.items() if other == place}
            far = {other: 0.5 * float((weights - each).abs().sum(dim=-1).mean()) for other, each in others.items()}
            if not far:
                continue
            nearest = min(far, key=lambda other: (far[other], other != place))
            found.append(HeadPair(kind, *place, far.get(place), nearest, far[nearest]))
    return found


def _weights(trace: Trace, kind: str) -> dict[tuple[int, int], Tensor]:
    """The weights of all heads of one kind, (T, S), by layer and head."""
    return {
        (layer_of(name) or 0, head): weights.float()
        for name in trace.attentions(kind)
        for head, weights in enumerate(trace[name][0])
    }


def _scores(one: Any, two: Any, items: tuple[Any, Any], forced: Forced, same: bool) -> list[Scored]:
    """How likely each output is for both; of language models, the text; of runs that label it, the likeliest label."""
    theirs, ours = two.forced(items[1]), log_probability(one, forced)
    if forced.written is None:
        what = "the text" if one.attention_kind == "decoder.self" else "the likeliest label"
        second = log_probability(two, theirs) if one.attention_kind == two.attention_kind else None
        return [] if ours is second is None else [Scored(what, ours, second)]
    found = [Scored("the first output", ours, None)]
    if theirs.written is None:
        return found
    if same:
        found = [Scored("the first output", ours, log_probability(two, two.forced(items[1], forced.written)))]
        theirs, back = two.forced(items[1], theirs.written), one.forced(items[0], theirs.written)
        return [*found, Scored("the second output", log_probability(one, back), log_probability(two, theirs))]
    return [*found, Scored("the second output", None, log_probability(two, theirs))]


@torch.inference_mode()
def log_probability(run: Any, forced: Forced) -> float | None:
    """Of what is written, of the likeliest label, or of a text's tokens after the first; None: the task has none."""
    if tells_numbers(run):
        return None
    logits = run.model(*forced.inputs)[0].float().cpu().log_softmax(-1)
    if forced.written is not None:
        right = torch.tensor([*forced.written, run.special.end])[: len(logits)]
        return float(logits.gather(-1, right[:, None]).sum())
    if logits.dim() == 1:
        return float(logits.max())
    if run.attention_kind == "decoder.self":
        read = forced.inputs[0][0, 1:].cpu()
        return float(logits[:-1].gather(-1, read[:, None]).sum())
    return None
