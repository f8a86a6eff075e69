"""A trace: what a recording holds, by the names of points, with labels on its axes.

    trace["decoder.2.cross"]           the weights of all heads, (B, H, T, S)
    trace.attention("decoder.cross")   those of all layers, (L, B, H, T, S)
    trace.xarray("encoder.0.after")    with tokens on its axes
    trace.words()                      pieces of words merged
    trace.save("my.trace")             one file, which opens without the model

L layers, B sentences, H heads, T tokens, S keys, W words
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.points import find, stack_of
from glassformer.parts.observing import Axes

if TYPE_CHECKING:
    from glassformer.decoding.tree import BeamTree
    from glassformer.looking.plots import Plots

Texts = list[list[str]]  # of each sentence, of each token
Groups = list[list[list[int]]]  # of each sentence, of each word: its tokens
WRITTEN = "written"  # what the label of a token that was written is kept under
SHARED = ("label", "vocabulary")  # axes whose names are the same in all sentences
BYTES = re.compile(r"(?:⟨[0-9A-F]{2}(?:[ ▁][0-9A-F]{2})*⟩)+")  # that are no letter, as tokens are spelled
MERGED = re.compile(r"\b(weights|after|before|output|embedding|positions|hidden|state|cell|gates)\b")


class Kept(Protocol):
    """Where a trace has its tensors from: a recording, or a file."""

    def names(self) -> list[str]:
        """The points of which something was kept."""

    def calls(self, name: str) -> list[Tensor]:
        """What was kept of a point, one tensor for each call."""

    def axes_of(self, name: str) -> Axes:
        """The axes of these tensors."""

    def heads_of(self, name: str) -> list[int] | None:
        """The numbers of the heads, where not all were kept."""

    def trees(self) -> list[BeamTree]:
        """The trees of beam searches, one for each sentence."""


@dataclass(frozen=True)
class Description:
    """What a run says of a trace: which text it is of, how tokens are spelled, which of them are words."""

    input: str = ""
    output: str = ""
    shows: str = ""  # the attention that the task shows first: "decoder.cross"
    tokens: Mapping[str, Texts] = field(default_factory=dict)  # by stack; "written" ones; names of SHARED axes
    words: Mapping[str, Groups] = field(default_factory=dict)  # by stack, and of those "written"


@dataclass(frozen=True)
class Origin:
    """Where a trace is from: the run, what it worked on, and the tokens it wrote. A trace from a file has none."""

    run: Any
    item: Any
    written: list[int] | None = None


class Trace:
    """What a recording holds: a tensor for each point, by its name; several, if there were several calls."""

    def __init__(self, kept: Kept, description: Description | None = None, origin: Origin | None = None) -> None:
        self.kept, self.about, self.origin = kept, description or Description(), origin

    # --- by name

    @property
    def names(self) -> list[str]:
        """The points of which something was recorded."""
        return self.kept.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: str) -> bool:
        try:
            return bool(find(name, self.names))
        except InputError:
            return False

    def __getitem__(self, name: str) -> Tensor:
        """What passed a point: the one call that there was, or the one decoding with its steps joined."""
        found = self.calls(name)
        if len(found) > 1:
            raise InputError(
                f'"{name}" was passed in {len(found)} calls: read them one by one from trace.calls("{name}")'
            )
        return found[0]

    def calls(self, name: str) -> list[Tensor]:
        """What passed a point, one tensor for each call: a pass over whole texts, or a decoding with its steps."""
        if not self.names:
            raise InputError("nothing was recorded: run the model inside record()")
        return self.kept.calls(find(name, self.names))

    def attentions(self, kind: str) -> list[str]:
        """The names of the weights of one kind in all layers: "encoder.self", "decoder.self" or "decoder.cross"."""
        return [name for name in self.names if name.endswith(".weights") and kind_of_weights(name) == kind]

    @property
    def kinds(self) -> list[str]:
        """The kinds of attention that were recorded."""
        return list(dict.fromkeys(kind_of_weights(name) for name in self.names if name.endswith(".weights")))

    def attention(self, kind: str) -> Tensor:
        """The weights of one kind of attention, "decoder.cross" for example, in all layers: (L, B, H, T, S)."""
        names = self.attentions(kind)
        if not names:
            known = (
                f"there is {', '.join(self.kinds)}" if self.kinds else "the model has no attention, or it was left out"
            )
            raise InputError(f"no {kind} attention was recorded: {known}")
        return torch.stack([self[name] for name in names])

    @property
    def beams(self) -> list[BeamTree]:
        """The tree of the beam search for each sentence; none, if there was no beam search."""
        return self.kept.trees()

    # --- labels

    @property
    def input(self) -> str:
        """The text, where a run says it."""
        return self.about.input

    @property
    def output(self) -> str:
        """What the run made of the text."""
        return self.about.output

    @property
    def shows(self) -> str:
        """The attention that the task shows first, or the last that was recorded; nothing, if there is none."""
        return self.about.shows if self.attentions(self.about.shows) else (self.kinds or [""])[-1]

    def tokens(self, stack: str) -> Texts:
        """How the tokens are spelled that a stack reads, or those that were "written"; without a run, numbers."""
        if stack in self.about.tokens:
            return self.about.tokens[stack]
        name = f"{stack}.tokens"
        if name not in self.names:
            return []
        return [[str(token) for token in row if token >= 0] for row in self[name].tolist()]

    def axes(self, name: str, sentence: int = 0) -> dict[str, list[Any]]:
        """The labels of a point's axes, but for that of sentences: tokens as they are spelled, all else by number."""
        name = find(name, self.names)
        lengths = dict(zip(self.kept.axes_of(name), self[name].shape, strict=True))
        return {
            axis: self._labels(name, axis, length, sentence) for axis, length in lengths.items() if axis != "sentence"
        }

    def _labels(self, name: str, axis: str, length: int, sentence: int) -> list[Any]:
        if axis == "head":
            return list(self.kept.heads_of(name) or range(length))
        stack = self._texts_of(name, axis)
        texts = self.tokens(stack)[:] if stack else []
        if axis in SHARED:
            texts = [list(self.about.tokens[axis][0])] * (sentence + 1) if axis in self.about.tokens else []
        if sentence >= len(texts):
            return list(range(length))
        return [*texts[sentence][:length], *[""] * (length - len(texts[sentence]))]

    def _texts_of(self, name: str, axis: str) -> str:
        """Where the tokens of an axis are spelled: those of the stack, of the source, or those that were written."""
        crosses = ".cross." in f".{name}"
        if axis == "key":
            return "encoder" if crosses else stack_of(name)
        if axis != "token":
            return ""
        if (crosses or name == "logits") and WRITTEN in self.about.tokens:
            return WRITTEN
        return ("decoder" if self.tokens("decoder") else "encoder") if name == "logits" else stack_of(name)

    # --- other forms

    def numpy(self, name: str) -> NDArray[Any]:
        """What passed a point as a NumPy array."""
        tensor = self[name]
        return (tensor.float() if tensor.is_floating_point() else tensor).numpy()

    def pandas(self, name: str, sentence: int = 0) -> Any:
        """What passed a point in one sentence as a DataFrame: a row for each number, columns for axes and labels."""
        pandas = optional("pandas")
        values, labels = self._of_sentence(name, sentence), self.axes(name, sentence)
        columns: dict[str, Any] = {}
        places = np.indices(values.shape).reshape(len(labels), -1)
        for (axis, names), numbers in zip(labels.items(), places, strict=True):
            texts = bool(names) and isinstance(names[0], str)
            columns[axis] = numbers if texts else np.array(names)[numbers]
            if texts:
                columns[f"{axis}_text"] = np.array(names, dtype=object)[numbers]
        return pandas.DataFrame({**columns, "value": values.reshape(-1)})

    def xarray(self, name: str, sentence: int = 0) -> Any:
        """What passed a point in one sentence as a DataArray; texts stand at `token_text` and `key_text`."""
        xarray = optional("xarray")
        values, labels = self._of_sentence(name, sentence), self.axes(name, sentence)
        coordinates: dict[str, Any] = {}
        for axis, names in labels.items():
            texts = bool(names) and isinstance(names[0], str)
            coordinates[axis] = range(len(names)) if texts else names
            if texts:
                coordinates[f"{axis}_text"] = (axis, names)
        return xarray.DataArray(values, dims=list(labels), coords=coordinates, name=name)

    def _of_sentence(self, name: str, sentence: int) -> NDArray[Any]:
        self.check_sentence(sentence)
        found: NDArray[Any] = self.numpy(name)[sentence]
        return found

    def check_sentence(self, sentence: int) -> None:
        """Refuse a sentence that the trace does not have."""
        count = max((len(call) for name in self.names[:1] for call in self.calls(name)), default=0)
        if self.names and not 0 <= sentence < count:
            raise InputError(f"there is no sentence {sentence}: the trace has {count}")

    @property
    def plot(self) -> Plots:
        """Figures of what was recorded: `trace.plot.heads()`, `trace.plot.attention(layer, head)` and others."""
        from glassformer.looking.plots import Plots

        return Plots(self)

    def save(self, path: str | Path) -> Path:
        """Write the trace as one file, which `gf.load_trace` opens without the model."""
        from glassformer.looking.storing import save

        return save(self, Path(path))

    def show(
        self, kind: str | None = None, layer: int | None = None, head: int | None = None, sentence: int = 0
    ) -> None:
        """Show the interactive view in a notebook, beginning with some head; with the sharpest, if none is named."""
        from glassformer.looking.interactive import show
        from glassformer.looking.packing import First

        show(self, First(kind, layer, head), sentence)

    def save_page(self, path: str | Path) -> Path:
        """Write the interactive view as one HTML file, which needs no network."""
        from glassformer.looking.exporting import save_page

        return save_page(self, Path(path))

    def _repr_mimebundle_(self, **_: Any) -> Any:
        """What a notebook shows: the interactive view, and a picture for where it is saved."""
        from glassformer.looking.interactive import bundle, in_terminal

        return None if in_terminal() else bundle(self)

    # --- with words

    def described(self, description: Description, origin: Origin | None = None) -> Trace:
        """The same with what a run says of it."""
        return Trace(self.kept, description, origin)

    def with_beams(self, beams: Sequence[BeamTree]) -> Trace:
        """The same with the trees of a search that found what was written, one for each sentence."""
        if not beams:
            return self
        tensors = {name: self.calls(name) for name in self.names}
        axes, heads = ({name: of(name) for name in tensors} for of in (self.kept.axes_of, self.kept.heads_of))
        return Trace(Stored(tensors, axes, heads, beams), self.about, self.origin)  # type: ignore[arg-type]

    def words(self, sentence: int = 0) -> Trace:
        """One sentence with pieces of words merged: weights are summed over keys, all is averaged over tokens.

        Scores, queries, keys, values and logits of pieces have no meaning for words and are left out.
        """
        if not self.about.words:
            raise InputError("this trace does not know which tokens are words: make it by run.look(text)")
        self.check_sentence(sentence)
        merged: dict[str, list[Tensor]] = {}
        for name in self.names:
            if MERGED.search(name) and "token" in self.kept.axes_of(name):
                merged[name] = [self._merged(name, sentence)]
        groups = {stack: [some[sentence]] for stack, some in self.about.words.items() if sentence < len(some)}
        texts = {
            stack: [[_word(self.about.tokens[stack][sentence], group) for group in some[0]]]
            for stack, some in groups.items()
        }
        about = replace(self.about, tokens={**self.about.tokens, **texts}, words={})
        axes, heads = ({name: of(name) for name in merged} for of in (self.kept.axes_of, self.kept.heads_of))
        kept = Stored(merged, axes, heads, self.beams[sentence : sentence + 1])  # type: ignore[arg-type]
        return Trace(kept, about, self.origin)

    def _merged(self, name: str, sentence: int) -> Tensor:
        """What passed a point in one sentence, (1, …), with words in place of tokens."""
        x, axes = self[name][sentence].float(), [axis for axis in self.kept.axes_of(name) if axis != "sentence"]
        for dim, axis in enumerate(axes):
            groups = self.about.words.get(self._texts_of(name, axis)) if axis in ("token", "key") else None
            if groups is not None:
                reduce: Callable[..., Tensor] = torch.sum if axis == "key" else torch.mean
                parts = [reduce(x.index_select(dim, torch.tensor(some)), dim=dim) for some in groups[sentence]]
                x = torch.stack(parts, dim=dim)
        return x[None]

    def __repr__(self) -> str:
        """What was recorded, in a few lines."""
        names = self.names
        lines = [f"Trace of {len(names)} points"]
        if self.input or self.output:
            lines.append(f"  {self.input} → {self.output}")
        lines += [f"  {name} {' x '.join(map(str, self.calls(name)[0].shape))}" for name in names[:8]]
        return "\n".join([*lines, f"  … and {len(names) - 8} more"] if len(names) > 8 else lines)


