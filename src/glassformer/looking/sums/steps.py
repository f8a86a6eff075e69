"""Steps: one line of a working, a sum of products, or a function of one.

N terms, D width
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.parts.dropout import Dropout
from glassformer.parts.embeddings import TiedHead
from glassformer.parts.feedforward import gelu, gelu_tanh, relu, silu
from glassformer.parts.lora import LoRALinear
from glassformer.parts.norms import BatchNorm, Scale
from glassformer.parts.similarity import UnitLength

Function = Callable[[Tensor], Tensor]
IDLE = (nn.Identity, Dropout)  # parts that change nothing while a model is not trained
FUNCTIONS: dict[str, Function] = {
    "relu": relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "sin": torch.sin,
    "cos": torch.cos,
}


@dataclass(frozen=True)
class Term:
    """A product of a few numbers, and what it is of: a feature, a token, a bias."""

    label: str
    factors: tuple[float, ...]

    @property
    def value(self) -> float:
        """The product."""
        return math.prod(self.factors)


@dataclass(frozen=True)
class Step:
    """value = function(Σ terms); without a function, the sum itself. `factors` names the factors of the terms."""

    name: str
    terms: list[Term]
    value: float
    factors: tuple[str, ...] = ()
    function: str = ""

    @property
    def total(self) -> float:
        """The sum of the terms."""
        return math.fsum(term.value for term in self.terms)

    def largest(self, count: int) -> tuple[list[Term], float]:
        """The largest terms, by their size, and the sum of all others."""
        ordered = sorted(self.terms, key=lambda term: -abs(term.value))
        return ordered[:count], math.fsum(term.value for term in ordered[count:])


def step(name: str, terms: Sequence[Term], factors: Sequence[str] = (), function: Function | None = None) -> Step:
    """A step whose value is computed from its terms."""
    total = math.fsum(term.value for term in terms)
    if function is None:
        return Step(name, list(terms), total, tuple(factors))
    value = float(function(torch.tensor(total, dtype=torch.float64)))
    return Step(name, list(terms), value, tuple(factors), function_name(function))


def function_name(function: Function) -> str:
    """What a function is called."""
    found = next((name for name, each in FUNCTIONS.items() if each is function), "")
    return found or str(getattr(function, "__name__", type(function).__name__))


def products(labels: Sequence[Any], *factors: Tensor) -> list[Term]:
    """A term for each entry of some vectors (N) each."""
    rows = zip(*(each.tolist() for each in factors), strict=True)
    return [Term(str(label), row) for label, row in zip(labels, rows, strict=True)]


def matrix(part: nn.Module) -> tuple[Tensor, Tensor | None]:
    """The weights (F, D) of a linear part, and its biases (F) if it has any; adapters are added to the weights."""
    if isinstance(part, LoRALinear):
        weight = part.sum()
    elif isinstance(part, nn.Linear | TiedHead):
        weight = part.weight
    else:
        raise InputError(f"the linear part {type(part).__name__} is not known here")
    bias = part.bias
    return weight.detach().cpu(), None if bias is None else bias.detach().cpu()


def linear_terms(part: nn.Module, x: Tensor, at: int, labels: Sequence[Any] | None = None) -> list[Term]:
    """W x + b of a linear part at one output: a term for each number of x (D), and one for the bias."""
    weight, bias = matrix(part)
    terms = products(range(len(x)) if labels is None else labels, x, weight[at].double())
    return terms if bias is None else [*terms, Term("bias", (float(bias[at]),))]


def linear_values(part: nn.Module, x: Tensor) -> Tensor:
    """W x + b of a linear part, (D) to (F), in double precision."""
    weight, bias = matrix(part)
    y = weight.double() @ x
    return y if bias is None else y + bias.double()


def softmax_steps(scores: Tensor, labels: Sequence[str], at: int) -> list[Step]:
    """The fraction of one score (N) in the softmax; those that are masked are -inf, and have no term."""
    highest = float(scores[scores > -math.inf].max())
    powers = (scores - highest).exp()
    seen = [place for place in range(len(scores)) if scores[place] > -math.inf]
    what = f"e^(score {_minus(highest)})"
    total = step("sum over all", [Term(labels[place], (float(powers[place]),)) for place in seen], (what,))
    share = Term(labels[at], (float(powers[at]), 1 / total.value))
    return [total, step("softmax", [share] if at in seen else [], (what, "1 / sum over all"))]


def _minus(value: float) -> str:
    return f"− {value:.3f}" if value >= 0 else f"+ {-value:.3f}"


def norm_steps(norm: nn.Module, x: Tensor, at: int) -> list[Step]:
    """What a norm, or several parts in a row, make of one number of a vector (D)."""
    parts = [part for part in (norm if isinstance(norm, nn.Sequential) else [norm]) if not isinstance(part, IDLE)]
    first = max((number for number, part in enumerate(parts) if isinstance(part, nn.Linear)), default=0)
    for part in parts[:first]:  # a matrix mixes all numbers, not this one alone
        x = apply(part, x)
    found: list[Step] = []
    for part in parts[first:]:
        if isinstance(part, nn.LayerNorm):
            found += _layer_norm(part, x, at)
        elif isinstance(part, nn.RMSNorm):
            found += _rms_norm(part, x, at)
        elif isinstance(part, BatchNorm):
            found.append(_batch_norm(part, x, at))
        elif isinstance(part, UnitLength):
            found += _unit_length(x, at)
        elif isinstance(part, Scale):
            found.append(step("scaled", [Term(str(at), (float(x[at]), part.factor))], ("x", "factor")))
        elif isinstance(part, nn.Linear):
            found.append(step("W x + b", linear_terms(part, x, at), ("x", "W")))
        else:
            raise InputError(f"the norm {type(part).__name__} is not known here")
        x = apply(part, x)
    return found


def _layer_norm(norm: nn.LayerNorm, x: Tensor, at: int) -> list[Step]:
    count = torch.full_like(x, 1 / len(x))
    mean = step("mean", products(range(len(x)), x, count), ("x", "1/D"))
    apart = x - mean.value
    variance = step("variance", products(range(len(x)), apart, apart, count), ("x − mean", "x − mean", "1/D"))
    scale = 1 / math.sqrt(variance.value + norm.eps)
    terms = [Term(str(at), (float(apart[at]), scale, float(norm.weight.detach()[at])))]
    bias: Tensor | None = norm.bias
    terms += [] if bias is None else [Term("bias", (float(bias.detach()[at]),))]
    return [mean, variance, step("layer norm", terms, ("x − mean", "1/√(variance + ε)", "weight"))]


def _rms_norm(norm: nn.RMSNorm, x: Tensor, at: int) -> list[Step]:
    square = step("mean square", products(range(len(x)), x, x, torch.full_like(x, 1 / len(x))), ("x", "x", "1/D"))
    scale = 1 / math.sqrt(square.value + (norm.eps or 0.0))
    term = Term(str(at), (float(x[at]), scale, float(norm.weight.detach()[at])))
    return [square, step("RMS norm", [term], ("x", "1/√(mean square + ε)", "weight"))]


def _batch_norm(norm: BatchNorm, x: Tensor, at: int) -> Step:
    mean, variance = float(norm.running_mean[at]), float(norm.running_variance[at])
    scale, weight = 1 / math.sqrt(variance + norm.epsilon), float(norm.weight.detach()[at])
    term = Term(str(at), (float(x[at]) - mean, scale, weight))
    bias = Term("bias", (float(norm.bias.detach()[at]),))
    return step("batch norm", [term, bias], ("x − running mean", "1/√(running variance + ε)", "weight"))


def _unit_length(x: Tensor, at: int) -> list[Step]:
    square = step("|x|²", products(range(len(x)), x, x), ("x", "x"))
    term = Term(str(at), (float(x[at]), 1 / max(math.sqrt(square.value), 1e-12)))
    return [square, step("unit length", [term], ("x", "1/|x|"))]


@torch.no_grad()
def apply(part: nn.Module, x: Tensor) -> Tensor:
    """What a part of the model gives for some vectors, in the model's own precision, then in double."""
    like = next(part.parameters(), x)
    found: Tensor = part(x.to(like))
    return found.double().cpu()
