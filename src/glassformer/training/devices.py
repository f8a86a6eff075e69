"""Devices: where the numbers live, by name, with a sentence for one that is not there."""

import sys

import torch

from glassformer.errors import ConfigurationError


def resolve(name: str = "auto") -> torch.device:
    """The device called auto (the best there is), cpu, cuda, cuda:1 or mps."""
    if name == "auto":
        return torch.device("cuda" if _cards() else "mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigurationError(f'"{name}" is no device: expected auto, cpu, cuda, cuda:1 or mps') from None
    if device.type == "cuda" and (device.index or 0) >= _cards():
        there = {0: "no CUDA device", 1: "one CUDA device, cuda:0"}.get(_cards(), f"CUDA devices 0 to {_cards() - 1}")
        raise ConfigurationError(f'device "{name}" is not there: PyTorch sees {there}; "auto" takes the best there is')
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigurationError('device "mps" is not there: it needs a Mac with Apple silicon; "auto" takes the best')
    if device.type not in ("cpu", "cuda", "mps"):
        raise ConfigurationError(f'device "{name}" is not supported: expected auto, cpu, cuda, cuda:1 or mps')
    return device


def check_bf16(device: torch.device) -> None:
    """Refuse bf16 on a card that would only emulate it."""
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        name = torch.cuda.get_device_name(device)
        raise ConfigurationError(f"{name} does not compute in bf16: set train.precision to float32")


def memory(device: torch.device) -> int:
    """Bytes at most so far: of tensors on a CUDA device, of the whole process elsewhere; 0 where nobody counts."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return 0
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024  # Linux counts in kilobytes


def _cards() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0
