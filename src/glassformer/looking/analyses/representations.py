"""Representations: the vectors of tokens, layer by layer: their main directions, neighbours, and likeness of layers.

L layers, N tokens of all texts, T tokens of one text, D width, C components, k neighbours
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.analyses.tables import Grid
from glassformer.looking.points import model_of, stack_of
from glassformer.looking.trace import Trace, optional

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Traces = Trace | Sequence[Trace]
STREAM = r"(embedding|0\.before|\d+\.after|\d+\.state|output)"


@dataclass(frozen=True)
class PCA:
    """The tokens of some texts in the main directions of each layer."""

    values: Tensor  # (L, N, C)
    points: list[str]  # L
    tokens: list[str]  # N
    texts: list[int]  # N, which text each token is from
    explained: Tensor  # (L, C), the ratio of the variance in each direction

    def figure(self) -> Figure:
        """The tokens as points, for some of the layers."""
        from glassformer.looking.plots import grids

        return grids.components(self)

    def pandas(self) -> Any:
        """A DataFrame with a row for each layer and token, and a column for each direction."""
        pandas, (layers, count, components) = optional("pandas"), self.values.shape
        columns: dict[str, Any] = {
            "point": [point for point in self.points for _ in range(count)],
            "text": self.texts * layers,
            "token": self.tokens * layers,
        }
        flat = self.values.flatten(0, 1).numpy()
        return pandas.DataFrame(columns | {str(number): flat[:, number] for number in range(components)})


def pca(traces: Traces, stack: str | None = None, components: int = 2) -> PCA:
    """Principal components of the vectors of all tokens of some texts, in each layer by itself.

    With X the centred vectors and X = U S Vᵀ, values are X V; each direction points so that its largest entry is
    positive, which makes it the same at every call. Without a stack, the one that reads the text.
    """
    layers, tokens, texts = _vectors(traces, stack, "pca")
    smallest = min(min(x.shape) for x in layers.values())
    if not 1 <= components <= smallest:
        raise InputError(f"there are at most {smallest} components for these tokens, not {components}")
    values, explained = zip(*(_components(x, components) for x in layers.values()), strict=True)
    return PCA(torch.stack(values), list(layers), tokens, texts, torch.stack(explained))


def _components(x: Tensor, components: int) -> tuple[Tensor, Tensor]:
    """Vectors (N, D) in their main directions, (N, C), and the ratio of the variance in each, (C)."""
    x = x.double() - x.double().mean(dim=0)
    _, sizes, directions = torch.linalg.svd(x, full_matrices=False)
    chosen = directions[:components]
    signs = chosen.gather(1, chosen.abs().argmax(dim=1, keepdim=True)).sign()
    ratio = sizes.square() / sizes.square().sum().clamp(min=1e-30)
    return (x @ (chosen * signs).T).float(), ratio[:components].float()


def aligned(found: PCA) -> PCA:
    """The same with each layer turned, or mirrored, towards the one before, so that tokens can be followed by eye.

    By orthogonal Procrustes: R = U Vᵀ, where U S Vᵀ are the singular vectors of Xᵀ Y, with X the layer and Y the one
    before. Directions are no principal components by themselves then; what all of them explain together stays.
    """
    rows = [found.values[0].double()]
    for x in found.values[1:].double():
        left, _, right = torch.linalg.svd(x.T @ rows[-1])
        rows.append(x @ (left @ right))
    return replace(found, values=torch.stack(rows).float())


@dataclass(frozen=True)
class Neighbours:
    """The tokens whose vectors are nearest to that of one token, in each layer."""

    points: list[str]  # L
    token: str
    tokens: list[list[str]]  # (L, k), the nearest first
    places: list[list[tuple[int, int]]]  # (L, k), the number of the text, and of the token in it
    cosine: Tensor  # (L, k)

    def figure(self) -> Figure:
        """The nearest tokens, a row for each layer, with their cosines and the number of their text."""
        from glassformer.looking.plots import tables

        return tables.neighbours(self)

    def pandas(self) -> Any:
        """The neighbours as a DataFrame: a row for each layer, the nearest first."""
        return optional("pandas").DataFrame(self.tokens, index=self.points)


def neighbours(traces: Traces, text: int, token: int, stack: str | None = None, top: int = 5) -> Neighbours:
    """The nearest tokens, by cosine, to token number `token` of text number `text`, among all tokens of all texts.

    The first row is static: vectors of the embedding, which know no context.
    """
    layers, tokens, texts = _vectors(traces, stack, "neighbours")
    places = [(each, number) for each in dict.fromkeys(texts) for number in range(texts.count(each))]
    if (text, token) not in places:
        raise InputError(f"there is no token {token} in text {text}: name one of those that were read, from 0")
    if not 1 <= top < len(tokens):
        raise InputError(f"there are {len(tokens) - 1} other tokens, not {top}")
    own = places.index((text, token))
    cosines, orders = [], []
    for x in layers.values():
        found = F.cosine_similarity(x, x[own, None], dim=-1)  # (N)
        order = [each for each in found.argsort(descending=True, stable=True).tolist() if each != own][:top]
        cosines.append(found[order])
        orders.append(order)
    near = [[tokens[each] for each in order] for order in orders]
    where = [[places[each] for each in order] for order in orders]
    return Neighbours(list(layers), tokens[own], near, where, torch.stack(cosines))


def table_neighbours(model: Any, token: int, stack: str | None = None, top: int = 5) -> list[tuple[int, float]]:
    """The tokens of the vocabulary whose static vectors are nearest to that of a token, with the cosine of each."""
    table = _table(model_of(model), stack or ("encoder" if hasattr(model_of(model), "encoder") else "decoder"))
    if not 0 <= token < len(table):
        raise InputError(f"there is no token {token}: the table has 0 to {len(table) - 1}")
    if not 1 <= top < len(table):
        raise InputError(f"there are {len(table) - 1} other tokens, not {top}")
    cosine = F.cosine_similarity(table, table[token, None], dim=-1)  # (V)
    cosine[token] = -torch.inf
    best = cosine.topk(top)
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def _table(model: Any, stack: str) -> Tensor:
    """The embedding's table of a stack, (V, D)."""
    weight = getattr(getattr(getattr(model, stack, None), "embedding", None), "weight", None)
    if weight is None:
        raise InputError(f'the stack "{stack}" has no table of tokens')
    found: Tensor = weight.detach().float().cpu()
    return found


