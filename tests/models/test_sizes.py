"""How many numbers a model has, counted by hand."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from glassformer.errors import ConfigurationError
from glassformer.models import (
    FAMILIES,
    EncoderDecoder,
    transformer,
    transformer_base,
    transformer_big,
    transformer_tiny,
)
from glassformer.parts import (
    LayerNorm,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    RMSNorm,
    Sinusoidal,
    TiedHead,
    schemes,
)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def by_hand(
    width: int,
    hidden: int,
    encoder_layers: int,
    decoder_layers: int,
    source: int,
    target: int,
    *,
    tie_source: bool = True,
    tie_output: bool = True,
    final_norms: bool = False,
) -> int:
    attention = 4 * (width * width + width)  # query, key, value, output, each with its bias
    feed_forward = (width * hidden + hidden) + (hidden * width + width)
    norm = 2 * width  # weight and bias
    encoder_block = attention + feed_forward + 2 * norm
    decoder_block = 2 * attention + feed_forward + 3 * norm
    embeddings = source * width + (0 if tie_source else target * width)
    head = 0 if tie_output else target * width
    final = 2 * norm if final_norms else 0
    return embeddings + encoder_layers * encoder_block + decoder_layers * decoder_block + final + head


def on_meta(family: str, *args: int, **changes: Any) -> EncoderDecoder:
    """The model without its numbers: sizes cost no memory."""
    build = {"tiny": transformer_tiny, "base": transformer_base, "big": transformer_big}[family]
    with torch.device("meta"):
        return build(*args, **changes)


def test_base_model_of_the_paper_has_63_082_496_parameters() -> None:
    embedding = 37_000 * 512
    encoder_block = 4 * (512 * 512 + 512) + (512 * 2048 + 2048) + (2048 * 512 + 512) + 2 * (512 + 512)
    decoder_block = 8 * (512 * 512 + 512) + (512 * 2048 + 2048) + (2048 * 512 + 512) + 3 * (512 + 512)
    assert embedding + 6 * encoder_block + 6 * decoder_block == 63_082_496
    assert by_hand(512, 2048, 6, 6, 37_000, 37_000) == 63_082_496
    assert parameters(on_meta("base")) == 63_082_496


def test_big_model_of_the_paper_has_its_parameters() -> None:
    assert parameters(on_meta("big")) == by_hand(1024, 4096, 6, 6, 37_000, 37_000) == 214_245_376


def test_tiny_model_has_its_parameters() -> None:
    assert parameters(on_meta("tiny", 1000)) == by_hand(128, 512, 2, 2, 1000, 1000, final_norms=True)


def test_named_models_have_the_shape_of_the_paper() -> None:
    for family, heads, width, dropout in (("base", 8, 512, 0.1), ("big", 16, 1024, 0.3)):
        model = on_meta(family)
        attentions = [part for part in model.modules() if isinstance(part, MultiHeadAttention)]
        assert len(attentions) == 6 + 2 * 6
        assert {(part.heads, part.width) for part in attentions} == {(heads, width)}
        assert sum(isinstance(part, PostNorm) for part in model.modules()) == 6 * 2 + 6 * 3
        assert model.encoder.embedding.dropout.rate == dropout


def test_a_named_model_can_be_changed() -> None:
    changed = on_meta("base", 100, layers=2, residual=PreNorm, tie_output=False)
    assert parameters(changed) == by_hand(512, 2048, 2, 2, 100, 100, tie_output=False, final_norms=True)


@given(
    heads=st.integers(1, 3),
    head_width=st.sampled_from([2, 4]),
    hidden=st.integers(1, 20),
    layers=st.integers(1, 3),
    decoder_layers=st.none() | st.integers(1, 3),
    source=st.integers(1, 30),
    target=st.none() | st.integers(1, 30),
    tie_source=st.booleans(),
    tie_output=st.booleans(),
    pre=st.booleans(),
)
def test_every_small_model_has_as_many_parameters_as_counted_by_hand(
    heads: int,
    head_width: int,
    hidden: int,
    layers: int,
    decoder_layers: int | None,
    source: int,
    target: int | None,
    tie_source: bool,
    tie_output: bool,
    pre: bool,
) -> None:
    width = heads * head_width
    target_vocabulary = None if tie_source else target
    model = transformer(
        source,
        width,
        heads,
        layers,
        hidden,
        decoder_layers=decoder_layers,
        target_vocabulary=target_vocabulary,
        residual=PreNorm if pre else PostNorm,
        tie_source=tie_source,
        tie_output=tie_output,
    )
    expected = by_hand(
        width,
        hidden,
        layers,
        decoder_layers or layers,
        source,
        target_vocabulary or source,
        tie_source=tie_source,
        tie_output=tie_output,
        final_norms=pre,
    )
    assert parameters(model) == expected
    logits = model(torch.zeros(1, 2, dtype=torch.long), torch.zeros(1, 3, dtype=torch.long))
    assert logits.shape == (1, 3, target_vocabulary or source)


@pytest.mark.parametrize("tie_source", [True, False])
@pytest.mark.parametrize("tie_output", [True, False])
def test_tied_is_one_table_and_untied_is_two(tie_source: bool, tie_output: bool) -> None:
    model = transformer(11, 8, 2, 1, 8, tie_source=tie_source, tie_output=tie_output)
    assert (model.encoder.embedding.weight is model.decoder.embedding.weight) == tie_source
    assert isinstance(model.head, TiedHead) == tie_output
    head = model.head.embedding.weight if isinstance(model.head, TiedHead) else model.head.weight
    assert (head is model.decoder.embedding.weight) == tie_output


def test_learned_positions_add_one_table_for_both_sides() -> None:
    plain = transformer(11, 8, 2, 1, 8)
    learned = transformer(11, 8, 2, 1, 8, positions=schemes.learned, length=20)
    assert parameters(learned) - parameters(plain) == 20 * 8


def test_different_vocabularies_cannot_share_an_embedding() -> None:
    with pytest.raises(ConfigurationError, match=r"vocabularies have 10 and 12 tokens; pass tie_source=False"):
        transformer(10, 8, 2, 1, 8, target_vocabulary=12)


def test_the_family_is_found_by_its_name() -> None:
    assert FAMILIES["transformer"] is transformer


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"width": 10, "heads": 4}, "width 10 does not divide into 4 heads"),
        ({"heads": 0}, "heads must be at least 1, not 0"),
        ({"heads": -2}, "heads must be at least 1, not -2"),
        ({"width": 0}, "width must be at least 1, not 0"),
        ({"width": 9, "heads": 3}, "even width, not 9"),
        ({"layers": 0}, "layers must be at least 1, not 0"),
        ({"decoder_layers": 0}, "decoder_layers must be at least 1, not 0"),
        ({"hidden": 0}, "hidden must be at least 1, not 0"),
        ({"vocabulary": 0}, "vocabulary must be at least 1, not 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, not 1.0"),
        ({"dropout": -0.1}, "dropout must be at least 0 and below 1, not -0.1"),
        ({"attention_dropout": 1.5}, "dropout must be at least 0 and below 1, not 1.5"),
    ],
)
def test_numbers_that_make_no_model_are_refused_in_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        transformer(**{"vocabulary": 11, "width": 8, "heads": 2, "layers": 1, "hidden": 8} | changes)


def test_other_parts_go_in_the_same_place() -> None:
    made: list[nn.Linear] = []

    def linear(inputs: int, outputs: int, bias: bool) -> nn.Linear:
        made.append(nn.Linear(inputs, outputs, bias=bias))
        return made[-1]

    model = transformer(
        50, width=16, heads=2, layers=1, hidden=32, norm=RMSNorm, positions=schemes.rotary, linear=linear
    )
    assert sum(isinstance(part, RMSNorm) for part in model.modules()) == 2 + 3 + 2
    assert not any(isinstance(part, LayerNorm | Sinusoidal) for part in model.modules())
    assert len(made) == 4 + 2 + 8 + 2
    source = torch.tensor([[5, 6, 7]])
    model.eval()
    step, _ = model.step(model.start(source), torch.tensor([[1]]))
    torch.testing.assert_close(step, model(source, torch.tensor([[1]])), atol=1e-5, rtol=1e-5)
