"""Embeddings and heads: scaled, tied, placed, dropped."""

import pytest
import torch

from glassformer.errors import ConfigurationError
from glassformer.parts import (
    ALiBi,
    Embedding,
    Head,
    LayerNorm,
    Learned,
    MultiHeadAttention,
    RelativeBias,
    Rotary,
    Sinusoidal,
    TiedHead,
)

from .helpers import same

TOKENS = torch.tensor([[1, 0, 4], [2, 2, 3]])


def test_a_token_is_its_row_times_the_scale() -> None:
    embedding = Embedding(5, 4, scale=3.0)
    same(embedding(TOKENS)[1, 2], 3 * embedding.weight[3])
    assert embedding(TOKENS).shape == (2, 3, 4)


def test_positions_are_added_after_the_scale_and_before_the_norm() -> None:
    positions, norm = Learned(6, 4), LayerNorm(4)
    embedding = Embedding(5, 4, scale=2.0, positions=positions, norm=norm)
    same(embedding(TOKENS), norm(2 * embedding.weight[TOKENS] + positions.weight[:3]))


@pytest.mark.parametrize("place", [4, torch.tensor([4])])
def test_a_place_reaches_the_positions(place: int | torch.Tensor) -> None:
    embedding, positions = Embedding(5, 4, positions=Sinusoidal(4)), Sinusoidal(4)
    vector = positions(torch.zeros(1, 5, 4))[:, 4:] + embedding.weight[TOKENS[:1, :1]]
    same(embedding(TOKENS[:1, :1], place), vector)


def test_an_embedding_begins_with_deviation_one_over_root_width() -> None:
    assert Embedding(2000, 16).weight.std().item() == pytest.approx(1 / 4, rel=0.05)


def test_dropout_is_in_training_only() -> None:
    embedding = Embedding(5, 64, dropout=0.5)
    vectors, dropped = embedding.weight[TOKENS], embedding(TOKENS)
    same(dropped, torch.where(dropped == 0, 0, 2 * vectors))
    assert 0.3 < (dropped == 0).float().mean() < 0.7
    same(embedding.eval()(TOKENS), vectors)


def test_a_tied_head_scores_by_the_very_table_of_the_embedding() -> None:
    embedding = Embedding(5, 4)
    head = TiedHead(embedding)
    (weight,) = head.parameters()
    assert weight is embedding.weight
    x = torch.randn(2, 3, 4)
    same(head(x)[1, 2, 3], x[1, 2] @ embedding.weight[3])


def test_a_tied_table_learns_from_both_ends() -> None:
    embedding = Embedding(5, 4)
    head = TiedHead(embedding)
    x = embedding(torch.tensor([[1]]))
    head(x)[0, 0, 3].backward()  # the score is row 1 · row 3
    assert embedding.weight.grad is not None
    same(embedding.weight.grad[1], embedding.weight[3])
    same(embedding.weight.grad[3], embedding.weight[1])
    assert (embedding.weight.grad[[0, 2, 4]] == 0).all()


def test_a_tied_head_may_have_a_bias_of_its_own() -> None:
    embedding = Embedding(5, 4)
    head = TiedHead(embedding, bias=True)
    head.load_state_dict({"bias": torch.arange(5.0), "embedding.weight": embedding.weight})
    x = torch.randn(1, 2, 4)
    same(head(x) - TiedHead(embedding)(x), torch.arange(5.0).expand(1, 2, 5))


@pytest.mark.parametrize("bias", [True, False])
def test_a_head_scores_by_a_table_of_its_own(bias: bool) -> None:
    head, x = Head(4, 5, bias=bias), torch.randn(2, 3, 4)
    assert (head.bias is not None) == bias
    scores = x @ head.weight.T + (head.bias if bias else 0)
    assert scores.shape == (2, 3, 5)
    same(head(x), scores)


@pytest.mark.parametrize("positions", [Rotary(4), RelativeBias(2), ALiBi(2)], ids=lambda scheme: type(scheme).__name__)
def test_positions_that_work_inside_attention_are_refused(positions: Rotary | RelativeBias | ALiBi) -> None:
    message = f"^{type(positions).__name__} works inside attention: pass it to the attention part$"
    with pytest.raises(ConfigurationError, match=message):
        Embedding(5, 4, positions=positions)


@pytest.mark.parametrize("positions", [Sinusoidal(8), Learned(4, 8)], ids=lambda scheme: type(scheme).__name__)
def test_attention_refuses_positions_that_are_added_to_embeddings(positions: Sinusoidal | Learned) -> None:
    message = f"^{type(positions).__name__} is added to embeddings: pass it to the embedding part$"
    with pytest.raises(ConfigurationError, match=message):
        MultiHeadAttention(8, 2, positions=positions)  # type: ignore[arg-type]
