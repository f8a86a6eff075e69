"""The residual stream: what each part adds to it, and how much of a logit each part is.

D model width, P contributions, T tokens, H heads, K head width
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.looking.analyses.lens import last_stack, spelling_of
from glassformer.looking.analyses.tables import Grid, labels, need, sentence_of
from glassformer.looking.points import layer_of, model_of
from glassformer.looking.trace import Trace, optional
from glassformer.parts.blocks import EncoderBlock
from glassformer.parts.dropout import Dropout
from glassformer.parts.norms import BatchNorm, LayerNorm, PostNorm, PreNorm, RMSNorm, Scale
from glassformer.parts.positions import NoPositions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BIASES = "biases"
CLOSE = 1e-3  # how far a sum may be from the logit, as a part of it


@dataclass(frozen=True)
class Additions:
    """What each part adds to the residual stream at each token: how large it is, and which way it points."""

    norm: Grid  # |added|
    ratio: Grid  # |added| / |stream before it|
    cosine: Grid  # of what is added with the stream before it

    def figure(self) -> Figure:
        """Two maps over parts and tokens: how large what is added is beside the stream, and which way it points."""
        from glassformer.looking.plots import tables

        return tables.additions(self)


def additions(trace: Trace, stack: str = "decoder", sentence: int = 0) -> Additions:
    """Norm and direction of what attention and feed-forward parts add to the stream of a stack.

    A cosine below 0 says that a part takes away what is there. With post-norm, what is added is normalised
    afterwards together with the stream.
    """
    ends = tuple(f".{part}.output" for part in ("self", "cross", "ff"))  # and no gate of that name
    names = [name for name in trace.names if name.startswith(f"{stack}.") and name.endswith(ends)]
    names = [name for name in names if layer_of(name) is not None]
    if not names:
        raise InputError(
            f"additions needs what the parts of {stack} give, which this trace does not hold: record a Transformer "
            f'with keep=["{stack}.*.output", "{stack}.*.after", "{stack}.0.before"]'
        )
    norms, ratios, cosines = [], [], []
    for name in names:
        before = stream_before(trace, name)
        (stream,) = need(trace, "additions", before, keep=["output", "after", "before"])
        added, stream = sentence_of(trace[name], sentence), sentence_of(stream, sentence)  # (T, D)
        norms.append(added.norm(dim=-1))
        ratios.append(added.norm(dim=-1) / stream.norm(dim=-1).clamp(min=1e-12))
        cosines.append(F.cosine_similarity(added, stream, dim=-1))
    tokens = labels(trace, f"{stack}.0.before", "token", sentence)
    grids = (Grid(torch.stack(each), names, tokens) for each in (norms, ratios, cosines))
    return Additions(*grids)


def stream_before(trace: Trace, output: str) -> str:
    """The name of the stream that a part's output is added to."""
    block, part, _ = output.rsplit(".", 2)
    if part == "self":
        return f"{block}.before"
    return f"{block}.cross.after" if part == "ff" and f"{block}.cross.output" in trace else f"{block}.self.after"


@dataclass(frozen=True)
class LogitAttribution:
    """How much each part adds to a logit, or to the difference of two; the sum over parts is the logit."""

    values: Tensor  # (P)
    parts: list[str]  # P
    logit: float
    token: str
    against: str | None
    position: int

    def figure(self) -> Figure:
        """Bars for all parts, in the order of the model."""
        from glassformer.looking.plots import grids

        return grids.parts(self)

    def pandas(self) -> Any:
        """The contributions as a Series by part."""
        return optional("pandas").Series(self.values.numpy(), index=self.parts)


