"""Attention against numbers worked by hand, against PyTorch's module, and against itself by other means."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer.looking import record
from glassformer.parts import (
    ALiBi,
    Cache,
    KeyValues,
    Mask,
    MultiHeadAttention,
    RMSNorm,
    Rotary,
    Similarity,
    attention,
    causal,
    cosine_similarity,
    dot_similarity,
    fused_attention,
    padding,
    scaled_dot_similarity,
    simple_self_attention,
)

from .helpers import SCHEMES, randomise, same, seeds


def open_attention(*arguments: Tensor | Mask | None) -> Tensor:
    return attention(*arguments)[0]  # type: ignore[arg-type]


def test_two_tokens_by_hand() -> None:
    query = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    key = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    value = torch.tensor([[10.0, 0.0], [0.0, 100.0]])
    # scores: (1, 0) / √2 and (0, 2) / √2
    first = math.exp(1 / math.sqrt(2)) / (math.exp(1 / math.sqrt(2)) + 1)
    second = 1 / (1 + math.exp(2 / math.sqrt(2)))
    taken, weights = attention(query, key, value)
    same(weights, torch.tensor([[first, 1 - first], [second, 1 - second]]))
    same(taken, torch.tensor([[10 * first, 100 * (1 - first)], [10 * second, 100 * (1 - second)]]), 1e-5)


def test_mask_bias_and_scale_by_hand() -> None:
    query, key = torch.tensor([[2.0], [2.0]]), torch.tensor([[1.0], [3.0]])
    bias = torch.tensor([[0.0, 5.0], [1.0, -3.0]])
    # scores: 0.5 * (2, 6) + bias = (-, 8 hidden) and (2, 0)
    _, weights = attention(query, key, key, causal(), bias, scale=0.5)
    later = math.exp(2) / (math.exp(2) + math.exp(0))
    same(weights, torch.tensor([[1.0, 0.0], [later, 1 - later]]))


def test_six_words_of_512_numbers_have_the_shapes_of_the_notes() -> None:
    words = torch.randn(6, 512)
    scores = scaled_dot_similarity(words, words)
    same(scores, words @ words.T / math.sqrt(512), 1e-4)
    taken, weights = simple_self_attention(words)  # Q, K and V are the words themselves
    assert (scores.shape, weights.shape, taken.shape) == ((6, 6), (6, 6), (6, 512))
    same(taken, scores.softmax(dim=-1) @ words, 1e-4)


def test_bank_is_the_combination_of_its_sentence_that_its_weights_say() -> None:
    sentence = torch.randn(3, 4)  # money bank grows; river bank flows
    for shares in ([0.2, 0.7, 0.1], [0.5, 0.4, 0.1]):
        query = 2 * torch.tensor([shares]).log()  # by √4 = 2, and with one-hot keys, the scores are the logarithms
        bank, weights = attention(query @ torch.eye(3, 4), torch.eye(3, 4), sentence)
        same(weights, torch.tensor([shares]))
        same(bank[0], sum((share * word for share, word in zip(shares, sentence, strict=True)), torch.zeros(4)))


def test_weights_are_between_0_and_1_and_sum_to_1_whatever_the_scores() -> None:
    key = torch.tensor([[-300.0], [-2.0], [0.0], [5.0], [400.0]])
    for query in (torch.ones(1, 1), -torch.ones(1, 1), torch.full((1, 1), 0.01)):
        weights = attention(query, key, key)[1]
        assert weights.min() >= 0
        assert weights.max() <= 1
        same(weights.sum(), torch.tensor(1.0))
    weights = attention(torch.ones(1, 1), torch.tensor([[-1.0], [1.0]]), torch.ones(2, 1))[1]
    assert weights[0, 1] / weights[0, 0] == pytest.approx(math.exp(2), rel=1e-5)  # high scores get more, low ones less


def test_nothing_is_learned_of_a_pair_that_is_masked() -> None:
    query, key, value = (torch.randn(1, 2, requires_grad=True), *(torch.randn(3, 2, requires_grad=True) for _ in "kv"))
    taken, _ = attention(query, key, value, Mask(torch.tensor([[True, True, False]])))
    of_keys, of_values = torch.autograd.grad((taken * torch.tensor([1.0, -2.0])).sum(), [key, value])
    for gradient in (of_keys, of_values):
        assert gradient[:2].abs().min() > 0
        assert (gradient[2] == 0).all()


def test_three_similarities_by_hand() -> None:
    query, key = torch.tensor([[3.0, 4.0]]), torch.tensor([[4.0, 3.0], [0.0, -2.0]])
    same(dot_similarity(query, key), torch.tensor([[24.0, -8.0]]))
    same(scaled_dot_similarity(query, key), torch.tensor([[24 / math.sqrt(2), -8 / math.sqrt(2)]]))
    same(cosine_similarity(query, key), torch.tensor([[24 / 25, -8 / 10]]))
    same(cosine_similarity(0 * query, key), torch.zeros(1, 2))  # no direction, no similarity


def test_attention_without_parameters_by_hand() -> None:
    x = torch.tensor([[3.0, 4.0], [4.0, 3.0]])
    taken, weights = simple_self_attention(x, cosine_similarity)
    high = math.exp(1) / (math.exp(1) + math.exp(24 / 25))
    same(weights, torch.tensor([[high, 1 - high], [1 - high, high]]))
    same(taken, weights @ x)
    first, masked = simple_self_attention(x, dot_similarity, causal())
    same(first[0], x[0])
    same(masked[1], (x @ x.T)[1].softmax(dim=-1))
    same(simple_self_attention(x)[0], attention(x, x, x)[0])


@pytest.mark.parametrize("similarity", [dot_similarity, scaled_dot_similarity, cosine_similarity])
@pytest.mark.parametrize("scheme", [None, Rotary])
def test_a_similarity_is_a_part_in_the_same_place(similarity: Similarity, scheme: type[Rotary] | None) -> None:
    part = MultiHeadAttention(8, 2, similarity=similarity, positions=None if scheme is None else scheme(4))
    randomise(part)
    x = torch.randn(2, 5, 8)
    query, key, value = (m(x).view(2, 5, 2, 4).transpose(1, 2) for m in (part.query, part.key, part.value))
    if part.positions is not None:
        query, key = part.positions.rotate(query, None), part.positions.rotate(key, None)
    weights = similarity(query, key).masked_fill(~torch.ones(5, 5).tril().bool(), -torch.inf).softmax(dim=-1)
    same(part(x, mask=causal()), part.output((weights @ value).transpose(1, 2).flatten(2)), 1e-5)
    with record(nn.ModuleDict({"attention": part})) as trace:
        part(x, mask=causal())
    same(trace["attention.weights"], weights, 1e-5)
    cache = Cache()
    steps = [part(x[:, at : at + 1], cache=cache, position=at) for at in range(5)]
    same(torch.cat(steps, dim=1), part(x, mask=causal()), 1e-5)


def test_a_norm_of_queries_comes_before_that_of_the_similarity() -> None:
    part = MultiHeadAttention(8, 2, query_norm=RMSNorm(4), similarity=cosine_similarity)
    same(part.query_norm(torch.randn(1, 2, 3, 4)).norm(dim=-1), torch.ones(1, 2, 3))
    assert isinstance(MultiHeadAttention(8, 2, query_norm=RMSNorm(4)).query_norm, RMSNorm)
    assert MultiHeadAttention(8, 2, similarity=cosine_similarity, scale=7.0).scale == 7


def twins(bias: bool, memory_width: int | None = None) -> tuple[MultiHeadAttention, nn.MultiheadAttention]:
    """Our attention and PyTorch's, with the same numbers."""
    theirs = nn.MultiheadAttention(8, 2, bias=bias, kdim=memory_width, vdim=memory_width, batch_first=True)
    randomise(theirs)
    if memory_width is None:
        matrices = list(theirs.in_proj_weight.chunk(3))
    else:
        matrices = [theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight]
    numbers = dict(zip(["query.weight", "key.weight", "value.weight"], matrices, strict=True))
    numbers["output.weight"] = theirs.out_proj.weight
    if bias:
        numbers |= dict(zip(["query.bias", "key.bias", "value.bias"], theirs.in_proj_bias.chunk(3), strict=True))
        numbers["output.bias"] = theirs.out_proj.bias
    ours = MultiHeadAttention(8, 2, bias=bias, memory_width=memory_width)
    ours.load_state_dict(numbers)
    return ours, theirs


