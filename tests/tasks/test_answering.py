"""Answering: what is lost on the places that are pointed at."""

import pytest
import torch
import torch.nn.functional as F

from glassformer.models import bert
from glassformer.tasks import SpanBatch, answering_loss
from glassformer.training.objective import Objective


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_cross_entropy_over_the_real_tokens_whatever_the_padding(smoothing: float) -> None:
    torch.manual_seed(0)
    model = bert(20, 16, 2, 1, 32, length=12, answer="span", dropout=0.0, attention_dropout=0.0)
    text = torch.randint(4, 20, (2, 6))
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    right = torch.tensor([[2, 5], [0, 0]])
    batch = SpanBatch(text, mask, None, right, 10)
    loss = Objective(model, smoothing, answering_loss)
    value = loss(batch)
    alone = [model(text[:1]), model(text[1:, :4])]
    expected = sum(
        F.cross_entropy(logits[:, :, side], places[None, side], label_smoothing=smoothing)
        for logits, places in zip(alone, right, strict=True)
        for side in (0, 1)
    )
    torch.testing.assert_close(value, expected)
    wider = SpanBatch(F.pad(text, (0, 3)), F.pad(mask, (0, 3)), None, right, 10)
    torch.testing.assert_close(loss(wider), value)
    assert (batch.answers, batch.places) == (4, 12)
    value.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)
