"""Attribution: how much each token that a model read speaks for what it says, by gradients, or by leaving it out.

    input × gradient        x_i · ∂f/∂x_i
    integrated gradients    (x_i - b_i) · ∫₀¹ ∂f/∂x_i (b + α (x - b)) dα
    occlusion               f(x) - f(x with b_i in place of x_i)

f is a logit, or with `against` the difference of two: why this word and not that one. x are the embeddings of all that
is read, of the source and of the words written before; positions are no part of them.

R outputs that are explained, N tokens that were read, T tokens of one text, D width, A places on the path
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.analyses.lens import spelling_of
from glassformer.looking.editing import intervene
from glassformer.looking.patching import Forced, Looked
from glassformer.looking.points import points_of, tells_numbers
from glassformer.looking.recording import record
from glassformer.looking.trace import Groups, optional
from glassformer.parts.values import ValueEmbedding

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Token = int | str | Sequence[int] | None  # of each output that is explained
Place = int | Sequence[int] | None
Method = Literal["input_x_gradient", "integrated_gradients", "occlusion"]
TOGETHER = 16  # places on the path, or texts with a token less, that go through the model at once


@dataclass(frozen=True)
class Attribution:
    """How much each token that was read adds to each output that is explained."""

    values: Tensor  # (R, N)
    rows: list[str]  # R, the tokens or labels that are explained
    columns: list[str]  # N, the tokens that were read
    stacks: list[str]  # N, which stack read each: "encoder" the source, "decoder" what was written before
    against: str | None
    outputs: Tensor  # (R), f
    baseline: Tensor  # (R), f at the baseline
    groups: list[list[int]]  # the columns of each word
    method: Method

    @property
    def gap(self) -> Tensor:
        """By how much the sums miss f(x) - f(baseline), (R): integrated gradients are complete if it is small."""
        return self.values.sum(dim=1) - (self.outputs - self.baseline)

    def of(self, stack: str) -> Attribution:
        """The columns of one text: "encoder" for the source, "decoder" for what was written before."""
        kept = [number for number, each in enumerate(self.stacks) if each == stack]
        if not kept:
            raise InputError(f'there is no "{stack}" here: there is {", ".join(dict.fromkeys(self.stacks))}')
        new = {old: number for number, old in enumerate(kept)}
        groups = [[new[each] for each in group] for group in self.groups if group[0] in new]
        columns = [self.columns[number] for number in kept]
        return replace(self, values=self.values[:, kept], columns=columns, stacks=[stack] * len(kept), groups=groups)

    def words(self) -> Attribution:
        """The same with the pieces of words summed."""
        values = torch.stack([self.values[:, group].sum(dim=1) for group in self.groups], dim=1)
        texts = ["".join(self.columns[at].removeprefix("##") for at in group).strip("▁") for group in self.groups]
        columns = [text or self.columns[group[0]] for text, group in zip(texts, self.groups, strict=True)]
        stacks, groups = [self.stacks[group[0]] for group in self.groups], [[at] for at in range(len(columns))]
        return replace(self, values=values, columns=columns, stacks=stacks, groups=groups)

    def figure(self) -> Figure:
        """Bars for one output, a map for several."""
        from glassformer.looking.plots import grids

        return grids.attribution(self)

    def pandas(self) -> Any:
        """The numbers as a DataFrame: a row for each output, a column for each token that was read."""
        return optional("pandas").DataFrame(self.values.numpy(), index=self.rows, columns=self.columns)


def input_x_gradient(
    run: Looked,
    text: Any,
    token: Token = None,
    position: Place = None,
    against: int | str | None = None,
    written: Sequence[int] | None = None,
) -> Attribution:
    """Input times gradient: one backward pass for each output. Quick, but not complete, and blind where f is flat.

    `token` is what is explained, and `position` the place of the output: without them, what was written at every
    place, or the likeliest label. A token is a number or as traces spell it ("▁Hund"), a label a name. Several
    positions, and a token for each, explain several outputs.
    """
    case = _Case(run, text, token, position, against, written)
    (gradients, outputs), zeros = case.gradients(case.inputs, 1), [torch.zeros_like(x) for x in case.inputs]
    values = [(gradient * x).sum(dim=-1) for gradient, x in zip(gradients, case.inputs, strict=True)]
    return case.result("input_x_gradient", values, outputs, case.outputs(zeros))


def integrated_gradients(
    run: Looked,
    text: Any,
    token: Token = None,
    position: Place = None,
    against: int | str | None = None,
    written: Sequence[int] | None = None,
    steps: int = 128,
    baseline: Tensor | None = None,
) -> Attribution:
    """Integrated gradients (Sundararajan and others, 2017), by the midpoints of `steps` equal stretches of the path.

    The path leads from the `baseline`, a vector (D) in place of every embedding; by default the mean of the embedding's
    table, an average word, and for patches of an image zeros. The sum over tokens is f(x) - f(baseline) but for `gap`,
    which falls as steps grow. Other arguments are those of `input_x_gradient`.
    """
    if steps < 1:
        raise InputError(f"the path needs 1 step at least, not {steps}")
    case = _Case(run, text, token, position, against, written)
    begins = case.begins(baseline)
    totals = [torch.zeros(len(case.places), *x.shape) for x in case.inputs]  # (R, T, D)
    for first in range(0, steps, TOGETHER):
        some = (torch.arange(first, min(first + TOGETHER, steps)) + 0.5) / steps  # (A)
        on_path = [b + some[:, None, None] * (x - b) for x, b in zip(case.inputs, begins, strict=True)]
        for total, gradient in zip(totals, case.gradients(on_path, len(some))[0], strict=True):
            total += gradient / steps
    values = [((x - b) * total).sum(dim=-1) for x, b, total in zip(case.inputs, begins, totals, strict=True)]
    return case.result("integrated_gradients", values, case.outputs(case.inputs), case.outputs(begins))


def occlusion(
    run: Looked,
    text: Any,
    token: Token = None,
    position: Place = None,
    against: int | str | None = None,
    written: Sequence[int] | None = None,
    baseline: Tensor | None = None,
) -> Attribution:
    """How much each output loses if one token is replaced by the baseline: no gradients, one reading for each token.

    Two tokens that say the same stand in for each other, so both can seem to say nothing. Arguments are those of
    `integrated_gradients`.
    """
    case = _Case(run, text, token, position, against, written)
    begins, outputs = case.begins(baseline), case.outputs(case.inputs)
    values = []
    for number, (x, begin) in enumerate(zip(case.inputs, begins, strict=True)):
        without = x.repeat(len(x), 1, 1)  # (T, T, D): in each row another token is replaced
        places = torch.arange(len(x))
        without[places, places] = begin
        others = [each.expand(len(x), *each.shape) for each in case.inputs]
        given = [*others[:number], without, *others[number + 1 :]]
        values.append((outputs - case.several(given)).T)  # (R, T)
    return case.result("occlusion", values, outputs, case.outputs(begins))


class _Case:
    """One text and what of its answer is explained: knows the model's inputs as vectors, and their gradients."""

    def __init__(
        self,
        run: Looked,
        text: Any,
        token: Token,
        position: Place,
        against: int | str | None,
        written: Sequence[int] | None,
    ) -> None:
        self.run, self.forced = run, run.forced(text, written)
        self.names = _embeddings(run.model)
        with record(run.model, [*self.names, "logits"]) as trace, torch.no_grad():
            run.model(*self.forced.inputs)
        self.inputs = [trace[name][0].float().clone() for name in self.names]  # (T, D) each
        logits = trace["logits"][0].float()
        self.whole = logits.dim() == 1
        logits = logits[None] if self.whole else logits
        self.places = _places(position, len(logits), self.whole)
        expected = _written(run, self.forced, logits)
        self.tokens = _tokens(run, token, self.places, expected, logits)
        self.against = None if against is None else _number(run, against, logits)

    def begins(self, baseline: Tensor | None) -> list[Tensor]:
        """Where the path begins, (T, D) for each text."""
        found = []
        for name, x in zip(self.names, self.inputs, strict=True):
            given = _average(self.run.model, name, x) if baseline is None else baseline
            if given.shape != x.shape[-1:]:
                raise InputError(f"a baseline is one vector ({x.shape[-1]}), not {tuple(given.shape)}")
            found.append(given.to(x).expand_as(x).clone())
        return found

    def gradients(self, inputs: list[Tensor], count: int) -> tuple[list[Tensor], Tensor]:
        """∂f/∂x of each output at each input, summed over places on the path, (R, T, D) each, and f, (R)."""
        leaves = [
            x.expand(count, *x.shape[-2:]).to(next(self.run.model.parameters()).device).requires_grad_() for x in inputs
        ]
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):  # its LSTM has no gradient in evaluation
            found = self._explained(leaves, count)  # (A, R)
            rows = [torch.autograd.grad(each.sum(), leaves, retain_graph=True) for each in found.unbind(dim=1)]
        gradients = [torch.stack(each).sum(dim=1).cpu() for each in zip(*rows, strict=True)]
        return gradients, found[0].detach().cpu()

    def outputs(self, inputs: list[Tensor]) -> Tensor:
        """f of each output for inputs (T, D), (R)."""
        return self.several([x[None] for x in inputs])[0]

    @torch.no_grad()
    def several(self, inputs: list[Tensor]) -> Tensor:
        """f of each output for several inputs (A, T, D), (A, R)."""
        parts = zip(*(torch.split(x, TOGETHER) for x in inputs), strict=True)
        return torch.cat([self._explained(list(some), len(some[0])).cpu() for some in parts])

    def _explained(self, inputs: list[Tensor], count: int) -> Tensor:
        """f of each output, (A, R), if these vectors are what the embeddings give."""
        given = [x.expand(count, *x.shape[1:]) if isinstance(x, Tensor) else x for x in self.forced.inputs]
        with intervene(self.run.model) as edit:
            for name, x in zip(self.names, inputs, strict=True):
                edit.set(name, x)
            logits = self.run.model(*given).float()
        logits = logits[:, None] if self.whole else logits  # (A, T, V)
        found = torch.stack([logits[:, place, token] for place, token in self._pairs()], dim=1)
        if self.against is not None:
            found = found - torch.stack([logits[:, place, self.against] for place in self.places], dim=1)
        return found

    def _pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.places, self.tokens, strict=True))

    def result(self, method: Method, values: list[Tensor], outputs: Tensor, baseline: Tensor) -> Attribution:
        """Values (R, T) of each text, with labels."""
        spell = spelling_of(self.run) or (lambda ids: [str(each) for each in ids])
        columns, stacks, groups = list[str](), list[str](), list[list[int]]()
        for name, x in zip(self.names, self.inputs, strict=True):
            stack = name.partition(".")[0]
            texts = self.forced.tokens[stack][0][-len(x) :]  # of an image, patches without the token of the whole
            words: Groups = (
                [self.forced.words[stack][0]] if stack in self.forced.words else [[[n] for n in range(len(x))]]
            )
            groups += [[len(columns) + at for at in group] for group in words[0]]
            columns, stacks = columns + texts, stacks + [stack] * len(x)
        rows, other = spell(self.tokens), None if self.against is None else spell([self.against])[0]
        return Attribution(torch.cat(values, dim=1), rows, columns, stacks, other, outputs, baseline, groups, method)