@pytest.mark.parametrize("bias", [True, False])
def test_self_causal_and_padded_attention_are_pytorchs(bias: bool) -> None:
    ours, theirs = twins(bias)
    x = torch.randn(3, 5, 8)
    keep = torch.arange(5) < torch.tensor([5, 3, 1])[:, None]
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)  # PyTorch's True = may not attend
    same(ours(x), theirs(x, x, x)[0])
    same(ours(x, mask=causal()), theirs(x, x, x, attn_mask=future)[0])
    same(ours(x, mask=padding(keep)), theirs(x, x, x, key_padding_mask=~keep)[0])
    same(ours(x, mask=padding(keep) & causal()), theirs(x, x, x, attn_mask=future, key_padding_mask=~keep)[0])


@pytest.mark.parametrize("bias", [True, False])
def test_cross_attention_to_a_memory_of_another_width_is_pytorchs(bias: bool) -> None:
    ours, theirs = twins(bias, memory_width=6)
    x, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 6)
    keep = torch.arange(5) < torch.tensor([5, 2])[:, None]
    same(ours(x, memory), theirs(x, memory, memory)[0])
    same(ours(x, memory, padding(keep)), theirs(x, memory, memory, key_padding_mask=~keep)[0])


def test_recorded_weights_are_those_pytorch_reports() -> None:
    ours, theirs = twins(bias=True)
    x = torch.randn(2, 4, 8)
    with record(ours) as trace:
        ours(x)
    same(trace["attention"], theirs(x, x, x, average_attn_weights=False)[1])


