"""Tuning: which parameters of a pretrained model are trained.

full        all of them
head        only the head
lora        the adapter in use, and the head if it is new
unfreeze    first the head, then one more block from the top every so many steps, the embeddings last

Frozen parameters do not change by a bit: they have no gradient, no averages in the optimiser, and no weight decay.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from torch import nn

from glassformer.errors import ConfigurationError
from glassformer.parts import Head, LoRALinear, TiedHead, using
from glassformer.parts.checks import check_positive
from glassformer.parts.lora import lora_parts

Mode = Literal["full", "head", "lora", "unfreeze"]


@dataclass(frozen=True)
class Summary:
    """How many of a model's numbers are trained, and how many there are; tied ones count once."""

    trained: int
    total: int

    def __str__(self) -> str:
        """Such as "0.6 % of 22.6 M"."""
        percent = 100 * self.trained / max(self.total, 1)
        return f"{f'{percent:.0f}' if percent >= 10 else f'{percent:.2g}'} % of {_short(self.total)}"


def summary(model: nn.Module) -> Summary:
    """How many of a model's numbers are trained."""
    learning = [parameter.numel() for parameter in model.parameters() if parameter.requires_grad]
    return Summary(sum(learning), sum(parameter.numel() for parameter in model.parameters()))


def choose(model: nn.Module, mode: Mode, head: bool | None = None) -> Summary:
    """Make the parameters of a mode trainable, and freeze all others.

    `head` says whether "lora" trains the head too; by default it does if the head does not predict words.
    """
    own, name = _head(model), using(model)
    matrices = [parameter for parameter in own.values() if parameter.dim() > 1]
    if mode == "head" and not matrices:
        raise ConfigurationError("the head of this model is tied to its embedding or has no parameters of its own")
    if mode == "lora" and name is None:
        raise ConfigurationError("no adapter is in use: adapt the model first")
    with_head = mode == "head" or (mode == "lora" and (not _scores_words(model) if head is None else head))
    for each, parameter in model.named_parameters():
        adapter = _adapter(each)
        if mode in ("full", "unfreeze"):
            trainable = adapter in (None, name)
        else:
            trainable = (mode == "lora" and adapter == name) or (with_head and each in own)
        parameter.requires_grad_(trainable)
    return summary(model)


def stages(model: nn.Module) -> list[list[str]]:
    """The names of the trainable parameters, in the order of unfreezing: head, blocks from the top, embeddings.

    A decoder comes before its encoder; the last norm of a stack belongs to its top block.
    """
    lists = {name: part for name, part in model.named_modules() if isinstance(part, nn.ModuleList)}
    blocks = [(name, number) for name, part in reversed(lists.items()) for number in reversed(range(len(part)))]
    found: list[list[str]] = [[] for _ in range(len(blocks) + 2)]
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            found[_stage(name, blocks)].append(name)
    return [names for names in found if names]


class Unfreezing:
    """Gradual unfreezing: in the first `every` steps the first stage is trained, then one more every `every` steps.

    It drops the gradients of frozen parameters. What is frozen depends on the step only, so that a resumed run gives
    identical results; `requires_grad` does not change, so that distribution and compilation are not disturbed.
    """

    def __init__(self, model: nn.Module, every: int) -> None:
        check_positive(unfreeze=every)
        parameters = dict(model.named_parameters())
        self.every, self.stages = every, [[parameters[name] for name in names] for names in stages(model)]

    def trained_stages(self, step: int) -> int:
        """How many stages are trained in a step; the first step is 1."""
        return min(1 + (step - 1) // self.every, len(self.stages))

    def drop_frozen_gradients(self, step: int) -> None:
        """Drop the gradients of the parameters that are frozen in this step."""
        for stage in self.stages[self.trained_stages(step) :]:
            for parameter in stage:
                parameter.grad = None


def _head(model: nn.Module) -> dict[str, nn.Parameter]:
    """The head's own parameters by name: no tied embedding, no adapter and no weight that has an adapter."""
    adapted = tuple(f"{name}." for name in lora_parts(model))
    return {
        name: parameter
        for name, parameter in model.named_parameters()
        if name.startswith("head.") and not name.startswith(adapted)
    }


def _scores_words(model: nn.Module) -> bool:
    parts = getattr(model, "head", nn.Identity()).modules()
    return any(
        part.kind is Head if isinstance(part, LoRALinear) else isinstance(part, Head | TiedHead) for part in parts
    )


def _adapter(name: str) -> str | None:
    """The name of the adapter that a parameter belongs to."""
    _, _, after = f".{name}".partition(".adapters.")
    return after.partition(".")[0] or None


def _stage(name: str, blocks: Iterable[tuple[str, int]]) -> int:
    """The stage of a parameter: 0 for the head, then the blocks in their order, then the embeddings."""
    top: int | None = None
    number = 0
    for number, (block, place) in enumerate(blocks, start=1):
        if name.startswith(f"{block}.{place}."):
            return number
        if top is None and name.startswith(f"{block.rpartition('.')[0]}."):
            top = number
    if ".embedding." in f".{name}":
        return number + 1
    return top or 0


def _short(count: int) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.1f} {letter}"
    return str(count)
