"""Optimisers: how gradients change the weights.

adam    Adam as in the paper: β = (0.9, 0.98), ε = 1e-9, no weight decay
adamw   Adam with decoupled weight decay, on matrices only
muon    Muon for the matrices inside the blocks, AdamW for embeddings, head, norms and biases

A step gets the divisor of the gradients (targets and clipping in one number) and whether they are bad (not finite):
a bad step changes neither weights nor averages. Both are tensors, so that the host does not wait for the device.
It has two halves: `prepare` computes what may take long and changes nothing, so that it can be broken off at any
moment; the update that it returns is quick.

M matrices of one shape, R rows, C columns, R ≤ C
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from glassformer.errors import TrainingError
from glassformer.parts.embeddings import Head
from glassformer.parts.linear import products
from glassformer.training.distribution import local, sharded, whole

if TYPE_CHECKING:
    from glassformer.recipe import Train

NamedParameters = dict[str, nn.Parameter]
Factor = float | Tensor
Update = Callable[[Factor], None]  # changes the weights, with the learning rates times a factor


class Optimiser:
    """AdamW or Adam for some parameters, Muon for others, behind one `prepare`."""

    def __init__(self, *methods: Adam | Muon) -> None:
        self.methods = methods

    def prepare(self, divisor: Tensor, bad: Tensor) -> Update:
        """The next update, with gradients divided by `divisor`; until it is called, nothing is changed."""
        updates = [method.prepare(divisor, bad) for method in self.methods]

        def update(lr_factor: Factor) -> None:
            for each in updates:
                each(lr_factor)

        return update

    def state(self) -> dict[str, Tensor]:
        """All averages by parameter and kind, such as `encoder.norm.weight/mean`; they share the optimiser's memory."""
        return {key: tensor for method in self.methods for key, tensor in method.state().items()}

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        for key, own in self.state().items():
            if key not in state:
                raise TrainingError(
                    f"the saved optimiser state lacks {key}: it belongs to another optimiser or another model"
                )
            found = state[key]
            if found.dim() and found.shape != own.shape:  # a single number is the step count of all
                raise TrainingError(f"the saved optimiser state {key} belongs to another model or another tune.mode")
            own.copy_(sharded(found, own))


