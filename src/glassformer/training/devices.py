"""Devices: from a name to a torch device, with a clear error if it does not exist."""

import sys

import torch

from glassformer.errors import ConfigurationError


def resolve(name: str = "auto") -> torch.device:
    """The device with a name: auto (CUDA if available, else MPS, else CPU), cpu, cuda, cuda:1 or mps."""
    if name == "auto":
        return torch.device("cuda" if _cuda_devices() else "mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigurationError(f'"{name}" is not a device: expected auto, cpu, cuda, cuda:1 or mps') from None
    if device.type == "cuda" and (device.index or 0) >= _cuda_devices():
        found = {0: "no CUDA device", 1: "one CUDA device, cuda:0"}.get(
            _cuda_devices(), f"CUDA devices 0 to {_cuda_devices() - 1}"
        )
        raise ConfigurationError(f'device "{name}" does not exist: PyTorch finds {found}; or choose "auto"')
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigurationError('device "mps" does not exist: it needs a Mac with Apple silicon; or choose "auto"')
    if device.type not in ("cpu", "cuda", "mps"):
        raise ConfigurationError(f'device "{name}" is not supported: expected auto, cpu, cuda, cuda:1 or mps')
    return device


def in_16_bits(precision: str, device: torch.device) -> bool:
    """Whether a precision of `train` means bf16 on a device: auto does where the device has instructions for it."""
    if precision == "bf16" and device.type == "cuda" and not has_bf16(device):  # it would only be emulated
        name = torch.cuda.get_device_name(device)
        raise ConfigurationError(f'{name} does not support bf16: set train.precision to "float32" or "auto"')
    return precision == "bf16" or (precision == "auto" and has_bf16(device))


def has_bf16(device: torch.device) -> bool:
    """Whether a device multiplies matrices in bf16 by instructions of its own."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and bool(torch.cpu._is_avx512_bf16_supported())  # which AMX includes


def memory(device: torch.device) -> int:
    """Peak memory in bytes: of tensors on a CUDA device, else of the whole process; 0 if it cannot be measured."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return 0
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024  # Linux counts in kilobytes


def _cuda_devices() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0
