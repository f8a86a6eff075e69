"""Kernels in Triton, where a machine can compile them.

Triton comes with PyTorch's CUDA builds, but compiles a kernel when it is first used, for which it needs a C compiler.
Where that fails, PyTorch's own kernels do the same work.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
_state = {"usable": importlib.util.find_spec("triton") is not None}


def usable() -> bool:
    """Whether kernels in Triton may be used."""
    return _state["usable"]


def use_triton(wanted: bool) -> None:
    """Use kernels in Triton from now on, or do not."""
    _state["usable"] = wanted and importlib.util.find_spec("triton") is not None


def guarded(launch: Callable[[], Result]) -> Result | None:
    """What a kernel gives; None, now and for ever, if it cannot be compiled."""
    try:
        return launch()
    except Exception as error:  # Triton's errors have no common class; what is wrong with the inputs shows again
        _state["usable"] = False
        warnings.warn(f"Triton's kernels are not used: {type(error).__name__}: {str(error)[:300]}", stacklevel=2)
        return None
