"""Positions against their formulas, against `transformers`, and against what they promise about distance."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaConfig, LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.t5.modeling_t5 import T5Attention, T5Config

import glassformer as gf
from glassformer.errors import InputError
from glassformer.models import gpt2
from glassformer.parts import (
    ALiBi,
    Embedding,
    Encoder,
    EncoderBlock,
    FeedForward,
    LayerNorm,
    Learned,
    MultiHeadAttention,
    NoPositions,
    PreNorm,
    RelativeBias,
    Rotary,
    Scheme,
    Sinusoidal,
    scheme_of,
)
from glassformer.parts.positions import Position, as_tensor
from glassformer.parts.schemes import sinusoidal

from .helpers import randomise, same, seeds


def test_sinusoids_follow_the_formula_also_beyond_the_table() -> None:
    waves = Sinusoidal(6, length=3)(torch.zeros(1, 40, 6))[0]
    for p in range(40):
        for i in range(3):
            angle = p / 10_000 ** (2 * i / 6)
            assert waves[p, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert waves[p, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_sines_before_cosines_are_marians() -> None:
    marian = MarianSinusoidalPositionalEmbedding(20, 8)
    same(Sinusoidal(8, interleaved=False, length=4)(torch.zeros(1, 20, 8))[0], marian.create_weight())


def test_sinusoids_are_added() -> None:
    x, waves = torch.randn(2, 5, 6), Sinusoidal(6)
    same(waves(x) - x, waves(torch.zeros(2, 5, 6)))


@given(first=st.integers(0, 300), second=st.integers(0, 300), distance=st.integers(0, 100))
def test_the_product_of_two_sinusoids_depends_on_their_distance(first: int, second: int, distance: int) -> None:
    waves = Sinusoidal(8)(torch.zeros(1, 401, 8))[0]
    same(waves[first] @ waves[first + distance], waves[second] @ waves[second + distance], 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("interleaved", [False, True])
def test_tables_that_grew_while_decoding_still_serve_training(dtype: torch.dtype, interleaved: bool) -> None:
    waves = Sinusoidal(4, interleaved=interleaved, length=2).to(dtype)
    rotary = Rotary(4, interleaved=interleaved, length=2).to(dtype)
    with torch.inference_mode():
        waves(torch.zeros(1, 5, 4, dtype=dtype))
        rotary.rotate(torch.zeros(1, 1, 5, 4, dtype=dtype), None)
    x = torch.randn(1, 5, 4, dtype=dtype, requires_grad=True)
    (gradient,) = torch.autograd.grad(rotary.rotate(waves(x)[:, None], None).square().sum(), x)
    same(gradient, 2 * waves(x).detach())  # turning a vector does not change its length


def test_a_table_grows_in_the_type_of_the_model() -> None:
    waves, rotary = Sinusoidal(4, length=2).double(), Rotary(4, length=2).double()
    assert waves(torch.zeros(1, 9, 4, dtype=torch.float64)).dtype == torch.float64
    assert rotary.rotate(torch.zeros(1, 1, 9, 4, dtype=torch.float64), None).dtype == torch.float64


@pytest.mark.parametrize("skip", [0, 2])
def test_learned_positions_are_rows_after_the_skipped_ones(skip: int) -> None:
    learned = Learned(4, 3, skip=skip)
    assert learned.weight.shape == (4 + skip, 3)
    x = torch.randn(2, 4, 3)
    same(learned(x), x + learned.weight[skip:])
    same(learned(x[:, :1], 3), x[:, :1] + learned.weight[skip + 3])


@pytest.mark.parametrize(("length", "place"), [(5, None), (1, 4), (2, torch.tensor([0, 4]))])
def test_there_is_no_learned_position_beyond_the_table(length: int, place: Position) -> None:
    message = "position 4 is beyond the learned table, which has positions 0 to 3"
    with pytest.raises(InputError, match=message):
        Learned(4, 3, skip=2)(torch.zeros(1, length, 3), place)


@given(buckets=st.integers(4, 40), farther=st.integers(1, 200), bidirectional=st.booleans())
@settings(max_examples=40)
def test_buckets_are_t5s(buckets: int, farther: int, bidirectional: bool) -> None:
    distance = buckets // (2 if bidirectional else 1) // 2 + farther
    ahead = torch.arange(-400, 401)
    expected = T5Attention._relative_position_bucket(ahead, bidirectional, buckets, distance)
    assert torch.equal(RelativeBias(2, buckets, distance, bidirectional).bucket(ahead), expected)


@pytest.mark.parametrize("decoder", [False, True])
def test_relative_bias_is_t5s(decoder: bool) -> None:
    config = T5Config(d_model=8, d_kv=4, num_heads=2, is_decoder=decoder)
    theirs = T5Attention(config, has_relative_attention_bias=True)
    nn.init.normal_(theirs.relative_attention_bias.weight)
    ours = RelativeBias(2, bidirectional=not decoder)
    ours.load_state_dict({"weight": theirs.relative_attention_bias.weight})
    places = torch.arange(150)[None]
    same(ours.bias(places, places), theirs.compute_bias(150, 150))


def test_rotary_is_llamas() -> None:
    theirs = LlamaRotaryEmbedding(LlamaConfig(hidden_size=16, num_attention_heads=2, rope_theta=10_000.0))
    query, key = torch.randn(2, 2, 30, 8), torch.randn(2, 2, 30, 8)
    places = torch.randint(0, 600, (2, 30))
    cosines, sines = theirs(query, places)
    expected = apply_rotary_pos_emb(query, key, cosines, sines)
    rotary = Rotary(8)
    same(rotary.rotate(query, places), expected[0], 1e-4)  # they compute angles in single precision
    same(rotary.rotate(key, places), expected[1], 1e-4)


def test_interleaved_rotary_is_multiplication_by_a_complex_number() -> None:
    x = torch.randn(2, 3, 7, 6)
    angles = torch.arange(7)[:, None] * 100.0 ** (-torch.tensor([0.0, 2.0, 4.0]) / 6)  # (T, K/2)
    turned = torch.view_as_complex(x.view(2, 3, 7, 3, 2)) * torch.polar(torch.ones(7, 3), angles)
    same(Rotary(6, base=100.0, interleaved=True, length=3).rotate(x, None), torch.view_as_real(turned).flatten(-2))


@given(seed=seeds, at=st.integers(0, 500), shift=st.integers(0, 500), apart=st.integers(0, 20), pairs=st.booleans())
@settings(max_examples=30)
def test_rotated_products_depend_on_distance_only(seed: int, at: int, shift: int, apart: int, pairs: bool) -> None:
    torch.manual_seed(seed)
    rotary, (query, key) = Rotary(8, interleaved=pairs), torch.randn(2, 1, 1, 1, 8)
    here = rotary.rotate(query, at + apart) * rotary.rotate(key, at)
    there = rotary.rotate(query, at + shift + apart) * rotary.rotate(key, at + shift)
    same(here.sum(), there.sum(), 1e-4)
    same(rotary.rotate(query, at).norm(), query.norm(), 1e-5)


def test_alibi_slopes_are_the_papers() -> None:
    same(ALiBi(8).slopes, torch.tensor([1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]))
    # 6 heads: the 4 slopes of 4 heads, then every other one of 8 heads
    same(ALiBi(6).slopes, torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]))


def papers_slopes(heads: int) -> list[float]:
    """`get_slopes` of the ALiBi paper's code."""
    power = math.log2(heads)
    if power.is_integer():
        start = 2 ** (-(2 ** -(power - 3)))
        return [start * start**head for head in range(heads)]
    closest = 2 ** math.floor(power)
    return papers_slopes(closest) + papers_slopes(2 * closest)[0::2][: heads - closest]