@torch.no_grad()
def logit_attribution(
    model: Any,
    trace: Trace,
    token: int | None = None,
    position: int = -1,
    against: int | None = None,
    heads: bool = False,
    sentence: int = 0,
) -> LogitAttribution:
    """Direct logit attribution: how much embedding, positions, each attention and each feed-forward add to a logit.

    The stream below the head is a sum of what the parts have added. Each norm on the way is linear once its scale is
    taken as it was; so each part's share of the logit is its vector through these norms and the head. What biases of
    norms and of the head add is `biases`. With `heads`, attention is taken apart into its heads and its output bias.

    The token is the likeliest one at the position, if none is named; with `against`, the difference of two logits is
    explained. A classifier's position is that of its first token.
    """
    what, inside = "logit attribution", model_of(model)
    name = last_stack(inside, what)
    (logits,) = need(trace, what, "logits", keep="logits")
    found = sentence_of(logits, sentence)
    whole = found.dim() == 1
    place = 0 if whole else range(len(found))[_checked(position, len(found))]
    scores = found if whole else found[place]  # (V)
    token = int(scores.argmax()) if token is None else token
    for each in (token, against):
        if each is not None and not 0 <= each < len(scores):
            raise InputError(f"there is no token {each}: the logits are of 0 to {len(scores) - 1}")
    stream = Stream(inside, name, trace, sentence, place)
    stream.run(heads)
    values, bias = stream.through_head(token, against)
    values = torch.cat((values, bias[None]))
    logit = float(scores[token] - (0 if against is None else scores[against]))
    if abs(float(values.sum()) - logit) > CLOSE * (1 + values.abs().max()):
        raise InputError(
            "the parts do not sum to the logit: between stream and logit there is more than norms and a linear head "
            "(a pooler, dropout), or the trace is of other weights"
        )
    spell = spelling_of(model) or (lambda ids: [str(each) for each in ids])
    other = None if against is None else spell([against])[0]
    return LogitAttribution(values.float(), [*stream.parts, BIASES], logit, spell([token])[0], other, place)


def _checked(position: int, length: int) -> int:
    if not -length <= position < length:
        raise InputError(f"there is no position {position}: the text has {length}")
    return position


