"""Dropout: the right share fails, the mean stays, the gradient follows, and nothing happens outside training."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glassformer.errors import ConfigurationError
from glassformer.parts import Dropout


@given(st.integers(0, 10**6), st.sampled_from([0.1, 0.25, 0.5, 0.9]), st.integers(1, 9))
def test_the_rest_is_scaled_and_the_gradient_is_what_was_let_through(seed: int, share: float, width: int) -> None:
    torch.manual_seed(seed)
    x = torch.randn(3, 5, width, requires_grad=True)
    y = Dropout(share)(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(y, x * gradient)
    kept = gradient[gradient != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - share)))


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.999])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_share_that_fails_is_the_one_asked_for_in_every_place_alike(share: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    part = Dropout(share)
    failed = torch.stack([part(torch.ones(40, 250, dtype=dtype)) == 0 for _ in range(40)]).float()
    spread = (share * (1 - share)) ** 0.5
    assert abs(failed.mean() - share) < 5 * spread / failed.numel() ** 0.5
    for place in range(4):  # four places share a draw: none may be favoured, nor follow its neighbour
        here = failed.flatten()[place::4]
        assert abs(here.mean() - share) < 5 * spread / here.numel() ** 0.5
    one, next_to_it = failed.flatten()[:-1], failed.flatten()[1:]
    assert abs((one * next_to_it).mean() - share**2) < 5 * share * spread / one.numel() ** 0.5 + 1e-5


def test_it_does_nothing_outside_training_or_at_zero() -> None:
    x = torch.randn(2, 3)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert repr(Dropout(0.1)) == "Dropout(0.1)"


def test_the_seed_decides() -> None:
    outputs = []
    for _ in range(2):
        torch.manual_seed(3)
        outputs.append(Dropout(0.5)(torch.ones(100)))
    assert torch.equal(*outputs)


def test_a_share_of_one_or_more_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="dropout"):
        Dropout(1.0)