@pytest.mark.parametrize("heads", range(1, 25))
def test_alibi_slopes_for_any_number_of_heads(heads: int) -> None:
    same(ALiBi(heads).slopes, torch.tensor(papers_slopes(heads)))


def test_alibi_subtracts_slope_times_distance_by_hand() -> None:
    bias = ALiBi(2).bias(torch.tensor([[3]]), torch.tensor([[0, 3, 5]]))
    same(bias, torch.tensor([[[[-3 / 16, 0.0, -2 / 16]], [[-3 / 256, 0.0, -2 / 256]]]]))


ROTARY = Rotary(4, length=2)
PLACED: dict[str, Callable[[Tensor, Position], Tensor]] = {
    "none": NoPositions(),
    "sinusoidal": Sinusoidal(4, length=2),
    "learned": Learned(9, 4),
    "rotary": lambda x, place: ROTARY.rotate(x[:, None], place)[:, 0],
}


@pytest.mark.parametrize("scheme", PLACED)
def test_all_ways_to_say_a_place_agree(scheme: str) -> None:
    positioned, x = PLACED[scheme], torch.randn(3, 5, 4)
    in_order, places = positioned(x, None), torch.arange(5)
    same(positioned(x, places), in_order, 0)
    same(positioned(x, places.expand(3, 5)), in_order, 0)
    for t in range(5):
        same(positioned(x[:, t : t + 1], t), in_order[:, t : t + 1], 0)
    mixed = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 0, 1, 2], [8, 0, 0, 0, 1]])
    for row in range(3):
        same(positioned(x, mixed)[row], positioned(x[row : row + 1], mixed[row])[0], 0)


