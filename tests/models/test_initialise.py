"""How a model's numbers begin: each law that initialise.py states."""

import math
from typing import cast

import pytest
import torch
from torch import Tensor, nn

from glassformer.models import EncoderDecoder, transformer
from glassformer.parts import Encoder, Head, LayerNorm, PostNorm, PreNorm, Residual

placements = pytest.mark.parametrize("placement", [PreNorm, PostNorm])


def model(placement: Residual = PreNorm, *, tie_output: bool = True) -> EncoderDecoder:
    return transformer(500, 64, 4, 3, 96, decoder_layers=2, residual=placement, tie_output=tie_output)


def assert_uniform(weight: Tensor, bound: float) -> None:
    """Uniform in ±bound: never beyond it, close to it somewhere, and with the deviation bound/√3."""
    assert weight.abs().max().item() <= bound * (1 + 1e-6)
    assert weight.abs().max().item() > 0.98 * bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.06)
    assert abs(weight.mean().item()) < 5 * bound / math.sqrt(3 * weight.numel())


def branches(stack: nn.Module) -> list[nn.Module]:
    return [module.part for module in stack.modules() if isinstance(module, PreNorm | PostNorm)]


@placements
def test_matrices_begin_uniform_in_glorots_bounds_and_the_last_of_a_branch_smaller(
    placement: Residual,
) -> None:
    built = model(placement)
    for stack, count in ((built.encoder, 2 * 3), (built.decoder, 3 * 2)):
        assert len(branches(stack)) == count
        for branch in branches(stack):
            matrices = {name: part for name, part in branch.named_modules() if isinstance(part, nn.Linear)}
            assert set(matrices) in ({"query", "key", "value", "output"}, {"expand", "output"})
            for name, matrix in matrices.items():
                bound = math.sqrt(6 / (matrix.in_features + matrix.out_features))
                assert_uniform(matrix.weight, bound / math.sqrt(count) if name == "output" else bound)


@placements
def test_biases_begin_at_zero_and_norms_at_one(placement: Residual) -> None:
    built = model(placement)
    for part in built.modules():
        if isinstance(part, LayerNorm):
            assert part.weight.eq(1).all()
            assert part.bias is not None
            assert part.bias.eq(0).all()
        if isinstance(part, nn.Linear) and part.bias is not None:
            assert part.bias.eq(0).all()


def test_embeddings_begin_normal_with_deviation_one_over_root_of_the_width() -> None:
    weight = model().encoder.embedding.weight
    assert weight.std().item() == pytest.approx(64**-0.5, rel=0.03)
    beyond = (weight.abs() > 2 * 64**-0.5).float().mean().item()
    assert beyond == pytest.approx(0.0455, abs=0.01)  # of a normal distribution, beyond two deviations


def test_the_matrix_of_an_untied_head_begins_in_glorots_bounds() -> None:
    head = model(tie_output=False).head
    assert isinstance(head, Head)
    assert_uniform(head.weight, math.sqrt(6 / (64 + 500)))


@placements
def test_first_logits_of_a_tied_model_have_deviation_about_one(placement: Residual) -> None:
    built = model(placement).eval()
    with torch.no_grad():
        logits = built(torch.randint(500, (4, 10)), torch.randint(500, (4, 10)))
    assert 0.5 < logits.std().item() < 1.6


@placements
def test_the_stream_keeps_its_size_through_a_deep_stack(placement: Residual) -> None:
    built = transformer(100, 32, 4, 24, 64, residual=placement, dropout=0.0)
    x = built.encoder.embedding(torch.randint(100, (2, 10)))
    first = x.std().item()
    with torch.no_grad():
        for block in cast(Encoder, built.encoder).blocks:
            x = block(x)
    assert 0.4 < x.std().item() / first < 2.5


def test_the_same_seed_begins_with_the_same_numbers_and_another_with_others() -> None:
    torch.manual_seed(1)
    first = model()
    torch.manual_seed(1)
    same = model()
    other = model()
    for one, two, three in zip(first.parameters(), same.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
        if one.dim() == 2:
            assert not torch.equal(one, three)