def test_grouped_key_value_heads_are_repeated_key_value_heads() -> None:
    grouped, full = MultiHeadAttention(8, 4, key_value_heads=2), MultiHeadAttention(8, 4)
    numbers = grouped.state_dict()
    for name in ("key", "value"):
        numbers[f"{name}.weight"] = numbers[f"{name}.weight"].view(2, 2, 8).repeat_interleave(2, 0).flatten(0, 1)
        numbers[f"{name}.bias"] = numbers[f"{name}.bias"].view(2, 2).repeat_interleave(2, 0).flatten()
    full.load_state_dict(numbers)
    x = torch.randn(2, 5, 8)
    same(grouped(x, mask=causal()), full(x, mask=causal()))
    with record(grouped) as trace:
        same(grouped(x), full(x))
    assert trace["attention.keys"].shape == (2, 2, 5, 2)


def test_head_width_is_independent_of_width() -> None:
    part = MultiHeadAttention(8, 3, head_width=5)
    x = torch.randn(2, 4, 8)
    heads = [m(x).view(2, 4, 3, 5) for m in (part.query, part.key, part.value)]
    taken = [attention(*(numbers[:, :, head] for numbers in heads))[0] for head in range(3)]
    same(part(x), part.output(torch.cat(taken, dim=-1)))


def test_a_given_scale_replaces_one_over_root_d() -> None:
    unscaled, default = MultiHeadAttention(8, 2, scale=1.0), MultiHeadAttention(8, 2)
    numbers = unscaled.state_dict()
    default.load_state_dict(numbers | {name: numbers[name] * 2 for name in ("query.weight", "query.bias")})  # √4 = 2
    x = torch.randn(1, 3, 8)
    same(unscaled(x), default(x))


def test_normed_queries_and_keys_have_one_size() -> None:
    part = MultiHeadAttention(8, 2, bias=False, query_norm=RMSNorm(4), key_norm=RMSNorm(4))
    x = torch.randn(2, 4, 8)
    before = part(x)
    with torch.no_grad():
        part.get_parameter("query.weight").mul_(100)
        part.get_parameter("key.weight").mul_(100)
    same(part(x), before, 1e-5)
    same(part.project(x).keys.square().mean(-1), torch.ones(2, 2, 4), 1e-5)


