"""The tokens that may be drawn are those of Hugging Face's logits warpers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glassformer.decoding import Sampler

warpers = pytest.importorskip(
    "transformers.generation.logits_process", reason="parity with warpers needs the extra glassformer[interop]"
)


@given(
    seed=st.integers(0, 2**31 - 1),
    vocabulary=st.integers(1, 60),
    temperature=st.sampled_from([0.5, 1.0, 1.7]),
    top_k=st.none() | st.integers(1, 70),
    top_p=st.none() | st.floats(0.01, 0.99),
    min_p=st.none() | st.floats(0.0, 1.0),
)
def test_temperature_top_k_top_p_and_min_p_keep_what_the_warpers_keep(
    seed: int, vocabulary: int, temperature: float, top_k: int | None, top_p: float | None, min_p: float | None
) -> None:
    torch.manual_seed(seed)
    scores = (3 * torch.randn(3, vocabulary)).log_softmax(dim=-1)
    warped = warpers.TemperatureLogitsWarper(temperature)(None, scores)
    if top_k is not None:
        warped = warpers.TopKLogitsWarper(top_k)(None, warped)
    if top_p is not None:
        warped = warpers.TopPLogitsWarper(top_p)(None, warped)
    if min_p is not None:
        warped = warpers.MinPLogitsWarper(min_p)(None, warped)
    probabilities, tokens = Sampler(temperature, top_k, top_p, min_p).likely(scores)
    ours = torch.zeros_like(scores).scatter(1, tokens, probabilities.float())
    torch.testing.assert_close(ours, warped.softmax(dim=-1), atol=1e-5, rtol=1e-4)