class Stream:
    """The residual stream of one token, as a sum of what each part has added: (P, D), and what biases have, (D).

    Numbers are double, so that many small contributions sum to what they should.
    """

    def __init__(self, model: nn.Module, name: str, trace: Trace, sentence: int, position: int) -> None:
        self.stack: Any = getattr(model, name)
        self.head: Any = model.head
        self.name, self.trace, self.sentence, self.position = name, trace, sentence, position
        self.parts: list[str] = []
        self.vectors: list[Tensor] = []  # (D) each
        self.bias: Tensor = torch.zeros((), dtype=torch.float64)

    def run(self, heads: bool) -> None:
        """Follow the stream from the embedding to the final norm."""
        embedding = self.stack.embedding
        self.add("embedding")
        if not isinstance(embedding.positions, NoPositions):
            self.add("positions")
        self.normalise(getattr(embedding, "norm", nn.Identity()))
        for layer, block in enumerate(self.stack.blocks):
            for part, branch in branches(block):
                self.add_part(f"{layer}.{part}", branch, heads and part != "ff")
                if isinstance(branch, PostNorm):
                    self.normalise(branch.norm)
                elif not isinstance(branch, PreNorm):
                    raise InputError(f"the residual connection {type(branch).__name__} is not known here")
        self.normalise(self.stack.norm)

    def add(self, local: str) -> None:
        """What passed a point, as a contribution of its own."""
        self.parts.append(f"{self.name}.{local}".removesuffix(".output"))
        self.vectors.append(self._passed(local))

    def add_part(self, local: str, branch: Any, heads: bool) -> None:
        """What a part has added; of attention, by head if that is asked for."""
        if not heads:
            self.add(f"{local}.output")
            return
        attention = branch.part
        taken = self._passed(f"{local}.heads", "head")  # (H, K)
        apart = (torch.eye(len(taken))[:, :, None] * taken).flatten(
            1
        )  # (H, H * K): of each head, with zeros for others
        outputs = _linear(attention.output, apart)  # (1 + H, D)
        for head, vector in enumerate(outputs[1:]):
            self.parts.append(f"{self.name}.{local}.{head}")
            self.vectors.append(vector)
        if outputs[0].any():
            self.parts.append(f"{self.name}.{local}.bias")
            self.vectors.append(outputs[0])

    def normalise(self, norm: nn.Module) -> None:
        """All contributions through a norm whose scale stays what it was; what its bias adds goes to the biases."""
        for part in norm if isinstance(norm, nn.Sequential) else [norm]:
            total = torch.stack(self.vectors).sum(dim=0) + self.bias
            if isinstance(part, LayerNorm):
                deviation = (total.var(unbiased=False) + part.eps).sqrt()
                self._scale(_numbers(part.weight) / deviation, centred=True)
                self.bias = self.bias + sum(_numbers(each) for name, each in part.named_parameters() if name == "bias")
            elif isinstance(part, RMSNorm):
                self._scale(_numbers(part.weight) / (total.square().mean() + part.epsilon).sqrt())
            elif isinstance(part, BatchNorm):
                scale = _numbers(part.weight) / (_numbers(part.running_variance) + part.epsilon).sqrt()
                self._scale(scale)
                self.bias = self.bias + _numbers(part.bias) - _numbers(part.running_mean) * scale
            elif isinstance(part, Scale):
                self._scale(part.factor)
            elif not isinstance(part, nn.Identity | Dropout):
                raise InputError(f"the norm {type(part).__name__} is not known here")

    def through_head(self, token: int, against: int | None) -> tuple[Tensor, Tensor]:
        """How much each contribution gives to the logit, (P), and how much biases do."""
        width = len(self.vectors[0])
        rows = torch.stack([*self.vectors, self.bias.expand(width)])  # (P + 1, D)
        logits = _linear(self.head, rows, texts=True)  # (P + 2, V)
        chosen = logits[:, token] - (0 if against is None else logits[:, against])
        return chosen[1:-1], chosen[0] + chosen[-1]

    def _scale(self, scale: Tensor | float, centred: bool = False) -> None:
        """All contributions less their mean, if they are centred, times a scale."""
        bias = self.bias.expand(len(self.vectors[0]))
        *self.vectors, self.bias = [scale * (x - x.mean() if centred else x) for x in (*self.vectors, bias)]

    def _passed(self, local: str, axis: str = "token") -> Tensor:
        """What passed a point at this position."""
        name = f"{self.name}.{local}"
        keep = ["embedding", "positions", "heads" if axis == "head" else "output", "logits"]
        (x,) = need(self.trace, "logit attribution", name, keep=keep)
        if self.trace.kept.heads_of(name) is not None:
            raise InputError(f"logit attribution needs all heads of {name}: record without heads=")
        x = sentence_of(x, self.sentence)
        return (x[:, self.position] if axis == "head" else x[self.position]).double()


def branches(block: nn.Module) -> Iterator[tuple[str, Any]]:
    """The residual branches of a block in their order, by the names of their points."""
    b: Any = block
    if isinstance(block, EncoderBlock):
        yield from (("self", b.attention), ("ff", b.feed_forward))
        return
    yield "self", b.self_attention
    if b.cross_attention is not None:
        yield "cross", b.cross_attention
    yield "ff", b.feed_forward


def _linear(part: nn.Module, rows: Tensor, texts: bool = False) -> Tensor:
    """What an affine part makes of zeros, and then of each row less that: (1 + P, …). Rows may be texts of a token."""
    given = torch.cat((torch.zeros_like(rows[:1]), rows)).to(next(part.parameters()))
    found = (part(given[:, None]).flatten(1) if texts else part(given)).double().cpu()
    return torch.cat((found[:1], found[1:] - found[:1]))


def _numbers(parameter: Tensor) -> Tensor:
    return parameter.detach().double().cpu()
