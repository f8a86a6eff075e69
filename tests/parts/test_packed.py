"""Packed heads: the same numbers up to rounding, the same weights, and nothing where there is nothing to gain."""

import copy
import io
import pickle
from typing import Any, cast

import pytest
import torch
from torch import nn

import glassformer as gf
from glassformer.errors import GlassformerError
from glassformer.parts import PackedLinear, TiedHead, guard
from glassformer.parts.inference import JoinedLinear, join, together

LIMITS = gf.Limits(start=1, end=2, max_length=8)


def test_a_packed_model_scores_and_decodes_as_the_original_and_shares_its_weights() -> None:
    for tied in (True, False):
        torch.manual_seed(0)
        model = gf.transformer(9000, width=128, heads=4, layers=1, hidden=64, tie_output=tied).eval()
        packed = copy.deepcopy(gf.pack(model))
        assert isinstance(packed.head, PackedLinear)
        assert "inputs=128, outputs=9000" in repr(packed)
        assert gf.pack(model).encoder.embedding.weight is model.encoder.embedding.weight
        source, keep = gf.pad([[5, 6, 7], [8, 9]])
        with torch.inference_mode():
            target = torch.tensor([[1, 4], [1, 5]])
            torch.testing.assert_close(packed(source, target, keep), model(source, target, keep), atol=1e-4, rtol=1e-5)
        found = [gf.beam_search(each, source, keep, limits=LIMITS, width=3) for each in (model, packed)]
        assert [best.tokens for best, *_ in found[0]] == [best.tokens for best, *_ in found[1]]


def test_a_small_vocabulary_16_bits_and_other_devices_stay_as_they_were() -> None:
    small = gf.transformer(50, width=16, heads=2, layers=1, hidden=32)
    assert isinstance(gf.pack(small).head, TiedHead)
    large = gf.transformer(9000, width=128, heads=4, layers=1, hidden=64)
    assert isinstance(gf.pack(large.bfloat16()).head, TiedHead)
    assert isinstance(gf.pack(large.to("meta")).head, TiedHead)


def test_saving_a_packed_model_is_refused_in_a_sentence_and_copying_it_is_not() -> None:
    model = gf.pack(gf.transformer(9000, width=128, heads=4, layers=1, hidden=64))
    for save in (pickle.dumps, lambda it: torch.save(it, io.BytesIO()), lambda it: it.state_dict()):
        with pytest.raises(GlassformerError, match="a packed model cannot be saved: save the original"):
            save(model)
    assert isinstance(model.head, PackedLinear)
    assert copy.copy(model.head) is model.head
    assert copy.copy(model).head is copy.deepcopy(model).head is model.head


def test_joined_parts_give_what_each_gives_alone() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 6)
    for bias in (True, False):
        whole = nn.Linear(6, 12, bias=bias)
        parts = [JoinedLinear(whole, first, outputs, 6) for first, outputs in ((0, 4), (4, 2), (6, 6))]
        for some in (parts, parts[1:], parts[:1]):
            for one, other in zip(together(x, *some), some, strict=True):
                torch.testing.assert_close(one, other(x))
        moved = [part.double() for part in parts]
        assert together(x.double(), *moved)[1].dtype == torch.float64


def test_queries_keys_and_values_are_joined_to_one_product() -> None:
    torch.manual_seed(0)
    model = gf.transformer(50, width=16, heads=2, layers=1, hidden=24, tie_output=False).eval()
    joined = join(copy.deepcopy(model), lambda whole: whole)
    block: Any = cast(Any, joined.decoder).blocks[0]
    attention = block.self_attention.part
    views = together(torch.randn(1, 2, 16), attention.query, attention.key, attention.value)
    assert len({view.untyped_storage().data_ptr() for view in views}) == 1
    crossing = block.cross_attention.part  # whose queries are of other vectors
    assert isinstance(crossing.query, nn.Linear)
    assert crossing.key.whole is crossing.value.whole
    source, keep = gf.pad([[5, 6, 7], [8, 9]])
    found = [gf.beam_search(each, source, keep, limits=LIMITS, width=3) for each in (model, joined)]
    assert [best.tokens for best, *_ in found[0]] == [best.tokens for best, *_ in found[1]]


def test_a_kernel_that_cannot_be_compiled_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(guard._state, "usable", True)

    def launch() -> int:
        raise OSError("no C compiler")

    with pytest.warns(UserWarning, match="no C compiler"):
        assert guard.guarded(launch) is None
    assert not guard.usable()
    assert guard.guarded(lambda: 3) == 3
