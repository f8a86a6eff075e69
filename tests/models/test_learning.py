"""Deep models must learn: twelve blocks and twelve, with the norm in either place, copy what they read."""

import math

import pytest
import torch
import torch.nn.functional as F

from glassformer.models import transformer
from glassformer.parts import PostNorm, PreNorm, Residual

VOCABULARY, START, LENGTH, BATCH = 10, 0, 4, 16


@pytest.mark.learning
@pytest.mark.parametrize(
    ("placement", "rate", "warm_up", "steps"), [(PreNorm, 2e-3, 20, 110), (PostNorm, 1.5e-3, 40, 230)]
)
def test_twelve_and_twelve_layers_learn_to_copy_without_divergence(
    placement: Residual, rate: float, warm_up: int, steps: int
) -> None:
    model = transformer(VOCABULARY, width=32, heads=4, layers=12, hidden=64, dropout=0.0, residual=placement)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98), fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warm_up))
    losses = []
    for _ in range(steps):
        source = torch.randint(2, VOCABULARY, (BATCH, LENGTH))
        target = F.pad(source[:, :-1], (1, 0), value=START)
        loss = F.cross_entropy(model(source, target).flatten(0, 1), source.flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        size = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert size.isfinite()
        assert size < 50
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    learned = sum(losses[-10:]) / 10
    assert learned < losses[0] / 2
    assert learned < 0.75 * math.log(LENGTH)  # below ln(LENGTH): not only which tokens there are, but in which order
    assert learned < math.log(VOCABULARY) / 2
    assert max(losses) < 1.5 * losses[0]
