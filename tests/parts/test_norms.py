"""Norms against their formulas and PyTorch's modules; placements with a part that can be followed by hand."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer.models import transformer
from glassformer.parts import BatchNorm, LayerNorm, PaddingAware, Placement, PostNorm, PreNorm, RMSNorm

from .helpers import randomise, same, seeds


def test_layer_norm_by_hand() -> None:
    norm = LayerNorm(4, epsilon=0.75)
    norm.load_state_dict({"weight": torch.tensor([1.0, 2.0, 3.0, 4.0]), "bias": torch.tensor([0.0, 0.0, 1.0, 1.0])})
    # mean 3, deviations -2, 0, 1, 1, variance 6/4; with ε: √(1.5 + 0.75) = 1.5
    same(norm(torch.tensor([[[1.0, 3.0, 4.0, 4.0]]])), torch.tensor([[[-2 / 1.5, 0.0, 1 + 3 / 1.5, 1 + 4 / 1.5]]]))


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


def test_batch_norm_is_pytorchs_in_training_and_after() -> None:
    ours, theirs = BatchNorm(5, momentum=0.3), nn.BatchNorm1d(5, momentum=0.3)
    randomise(ours)
    theirs.load_state_dict(
        {
            "weight": ours.weight,
            "bias": ours.bias,
            "running_mean": ours.running_mean,
            "running_var": ours.running_variance,
            "num_batches_tracked": torch.tensor(0),
        }
    )

    def check() -> None:
        x = torch.randn(3, 4, 5) * 2 + 1
        same(ours(x), theirs(x.transpose(1, 2)).transpose(1, 2), 1e-5)  # PyTorch has the features second

    for _ in range(3):
        check()
    assert theirs.running_mean is not None
    assert theirs.running_var is not None
    same(ours.running_mean, theirs.running_mean)
    same(ours.running_variance, theirs.running_var)
    ours.eval()
    theirs.eval()
    check()


@given(seed=seeds, more=st.integers(1, 5))
def test_padding_changes_naive_batch_norm_but_not_the_padding_aware_one(seed: int, more: int) -> None:
    torch.manual_seed(seed)
    x = torch.randn(2, 4, 3) + 1
    keep = torch.tensor([[True, True, True, True], [True, True, False, False]])
    longer_x = torch.cat((x, torch.zeros(2, more, 3)), dim=1)
    longer_keep = torch.cat((keep, torch.zeros(2, more, dtype=torch.bool)), dim=1)
    aware, longer_aware = BatchNorm(3), BatchNorm(3)
    same(longer_aware(longer_x, longer_keep)[longer_keep], aware(x, keep)[keep])
    same(longer_aware.running_mean, aware.running_mean)
    same(longer_aware.running_variance, aware.running_variance)
    assert not torch.allclose(BatchNorm(3)(longer_x)[longer_keep], BatchNorm(3)(x)[keep], atol=1e-3)


def test_padding_aware_batch_norm_has_the_statistics_of_the_real_tokens() -> None:
    x, keep = torch.randn(2, 4, 3), torch.tensor([[True, True, True, False], [True, True, False, False]])
    real = BatchNorm(3)(x, keep)[keep]
    same(real.mean(0), torch.zeros(3), 1e-5)
    same(real.var(0, unbiased=False), torch.ones(3), 1e-3)


def aware(width: int) -> PaddingAware:
    return PaddingAware(BatchNorm(width))


def padded(tokens: Tensor, keep: Tensor, more: int) -> tuple[Tensor, Tensor]:
    """The same sentences with more padding."""
    nothing = torch.zeros(len(tokens), more, dtype=torch.long)
    return torch.cat((tokens, nothing), dim=1), torch.cat((keep, nothing.bool()), dim=1)


def train_with_padding(
    norm: Callable[[int], nn.Module], residual: Placement, source_more: int, target_more: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The real tokens' logits of a model in training, its gradient, and what its first norm has learnt."""
    torch.manual_seed(1)
    model = transformer(20, 16, 2, 2, 24, dropout=0.0, norm=norm, residual=residual)
    keep = torch.tensor([[True, True, True, True], [True, True, False, False]])
    source, source_keep = padded(torch.randint(1, 20, (2, 4)), keep, source_more)
    target, target_keep = padded(torch.randint(1, 20, (2, 4)), keep, target_more)
    logits = model(source, target, source_keep, target_keep)[target_keep]
    logits.square().mean().backward()
    gradient = model.encoder.embedding.weight.grad
    assert gradient is not None
    return logits.detach(), gradient, next(iter(model.buffers()))


@pytest.mark.parametrize("residual", [PreNorm, PostNorm])
@pytest.mark.parametrize("more", [(3, 0), (0, 3), (5, 1)])
def test_padding_changes_a_model_with_naive_batch_norm_but_not_with_the_padding_aware_one(
    residual: Placement, more: tuple[int, int]
) -> None:
    for plain, wider in zip(
        train_with_padding(aware, residual, 0, 0), train_with_padding(aware, residual, *more), strict=True
    ):
        same(wider, plain, 1e-4)
    naive, naive_wider = (train_with_padding(BatchNorm, residual, *each)[0] for each in ((0, 0), more))
    assert not torch.allclose(naive_wider, naive, atol=0.01)


def test_a_padding_aware_model_decodes_and_steps_after_a_pass_of_another_shape() -> None:
    model = transformer(20, 16, 2, 1, 24, dropout=0.0, norm=aware)
    tokens, keep = torch.randint(20, (3, 5)), torch.arange(5) < torch.tensor([[5], [3], [2]])
    model(tokens, tokens, keep, keep)
    _, state = model.step(model.start(tokens[:, :4], keep[:, :4]), tokens[:, :1])  # even in training
    assert state.position == 1
    model.eval()
    both = [model(tokens, tokens, keep, real) for real in (None, keep)]  # by then the statistics are settled
    same(both[1][keep], both[0][keep], 1e-5)


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