def _embeddings(model: Any) -> list[str]:
    """The points where what is read becomes vectors: of an image its patches."""
    names = list(points_of(model))
    if tells_numbers(model):
        raise InputError("attribution explains scores of words or labels, and this model answers with numbers")
    found = [name for name in names if name in ("encoder.patches", "encoder.embedding", "decoder.embedding")]
    if "logits" not in names:
        raise InputError("attribution explains logits, and this model answers with vectors")
    return [name for name in found if name != "encoder.embedding" or "encoder.patches" not in found]


def _average(model: Any, name: str, x: Tensor) -> Tensor:
    """The vector of an average word, (D): the mean of the table; of patches zeros, of values that of the mean value."""
    if name.endswith("patches"):
        return torch.zeros(x.shape[-1])
    embedding = getattr(model, name.partition(".")[0]).embedding
    if isinstance(embedding, ValueEmbedding):
        return embedding.projection.bias.detach().float().cpu()
    return (embedding.weight.detach().float().mean(dim=0) * embedding.scale).cpu()  # type: ignore[no-any-return]


def _places(position: Place, length: int, whole: bool) -> list[int]:
    """The places of outputs that are explained."""
    if whole and position is not None:
        raise InputError("this model gives one answer for the whole text: leave position out")
    if position is None:
        return list(range(length))
    some = [position] if isinstance(position, int) else list(position)
    for each in some:
        if not -length <= each < length:
            raise InputError(f"there is no position {each}: the output has {length}")
    return [range(length)[each] for each in some]


