"""Recording: everything the heads looked at, and not a number changed by looking."""

from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer.errors import GlassformerError, InputError
from glassformer.looking import Trace, record
from glassformer.models import EncoderDecoder, transformer
from glassformer.parts import (
    Decoder,
    DecoderBlock,
    Embedding,
    Encoder,
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
    PreNorm,
    Sinusoidal,
)

KINDS = ["encoder", "decoder", "cross"]
SOURCE, TARGET = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0]]), torch.tensor([[1, 2, 3], [4, 5, 6]])
KEEP = SOURCE > 0


def model() -> EncoderDecoder:
    return transformer(11, width=16, heads=2, layers=2, hidden=16, dropout=0.0, decoder_layers=3).eval()


def observers(module: nn.Module) -> list[object]:
    return [part.observe for part in module.modules() if isinstance(part, MultiHeadAttention)]


def same(ours: Tensor, expected: Tensor, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(ours, expected, atol=tolerance, rtol=tolerance)


def test_every_layer_and_head_of_every_kind_is_kept() -> None:
    with record(recorded := model()) as trace:
        recorded(SOURCE, TARGET, KEEP)
    assert [trace.layers(kind) for kind in KINDS] == [2, 3, 3]
    for kind, layers, shape in zip(KINDS, (2, 3, 3), [(2, 2, 4, 4), (2, 2, 3, 3), (2, 2, 3, 4)], strict=True):
        for layer in range(layers):
            weights = trace.attention(kind, layer)
            assert weights.shape == shape
            same(weights.sum(-1), torch.ones(shape[:3]))
            assert not weights.requires_grad


def test_recorded_weights_obey_the_masks() -> None:
    with record(recorded := model()) as trace:
        recorded(SOURCE, TARGET, KEEP)
    for kind in ("encoder", "cross"):
        weights = trace.attention(kind, 1)
        assert (weights[1, :, :, 2:] == 0).all()
        assert (weights[0] > 0).all()
    assert (trace.attention("decoder", 2).triu(1) == 0).all()


def test_layers_come_in_their_order() -> None:
    with record(recorded := model()) as trace:
        recorded(SOURCE, TARGET, KEEP)
        x = recorded.encoder.embedding(SOURCE)
    first = list(cast(Encoder, recorded.encoder).blocks[0].modules())
    attention = next(part for part in first if isinstance(part, MultiHeadAttention))
    norm = next(part for part in first if isinstance(part, LayerNorm))
    query, key = (part(norm(x)).view(2, 4, 2, 8).transpose(1, 2) for part in (attention.query, attention.key))
    scores = (query @ key.transpose(2, 3) / 8**0.5).masked_fill(~KEEP[:, None, None], -torch.inf)
    same(trace.attention("encoder", 0), scores.softmax(-1), 1e-5)


@given(seed=st.integers(0, 2**31), length=st.integers(1, 5))
@settings(max_examples=10)
@torch.no_grad()
def test_steps_join_to_the_weights_of_the_parallel_pass(seed: int, length: int) -> None:
    torch.manual_seed(seed)
    recorded, target = model(), torch.randint(11, (2, length))
    with record(recorded) as parallel:
        recorded(SOURCE, target, KEEP)
    with record(recorded) as stepped:
        state = recorded.start(SOURCE, KEEP)
        for t in range(length):
            _, state = recorded.step(state, target[:, t : t + 1])
    assert len(stepped.calls["decoder", 0]) == length
    for kind, layer in parallel.calls:
        same(stepped.attention(kind, layer), parallel.attention(kind, layer), 1e-5)


def test_looking_changes_nothing() -> None:
    recorded = model()
    before = recorded(SOURCE, TARGET, KEEP)
    with record(recorded):
        inside = recorded(SOURCE, TARGET, KEEP)
    same(inside, before)
    assert torch.equal(recorded(SOURCE, TARGET, KEEP), before)


def test_gradients_are_the_same_while_looking() -> None:
    recorded = model()

    def gradients() -> list[Tensor]:
        parameters = list(recorded.parameters())
        return list(torch.autograd.grad(recorded(SOURCE, TARGET, KEEP).square().mean(), parameters))

    before = gradients()
    with record(recorded):
        inside = gradients()
    for ours, expected in zip(inside, before, strict=True):
        same(ours, expected, 1e-5)


def test_nothing_is_kept_outside() -> None:
    recorded = model()
    recorded(SOURCE, TARGET, KEEP)
    with record(recorded) as trace:
        assert all(observer is not None for observer in observers(recorded))
        recorded(SOURCE, TARGET, KEEP)
    recorded(SOURCE, TARGET, KEEP)
    assert [len(calls) for calls in trace.calls.values()] == [1] * 8
    assert observers(recorded) == [None] * 8


def test_an_exception_ends_the_recording() -> None:
    recorded = model()
    with pytest.raises(InputError), record(recorded):  # noqa: PT012
        assert None not in observers(recorded)
        recorded(SOURCE + 100, TARGET)
    assert observers(recorded) == [None] * 8


def test_a_recording_inside_a_recording_is_refused_and_the_first_goes_on() -> None:
    recorded = model()
    with record(recorded) as trace:
        for part in (recorded, recorded.decoder):
            message = r"^this model is being recorded already: use one record\(\) at a time$"
            with pytest.raises(GlassformerError, match=message), record(part):
                pass
        recorded(SOURCE, TARGET, KEEP)
    assert trace.attention("decoder", 0).shape == (2, 2, 3, 3)


def test_two_models_are_recorded_side_by_side() -> None:
    first, second = model(), model()
    with record(first) as trace, record(second) as other:
        first(SOURCE, TARGET)
    assert len(trace.calls["encoder", 0]) == 1
    assert other.calls["encoder", 0] == []


def test_a_decoder_alone_has_no_cross_attention() -> None:
    blocks = [PreNorm(part, LayerNorm(8)) for part in (MultiHeadAttention(8, 2), FeedForward(8, 8))]
    decoder = Decoder(Embedding(9, 8, positions=Sinusoidal(8)), [DecoderBlock(blocks[0], None, blocks[1])])
    with record(decoder) as trace:
        decoder(torch.tensor([[1, 2, 3]]))
    assert list(trace.calls) == [("decoder", 0)]


def test_an_attention_outside_any_block_is_just_attention() -> None:
    parts = nn.ModuleList([MultiHeadAttention(8, 2), MultiHeadAttention(8, 4)])
    with record(parts) as trace:
        parts[1](torch.randn(1, 3, 8))
    assert trace.layers("attention") == 2
    assert trace.attention("attention", 1).shape == (1, 4, 3, 3)


def test_weights_are_kept_from_before_dropout() -> None:
    attention = MultiHeadAttention(8, 2, dropout=0.5).train()
    with record(attention) as trace:
        attention(torch.randn(1, 5, 8))
    same(trace.attention("attention", 0).sum(-1), torch.ones(1, 2, 5))


@pytest.mark.parametrize(("kind", "layer"), [("cross", 3), ("crosses", 0)])
def test_an_unknown_attention_is_answered_with_the_known_ones(kind: str, layer: int) -> None:
    with record(model()) as trace:
        pass
    known = "encoder 0, encoder 1, decoder 0, cross 0, decoder 1, cross 1, decoder 2, cross 2"
    with pytest.raises(InputError, match=f"^there is no {kind} attention in layer {layer}; there is: {known}$"):
        trace.attention(kind, layer)
    assert trace.layers("crosses") == 0


def test_reading_before_running_is_answered_with_what_to_do() -> None:
    with record(model()) as trace:
        pass
    message = r"^nothing was recorded of the cross attention in layer 1: run the model inside record\(\)$"
    with pytest.raises(InputError, match=message):
        trace.attention("cross", 1)


@torch.no_grad()
def test_sentences_that_went_midway_are_not_joined() -> None:
    with record(recorded := model()) as trace:
        _, state = recorded.step(recorded.start(SOURCE, KEEP), TARGET[:, :1])
        state.select(torch.tensor([[0]]), torch.tensor([1]))
        recorded.step(state, TARGET[1:, 1:2])
    message = "^the number of sentences changed between calls: read them one by one from `calls`$"
    with pytest.raises(InputError, match=message):
        trace.attention("decoder", 0)
    assert [len(weights) for weights in trace.calls["decoder", 0]] == [2, 1]


def test_a_new_trace_is_empty() -> None:
    assert Trace().calls == {}
