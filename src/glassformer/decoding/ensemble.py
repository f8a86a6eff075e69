"""Ensembles: several models that write one output together, each token by the mean of what they expect.

With the models' probabilities p₁ … pₘ of the next token, the ensemble's are

    p = (p₁ + … + pₘ) / m                "probabilities", as in fairseq and by default in Sockeye
    log p = (log p₁ + … + log pₘ) / m + c    "log-probabilities", as in Marian and by default in OpenNMT-py

The first lets one model that is sure of a token carry it; in the second, a token that one model thinks impossible is
lost. An ensemble implements `start` and `step` like any model, so that every search, limit and sampler works on it.

M models, B sentences, k beams, T target length, V vocabulary, D sum of the models' widths
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigurationError
from glassformer.parts.fixed_cache import fixable
from glassformer.parts.masks import Mask

Mean = Literal["probabilities", "log-probabilities"]


class Ensemble(nn.Module):
    """Models with the same vocabulary, of any families, that write together. An ensemble of one writes as its model."""

    def __init__(self, members: Sequence[nn.Module], mean: Mean = "probabilities") -> None:
        super().__init__()
        if not members:
            raise ConfigurationError("an ensemble needs one model at least")
        if mean not in get_args(Mean):
            raise ConfigurationError(f"the mean is of {' or '.join(get_args(Mean))}, not of {mean!r}")
        self.members, self.mean = nn.ModuleList(members), mean

    # --- what decoding needs

    def start(self, *inputs: Any) -> EnsembleState:
        """Let each model read the inputs."""
        return EnsembleState([member.start(*inputs) for member in self._members])

    def step(self, state: EnsembleState, tokens: Tensor) -> tuple[Tensor, EnsembleState]:
        """Let each model read one more token for each beam, (B, k); logits (B, k, V) of the one after it."""
        found = [member.step(own, tokens) for member, own in zip(self._members, state.states, strict=True)]
        return self.combined([logits for logits, _ in found]), EnsembleState([own for _, own in found])

    def check(self, *inputs: Any) -> None:
        """Refuse inputs that a model cannot read."""
        for member in self._members:
            member.check(*inputs)

    def combined(self, logits: Sequence[Tensor]) -> Tensor:
        """The logits of the mean, (…, V), given those of each model.

        They are as high as the models' are on average, which matters to a repetition penalty alone.
        """
        sizes = [each.shape[-1] for each in logits]
        if len({*sizes}) > 1:
            raise ConfigurationError(f"the models of an ensemble score {sizes} tokens: expected the same vocabulary")
        scores = torch.stack([each.to(torch.promote_types(each.dtype, torch.float32)) for each in logits])  # (M, …, V)
        if self.mean == "log-probabilities":
            return scores.mean(dim=0)
        levels = scores.logsumexp(dim=-1, keepdim=True)  # (M, …, 1)
        return (scores - levels).logsumexp(dim=0) - math.log(len(scores)) + levels.mean(dim=0)

    # --- what forced scoring needs

    def hidden(self, *inputs: Any) -> Tensor:
        """What the heads read: each model's vectors, side by side, (B, T, D)."""
        return torch.cat([member.hidden(*inputs) for member in self._members], dim=-1)

    @property
    def head(self) -> Callable[[Tensor], Tensor]:
        """What scores such vectors, (…, D): logits (…, V)."""
        widths = [member.decoder.embedding.width for member in self._members]

        def scored(hidden: Tensor) -> Tensor:
            parts = torch.split(hidden, widths, dim=-1)
            return self.combined([member.head(part) for member, part in zip(self._members, parts, strict=True)])

        return scored

    def forward(self, *inputs: Any) -> Tensor:
        """Logits (B, T, V), as the models' own: of the token after each that the decoders read."""
        return self.head(self.hidden(*inputs))

    @property
    def _members(self) -> list[Any]:
        return [*self.members]


@dataclass
class EnsembleState:
    """The states of the models, in any memory."""

    states: list[Any]

    @property
    def first(self) -> Tensor | None:
        """What the first step is to read, where a prompt was read before."""
        return getattr(self.states[0], "first", None)

    def select(self, beams: Tensor, sentences: Tensor | None = None) -> None:
        """Go on with some beams of some sentences, as `DecodingState.select` says."""
        for each in self.states:
            each.select(beams, sentences)

    # --- what captured steps need: as `DecoderState` and `FixedState` have it

    @property
    def fixable(self) -> bool:
        """Whether all of them can be held in memory of fixed size, step by step alike."""
        return all(map(fixable, self.states)) and len({each.slots for each in self.states}) == 1

    @property
    def slots(self) -> int:
        """How many slots are used, in each of them."""
        return int(self.states[0].slots)

    @property
    def source(self) -> int:
        """How long the longest source is, with padding; 0: there is none."""
        return max(int(each.source) for each in self.states)

    @property
    def furthest(self) -> int:
        """The highest position at which a next token stands."""
        return max(int(each.furthest) for each in self.states)

    def fixed(self, model: Ensemble, sentences: int, beams: int, room: int, source: int) -> EnsembleState:
        """Memory of fixed size for states like these: so many sentences, beams, slots, source tokens."""
        pairs = zip(model.members, self.states, strict=True)
        return EnsembleState([own.fixed(member, sentences, beams, room, source) for member, own in pairs])

    def beginning(self, sentences: int, length: int, mask: Mask) -> EnsembleState:
        """A copy, in memory of its own, of the states before the first step."""
        return EnsembleState([each.beginning(sentences, length, mask) for each in self.states])

    def load(self, other: EnsembleState) -> None:
        """In fixed memory: take over other states."""
        for mine, theirs in zip(self.states, other.states, strict=True):
            mine.load(theirs)

    def thaw(self, sentences: Tensor, used: int, source: int) -> EnsembleState:
        """In fixed memory: the states of some sentences, to go on with in any memory."""
        return EnsembleState([each.thaw(sentences, used, source) for each in self.states])


def members_of(model: Any) -> list[Any]:
    """The models of an ensemble; of any other model, itself."""
    return [*model.members] if isinstance(model, Ensemble) else [model]
