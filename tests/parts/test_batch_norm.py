"""Batch norm: against PyTorch's, with padding, in use, frozen, and in copies of a model."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import glassformer as gf
from glassformer.errors import InputError
from glassformer.models import vit
from glassformer.parts import BatchNorm, adapt, merged
from glassformer.parts.norms import running_averages
from glassformer.training.tuning import choose

from .helpers import randomise, same, seeds


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


def test_in_use_a_token_has_no_batch_mates() -> None:
    norm, x = BatchNorm(3), torch.randn(4, 5, 3) + 2
    for _ in range(3):
        norm(x)
    norm.eval()
    alone = norm(x[:1])
    same(norm(x)[:1], alone)
    same(norm(torch.cat((x, torch.zeros(4, 9, 3)), dim=1))[:1, :5], alone)
    same(norm(x, torch.arange(5)[None] < 4)[:1, :4], alone[:, :4])
    same(norm(x[0, 0]), alone[0, 0])  # a vector by itself
    assert not norm(x, torch.arange(5)[None] < 4)[:, 4].any()


def test_under_autocast_statistics_stay_in_32_bits() -> None:
    plain, cast = BatchNorm(8), BatchNorm(8)
    x = torch.randn(4, 16, 8)
    with torch.autocast("cpu", torch.bfloat16):
        y = cast(x)
    same(y.float(), plain(x), 0.02)
    assert cast.running_mean.dtype == torch.float32
    same(cast.running_mean, plain.running_mean, 1e-3)


def small() -> nn.Module:
    """A ViT whose running averages are those of data."""
    torch.manual_seed(0)
    model = vit(3, 8, 4, 16, 2, 2, 24, norm=BatchNorm, epsilon=1e-5)
    for _ in range(5):
        model(torch.randn(6, 3, 8, 8) + 1)
    return model.eval()


def test_frozen_norms_are_as_in_use_and_stay_as_they_are() -> None:
    """Of a model with an adapter, whose folder holds the adapter alone."""
    model = adapt(small(), rank=2, targets=["query", "value"])
    choose(model, "lora")
    before = {name: each.clone() for name, each in running_averages(model).items()}
    x = torch.randn(5, 3, 8, 8)
    expected = model(x)
    model.train()
    assert len(before) == 2 * (2 * 2 + 1)
    assert torch.equal(model(x), expected)
    for name, each in running_averages(model).items():
        assert torch.equal(each, before[name])
    choose(model, "full")
    assert not torch.allclose(model(x), expected, atol=1e-3)


def test_copies_for_inference_answer_alike() -> None:
    model, x = small(), torch.randn(5, 3, 8, 8)
    expected = model(x)
    same(merged(adapt(model, rank=2)).eval()(x), expected, 1e-5)
    same(gf.pack(model)(x), expected, 1e-5)
    same(gf.quantise(model, least=1)(x), expected, 0.05)
    same(small()(x), expected)  # none of them has changed it
