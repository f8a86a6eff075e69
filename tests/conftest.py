"""What every test shares: one seed, few threads, and hypothesis without a clock."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("glassformer", deadline=None, print_blob=True)
settings.load_profile("glassformer")
torch.set_num_threads(1)  # the models are tiny, and pytest's workers share the cores


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(20260101)
