"""Blocks and stacks: wired as drawn, equal to PyTorch's layers, and the same stepped as all at once."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer.errors import ConfigurationError, InputError
from glassformer.parts import (
    Decoder,
    DecoderBlock,
    Embedding,
    Encoder,
    EncoderBlock,
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    Residual,
    Sinusoidal,
    causal,
    documents,
    padding,
    window,
)

from .helpers import HEADS, SCHEMES, VOCABULARY, WIDTH, randomise, same, seeds, small_decoder


class Toy(nn.Module):
    """factor * x + plus, and what else it was told."""

    def __init__(self, factor: float, plus: float) -> None:
        super().__init__()
        self.factor, self.plus = factor, plus
        self.told: dict[str, Any] = {}

    def forward(self, x: Tensor, **told: Any) -> Tensor:
        self.told = told
        return x * self.factor + self.plus


def test_an_encoder_block_is_attention_then_feed_forward() -> None:
    attention, feed_forward = Toy(1, 1), Toy(10, 0)
    mask, place = causal(), torch.arange(1)
    x = EncoderBlock(attention, feed_forward)(torch.ones(1, 1, 1), mask=mask, position=place)
    assert x.item() == 20  # (1 + 1) * 10
    assert attention.told == {"mask": mask, "position": place}
    assert feed_forward.told == {}


def test_a_decoder_block_is_self_attention_then_cross_attention_then_feed_forward() -> None:
    own, cross, feed_forward = Toy(1, 1), Toy(10, 0), Toy(1, 3)
    mask, memory_mask, memory = causal(), padding(torch.ones(1, 2, dtype=torch.bool)), torch.randn(1, 2, 1)
    block = DecoderBlock(own, cross, feed_forward)
    x = block(torch.ones(1, 1, 1), memory=memory, mask=mask, memory_mask=memory_mask, position=4)
    assert x.item() == 23  # (1 + 1) * 10 + 3
    assert own.told == {"mask": mask, "cache": None, "position": 4}
    assert cross.told["memory"] is memory
    assert cross.told["mask"] is memory_mask


def test_a_decoder_block_without_a_source_has_no_cross_attention() -> None:
    block = DecoderBlock(Toy(1, 1), None, Toy(1, 3))
    assert block(torch.ones(1, 1, 1)).item() == 5  # 1 + 1 + 3
    assert block.project(torch.ones(1, 2, 1)) is None


def test_a_stack_embeds_passes_every_block_and_norms() -> None:
    embedding = Embedding(3, 2)
    tokens = torch.tensor([[2, 0]])
    encoder_blocks = [EncoderBlock(Toy(1, 1), Toy(2, 0)), EncoderBlock(Toy(1, 10), Toy(1, 0))]
    decoder_blocks = [DecoderBlock(Toy(1, 1), None, Toy(2, 0)), DecoderBlock(Toy(1, 10), None, Toy(1, 0))]
    expected = -(2 * (embedding.weight[tokens] + 1) + 10)
    same(Encoder(embedding, encoder_blocks, Toy(-1, 0))(tokens), expected)
    same(Decoder(embedding, decoder_blocks, Toy(-1, 0))(tokens), expected)
    same(Encoder(embedding, encoder_blocks)(tokens), -expected)
    same(Decoder(embedding, decoder_blocks)(tokens), -expected)


def test_a_decoder_is_causal_on_top_of_any_mask() -> None:
    own = Toy(1, 0)
    decoder = Decoder(Embedding(3, 2), [DecoderBlock(own, None, Toy(1, 0))])
    decoder(torch.tensor([[0, 1]]))
    assert own.told["mask"].only_causal
    decoder(torch.tensor([[0, 1, 2]]), mask=documents(torch.tensor([[0, 0, 1]])))
    assert own.told["mask"].table(3, 3)[0, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]


def test_a_decoders_own_window_joins_any_mask() -> None:
    own = Toy(1, 0)
    decoder = Decoder(Embedding(3, 2), [DecoderBlock(own, None, Toy(1, 0))], mask=window(2))
    decoder(torch.tensor([[0, 1, 2]]))
    assert own.told["mask"].table(3, 3).int().tolist() == [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    decoder(torch.tensor([[0, 1, 2]]), mask=documents(torch.tensor([[0, 1, 1]])))
    assert own.told["mask"].table(3, 3)[0, 0].int().tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]


def test_a_decoders_own_mask_is_no_table() -> None:
    with pytest.raises(ConfigurationError, match="must serve any length: pass a window, not a table"):
        small_decoder(mask=padding(torch.ones(1, 3, dtype=torch.bool)))


def test_a_window_hides_what_is_too_far_back_in_both_ways_to_read() -> None:
    decoder = small_decoder(cross=False, layers=1, mask=window(2))
    x = decoder(torch.tensor([[1, 2, 3, 4]]))
    changed = decoder(torch.tensor([[9, 2, 3, 4]]))
    same(changed[:, 2:], x[:, 2:])  # the first token is two away from the third
    assert not torch.allclose(changed[:, 1], x[:, 1], atol=1e-3)


def layers(theirs: nn.Module, attentions: list[str], residual: Residual) -> list[nn.Module]:
    """The parts of a PyTorch layer, as ours with the same numbers."""
    numbers, parts = theirs.state_dict(), list[nn.Module]()
    for index, name in enumerate([*attentions, "linear"], start=1):
        part: nn.Module
        if name == "linear":
            part = FeedForward(8, 12)
            renamed = {f"expand.{n}": numbers[f"linear1.{n}"] for n in ("weight", "bias")}
            renamed |= {f"output.{n}": numbers[f"linear2.{n}"] for n in ("weight", "bias")}
        else:
            part = MultiHeadAttention(8, 2)
            renamed = {f"output.{n}": numbers[f"{name}.out_proj.{n}"] for n in ("weight", "bias")}
            for n in ("weight", "bias"):
                thirds = numbers[f"{name}.in_proj_{n}"].chunk(3)
                renamed |= {f"{ours}.{n}": x for ours, x in zip(("query", "key", "value"), thirds, strict=True)}
        part.load_state_dict(renamed)
        norm = LayerNorm(8)
        norm.load_state_dict({n: numbers[f"norm{index}.{n}"] for n in ("weight", "bias")})
        parts.append(residual(part, norm))
    return parts


@pytest.mark.parametrize("residual", [PreNorm, PostNorm])
def test_an_encoder_block_is_pytorchs_encoder_layer(residual: Residual) -> None:
    theirs = nn.TransformerEncoderLayer(8, 2, 12, dropout=0, batch_first=True, norm_first=residual is PreNorm)
    randomise(theirs)
    ours = EncoderBlock(*layers(theirs, ["self_attn"], residual))
    x, keep = torch.randn(2, 5, 8), torch.arange(5) < torch.tensor([[5], [3]])
    same(ours(x, padding(keep)), theirs(x, src_key_padding_mask=~keep), 1e-5)


@pytest.mark.parametrize("residual", [PreNorm, PostNorm])
def test_a_decoder_block_is_pytorchs_decoder_layer(residual: Residual) -> None:
    theirs = nn.TransformerDecoderLayer(8, 2, 12, dropout=0, batch_first=True, norm_first=residual is PreNorm)
    randomise(theirs)
    ours = DecoderBlock(*layers(theirs, ["self_attn", "multihead_attn"], residual))
    x, memory, keep = torch.randn(2, 4, 8), torch.randn(2, 5, 8), torch.arange(5) < torch.tensor([[5], [3]])
    future = torch.ones(4, 4, dtype=torch.bool).triu(1)
    expected = theirs(x, memory, tgt_mask=future, memory_key_padding_mask=~keep)
    same(ours(x, memory, causal(), padding(keep)), expected, 1e-5)
    same(ours(x, ours.project(memory), causal(), padding(keep)), expected, 1e-5)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("cross", [True, False])
@given(seed=seeds, batch=st.integers(1, 3), length=st.integers(1, 6), seen=st.sampled_from([None, 1, 2, 4]))
@settings(max_examples=10)
@torch.no_grad()
def test_stepping_is_reading_all_at_once(
    scheme: str, cross: bool, seed: int, batch: int, length: int, seen: int | None
) -> None:
    torch.manual_seed(seed)
    decoder = small_decoder(scheme, cross, mask=None if seen is None else window(seen))
    memory = torch.randn(batch, 4, WIDTH) if cross else None
    mask = padding(torch.arange(4) < torch.randint(1, 5, (batch, 1))) if cross else None
    tokens = torch.randint(VOCABULARY, (batch, length))
    state, steps = decoder.start(memory, mask), []
    for t in range(length):
        assert state.position == t
        x, state = decoder.step(state, tokens[:, t : t + 1])
        steps.append(x)
    same(torch.cat(steps, dim=1), decoder(tokens, memory, mask), 1e-5)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_token_sees_a_later_one(scheme: str) -> None:
    decoder, memory = small_decoder(scheme), torch.randn(1, 3, WIDTH)
    x = decoder(torch.tensor([[1, 2, 3, 4]]), memory)
    changed = decoder(torch.tensor([[1, 2, 9, 4]]), memory)
    same(changed[:, :2], x[:, :2])
    assert not torch.allclose(changed[:, 2:], x[:, 2:], atol=1e-3)


def test_packed_documents_read_as_if_each_were_alone() -> None:
    decoder = small_decoder("rotary", cross=False)
    first, second = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]])
    packed = decoder(torch.cat((first, second), dim=1), documents=torch.tensor([[0, 0, 0, 1, 1]]))
    same(packed, torch.cat((decoder(first), decoder(second)), dim=1), 1e-5)


def test_padding_of_the_source_changes_nothing() -> None:
    block = EncoderBlock(*(PreNorm(part, LayerNorm(8)) for part in (MultiHeadAttention(8, 2), FeedForward(8, 12))))
    encoder = Encoder(Embedding(VOCABULARY, 8), [block])
    keep = torch.tensor([[True, True, False]])
    same(encoder(torch.tensor([[1, 2, 7]]), padding(keep))[:, :2], encoder(torch.tensor([[1, 2]])))


@torch.no_grad()
def test_a_decoder_that_reads_a_source_refuses_to_go_without_one() -> None:
    decoder, tokens = small_decoder(cross=True), torch.tensor([[1, 2]])
    with pytest.raises(InputError, match=r"memory|source"):  # else it would attend to itself, future and all
        decoder(tokens)
    with pytest.raises(InputError, match=r"memory|source"):
        decoder.step(decoder.start(), tokens[:, :1])


@pytest.mark.parametrize("scheme", SCHEMES)
@torch.no_grad()
def test_padding_comes_last_unless_the_tokens_are_told_where_they_stand(scheme: str) -> None:
    """Positions count from the first column: absolute ones notice padding on the left, relative ones do not."""
    positions = Sinusoidal(WIDTH) if scheme == "plain" else None
    attention = PreNorm(MultiHeadAttention(WIDTH, HEADS, positions=SCHEMES[scheme]()), LayerNorm(WIDTH))
    encoder = Encoder(
        Embedding(VOCABULARY, WIDTH, positions=positions), [EncoderBlock(attention, FeedForward(WIDTH, 12))]
    )
    randomise(encoder)
    tokens, nothing = torch.tensor([[3, 1, 2]]), torch.zeros(1, 2, dtype=torch.long)
    alone, left = encoder(tokens), torch.cat((nothing, tokens), dim=1)
    right = padding(torch.tensor([[True, True, True, False, False]]))
    mask, place = padding(torch.tensor([[False, False, True, True, True]])), torch.tensor([[0, 0, 0, 1, 2]])
    same(encoder(torch.cat((tokens, nothing), dim=1), right)[:, :3], alone, 1e-5)
    same(encoder(left, mask, place)[:, 2:], alone, 1e-5)
    assert torch.allclose(encoder(left, mask)[:, 2:], alone, atol=1e-3) == (scheme != "plain")