def static_similarity(trace: Trace, stack: str | None = None) -> Grid:
    """The cosine between the static vector of each token, its embedding, and its vector in each layer, (L, T)."""
    layers, tokens, _ = _vectors(trace, stack, "static_similarity")
    stack = stack_of(next(iter(layers)))
    static = layers.get(f"{stack}.embedding")
    if static is None:
        raise InputError(
            f'static_similarity needs {stack}.embedding, which this trace does not hold: record with keep="{stack}.*"'
        )
    rows = [F.cosine_similarity(x, static, dim=-1) for x in layers.values() if x.shape == static.shape]
    return Grid(torch.stack(rows), [name for name, x in layers.items() if x.shape == static.shape], tokens)


def cka(first: Traces, second: Traces | None = None, stack: str | None = None, other: str | None = None) -> Grid:
    """Linear CKA (Kornblith and others, 2019) between the layers of a run, or of two runs over the same tokens.

        CKA(X, Y) = |Yᵀ X|² / (|Xᵀ X| |Yᵀ Y|)

    with centred vectors X (N, D) and Frobenius norms: 1 if one is the other but for rotation and scale. `other` is the
    stack of the second, if it is another. Tokens that only one run has, such as a start token, are left out; upper and
    lower case are the same.
    """
    ours, tokens, texts = _vectors(first, stack, "cka")
    theirs, others, their_texts = _vectors(first if second is None else second, other or stack, "cka")
    rows, columns = _shared(_by_text(tokens, texts), _by_text(others, their_texts))
    values = torch.tensor([[_cka(x[rows], y[columns]) for y in theirs.values()] for x in ours.values()])
    return Grid(values, list(ours), list(theirs))


def _by_text(tokens: list[str], texts: list[int]) -> list[list[str]]:
    """The tokens of each text, in lower case."""
    return [
        [token.casefold() for token, of in zip(tokens, texts, strict=True) if of == text]
        for text in dict.fromkeys(texts)
    ]


def _shared(first: list[list[str]], second: list[list[str]]) -> tuple[list[int], list[int]]:
    """Where the tokens that both runs have read, in the same order, stand among all tokens of each run."""
    rows, columns, begin, other = list[int](), list[int](), 0, 0
    for one, two in zip(first, second, strict=False):
        for row, column, size in SequenceMatcher(None, one, two, autojunk=False).get_matching_blocks():
            rows += range(begin + row, begin + row + size)
            columns += range(other + column, other + column + size)
        begin, other = begin + len(one), other + len(two)
    counts = [sum(map(len, some)) for some in (first, second)]
    if len(first) != len(second) or 2 * len(rows) < max(counts):
        raise InputError(
            f"cka compares the same tokens, but of {counts[0]} and {counts[1]} only {len(rows)} are the same: "
            "take the same texts, and trace.words() where tokenizers differ"
        )
    return rows, columns


def _cka(x: Tensor, y: Tensor) -> float:
    """Linear CKA of vectors (N, D) and (N, D'); 0 where one of them does not vary."""
    x, y = (each.double() - each.double().mean(dim=0) for each in (x, y))
    size = (x.T @ x).norm() * (y.T @ y).norm()
    return float((y.T @ x).norm().square() / size) if size > 0 else 0.0


def _vectors(traces: Traces, stack: str | None, what: str) -> tuple[dict[str, Tensor], list[str], list[int]]:
    """The vectors of all tokens by layer, (N, D) each, how the tokens are spelled, and which text each is from.

    Without a stack they are those of the one that reads the text: the encoder's, or of a language model the decoder's.
    """
    given = [traces] if isinstance(traces, Trace) else list(traces)
    found = [name for name in (given[0].names if given else []) if re.fullmatch(rf"\w+\.{STREAM}", name)]
    stack = stack or (stack_of(found[0]) if found else "encoder")
    names = [name for name in found if stack_of(name) == stack]
    if not names:
        raise InputError(
            f'{what} needs vectors of the stack "{stack}", which the traces do not hold: record texts with '
            f'keep=["{stack}.embedding", "{stack}.*.after"]'
        )
    if missing := [name for name in names if any(name not in trace for trace in given)]:
        raise InputError(f"{what} needs {missing[0]} in every trace: record all with the same keep=")
    layers: dict[str, list[Tensor]] = {name: [] for name in names}
    tokens, texts = list[str](), list[int]()
    for trace in given:
        for sentence in range(len(trace[names[0]])):
            labels = trace.axes(names[0], sentence)["token"]
            spelled = trace.tokens(stack)
            count = len(spelled[sentence]) if sentence < len(spelled) else len(labels)
            texts += [len(set(texts))] * count
            tokens += [str(label) for label in labels[:count]]
            for name in names:
                layers[name].append(trace[name][sentence, :count].float())
    return {name: torch.cat(some) for name, some in layers.items()}, tokens, texts
