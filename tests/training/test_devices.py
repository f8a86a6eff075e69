"""Devices by name, and sentences for those that are not there."""

import pytest
import torch

from glassformer.errors import ConfigurationError
from glassformer.training.devices import resolve


def test_the_cpu_is_always_there() -> None:
    assert resolve("cpu") == torch.device("cpu")


def test_auto_takes_the_best_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve("auto").type == "cuda"
    assert resolve("cuda:1").index == 1
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert resolve("auto").type == "mps"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert resolve("auto").type == "cpu"


@pytest.mark.parametrize("name", ["cuda", "cuda:1", "mps", "gpu", "xpu", ""])
def test_a_device_that_is_not_there_gets_a_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigurationError, match=f'"{name}"'):
        resolve(name)


def test_a_card_too_many_names_those_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigurationError, match="one CUDA device, cuda:0"):
        resolve("cuda:1")
