"""LoRA: the formula, the same bits at step 0, several adapters, merging, tied heads, and copies that are plain."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import glassformer as gf
from glassformer.errors import ConfigurationError
from glassformer.models import FAMILIES, EncoderDecoder, gpt2, transformer
from glassformer.parts import (
    Head,
    Int8Linear,
    LoRA,
    LoRALinear,
    PackedLinear,
    TiedHead,
    adapt,
    adapters,
    merge,
    merged,
    pack,
    quantise,
    unmerge,
    use,
    using,
)
from glassformer.parts.linear import Linear
from glassformer.parts.lora import LowRank, lora_parts

TOKENS, OTHERS = torch.tensor([[5, 6, 7, 8], [9, 4, 3, 2]]), torch.tensor([[1, 9, 8], [1, 7, 6]])
PIXELS = torch.randn(2, 3, 4, 4)
STACK: dict[str, Any] = {"vocabulary": 30, "width": 8, "heads": 2, "layers": 2, "hidden": 12, "dropout": 0.0}
SERIES = {key: value for key, value in STACK.items() if key != "vocabulary"} | {"columns": 3}
SERIES_VALUES = torch.randn(2, 6, 3)
CASES: dict[str, tuple[dict[str, Any], tuple[Tensor, ...]]] = {
    "bart": (STACK, (TOKENS, OTHERS)),
    "bert": (STACK | {"answer": "classes", "attention_dropout": 0.0}, (TOKENS,)),
    "captioner": (STACK | {"image": 4, "patch": 2, "attention_dropout": 0.0}, (PIXELS, OTHERS)),
    "gpt2": (STACK | {"attention_dropout": 0.0}, (TOKENS,)),
    "llama": (STACK | {"key_value_heads": 1}, (TOKENS,)),
    "marian": (STACK, (TOKENS, OTHERS)),
    "recurrent": ({"vocabulary": 30, "width": 8, "layers": 2, "dropout": 0.0}, (TOKENS, OTHERS)),
    "roberta": (STACK | {"answer": "words", "attention_dropout": 0.0}, (TOKENS,)),
    "series_decoder": (SERIES, (SERIES_VALUES,)),
    "series_encoder": (SERIES, (SERIES_VALUES,)),
    "series_recurrent": ({"columns": 3, "width": 8, "layers": 2, "dropout": 0.0}, (SERIES_VALUES,)),
    "t5": (STACK | {"head_width": 4, "gated": True}, (TOKENS, OTHERS)),
    "transformer": (STACK, (TOKENS, OTHERS)),
    "vit": ({key: value for key, value in STACK.items() if key != "vocabulary"} | {"image": 4, "patch": 2}, (PIXELS,)),
}


def low_rank(part: LoRALinear) -> LowRank:
    found = part.adapter()
    assert found is not None
    return found


def stirred(model: nn.Module, name: str = "default") -> None:
    """Let an adapter say something: B is no longer 0."""
    with torch.no_grad():
        for part in lora_parts(model).values():
            if name in part.adapters:
                nn.init.normal_(part.adapters[name].up, std=0.3)  # type: ignore[arg-type]


def a_transformer(**changes: Any) -> EncoderDecoder:
    return transformer(**STACK | changes)


@given(
    st.integers(1, 5),
    st.floats(0.5, 40),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.booleans(),
    st.booleans(),
)
def test_the_formula(rank: int, alpha: float, sizes: tuple[int, int], bias: bool, stabilised: bool) -> None:
    part, x = LoRA(rank, alpha, rank_stabilised=stabilised)(*sizes, bias=bias), torch.randn(2, 3, sizes[0])
    assert torch.equal(part(x), nn.functional.linear(x, part.weight, part.bias))
    stirred(part)
    low = low_rank(part)
    scale = alpha / (rank**0.5 if stabilised else rank)
    expected = x @ part.weight.T + (part.bias if bias else 0) + scale * (x @ low.down.T) @ low.up.T
    torch.testing.assert_close(part(x), expected, atol=1e-4, rtol=1e-4)


def test_a_begins_as_noise_and_b_as_zeros() -> None:
    low = low_rank(LoRA(rank=16)(2000, 3))
    assert low.down.std().item() == pytest.approx(1 / 16, rel=0.05)
    assert low.down.mean().abs() < 0.01
    assert not low.up.any()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", FAMILIES.names())
def test_an_adapted_model_begins_as_its_base_bit_for_bit(name: str, training: bool) -> None:
    arguments, inputs = CASES[name]
    model = (
        FAMILIES[name](**arguments).train(training).requires_grad_(False)
    )  # whether T5's bias learns picks the kernel
    before = model(*inputs)
    adapt(model, rank=3, targets=["*"])
    assert not any(isinstance(part, TiedHead) or type(part) in (nn.Linear, Head) for part in model.modules())
    assert torch.equal(model(*inputs), before)
    stirred(model)
    assert not torch.equal(model(*inputs), before)
    use(model, None)
    assert torch.equal(model(*inputs), before)


def test_passed_in_as_the_linear_part_it_begins_as_the_plain_model() -> None:
    model, plain = a_transformer(linear=LoRA(rank=2, alpha=4)), a_transformer()
    assert all(isinstance(part, LoRALinear) for name, part in model.named_modules() if name.endswith(".query"))
    plain.load_state_dict(model.state_dict(), strict=False)
    assert torch.equal(model(TOKENS, OTHERS), plain(TOKENS, OTHERS))
    sizes = {name: part.weight.abs().max() for name, part in lora_parts(model).items() if "attention" in name}
    for name, size in sizes.items():  # the last matrix of a branch begins smaller, as in plain models
        assert name.endswith(".output") == (size < 0.4), name


def test_only_a_and_b_learn_and_gradients_reach_them() -> None:
    model = adapt(a_transformer(), rank=2, targets=["query", "value"])
    learning = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert len(learning) == 2 * 2 * 6
    assert all(".adapters.default." in name for name in learning)
    stirred(model)
    model(TOKENS, OTHERS).square().sum().backward()
    assert {name for name, parameter in model.named_parameters() if parameter.grad is not None} == set(learning)


def test_dropout_falls_on_what_the_adapter_reads_only() -> None:
    part = LoRALinear(nn.Linear(50, 4))
    part.add("default", LoRA(rank=2, dropout=0.5))
    x = torch.randn(3, 2, 50)
    assert torch.equal(part.train()(x), part.eval()(x))  # B is 0
    stirred(part)
    assert not torch.equal(part.train()(x), part.eval()(x))
    use(part, None)
    assert torch.equal(part.train()(x), part.eval()(x))


@pytest.mark.parametrize(
    ("targets", "found"),
    [
        (["*.query"], 6),
        (["query", "value"], 12),
        (["encoder.*.query"], 2),
        (["decoder.blocks.1.cross_attention.part.*"], 4),
        (["head"], 1),
        (["query", "encoder.*.query"], 6),
    ],
)
def test_targets_are_patterns_of_names(targets: list[str], found: int) -> None:
    assert len(lora_parts(adapt(a_transformer(), targets=targets))) == found


def test_a_pattern_that_fits_nothing_is_a_sentence_and_changes_nothing() -> None:
    model = a_transformer()
    with pytest.raises(ConfigurationError) as caught:
        adapt(model, targets=["query", "q_proj"])
    assert 'no linear part of this model is named "q_proj": encoder.blocks.*.attention.part.query, ' in str(
        caught.value
    )
    assert "blocks.0" not in str(caught.value)
    assert not lora_parts(model)
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rank": 0}, "rank must be at least 1"),
        ({"alpha": 0.0}, "alpha must be a number above 0"),
        ({"alpha": float("nan")}, "alpha must be a number above 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ({"name": "a.b"}, 'cannot be named "a.b"'),
        ({"name": ""}, 'cannot be named ""'),
    ],
)
def test_numbers_and_names_that_cannot_be_are_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    model = a_transformer()
    with pytest.raises(ConfigurationError, match=sentence):
        adapt(model, **changes)
    assert not lora_parts(model)


def test_several_adapters_stand_over_one_base() -> None:
    model = a_transformer().eval()
    base = model(TOKENS, OTHERS)
    adapt(model, targets=["query"], name="red")
    stirred(model, "red")
    red = model(TOKENS, OTHERS)
    adapt(model, rank=2, targets=["query", "output"], name="blue")
    assert torch.equal(model(TOKENS, OTHERS), base)
    assert (adapters(model), using(model)) == (["red", "blue"], "blue")
    assert not any(parameter.requires_grad for name, parameter in model.named_parameters() if ".red." in name)
    stirred(model, "blue")
    blue = model(TOKENS, OTHERS)
    assert not torch.equal(blue, red)
    for name, expected in (("red", red), (None, base), ("blue", blue)):
        use(model, name)
        assert using(model) == name
        assert torch.equal(model(TOKENS, OTHERS), expected)
    with pytest.raises(ConfigurationError, match='no adapter named "green": it has red, blue'):
        use(model, "green")
    with pytest.raises(ConfigurationError, match='already has an adapter named "red"'):
        adapt(model, name="red")


@pytest.mark.parametrize("name", FAMILIES.names())
def test_merging_changes_nothing_and_is_undone_to_the_bit(name: str) -> None:
    """In double precision, where what two orders of adding differ by is far below anything wrong."""
    arguments, inputs = CASES[name]
    model = FAMILIES[name](**arguments).eval().double()
    inputs = tuple(each.double() if each.is_floating_point() else each for each in inputs)
    adapt(model, rank=3, alpha=3, targets=["*"])
    stirred(model)
    before, weights = model(*inputs), {key: value.clone() for key, value in model.state_dict().items()}
    merge(model)
    torch.testing.assert_close(model(*inputs), before, atol=1e-12, rtol=1e-12)
    assert model.state_dict().keys() == weights.keys()
    unmerge(model)
    assert torch.equal(model(*inputs), before)
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("name", FAMILIES.names())
def test_a_merged_matrix_is_the_sum_to_the_last_digit_but_one(name: str) -> None:
    arguments, _ = CASES[name]
    model = adapt(FAMILIES[name](**arguments).eval(), rank=3, alpha=3, targets=["*"])
    stirred(model)
    merge(model)
    for part in lora_parts(model).values():
        assert part.whole is not None
        low = low_rank(part)
        exact = part.weight.double() + low.lora.scale * low.up.double() @ low.down.double()
        torch.testing.assert_close(part.whole.double(), exact, atol=1e-6, rtol=1e-6)


def test_merged_parts_do_not_outlive_what_they_were_made_of() -> None:
    model = adapt(a_transformer().eval(), targets=["query"])
    plain = model(TOKENS, OTHERS)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    for change in (
        lambda: use(model, None),
        lambda: adapt(model, targets=["value"], name="other"),
        lambda: model.load_state_dict(weights, strict=False),
        lambda: model.train().eval(),
    ):
        use(model, "default")
        stirred(model)
        merge(model)
        change()
        assert all(part.whole is None for part in lora_parts(model).values())
        model.load_state_dict(weights, strict=False)
        assert torch.equal(model(TOKENS, OTHERS), plain)


@pytest.mark.parametrize("bias", [False, True])
def test_an_adapter_on_a_tied_head_leaves_the_embedding_alone(bias: bool) -> None:
    model = a_transformer().eval()
    model.head = TiedHead(model.decoder.embedding, bias=bias)
    table = model.encoder.embedding.weight
    kept, read = table.clone(), model.hidden(TOKENS, OTHERS)
    adapt(model, targets=["head"])
    stirred(model)
    logits = model(TOKENS, OTHERS)
    assert len({id(parameter) for parameter in model.parameters()}) == len(list(model.parameters()))
    merge(model)
    plain = merged(model)
    for each in (model, plain):
        assert torch.equal(each.encoder.embedding.weight, kept)
        assert torch.equal(each.hidden(TOKENS, OTHERS), read)
        torch.testing.assert_close(each(TOKENS, OTHERS), logits, atol=1e-5, rtol=1e-5)
    assert type(plain.head) is Head
    assert (plain.head.bias is not None) == bias
    use(model, None)
    assert merged(model).head.weight is not table
    still = merged(model)
    assert still.head.weight is still.encoder.embedding.weight  # with nothing to add, tied as before


def test_a_part_that_stands_in_two_places_stays_one() -> None:
    shared = nn.Linear(4, 4)
    model = nn.ModuleDict({"first": shared, "second": nn.Sequential(shared)})
    for target in ("first", "second.0"):
        adapted = adapt(copy.deepcopy(model), targets=[target])
        assert isinstance(adapted["first"], LoRALinear)
        assert adapted["first"] is adapted["second"][0]  # type: ignore[index]
        plain = merged(adapted)
        assert type(plain["first"]) is Linear
        assert plain["first"] is plain["second"][0]  # type: ignore[index]


def test_a_merged_copy_is_plain_and_apart() -> None:
    model = adapt(a_transformer(tie_output=False).eval(), targets=["*"])
    stirred(model)
    plain, expected = merged(model), model(TOKENS, OTHERS)
    assert plain.state_dict().keys() == a_transformer(tie_output=False).state_dict().keys()
    assert not lora_parts(plain)
    assert type(plain.head) is Head
    with torch.no_grad():
        plain.head.weight.zero_()
    assert torch.equal(model(TOKENS, OTHERS), expected)


@pytest.mark.parametrize(
    ("change", "kind", "near"), [(pack, PackedLinear, 1e-4), (lambda it: quantise(it, least=0), Int8Linear, 0.4)]
)
@pytest.mark.parametrize("tied", [True, False])
def test_packed_and_quantised_copies_take_the_adapter_along(
    change: Callable[[EncoderDecoder], EncoderDecoder], kind: type, near: float, tied: bool
) -> None:
    model = transformer(9000, width=128, heads=4, layers=1, hidden=64, tie_output=tied).eval()
    base = model(TOKENS, OTHERS)
    adapt(model, targets=["*"])
    stirred(model)
    expected = model(TOKENS, OTHERS)
    assert (expected - base).abs().mean() > 2 * near
    fast = change(model)
    assert isinstance(fast.head, kind)
    assert not lora_parts(fast)
    with torch.inference_mode():
        assert (fast(TOKENS, OTHERS) - expected).abs().mean() < near
    assert torch.equal(model(TOKENS, OTHERS), expected)


def test_copies_files_and_precisions(tmp_path: Path) -> None:
    model = adapt(a_transformer().eval(), targets=["query", "head"])
    stirred(model)
    expected = model(TOKENS, OTHERS)
    assert torch.equal(copy.deepcopy(model)(TOKENS, OTHERS), expected)
    own = {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}
    save_file(own, tmp_path / "all.safetensors")
    other = adapt(a_transformer().eval(), targets=["query", "head"])
    missing, surplus = other.load_state_dict(load_file(tmp_path / "all.safetensors"), strict=False)
    assert (set(missing) & own.keys(), surplus) == (set(), [])
    assert torch.equal(other(TOKENS, OTHERS), expected)
    merge(model)
    halved = model.bfloat16()
    assert halved(TOKENS, OTHERS).dtype == torch.bfloat16
    assert merged(halved).encoder.embedding.weight.dtype == torch.bfloat16


def test_an_adapted_model_compiles_as_one_graph() -> None:
    model = adapt(gpt2(**CASES["gpt2"][0]).eval(), targets=["query", "value"])
    stirred(model)
    compiled = torch.compile(model.hidden, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(TOKENS), model.hidden(TOKENS), atol=1e-5, rtol=1e-5)


def test_an_adapted_model_decodes_merged_as_unmerged() -> None:
    model = adapt(a_transformer().eval(), targets=["*"])
    stirred(model)
    limits = gf.Limits(start=1, end=2, max_length=6)
    apart = gf.beam_search(model, TOKENS, limits=limits, width=3)
    merge(model)
    assert [[one.tokens for one in each] for each in gf.beam_search(model, TOKENS, limits=limits, width=3)] == [
        [one.tokens for one in each] for each in apart
    ]


def test_printing_shows_the_numbers() -> None:
    assert "rank=4, alpha=8" in repr(LoRA(rank=4, alpha=8)(2, 3))
