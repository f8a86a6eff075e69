"""Devices by name, and sentences for those that are not there."""

import pytest
import torch

from glassformer.errors import ConfigurationError
from glassformer.training.devices import in_16_bits, resolve


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


@pytest.mark.parametrize("has", [True, False])
def test_auto_is_16_bits_where_the_device_has_instructions_for_them(has: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has)
    for device in (torch.device("cpu"), torch.device("cuda")):
        assert in_16_bits("auto", device) == has
        assert not in_16_bits("float32", device)
    assert in_16_bits("bf16", torch.device("cpu"))
    assert not in_16_bits("auto", torch.device("mps"))


def test_a_card_that_only_emulates_16_bits_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "GTX 1080")
    with pytest.raises(ConfigurationError, match="GTX 1080 does not support bf16: set"):
        in_16_bits("bf16", torch.device("cuda"))