@pytest.mark.parametrize("scheme", [RelativeBias(2, 8, 20), RelativeBias(2, 8, 20, bidirectional=False), ALiBi(2)])
def test_a_bias_depends_on_the_places_however_they_are_said(scheme: RelativeBias | ALiBi) -> None:
    cpu = torch.device("cpu")
    keys = as_tensor(None, 6, cpu)
    table = scheme.bias(keys, keys)
    assert table.shape == (1, 2, 6, 6)
    for place in (torch.arange(6), torch.arange(6).expand(2, 6)):
        same(scheme.bias(as_tensor(place, 6, cpu), keys), table.expand(len(as_tensor(place, 6, cpu)), 2, 6, 6), 0)
    for t in range(6):
        same(scheme.bias(as_tensor(t, 1, cpu), keys), table[:, :, t : t + 1], 0)


def test_without_positions_dog_bites_man_is_man_bites_dog() -> None:
    def encoder(positions: NoPositions | Sinusoidal) -> Encoder:
        torch.manual_seed(7)
        blocks = [PreNorm(MultiHeadAttention(8, 2), LayerNorm(8)), PreNorm(FeedForward(8, 16), LayerNorm(8))]
        stack = Encoder(Embedding(3, 8, positions=positions), [EncoderBlock(*blocks)])
        randomise(stack)
        return stack

    dog_bites_man, man_bites_dog = torch.tensor([[0, 1, 2]]), torch.tensor([[2, 1, 0]])
    blind, ordered = encoder(NoPositions()), encoder(Sinusoidal(8))
    same(blind(man_bites_dog).flip(1), blind(dog_bites_man))
    assert not torch.allclose(ordered(man_bites_dog).flip(1), ordered(dog_bites_man), atol=1e-3)


EVERYWHERE: dict[str, Callable[[], dict[str, Scheme]]] = {
    "sinusoidal": lambda: {"positions": scheme_of(Sinusoidal(16))},
    "learned": lambda: {"positions": scheme_of(Learned(9, 16))},
    "rotary": lambda: {"positions": scheme_of(attention=Rotary(8))},
    "relative": lambda: {"positions": scheme_of(attention=RelativeBias(2))},
    "alibi": lambda: {"positions": scheme_of(attention=ALiBi(2))},
}


@pytest.mark.parametrize("scheme", EVERYWHERE)
@torch.no_grad()
def test_a_model_from_the_meta_device_has_its_tables(scheme: str) -> None:
    def build() -> gf.EncoderDecoder:
        return gf.transformer(20, 16, 2, 1, 24, **EVERYWHERE[scheme]()).eval()  # type: ignore[arg-type]

    torch.use_deterministic_algorithms(True)  # then emptied tensors are filled with NaN, not with what lay there
    try:
        real, tokens = build(), torch.arange(9)[None]
        with torch.device("meta"):
            empty = build()
        empty.to_empty(device="cpu").load_state_dict(real.state_dict())
        assert torch.equal(empty(tokens, tokens), real(tokens, tokens))
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("part", [Sinusoidal(8), Rotary(8), ALiBi(3)])
def test_tables_follow_their_model_to_other_types_and_back(part: nn.Module) -> None:
    before = [table.clone() for table in part.buffers()]
    assert all(table.dtype == torch.bfloat16 for table in part.bfloat16().buffers())
    for table, was in zip(part.float().buffers(), before, strict=True):
        assert torch.equal(table, was)  # computed anew: nothing was lost to rounding
    assert all(table.is_meta for table in part.to("meta").buffers())


def test_compiled_code_reads_documents_that_are_longer_than_the_table_was() -> None:
    model = gpt2(30, width=16, heads=2, layers=1, hidden=32, dropout=0.0, attention_dropout=0.0, positions=sinusoidal)
    tokens, documents = torch.randint(30, (1, 700)), (torch.arange(700) // 600)[None]
    compiled = torch.compile(model.hidden, dynamic=True, backend="eager")
    torch.testing.assert_close(compiled(tokens, None, documents), model.hidden(tokens, None, documents))