@pytest.mark.parametrize("attend", [open_attention, fused_attention])
def test_dropout_drops_weights_and_enlarges_the_rest(attend: Callable[..., Tensor]) -> None:
    query, key = torch.randn(1, 1, 64, 4), torch.randn(1, 1, 16, 4)
    everything = torch.eye(16)[None, None]  # values that read the weights back
    weights = attention(query, key, everything)[1]
    kept = attend(query, key, everything, None, None, None, 0.25)
    dropped = kept == 0
    same(kept, torch.where(dropped, 0, weights / 0.75))
    assert 0.15 < dropped.float().mean() < 0.35


def test_attention_drops_only_in_training() -> None:
    part = MultiHeadAttention(8, 2, dropout=0.5)
    x = torch.randn(1, 6, 8)
    assert not torch.equal(part(x), part(x))
    part.eval()
    plain = MultiHeadAttention(8, 2)
    plain.load_state_dict(part.state_dict())
    same(part(x), plain(x))


def test_rotary_attention_sees_distances_only() -> None:
    part = MultiHeadAttention(8, 2, positions=Rotary(4))
    x = torch.randn(2, 5, 8)
    same(part(x, position=torch.arange(5) + 700), part(x), 1e-5)
    assert not torch.allclose(part(x, position=torch.arange(5) * 2), part(x), atol=1e-4)


def test_alibi_weights_fall_with_distance_by_hand() -> None:
    part = MultiHeadAttention(8, 8, positions=ALiBi(8))
    nn.init.zeros_(part.get_parameter("query.weight"))
    nn.init.zeros_(part.get_parameter("query.bias"))  # so that nothing but the bias speaks
    with record(part) as trace:
        part(torch.randn(1, 3, 8))
    near, far = math.exp(-1 / 2), math.exp(-2 / 2)  # the first head's slope is 1/2
    middle = torch.tensor([near, 1, near]) / (1 + 2 * near)
    first = torch.tensor([1, near, far]) / (1 + near + far)
    same(trace["attention"][0, 0, :2], torch.stack((first, middle)))


@pytest.mark.parametrize("scheme", ["rotary", "relative", "alibi"])
def test_positions_tell_order(scheme: str) -> None:
    torch.manual_seed(0)
    ordered, blind = MultiHeadAttention(8, 2, positions=SCHEMES[scheme]()), MultiHeadAttention(8, 2)
    randomise(ordered)
    blind.load_state_dict({name: x for name, x in ordered.state_dict().items() if "positions" not in name})
    x = torch.randn(1, 5, 8)
    same(blind(x.flip(1)).flip(1), blind(x))
    assert not torch.allclose(ordered(x[:, [1, 0, 2, 3, 4]])[:, 2:], ordered(x)[:, 2:], atol=1e-4)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(seed=seeds, room=st.integers(1, 8), cut=st.integers(1, 5))
@settings(max_examples=10)
def test_reading_with_a_cache_is_reading_all_at_once(scheme: str, seed: int, room: int, cut: int) -> None:
    torch.manual_seed(seed)
    part = MultiHeadAttention(8, 2, key_value_heads=1, positions=SCHEMES[scheme]())
    x = torch.randn(2, 6, 8)
    with torch.no_grad():
        at_once = part(x, mask=causal())
        steps, pieces = Cache(room), Cache(room)
        same(torch.cat([part(x[:, t : t + 1], cache=steps, position=t) for t in range(6)], dim=1), at_once)
        places = [torch.arange(cut), torch.arange(cut, 6)]
        same(torch.cat([part(x[:, p], mask=causal(), cache=pieces, position=p) for p in places], dim=1), at_once)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_projected_memory_is_the_memory(scheme: str) -> None:
    part = MultiHeadAttention(8, 2, memory_width=6, positions=SCHEMES[scheme](), key_norm=RMSNorm(4))
    x, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 6)
    projected = part.project(memory)
    assert isinstance(projected, KeyValues)
    assert projected.keys.shape == projected.values.shape == (2, 2, 5, 4)
    same(part(x, projected), part(x, memory))


def test_all_four_projections_are_built_by_the_given_factory() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    part, plain = MultiHeadAttention(8, 2, linear=Doubled), MultiHeadAttention(8, 2)
    assert all(isinstance(each, Doubled) for each in (part.query, part.key, part.value, part.output))
    plain.load_state_dict({name: 2 * numbers for name, numbers in part.state_dict().items()})
    x = torch.randn(1, 3, 8)
    same(part(x), plain(x))
