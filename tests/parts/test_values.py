"""Values as tokens, and numbers read off the last."""

from typing import Any

import pytest
import torch

from glassformer.errors import InputError
from glassformer.models import series_decoder, series_encoder
from glassformer.parts import NumberHead, ValueEmbedding


def test_the_embedding_is_linear_in_values_and_what_is_missing() -> None:
    part = ValueEmbedding(2, 8)
    part.mean.copy_(torch.tensor([1.0, 2.0]))
    part.deviation.copy_(torch.tensor([2.0, 4.0]))
    values = torch.tensor([[[3.0, torch.nan]]])
    inputs = torch.tensor([[[1.0, 0.0, 0.0, 1.0]]])  # (3 - 1) / 2, the mean, known, missing
    torch.testing.assert_close(part(values), part.projection(inputs))


def test_numbers_are_in_the_units_of_the_data() -> None:
    head = NumberHead(None, 4, 3)
    head.mean.fill_(100.0)
    head.deviation.fill_(10.0)
    x = torch.randn(2, 4)
    torch.testing.assert_close(head(x), 100 + 10 * head.scores(x))


@pytest.mark.parametrize("values", [torch.zeros(2, 3), torch.zeros(2, 3, 5), torch.zeros(2, 3, 2).long()])
def test_what_is_no_table_of_values_is_refused(values: torch.Tensor) -> None:
    with pytest.raises(InputError, match="values must"):
        ValueEmbedding(2, 8)(values)


def test_infinite_values_are_refused() -> None:
    with pytest.raises(InputError, match="infinite"):
        ValueEmbedding(1, 8)(torch.full((1, 2, 1), torch.inf))


def test_a_decoder_does_not_look_ahead_and_an_encoder_does() -> None:
    sizes: dict[str, Any] = {"width": 16, "heads": 2, "layers": 2, "hidden": 32, "dropout": 0.0}
    values = torch.randn(1, 6, 2)
    later = values.clone()
    later[:, 5] += 1
    for family, same in ((series_decoder, True), (series_encoder, False)):
        model = family(2, **sizes).eval()
        first, second = model.hidden(values)[:, :5], model.hidden(later)[:, :5]
        assert torch.allclose(first, second, atol=1e-6) is same
        assert model(values).shape == (1, 1)
        assert family(2, **sizes, answer="series-classes", classes=3)(values).shape == (1, 3)
