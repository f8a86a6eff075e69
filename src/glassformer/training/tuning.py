"""Tuning: which numbers of a model learn, when it has learned something before.

full        all of them
head        the head alone; what it reads off stays as it was
lora        the adapter in use, and a head that is new
unfreeze    the head first, then one more block from the top every so many steps, the embeddings last

What does not learn keeps its bits: it has no gradient, no averages in the optimiser, and no weight decay.
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
    """How many numbers of a model learn, of how many; shared ones are counted once."""

    trained: int
    total: int

    def __str__(self) -> str:
        """Such as "0.6 % of 22.6 M"."""
        share = 100 * self.trained / max(self.total, 1)
        return f"{share:.0f} % of {_short(self.total)}" if share >= 10 else f"{share:.2g} % of {_short(self.total)}"


def summary(model: nn.Module) -> Summary:
    """How much of a model learns."""
    learning = [parameter.numel() for parameter in model.parameters() if parameter.requires_grad]
    return Summary(sum(learning), sum(parameter.numel() for parameter in model.parameters()))


def choose(model: nn.Module, mode: Mode, head: bool | None = None) -> Summary:
    """Let the parameters learn that a mode names, and no others.

    With "lora" the head learns too where it is new; unless told otherwise, that is one that scores no words.
    """
    own, name = _head(model), using(model)
    matrices = [parameter for parameter in own.values() if parameter.dim() > 1]
    if mode == "head" and not matrices:
        raise ConfigurationError("this model's head is tied to its embedding or has nothing to learn by itself")
    if mode == "lora" and name is None:
        raise ConfigurationError("no adapter is in use that could learn: adapt the model first")
    with_head = mode == "head" or (mode == "lora" and (not _scores_words(model) if head is None else head))
    for each, parameter in model.named_parameters():
        adapter = _adapter(each)
        if mode in ("full", "unfreeze"):
            learns = adapter in (None, name)
        else:
            learns = (mode == "lora" and adapter == name) or (with_head and each in own)
        parameter.requires_grad_(learns)
    return summary(model)


def stages(model: nn.Module) -> list[list[str]]:
    """The parameters that learn, by name, in the order of thawing: head, blocks from the top, embeddings.

    A decoder comes before its encoder, and a stack's last norm with its top block.
    """
    lists = {name: part for name, part in model.named_modules() if isinstance(part, nn.ModuleList)}
    blocks = [(name, number) for name, part in reversed(lists.items()) for number in reversed(range(len(part)))]
    found: list[list[str]] = [[] for _ in range(len(blocks) + 2)]
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            found[_stage(name, blocks)].append(name)
    return [names for names in found if names]


class Unfreezing:
    """Gradual unfreezing: in the first `every` steps the first stage learns, then one more every so many steps.

    It drops the gradients of what is still frozen, whatever came before: a function of the step alone, so that a
    resumed training goes on as it would have. The parameters stay as they are to distribution and compilation.
    """

    def __init__(self, model: nn.Module, every: int) -> None:
        check_positive(unfreeze=every)
        parameters = dict(model.named_parameters())
        self.every, self.stages = every, [[parameters[name] for name in names] for names in stages(model)]

    def thawed(self, step: int) -> int:
        """How many stages learn in a step; the first step is 1."""
        return min(1 + (step - 1) // self.every, len(self.stages))

    def hold(self, step: int) -> None:
        """Drop the gradients of what is still frozen in this step."""
        for stage in self.stages[self.thawed(step) :]:
            for parameter in stage:
                parameter.grad = None


def _head(model: nn.Module) -> dict[str, nn.Parameter]:
    """What the head has of its own, by name: no embedding that it is tied to, no adapter or what one stands beside."""
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
    """The adapter that a parameter belongs to."""
    _, _, after = f".{name}".partition(".adapters.")
    return after.partition(".")[0] or None


def _stage(name: str, blocks: Iterable[tuple[str, int]]) -> int:
    """When a parameter thaws: 0 with the head, then the blocks in their order, and after them the embeddings."""
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
