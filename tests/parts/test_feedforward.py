"""Feed-forward parts against their formulas."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.parts import FeedForward, GatedFeedForward, gelu, gelu_tanh, relu, silu

from .helpers import same

POINTS = [-3.0, -1.0, -0.1, 0.0, 0.5, 1.0, 2.5]
FORMULAS: dict[Callable[[Tensor], Tensor], Callable[[float], float]] = {
    relu: lambda x: max(0.0, x),
    gelu: lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    gelu_tanh: lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    silu: lambda x: x / (1 + math.exp(-x)),
}


@pytest.mark.parametrize("activation", FORMULAS, ids=lambda activation: activation.__name__)
def test_activations_follow_their_formulas(activation: Callable[[Tensor], Tensor]) -> None:
    expected = torch.tensor([FORMULAS[activation](x) for x in POINTS])
    same(activation(torch.tensor(POINTS)), expected)


def test_feed_forward_by_hand() -> None:
    part = FeedForward(1, 2)
    part.load_state_dict(
        {
            "expand.weight": torch.tensor([[1.0], [-2.0]]),
            "expand.bias": torch.tensor([0.5, 1.0]),
            "output.weight": torch.tensor([[10.0, 100.0]]),
            "output.bias": torch.tensor([7.0]),
        }
    )
    # 3 → relu(3.5, -5) = (3.5, 0) → 35 + 7;  -1 → relu(-0.5, 3) = (0, 3) → 300 + 7
    same(part(torch.tensor([[[3.0], [-1.0]]])), torch.tensor([[[42.0], [307.0]]]))


@pytest.mark.parametrize(("width", "hidden"), [(512, 2048), (768, 4 * 768)])
def test_three_words_are_widened_and_narrowed_by_the_sizes_of_the_notes(width: int, hidden: int) -> None:
    part, words = FeedForward(width, hidden), torch.randn(3, width)
    wide = part.expand(words)
    assert (wide.shape, part(words).shape) == ((3, hidden), (3, width))
    assert [part.state_dict()[f"{name}.weight"].numel() for name in ("expand", "output")] == [width * hidden] * 2
    same(part(words), part.output(wide.relu()), 1e-5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", FORMULAS, ids=lambda activation: activation.__name__)
def test_feed_forward_is_two_linears_around_an_activation(activation: Callable[[Tensor], Tensor], bias: bool) -> None:
    part = FeedForward(6, 10, activation, bias=bias)
    numbers, x = part.state_dict(), torch.randn(2, 3, 6)
    hidden = activation(F.linear(x, numbers["expand.weight"], numbers.get("expand.bias")))
    same(part(x), F.linear(hidden, numbers["output.weight"], numbers.get("output.bias")))
    assert len(numbers) == (4 if bias else 2)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", FORMULAS, ids=lambda activation: activation.__name__)
def test_the_gate_decides_how_much_passes(activation: Callable[[Tensor], Tensor], bias: bool) -> None:
    part = GatedFeedForward(6, 10, activation, bias=bias)
    numbers, x = part.state_dict(), torch.randn(2, 3, 6)
    gate, expanded = (F.linear(x, numbers[f"{n}.weight"], numbers.get(f"{n}.bias")) for n in ("gate", "expand"))
    same(part(x), F.linear(activation(gate) * expanded, numbers["output.weight"], numbers.get("output.bias")))
    assert len(numbers) == (6 if bias else 3)


def test_the_defaults_are_those_of_their_papers() -> None:
    assert FeedForward(2, 3).activation is relu
    assert GatedFeedForward(2, 3).activation is silu
    assert "output.bias" in FeedForward(2, 3).state_dict()
    assert "output.bias" not in GatedFeedForward(2, 3).state_dict()


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_each_token_thinks_for_itself(kind: type[FeedForward] | type[GatedFeedForward]) -> None:
    part, x = kind(4, 6), torch.randn(2, 3, 4)
    changed = x.clone()
    changed[0, 1] += 1
    touched = (part(changed) != part(x)).any(dim=-1)
    assert touched.tolist() == [[False, True, False], [False, False, False]]


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_dropout_is_inside_and_in_training_only(kind: type[FeedForward] | type[GatedFeedForward]) -> None:
    part, x = kind(4, 6, dropout=0.5, bias=True), torch.randn(2, 3, 4)
    assert not torch.equal(part(x), part(x))
    part.eval()
    plain = kind(4, 6, bias=True)
    plain.load_state_dict(part.state_dict())
    same(part(x), plain(x))


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_every_matrix_is_built_by_the_given_factory(kind: type[FeedForward] | type[GatedFeedForward]) -> None:
    made: list[tuple[int, int]] = []

    def linear(inputs: int, outputs: int, bias: bool) -> nn.Module:
        made.append((inputs, outputs))
        return nn.Linear(inputs, outputs, bias)

    part = kind(4, 6, linear=linear)
    assert sorted(made) == [(4, 6)] * (len(made) - 1) + [(6, 4)]
    assert len(made) == sum(isinstance(each, nn.Linear) for each in part.modules()) >= 2
