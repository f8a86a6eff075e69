"""Averages by their formulas."""

import torch

from glassformer.training.averaging import MovingAverage, mean

from .helpers import model


def test_the_moving_average_by_its_formula() -> None:
    net = model()
    average = MovingAverage(net, 0.5)
    name, weight = next(iter(net.named_parameters()))
    expected = weight.detach().clone()
    for step in range(1, 15):
        with torch.no_grad():
            weight.add_(step)
        average.update(step)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * weight.detach()
    torch.testing.assert_close(average.state()[name], expected)


def test_within_the_context_the_model_has_the_averages() -> None:
    net = model()
    average = MovingAverage(net, 0.9)
    weight = next(net.parameters())
    before = weight.detach().clone()
    with torch.no_grad():
        weight.fill_(7.0)
    with average.applied():
        assert torch.equal(weight, before)
    assert (weight == 7).all()
    assert torch.equal(next(iter(average.state().values())), before)


def test_the_mean_of_checkpoints() -> None:
    states = [{"a": torch.tensor([float(n), 1e8]), "n": torch.tensor(n)} for n in (1, 2, 6)]
    result = mean(states)
    assert result["a"].tolist() == [3.0, 1e8]
    assert result["a"].dtype == torch.float32
    assert result["n"] == 6
