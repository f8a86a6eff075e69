"""Batch norm, which the experiment compares with: against PyTorch's, and with padding."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.experiments.batch_vs_layer_norm import BatchNorm, _longer

seeds = st.integers(0, 2**31)


def randomise(module: nn.Module) -> None:
    """Numbers that hide nothing: no bias at 0, no norm weight at 1."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.5)


def same(ours: Tensor, expected: Tensor, tolerance: float = 1e-6) -> None:
    """Equal but for rounding."""
    torch.testing.assert_close(ours, expected, atol=tolerance, rtol=tolerance)


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


def test_each_column_of_the_notes_table_gets_mean_0_and_variance_1() -> None:
    table = torch.tensor([[2, 3, 7, 5, 4], [1, 1, 2, 3, 4], [5, 4, 1, 2, 3], [6, 1, 7, 5, 6], [7, 1, 3, 3, 4]]).float()
    normed = BatchNorm(5)(table[:, None])[:, 0]  # five examples of one token
    same(normed.mean(dim=0), torch.zeros(5))
    same(normed.var(dim=0, unbiased=False), torch.ones(5), 1e-4)


@pytest.mark.parametrize("size", [0.3, 3.0])
def test_with_batch_norm_gradients_neither_vanish_nor_explode(size: float) -> None:
    def reached(norms: list[nn.Module]) -> float:
        torch.manual_seed(0)
        x = torch.randn(64, 1, 16, requires_grad=True)
        y = x
        for norm in norms:
            y = norm(y @ (size * torch.randn(16, 16) / 4)).relu()
        (gradient,) = torch.autograd.grad((y * torch.randn_like(y)).sum(), x)
        return float(gradient.norm())

    plain, normed = reached([nn.Identity()] * 12), reached([BatchNorm(16) for _ in range(12)])
    assert plain < 1e-4 if size < 1 else plain > 1e4
    assert 100 < normed < 500  # at either size


def test_batch_norm_needs_two_tokens_to_train_on() -> None:
    with pytest.raises(InputError, match="at least 2 tokens to train on, not 1"):
        BatchNorm(3)(torch.zeros(1, 3, 3), torch.tensor([[True, False, False]]))


class Two(nn.Module):
    """Two hidden layers, each with a norm."""

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        sizes = ((20, 64), (64, 64))
        self.hidden = nn.ModuleList(nn.Sequential(nn.Linear(*size), norm(64), nn.ReLU()) for size in sizes)
        self.scores = nn.Linear(64, 2)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.hidden:
            x = layer(x)
        return self.scores(x)[:, 0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_with_batch_norm_few_noisy_examples_are_learned_by_heart_less(seed: int) -> None:
    losses = dict[str, float]()
    norms: dict[str, Callable[[int], nn.Module]] = {"none": lambda width: nn.Identity(), "batch": BatchNorm}
    for name, norm in norms.items():
        torch.manual_seed(seed)
        x, plane = torch.randn(1064, 1, 20), torch.randn(20)
        labels = ((x[:, 0] @ plane > 0) ^ (torch.rand(1064) < 0.1)).long()  # every tenth is wrong
        model = Two(norm)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(200):
            some = torch.randperm(64)[:8]
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[some]), labels[some]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        with torch.no_grad():
            losses[name] = float(nn.functional.cross_entropy(model.eval()(x[64:]), labels[64:]))
    assert losses["batch"] < 0.8 * losses["none"]


def test_the_smaller_the_batches_the_longer_models_learn_from_them() -> None:
    assert [_longer(160, count) for count in (1, 2, 4, 16)] == [640, 320, 160, 160]
