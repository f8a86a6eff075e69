"""What every test shares: one seed, few threads, and hypothesis without a clock."""

import os

import pytest
import torch
from hypothesis import settings

settings.register_profile("glassformer", deadline=None, print_blob=True)
settings.load_profile("glassformer")
if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(20260101)
