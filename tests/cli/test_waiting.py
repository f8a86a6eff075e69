"""How long threads of a command look for work before they sleep, as GNU OpenMP itself says when PyTorch is loaded."""

import os
import re
import subprocess
import sys

import pytest

TOLD = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def looks(**told: str) -> str:
    """The number of looks of a command that loads PyTorch."""
    own = {name: value for name, value in os.environ.items() if name not in TOLD}
    typed = [sys.executable, "-m", "glassformer", "models"]
    environment = own | told | {"OMP_DISPLAY_ENV": "verbose"}
    said = subprocess.run(typed, env=environment, capture_output=True, text=True, check=True).stderr  # noqa: S603
    found = re.search(r"GOMP_SPINCOUNT = '(\w+)'", said)
    if found is None:
        pytest.skip("PyTorch's OpenMP is not GNU's")
    return found[1]


def test_threads_sleep_soon_where_the_user_has_not_decided_otherwise() -> None:
    assert looks() == "1000"
    assert looks(GOMP_SPINCOUNT="77") == "77"
    assert looks(OMP_WAIT_POLICY="passive") == "0"
