"""What a model survives: saving, copying, other number formats, compiling, growing while it decodes."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F

from glassformer.decoding import Limits, greedy
from glassformer.models import EncoderDecoder, transformer
from glassformer.parts import (
    Embedding,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    Residual,
    Rotary,
    Sinusoidal,
    pad,
    scheme_of,
)

from .helpers import VOCABULARY, tiny

SOURCE, MASK = pad([[1, 2, 3, 4], [5, 6]])
TARGET = torch.tensor([[7, 8, 9], [10, 11, 12]])

both_placements = pytest.mark.parametrize("placement", [PreNorm, PostNorm])


@both_placements
@pytest.mark.parametrize("tied", [True, False])
def test_a_state_dict_carries_the_whole_model(placement: Residual, tied: bool) -> None:
    def build() -> EncoderDecoder:
        return transformer(VOCABULARY, 16, 2, 2, 24, residual=placement, tie_source=tied, tie_output=tied).eval()

    first, second = build(), build()
    with torch.no_grad():
        expected = first(SOURCE, TARGET, MASK)
        assert not torch.allclose(second(SOURCE, TARGET, MASK), expected)
        file = io.BytesIO()
        torch.save(first.state_dict(), file)
        file.seek(0)
        second.load_state_dict(torch.load(file, weights_only=True))
        assert torch.equal(second(SOURCE, TARGET, MASK), expected)
    assert (second.encoder.embedding.weight is second.decoder.embedding.weight) == tied


def test_a_copy_computes_the_same_and_keeps_its_ties_to_itself() -> None:
    model = tiny()
    twin = copy.deepcopy(model)
    head = twin.head.embedding.weight  # type: ignore[union-attr]
    assert twin.encoder.embedding.weight is twin.decoder.embedding.weight is head
    assert twin.encoder.embedding.weight is not model.encoder.embedding.weight
    with torch.no_grad():
        before = model(SOURCE, TARGET, MASK)
        assert torch.equal(twin(SOURCE, TARGET, MASK), before)
        twin.encoder.embedding.weight.zero_()
        assert torch.equal(model(SOURCE, TARGET, MASK), before)
        assert twin(SOURCE, TARGET, MASK).eq(0).all()  # the tied head reads the same zeros


def test_a_tied_table_learns_from_all_three_of_its_places() -> None:
    def gradient(part: str) -> torch.Tensor:
        model = transformer(VOCABULARY, 16, 2, 1, 24, dropout=0.0)
        model.load_state_dict(numbers)
        F.cross_entropy(model(SOURCE, TARGET, MASK).flatten(0, 1), TARGET.flatten()).backward()  # type: ignore[no-untyped-call]
        tables: dict[str, Embedding] = {"encoder": model.encoder.embedding, "decoder": model.decoder.embedding}
        table = tables[part].weight.grad
        assert table is not None
        return table

    numbers = transformer(VOCABULARY, 16, 2, 1, 24).state_dict()
    table = gradient("encoder")
    assert torch.equal(table, gradient("decoder"))
    assert table[1].abs().sum() > 0  # only in the source
    assert table[19].abs().sum() > 0  # nowhere but in the head


@both_placements
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_gives_finite_logits_near_the_full_ones(placement: Residual, kind: torch.dtype) -> None:
    model = tiny(placement)
    with torch.no_grad():
        full = model(SOURCE, TARGET, MASK)
        half = model.to(kind)(SOURCE, TARGET, MASK)
    assert half.dtype == kind
    assert half.isfinite().all()
    torch.testing.assert_close(half.float(), full, atol=0.15, rtol=0.1)


def test_half_precision_decodes() -> None:
    model = tiny().bfloat16()
    for hypothesis in greedy(model, SOURCE, MASK, limits=Limits(0, 1, max_length=5)):
        assert all(score <= 0 for score in hypothesis.log_probabilities)
        assert len(hypothesis.log_probabilities) == len(hypothesis.tokens) + hypothesis.finished


def test_double_precision_agrees_with_single() -> None:
    model = tiny()
    with torch.no_grad():
        single = model(SOURCE, TARGET, MASK)
        double = model.double()(SOURCE, TARGET, MASK)
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), single, atol=1e-5, rtol=1e-5)


def test_a_compiled_model_gives_the_same_logits_for_several_shapes() -> None:
    model = tiny(layers=1)
    compiled = torch.compile(model, backend="eager")
    for batch in ([[1, 2, 3]], [[1, 2, 3], [4]], [[5, 6], [7, 8, 9], [1]]):
        source, mask = pad(batch)
        target = torch.randint(VOCABULARY, (len(batch), 4))
        with torch.no_grad():
            torch.testing.assert_close(compiled(source, target, mask), model(source, target, mask))


def test_a_compiled_model_has_the_same_gradients() -> None:
    model = tiny(PostNorm, layers=1)
    gradients = []
    for run in (model, torch.compile(model, backend="eager")):
        model.zero_grad()
        run(SOURCE, TARGET, MASK).square().mean().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    assert len(gradients[0]) == len(list(model.parameters()))
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_positions_that_grew_while_decoding_still_train(kind: torch.dtype) -> None:
    model = transformer(VOCABULARY, 16, 2, 1, 24, positions=scheme_of(Sinusoidal(16, length=2))).to(kind)
    greedy(model, SOURCE, MASK, limits=Limits(0, 1, max_length=9, min_length=9))
    model(SOURCE, TARGET, MASK).float().square().mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_rotations_that_grew_while_decoding_still_train(kind: torch.dtype) -> None:
    attention = MultiHeadAttention(16, 2, positions=Rotary(8, length=2)).to(kind)
    x = torch.randn(1, 6, 16, dtype=kind)
    with torch.inference_mode():
        attention(x)
    attention(x).sum().backward()
    assert all(parameter.grad is not None for parameter in attention.parameters())


def test_dropout_is_active_in_training_only() -> None:
    model = tiny(dropout=0.3)
    with torch.no_grad():
        assert torch.equal(model(SOURCE, TARGET, MASK), model(SOURCE, TARGET, MASK))
        model.train()
        assert not torch.equal(model(SOURCE, TARGET, MASK), model(SOURCE, TARGET, MASK))
