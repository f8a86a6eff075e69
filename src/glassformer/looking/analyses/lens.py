"""The logit lens: what a model would say if it stopped after a layer.

The residual stream after each block goes through the model's own final norm and head:

    lens_l = head(norm(x_l))

L layers with the embedding first, T tokens, V vocabulary or labels, k best
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.looking.analyses.tables import labels, need, sentence_of
from glassformer.looking.points import model_of, tells_numbers
from glassformer.looking.trace import Trace, optional
from glassformer.parts.blocks import Decoder, Encoder

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Lens:
    """The logits that each layer would give, and how tokens are spelled, if a run says so."""

    logits: Tensor  # (L, T, V)
    points: list[str]  # L
    tokens: list[str]  # T, as the logits of a trace are labelled
    spelling: Any = None  # numbers of tokens to texts

    def top(self, count: int = 1) -> Tensor:
        """The likeliest tokens of each layer, (L, T, k)."""
        if not 1 <= count <= self.logits.shape[-1]:
            raise InputError(f"there are {self.logits.shape[-1]} tokens to choose from, not {count}")
        return self.logits.topk(count, dim=-1).indices

    def texts(self) -> list[list[str]]:
        """The likeliest token of each layer at each place, as it is spelled."""
        return [self.spelled(row) for row in self.top()[..., 0].tolist()]

    def spelled(self, ids: Sequence[int]) -> list[str]:
        """Tokens or labels as they are spelled."""
        return [str(each) for each in ids] if self.spelling is None else list(self.spelling(ids))

    @property
    def probabilities(self) -> Tensor:
        """The softmax of the logits, (L, T, V)."""
        return self.logits.softmax(dim=-1)

    def rank(self, token: int) -> Tensor:
        """How many tokens are likelier than this one in each layer at each place, (L, T)."""
        return (self.logits > self.logits[..., token, None]).sum(dim=-1)

    def figure(self) -> Figure:
        """The likeliest token of each layer at each place, as a figure."""
        from glassformer.looking.plots import grids

        return grids.lens(self)

    def pandas(self) -> Any:
        """The likeliest tokens as a DataFrame: a row for each layer, a column for each place."""
        return optional("pandas").DataFrame(self.texts(), index=self.points, columns=self.tokens)


@torch.no_grad()
def logit_lens(model: Any, trace: Trace, sentence: int = 0) -> Lens:
    """What the model, or a run's, would say after each layer, from the residual stream that a trace holds.

    The last row is what it says indeed. A classifier's lens has one place, its whole text.
    """
    inside, name = model_of(model), last_stack(model_of(model), "the logit lens")
    stack: Any = getattr(inside, name)
    head: Any = inside.head
    names = [f"{name}.0.before", *(f"{name}.{layer}.after" for layer in range(len(stack.blocks)))]
    streams = need(trace, "the logit lens", *names, keep=["before", "after"])
    x = torch.stack([sentence_of(each, sentence) for each in streams])  # (L, T, D)
    weight = next(inside.parameters())
    logits = head(stack.norm(x.to(weight))).float().cpu()
    logits = logits[:, None] if logits.dim() == 2 else logits  # (L, T, V)
    return Lens(logits, names, _tokens(trace, names[0], logits, sentence), spelling_of(model, logits.shape[-1]))


def last_stack(model: nn.Module, what: str) -> str:
    """The name of the stack below a model's head; a recurrent one is refused."""
    name = "decoder" if hasattr(model, "decoder") else "encoder"
    if not isinstance(getattr(model, name, None), Encoder | Decoder):
        raise InputError(f"{what} needs a residual stream, which this model does not have: it is no Transformer")
    if tells_numbers(model):
        raise InputError(f"{what} needs scores of words or labels, and this model answers with numbers")
    if not hasattr(model, "head") or isinstance(model.head, nn.Identity):
        raise InputError(f"{what} needs a head, and this model answers with vectors")
    return name


def spelling_of(run: Any, width: int | None = None) -> Any:
    """How a run spells the tokens or labels that its logits score; None: it is a model, or does not say.

    Logits of a `width` below the vocabulary's are of places in a text, not of tokens.
    """
    names = getattr(run, "labels", None)
    if names:
        return lambda ids: [names[each] for each in ids]
    tokenizer = getattr(run, "target", None) or getattr(run, "tokenizer", None)
    if tokenizer is None:
        return None
    size = tokenizer.size
    if width is not None and width < size:
        return None
    return lambda ids: [tokenizer.tokens([each])[0] if each < size else str(each) for each in ids]


def _tokens(trace: Trace, stream: str, logits: Tensor, sentence: int) -> list[str]:
    """The labels of places: as of the trace's logits, else of the stream; of a whole text, nothing."""
    if logits.shape[1] == 1 and trace[stream].shape[1] > 1:
        return [""]
    name = "logits" if "logits" in trace else stream
    return labels(trace, name, "token", sentence)
