"""Norms against their formulas and PyTorch's modules; placements with a part that can be followed by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer.parts import LayerNorm, PostNorm, PreNorm, RMSNorm

from .helpers import randomise, same, seeds


def test_layer_norm_by_hand() -> None:
    norm = LayerNorm(4, epsilon=0.75)
    norm.load_state_dict({"weight": torch.tensor([1.0, 2.0, 3.0, 4.0]), "bias": torch.tensor([0.0, 0.0, 1.0, 1.0])})
    # mean 3, deviations -2, 0, 1, 1, variance 6/4; with ε: √(1.5 + 0.75) = 1.5
    same(norm(torch.tensor([[[1.0, 3.0, 4.0, 4.0]]])), torch.tensor([[[-2 / 1.5, 0.0, 1 + 3 / 1.5, 1 + 4 / 1.5]]]))


def test_each_row_of_the_notes_table_gets_mean_0_and_variance_1() -> None:
    table = torch.tensor([[2, 3, 7, 5, 4], [1, 1, 2, 3, 4], [5, 4, 1, 2, 3], [6, 1, 7, 5, 6], [7, 1, 3, 3, 4]]).float()
    normed = LayerNorm(5)(table)
    same(normed.mean(dim=1), torch.zeros(5))
    same(normed.var(dim=1, unbiased=False), torch.ones(5), 1e-4)
    same(LayerNorm(5)(table[2:3] * 1000), normed[2:3], 1e-4)  # large values do not dominate
    for row in range(5):
        same(LayerNorm(5)(table[row]), normed[row])  # whatever the other rows are


def test_epsilon_prevents_a_division_by_zero() -> None:
    for norm in (LayerNorm(4), RMSNorm(4)):
        assert norm(torch.zeros(1, 4)).tolist() == [[0.0] * 4]
    assert LayerNorm(4)(torch.full((1, 4), 3.0)).tolist() == [[0.0] * 4]  # variance 0


def test_rms_norm_by_hand() -> None:
    norm = RMSNorm(2, epsilon=0.5)
    norm.load_state_dict({"weight": torch.tensor([1.0, 10.0])})
    # mean of squares (9 + 16) / 2 = 12.5; with ε: √13
    same(norm(torch.tensor([[[3.0, 4.0]]])), torch.tensor([[[3 / math.sqrt(13), 40 / math.sqrt(13)]]]))


@given(seed=seeds, bias=st.booleans(), epsilon=st.sampled_from([1e-6, 1e-5, 0.1]))
def test_layer_norm_is_pytorchs(seed: int, bias: bool, epsilon: float) -> None:
    torch.manual_seed(seed)
    ours, theirs = LayerNorm(6, epsilon, bias), nn.LayerNorm(6, eps=epsilon, bias=bias)
    randomise(ours)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 6) * 5 + 2
    same(ours(x), theirs(x))


@given(seed=seeds, epsilon=st.sampled_from([1e-6, 1e-5, 0.1]))
def test_rms_norm_is_pytorchs(seed: int, epsilon: float) -> None:
    torch.manual_seed(seed)
    ours, theirs = RMSNorm(6, epsilon), nn.RMSNorm(6, eps=epsilon)
    randomise(ours)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 6) * 5 + 2
    same(ours(x), theirs(x))


def test_the_default_epsilons_are_those_of_the_papers_code() -> None:
    assert LayerNorm(4).epsilon == 1e-5  # PyTorch's
    assert RMSNorm(4).epsilon == 1e-6  # T5's and Llama's


class Times(nn.Module):
    """A part or norm that can be followed by hand: x times a number, plus another."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor, plus: float = 0.0) -> Tensor:
        return x * self.factor + plus


def test_pre_norm_by_hand() -> None:
    # 1 + 3 · (10 · 1) + 5
    same(PreNorm(Times(3), Times(10))(torch.ones(1, 1, 1), plus=5.0), torch.tensor([[[36.0]]]))


def test_post_norm_by_hand() -> None:
    # 10 · (1 + 3 · 1 + 5)
    same(PostNorm(Times(3), Times(10))(torch.ones(1, 1, 1), plus=5.0), torch.tensor([[[90.0]]]))


def test_placements_pass_positional_arguments_on() -> None:
    same(PreNorm(Times(3), Times(10))(torch.ones(1, 1, 1), 5.0), torch.tensor([[[36.0]]]))
    same(PostNorm(Times(3), Times(10))(torch.ones(1, 1, 1), 5.0), torch.tensor([[[90.0]]]))


@pytest.mark.parametrize("placement", [PreNorm, PostNorm])
def test_dropout_falls_on_what_the_part_adds_in_training_only(placement: type[PreNorm] | type[PostNorm]) -> None:
    wrapped = placement(Times(3), Times(1), dropout=0.5)
    x = torch.ones(1, 1, 200)
    assert set(wrapped(x).unique().tolist()) == {1.0, 7.0}  # 1 + 0 and 1 + 3 / 0.5
    wrapped.eval()
    assert set(wrapped(x).unique().tolist()) == {4.0}


def test_only_pre_norm_leaves_the_last_norm_to_the_stack() -> None:
    assert PreNorm.final_norm
    assert not PostNorm.final_norm