class Adam:
    """m ← β₁ m + (1 - β₁) G      v ← β₂ v + (1 - β₂) G²      W ← (1 - lr λ) W - lr m̂ / (√v̂ + ε).

    m̂ and v̂ are m and v over 1 - βᵗ, which corrects their bias towards the initial 0; t counts the steps in which the
    parameter had a gradient. A parameter without a gradient is not changed. PyTorch's fused kernel does all this in
    one pass, division and skipping included. (Its `torch.optim` wrapper takes seconds to import.)
    """

    def __init__(
        self,
        named: NamedParameters,
        lr: float,
        betas: tuple[float, float],
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        self.named, self.lr, self.betas, self.epsilon, self.weight_decay = named, lr, betas, epsilon, weight_decay
        self.means = {name: torch.zeros_like(parameter) for name, parameter in named.items()}
        self.squares = {name: torch.zeros_like(parameter) for name, parameter in named.items()}
        self.time = torch.zeros(len(named), device=next(iter(named.values())).device)
        self.times = dict(zip(named, self.time.unbind(), strict=True))  # the same memory, by name

    def prepare(self, divisor: Tensor, bad: Tensor) -> Update:
        """The next update; see Optimiser."""
        return partial(self._update, divisor, bad)

    @torch.no_grad()
    def _update(self, divisor: Tensor, bad: Tensor, lr_factor: Factor) -> None:
        for matrices in (True, False):
            names = [name for name, own in self.named.items() if (own.dim() > 1) == matrices and own.grad is not None]
            if names:
                torch._foreach_add_([self.times[name] for name in names], [(~bad).float()] * len(names))
                torch._fused_adamw_(
                    [local(self.named[name]) for name in names],
                    [local(_gradient(self.named[name])) for name in names],
                    [local(self.means[name]) for name in names],
                    [local(self.squares[name]) for name in names],
                    [],
                    [self.times[name] for name in names],
                    amsgrad=False,
                    lr=self.lr * lr_factor,
                    beta1=self.betas[0],
                    beta2=self.betas[1],
                    weight_decay=self.weight_decay if matrices else 0.0,
                    eps=self.epsilon,
                    maximize=False,
                    grad_scale=divisor,
                    found_inf=bad.float(),
                )

    def state(self) -> dict[str, Tensor]:
        """The averages; see Optimiser."""
        means = {f"{name}/mean": tensor for name, tensor in self.means.items()}
        return means | {f"{name}/square": tensor for name, tensor in self.squares.items()} | {"time": self.time}


class Muon:
    """Momentum made orthogonal: a matrix changes by the same length in every direction.

        M ← μ M + G      O ← orthogonal(G + μ M)      W ← (1 - lr λ) W - lr √max(1, out / in) O

    (Keller Jordan, 2024; its usual learning rate, 0.02, differs from AdamW's.) Matrices of one shape are stacked, a
    wide one with the transpose of a tall one, and made orthogonal together, which is much faster for small matrices.
    """

    def __init__(self, named: NamedParameters, lr: float, weight_decay: float = 0.0, momentum: float = 0.95) -> None:
        self.lr, self.weight_decay, self.decay = lr, weight_decay, momentum
        shapes = {name: tuple(sorted(parameter.shape)) for name, parameter in named.items()}
        self.stacks = [
            {name: named[name] for name in named if shapes[name] == shape} for shape in sorted({*shapes.values()})
        ]
        self.momenta = [  # complete on every rank, also if the parameters are sharded
            torch.stack([torch.zeros_like(_wide(whole(parameter))) for parameter in stack.values()])
            for stack in self.stacks
        ]

    @torch.no_grad()
    def prepare(self, divisor: Tensor, bad: Tensor) -> Update:
        """The next update; see Optimiser. To make matrices orthogonal takes most of a step."""
        keep = torch.full_like(divisor, self.decay).masked_fill_(bad, 1.0)
        momenta, directions = [], []
        for stack, momentum in zip(self.stacks, self.momenta, strict=True):
            gradient = torch.stack([_wide(whole(_gradient(parameter))) for parameter in stack.values()])  # (M, R, C)
            gradient = (gradient / divisor).masked_fill_(bad, 0.0)
            momenta.append((momentum * keep).add_(gradient))
            directions.append(orthogonal(gradient.add_(momenta[-1], alpha=self.decay)))
        return partial(self._update, momenta, directions, bad)

    @torch.no_grad()
    def _update(self, momenta: list[Tensor], directions: list[Tensor], bad: Tensor, lr_factor: Factor) -> None:
        good = ~bad
        move, shrink = good * (-self.lr * lr_factor), 1 - good * (self.lr * lr_factor * self.weight_decay)
        for stack, own, momentum, direction in zip(self.stacks, self.momenta, momenta, directions, strict=True):
            own.copy_(momentum)  # in the same memory, for graphs that read it
            parameters: list[Tensor] = list(stack.values())
            factors = [math.sqrt(max(1, parameter.shape[0] / parameter.shape[1])) for parameter in parameters]
            updates = [
                sharded(_as_stored(parameter, one) * factor, parameter)
                for parameter, one, factor in zip(parameters, direction.mul_(move), factors, strict=True)
            ]
            learning = [local(parameter) for parameter in parameters if parameter.grad is not None]
            if self.weight_decay and learning:
                torch._foreach_mul_(learning, [shrink] * len(learning))
            torch._foreach_add_(parameters, updates)

    def state(self) -> dict[str, Tensor]:
        """The momenta; see Optimiser."""
        return {
            f"{name}/momentum": _as_stored(parameter, momentum)
            for stack, momenta in zip(self.stacks, self.momenta, strict=True)
            for (name, parameter), momentum in zip(stack.items(), momenta, strict=True)
        }


def orthogonal(matrices: Tensor, rounds: int = 5) -> Tensor:
    """Matrices (M, R, C) with singular values near 1 and the same singular vectors, by the Newton-Schulz iteration.

    X ← aX + (bA + cA²) X with A = X Xᵀ. The coefficients make small singular values grow fastest: after five rounds
    all are between about 0.7 and 1.2, which is close enough to 1.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices.bfloat16() if matrices.is_cuda else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    for _ in range(rounds):
        gram = products(x, x)  # (M, R, R), symmetric
        x = products(products(gram, gram, gram, alpha=c, beta=b), x.mT, x, beta=a)  # (M, R, C)
    return x.to(matrices.dtype)


def optimiser(model: nn.Module, options: Train) -> Optimiser:
    """The optimiser of a recipe, for all trainable parameters of a model."""
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if options.optimiser == "adam":
        return Optimiser(Adam(named, options.lr, options.betas, 1e-9))
    if options.optimiser == "adamw":
        return Optimiser(Adam(named, options.lr, options.betas, weight_decay=options.weight_decay))
    parts = [part for part in model.modules() if isinstance(part, nn.Linear) and not isinstance(part, Head)]
    linears = {id(part.weight) for part in parts}
    inner = {name: parameter for name, parameter in named.items() if id(parameter) in linears}
    outer = {name: parameter for name, parameter in named.items() if name not in inner}
    adamw = Adam(outer, options.lr, options.betas, weight_decay=options.weight_decay)
    return Optimiser(adamw, Muon(inner, options.muon_lr, options.weight_decay))


def _gradient(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _wide(matrix: Tensor) -> Tensor:
    """A matrix with at least as many columns as rows: itself, or its transpose."""
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T


def _as_stored(parameter: Tensor, wide: Tensor) -> Tensor:
    """The result of `_wide` in the shape of its parameter."""
    return wide if parameter.shape[0] <= parameter.shape[1] else wide.T