@dataclass
class Stored(Kept):
    """Tensors that are complete: from a file, or made from those of another trace."""

    tensors: dict[str, list[Tensor]]
    axes: dict[str, Axes]
    heads: dict[str, list[int] | None]
    beams: Sequence[BeamTree] = ()

    def names(self) -> list[str]:
        return list(self.tensors)

    def calls(self, name: str) -> list[Tensor]:
        return self.tensors[name]

    def axes_of(self, name: str) -> Axes:
        return self.axes[name]

    def heads_of(self, name: str) -> list[int] | None:
        return self.heads.get(name)

    def trees(self) -> list[BeamTree]:
        return list(self.beams)


def kind_of_weights(name: str) -> str:
    """The kind of attention that weights are of: their name without the layer."""
    return re.sub(r"\.\d+\b", "", name.removesuffix(".weights"))


def _word(tokens: Sequence[str], group: Sequence[int]) -> str:
    """A word, put together from its pieces."""
    text = "".join(tokens[number].removeprefix("##") for number in group)
    return BYTES.sub(_letters, text).strip("▁") or tokens[group[0]]


def _letters(found: re.Match[str]) -> str:
    """The letters of bytes that several tokens have together, ⟨E9⟩⟨93⟩⟨B6⟩; what makes none stays."""
    try:
        return bytes.fromhex(re.sub("[^0-9A-F]", "", found[0])).decode()
    except UnicodeDecodeError:
        return found[0]


def optional(name: str) -> Any:
    """A library that only some need, and that is not installed with Glassformer."""
    try:
        return __import__(name)
    except ImportError:
        raise InputError(f"this needs {name}, which is not installed: pip install {name}, or use trace.numpy") from None