def _written(run: Any, forced: Forced, logits: Tensor) -> list[int]:
    """What is explained at each place if nothing is named: what was written there, else the likeliest."""
    likeliest: list[int] = logits.argmax(dim=-1).tolist()
    tokens = forced.written or []
    end = [run.special.end] if forced.written is not None and len(tokens) < len(likeliest) else []
    return [*tokens, *end, *likeliest[len(tokens) + len(end) :]][: len(likeliest)]


def _tokens(run: Any, token: Token, places: list[int], expected: list[int], logits: Tensor) -> list[int]:
    """The token or label that is explained at each place."""
    if token is None:
        return [expected[place] for place in places]
    given = [token] * len(places) if isinstance(token, int | str) else list(token)
    if len(given) != len(places):
        raise InputError(f"there are {len(given)} tokens for {len(places)} positions: expected as many")
    return [_number(run, each, logits) for each in given]


def _number(run: Any, token: int | str, logits: Tensor) -> int:
    """The number of a token or label that is named by its number or spelling."""
    if isinstance(token, str):
        names = list(getattr(run, "labels", None) or [])
        if names:
            if token not in names:
                raise InputError(f'there is no label "{token}": there are {", ".join(names[:8])}')
            return names.index(token)
        tokenizer = getattr(run, "target", None) or run.tokenizer
        ids = tokenizer.encode(token.replace("▁", " "))
        if not ids:
            raise InputError("an empty text is no token")
        return int(ids[0])
    if not 0 <= token < logits.shape[-1]:
        raise InputError(f"there is no token {token}: there are 0 to {logits.shape[-1] - 1}")
    return token
