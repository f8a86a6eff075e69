"""What must also hold on an accelerator; skipped where there is none.

On a GPU machine without pytest: `PYTHONPATH=src python tests/test_accelerator.py`.
"""

import contextlib
import copy
import math
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor

import glassformer as gf
from glassformer.decoding import capturing
from glassformer.decoding.largest import suits_groups
from glassformer.decoding.limits import Scorer
from glassformer.models import gpt2, llama, t5
from glassformer.models.recurrent import recurrent
from glassformer.parts import ALiBi, Mask, MultiHeadAttention, Rotary, attention, causal, fused_attention, padding
from glassformer.parts.guard import use_triton
from glassformer.parts.masks import packed
from glassformer.parts.packing import Packed
from glassformer.parts.schemes import alibi, rotary
from glassformer.parts.short_attention import suits
from glassformer.parts.step_attention import step_attention, suits_step

with contextlib.suppress(ImportError):
    import pytest

    pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")

LIMITS = gf.Limits(start=1, end=2, max_length=15)


def model_and_source() -> tuple[gf.EncoderDecoder, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    model = gf.transformer(60, width=64, heads=4, layers=2, hidden=128, tie_output=False).eval()
    source, keep = gf.pad([[5, 6, 7, 8, 9], [10, 11], [12, 13, 14]])
    return model, source, keep


def test_fused_and_open_attention_agree() -> None:
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    keep = torch.rand(3, 9, device="cuda") > 0.4
    keep[:, 0] = True
    query, key, value = (torch.randn(3, 4, 9, 16, device="cuda") for _ in range(3))
    for mask in (None, causal(), padding(keep), padding(keep) & causal()):
        torch.testing.assert_close(
            fused_attention(query, key, value, mask), attention(query, key, value, mask)[0], atol=2e-6, rtol=1e-5
        )


def test_a_query_with_nothing_to_attend_to_takes_in_nothing() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        query, key, value = (torch.randn(2, 2, 4, 16, device="cuda", dtype=dtype) for _ in range(3))
        query.requires_grad_(True)
        allowed = torch.ones(2, 1, 4, 4, dtype=torch.bool, device="cuda")
        allowed[1, :, 2] = False
        taken = fused_attention(query, key, value, Mask(allowed))
        assert float(taken[1, :, 2].detach().abs().max()) == 0.0
        (gradient,) = torch.autograd.grad(taken.float().sum(), query)
        assert bool(gradient.isfinite().all())


def test_short_attention_and_its_gradients_equal_those_in_the_open() -> None:
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    for queries, keys, width, masked, is_causal in (
        (5, 5, 8, True, False),
        (20, 20, 64, False, True),
        (33, 33, 32, True, True),
        (70, 130, 48, True, False),
        (3, 200, 128, False, False),
    ):
        lengths = queries, keys, keys
        q, k, v = (torch.randn(3, 2, length, width, device="cuda", requires_grad=True) for length in lengths)
        keep = torch.rand(3, keys, device="cuda") > 0.3
        keep[1] = not masked  # a sentence of nothing but padding
        mask = Mask(keep[:, None, None] if masked else None, causal=is_causal)
        slope = torch.randn(3, 2, queries, width, device="cuda")
        exact = attention(q, k, v, mask)[0]
        gradients = torch.autograd.grad(exact, (q, k, v), slope)
        for half in (torch.bfloat16, torch.float16):
            assert suits(q.to(half), k.to(half), v.to(half), mask)
            short = fused_attention(q.to(half), k.to(half), v.to(half), mask)
            assert short.dtype == half
            near = 5e-2 if half == torch.bfloat16 else 8e-3
            torch.testing.assert_close(short.float(), exact, atol=near, rtol=near)
            got = torch.autograd.grad(short, (q, k, v), slope.to(half))
            torch.testing.assert_close(got, gradients, atol=near, rtol=near)


def test_packed_attention_and_its_gradients_equal_those_in_the_open() -> None:
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    lengths = torch.tensor([[3, 16, 1, 40, 0, 70, 17, 5], [9, 20, 2, 33, 4, 90, 0, 11]])  # of queries and of keys
    starts = torch.cat((torch.zeros(2, 1), lengths.cumsum(1)), 1).int().cuda()
    for usual, same, is_causal, width in ((16, True, True, 64), (20, True, False, 32), (64, False, False, 48)):
        sides = (starts[0], starts[0]) if same else (starts[0], starts[1])
        queries, keys = (Packed(each, 90, usual) for each in sides)
        mask = packed(queries, keys) & Mask(causal=is_causal)
        sizes = [int(each[-1]) for each in sides]
        q, k, v = (torch.randn(2, 4, size, width, device="cuda", requires_grad=True) for size in (*sizes, sizes[1]))
        slope = torch.randn(2, 4, sizes[0], width, device="cuda")
        exact = attention(q, k, v, mask)[0]
        gradients = torch.autograd.grad(exact, (q, k, v), slope)
        half = q.bfloat16(), k.bfloat16(), v.bfloat16()
        assert suits(*half, mask)
        short = fused_attention(*half, mask)
        torch.testing.assert_close(short.float(), exact, atol=5e-2, rtol=5e-2)
        torch.testing.assert_close(
            torch.autograd.grad(short, (q, k, v), slope.bfloat16()), gradients, atol=5e-2, rtol=5e-2
        )


def test_position_schemes_follow_the_model() -> None:
    for scheme in (Rotary(16), ALiBi(4)):
        torch.manual_seed(0)
        part = MultiHeadAttention(64, 4, positions=scheme)
        x = torch.randn(2, 7, 64)
        here = part(x, mask=causal())
        there = copy.deepcopy(part).to("cuda")(x.to("cuda"), mask=causal())
        torch.testing.assert_close(there.cpu(), here, atol=1e-4, rtol=1e-4)


def test_decoding_gives_the_same_tokens_as_on_the_cpu() -> None:
    model, source, keep = model_and_source()
    there = copy.deepcopy(model).to("cuda")
    inputs = source.to("cuda"), keep.to("cuda")
    here = gf.beam_search(model, source, keep, limits=LIMITS, width=4, best=3)
    for one, other in zip(here, gf.beam_search(there, *inputs, limits=LIMITS, width=4, best=3), strict=True):
        assert [each.tokens for each in one] == [each.tokens for each in other]
    greedy = [each.tokens for each in gf.greedy(model, source, keep, limits=LIMITS)]
    assert greedy == [each.tokens for each in gf.greedy(there, *inputs, limits=LIMITS)]
    sampled = [each.tokens for each in gf.sample(model, source, keep, limits=LIMITS, seed=7)]
    assert sampled == [each.tokens for each in gf.sample(there, *inputs, limits=LIMITS, seed=7)]


FAMILIES: dict[str, Any] = {
    "transformer": lambda: gf.transformer(60, width=64, heads=4, layers=2, hidden=128, tie_output=False),
    "rotary": lambda: gf.transformer(60, 64, 4, 2, 128, tie_output=False, positions=rotary, key_value_heads=2),
    "alibi": lambda: gf.transformer(60, 64, 4, 2, 128, tie_output=False, positions=alibi),
    "t5": lambda: t5(60, 64, 4, 2, 128, tie_output=False),
    "gpt2": lambda: gpt2(60, 64, 4, 2, 128, length=128, tie_output=False),
    "llama": lambda: llama(60, 64, 4, 2, 128, tie_output=False),
}


@contextmanager
def eager() -> Iterator[None]:
    """Without captured steps."""
    supports, capturing.supports = capturing.supports, lambda device: False
    try:
        yield
    finally:
        capturing.supports = supports


def random_model(name: str, seed: int) -> Any:
    torch.manual_seed(seed)
    model = FAMILIES[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.double().cuda()  # in float32, two tokens that are nearly as likely would differ


def all_outputs(model: Any, inputs: tuple[torch.Tensor, ...], limits: gf.Limits) -> list[Any]:
    beams = gf.beam_search(model, *inputs, limits=limits, width=4, best=2)
    early = gf.beam_search(model, *inputs, limits=limits, width=3, early_stopping="filled", length_penalty=0.6)
    lines = gf.greedy(model, *inputs, limits=limits)
    drawn = gf.sample(model, *inputs, limits=limits, seed=5, top_k=20, temperature=0.8)
    every = gf.sample(model, *inputs, limits=limits, seed=6, top_p=0.9)
    streamed = [event.token for event in gf.stream(model, *inputs, limits=limits)]
    return [[[each.tokens for each in row] for row in (*beams, *early, lines, drawn, every)], streamed]


def test_captured_decoding_gives_the_same_tokens_as_eager_decoding() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    for number, name in enumerate(FAMILIES):
        start = None if name in {"gpt2", "llama"} else 1
        rules = (
            gf.Limits(start, (2, 3), max_length=30, min_length=4, suppress=(5, 6), forced_last=2),
            gf.Limits(start, 2, max_length=40, no_repeat_ngram=2, repetition_penalty=1.2, forced_first=7),
            gf.Limits(start, 2, max_length=75, min_length=70),  # more than the first bucket has room for
        )
        for seed in range(1 if number % 2 else 2):
            limits, model = rules[(number + seed) % 3], random_model(name, seed)
            for batch in ([[5, 6, 7, 8, 9], [10, 11], [12, 13, 14]], [[7, 8]] * 2 + [[9, 4, 5]] * 3):
                inputs = tuple(x.cuda() for x in gf.pad(batch))
                found = all_outputs(model, inputs, limits)
                with eager():
                    assert found == all_outputs(model, inputs, limits), (name, seed, len(batch))
            store = capturing.stores[model]
            assert store.buckets, name
            assert not store.refused, name


def test_an_ensemble_is_captured_if_all_its_models_can_be() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    inputs = tuple(x.cuda() for x in gf.pad([[5, 6, 7, 8, 9], [10, 11], [12, 13, 14]]))
    alike = [random_model(name, 4) for name in ("transformer", "rotary", "t5")]
    torch.manual_seed(0)
    lstm = recurrent(60, 64, tie_output=False).eval().double().cuda()
    for members in (alike, [*alike, lstm]):
        for limits in (gf.Limits(1, 2, max_length=30, min_length=4), gf.Limits(1, 2, max_length=75, min_length=70)):
            together = gf.Ensemble(members)
            found = [all_outputs(together, inputs, limits) for _ in range(2)]
            with eager():
                assert found == [all_outputs(together, inputs, limits)] * 2
            assert bool(capturing.stores[together].buckets) == (members is alike)
            assert not capturing.stores[together].refused


def compare(what: object, taken: Tensor | None, query: Tensor, keys: Tensor, values: Tensor, allowed: Tensor) -> None:
    """Refuse an error that is more than twice that of PyTorch's kernel; `allowed` is (B, k, N)."""
    key, value = (x.double().repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in (keys, values))
    scores = query.double() @ key.mT / math.sqrt(query.shape[-1])
    right = scores.masked_fill(~allowed[:, None], -torch.inf).softmax(dim=-1) @ value
    usual = fused_attention(query, keys, values, Mask(allowed[:, None]))
    assert taken is not None, what
    found, bound = (float((x.double() - right).square().mean().sqrt()) for x in (taken, usual))
    least = torch.finfo(query.dtype).eps * float(right.square().mean().sqrt())  # of a kernel that rounds once or twice
    assert found <= max(2 * bound, least), (what, found, bound, least)


def test_a_steps_own_kernel_takes_in_what_the_formula_says() -> None:
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    for sizes in ((8, 8, 64, 5, 125), (4, 4, 64, 5, 0), (6, 2, 40, 1, 64), (2, 1, 16, 3, 63), (2, 2, 128, 20, 9)):
        heads, groups, width, beams, filled = sizes
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            query, *new = (torch.randn(3, beams, n, width, device="cuda").to(dtype) for n in (heads, groups, groups))
            query, key, value = (x.transpose(1, 2) for x in (query, *new))
            keys, values = (torch.randn(3, groups, 160, width, device="cuda").to(dtype) for _ in range(2))
            expected = keys.clone(), values.clone()
            places = range(filled, filled + beams)
            for x, one in zip(expected, (key, value), strict=True):
                x[:, :, places] = one
            seen = torch.rand(3, beams, 160, device="cuda") > 0.5  # what is not filled is not to be looked at
            table = seen.clone()
            table[:, :, filled:] = False
            table[:, range(beams), places] = True
            mask = Mask(seen[:, None], filled=torch.tensor([filled], device="cuda"))
            assert suits_step(query, values, mask), (sizes, dtype)
            taken = step_attention(query, keys, values, mask, None, (key, value))
            compare(("self", sizes, dtype), taken, query, *expected, table)
            assert torch.equal(keys, expected[0]), (sizes, dtype)
            assert torch.equal(values, expected[1]), (sizes, dtype)
            source = torch.arange(160, device="cuda") < torch.tensor([[5], [149], [77]], device="cuda")
            mask = Mask(source[:, None, None], filled=torch.tensor([149], device="cuda"))
            taken = step_attention(query, keys, values, mask, None)
            compare(("cross", sizes, dtype), taken, query, *expected, source[:, None].expand(-1, beams, -1))
            assert torch.equal(keys, expected[0]), (sizes, dtype)


def test_a_steps_own_kernel_goes_on_in_a_graph() -> None:
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    for dtype in (torch.float32, torch.bfloat16):
        grow_in_a_graph(dtype)


def grow_in_a_graph(dtype: torch.dtype, sentences: int = 7, beams: int = 5, width: int = 64) -> None:
    """Thirty steps of a tree of beams, each compared with the formula."""
    query, key, value = (torch.zeros(sentences, n, beams, width, device="cuda", dtype=dtype) for n in (8, 4, 4))
    keys, values = (torch.zeros(sentences, 4, 160, width, device="cuda", dtype=dtype) for _ in range(2))
    seen = torch.zeros(sentences, beams, 160, dtype=torch.bool, device="cuda")
    filled, taken = torch.zeros(1, dtype=torch.long, device="cuda"), torch.empty_like(query)
    mask = Mask(seen[:, None], filled=filled)
    assert suits_step(query, values, mask)

    def step() -> None:
        found = step_attention(query, keys, values, mask, None, (key, value))
        assert found is not None
        taken.copy_(found)
        filled.add_(beams)

    replay = capturing.graph_of(step, torch.cuda.graph_pool_handle())
    filled.zero_()
    expected, table = (torch.zeros_like(keys), torch.zeros_like(values)), torch.zeros_like(seen)
    for number in range(30):
        places = range(number * beams, (number + 1) * beams)
        parents = torch.randint(beams, (sentences, beams, 1), device="cuda")
        table = table.gather(1, parents.expand_as(table))
        seen.copy_(table)
        table[:, range(beams), places] = True
        for x in (query, key, value):
            x.normal_()
        for x, one in zip(expected, (key, value), strict=True):
            x[:, :, places] = one
        replay()
        compare((dtype, number), taken, query, *expected, table)
    assert torch.equal(keys, expected[0])
    assert torch.equal(values, expected[1])


def test_decoding_with_a_steps_own_kernel_is_as_exact_as_without() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    inputs = tuple(x.cuda() for x in gf.pad([[5, 6, 7, 8, 9], *([one, one + 1, 7] for one in range(4, 50, 3))]))
    for name in FAMILIES:
        limits = gf.Limits(None if name in {"gpt2", "llama"} else 1, 2, max_length=24, min_length=12)
        for dtype in (torch.float32, torch.bfloat16):
            model, other = (random_model(name, 1).to(dtype) for _ in range(2))
            found, exact = written(model, inputs, limits), copy.deepcopy(model).double()
            use_triton(False)
            try:
                usual = written(other, inputs, limits)
            finally:
                use_triton(True)
            assert all(capturing.stores[each].buckets for each in (model, other)), name
            errors = [apart(exact, inputs, limits, each) for each in (found, usual)]
            assert errors[0] <= max(1.5 * errors[1], 1e-5), (name, dtype, errors)
            with eager():
                pairs = [*zip(found, written(model, inputs, limits), strict=True)]
            same = sum(one.tokens == two.tokens for one, two in pairs) / len(pairs)
            sys.stdout.write(f"{name} {dtype}: error {errors[0]:.2g}, without {errors[1]:.2g}; {same:.0%} as eager\n")
            assert same >= 0.95 or dtype == torch.bfloat16, (name, same)  # nearly equal tokens may change places


def written(model: Any, inputs: tuple[Tensor, ...], limits: gf.Limits) -> list[Any]:
    """An output of each sentence by beam search, one greedily, and one by chance."""
    best = [each for each, *_ in gf.beam_search(model, *inputs, limits=limits, width=5)]
    drawn = gf.sample(model, *inputs, limits=limits, seed=5)
    return [*best, *gf.greedy(model, *inputs, limits=limits), *drawn]


def apart(model: Any, inputs: tuple[Tensor, ...], limits: gf.Limits, outputs: list[Any]) -> float:
    """How far the log-probabilities of written tokens are from those that a model gives them, on average."""
    distances: list[float] = []
    many = len(inputs[0])
    for first in range(0, len(outputs), many):
        some = outputs[first : first + many]
        exact = gf.greedy(model, *inputs, limits=limits, prefix=[each.tokens[:-1] for each in some])
        for one, other in zip(some, exact, strict=True):
            pairs = zip(one.log_probabilities[:-1], other.log_probabilities, strict=False)
            distances += [abs(x - y) for x, y in pairs]
    return sum(distances) / len(distances)


def test_the_likeliest_tokens_are_those_of_all_scores() -> None:
    torch.manual_seed(0)
    for vocabulary in (8000, 32000, 50257):
        for least, suppress in ((0, ()), (3, (5, 77)), (0, (0, 1, 3))):
            limits = gf.Limits(1, (2, 9), max_length=20, min_length=least, suppress=suppress)
            scorer = Scorer(limits, None, (torch.zeros(2, 1, device="cuda"),), greedily=False)
            logits = 3 * torch.randn(2, 3, vocabulary, device="cuda")
            logits[..., [2, 5, 0, 9]] += 20
            for step in (0, 7):
                given = torch.tensor([step], device="cuda"), torch.tensor([least, 20], device="cuda"), scorer.history(0)
                assert suits_groups(logits, 20)
                values, tokens = scorer.likeliest(logits, *given, 15)
                expected = scorer.at(logits, *given).topk(15, dim=-1)
                torch.testing.assert_close(values, expected.values, atol=1e-4, rtol=1e-5)
                assert torch.equal(tokens, expected.indices)


def test_a_packed_model_writes_the_same() -> None:
    for name in ("transformer", "llama", "gpt2"):
        model = random_model(name, 3)
        limits = gf.Limits(None if name in {"gpt2", "llama"} else 1, 2, max_length=30)
        inputs = tuple(x.cuda() for x in gf.pad([[5, 6, 7, 8, 9], [10, 11], [12, 13, 14]]))
        assert all_outputs(gf.pack(model), inputs, limits) == all_outputs(model, inputs, limits), name


def test_captured_steps_read_new_weights_and_survive_other_work() -> None:
    model, other = random_model("transformer", 1), random_model("transformer", 2)
    inputs = tuple(x.cuda() for x in gf.pad([[5, 6, 7], [8, 9]]))
    limits = gf.Limits(1, 2, max_length=40)
    gf.greedy(model, *inputs, limits=limits)
    expected = [each.tokens for each in gf.greedy(other, *inputs, limits=limits)]
    model.load_state_dict(other.state_dict())
    junk = [torch.full((1 << 20,), float("nan"), device="cuda") for _ in range(20)]
    del junk
    assert [each.tokens for each in gf.greedy(model, *inputs, limits=limits)] == expected
    model.bfloat16()
    gf.greedy(model, *inputs, limits=limits)
    model.double()
    assert len(gf.greedy(model, *inputs, limits=limits)) == 2
    one, two = (gf.stream(model, *inputs, limits=gf.Limits(1, 2, 40, 40)) for _ in range(2))
    assert [next(one).token, next(one).token] == [next(two).token, next(two).token]
    assert [event.token for event in one] == [event.token for event in two]


def test_what_cannot_be_captured_is_decoded_and_the_model_still_works() -> None:
    class Asking(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if float(x.sum()) < 1e30 else -x  # waits for the device

    model = random_model("transformer", 1)
    inputs = tuple(x.cuda() for x in gf.pad([[5, 6, 7], [8, 9]]))
    with eager():
        expected = [each.tokens for each in gf.greedy(model, *inputs, limits=LIMITS)]
    model.decoder.norm = torch.nn.Sequential(model.decoder.norm, Asking())
    assert [each.tokens for each in gf.greedy(model, *inputs, limits=LIMITS)] == expected
    assert capturing.stores[model].refused
    other = random_model("gpt2", 1)
    assert len(gf.greedy(other, inputs[0], limits=gf.Limits(None, 2, 30))) == 2
    assert not capturing.stores[other].refused


def test_bf16_models_decode() -> None:
    model, source, keep = model_and_source()
    outputs = gf.beam_search(model.to("cuda", torch.bfloat16), source.cuda(), keep.cuda(), limits=LIMITS, width=4)
    assert all(torch.tensor(best.log_probabilities).isfinite().all() for best, *_ in outputs)


def test_bad_tokens_are_a_sentence_before_they_are_a_device_assert() -> None:
    model, source, keep = model_and_source()
    message = ""
    try:
        gf.greedy(model.to("cuda"), source.cuda() + 1000, keep.cuda(), limits=LIMITS)
    except gf.InputError as error:
        message = str(error)
    assert "vocabulary has the ids 0 to 59" in message


def run_all(tests: dict[str, Any]) -> NoReturn:
    """Run those that are named on the command line, or all; the exit status is how many failed."""
    failed = 0
    for name, test in tests.items():
        if name.startswith("test_") and (len(sys.argv) < 2 or any(word in name for word in sys.argv[1:])):
            try:
                test()
                sys.stdout.write(f"{name} passed\n")
            except Exception:
                failed += 1
                sys.stdout.write(f"{name} FAILED\n{traceback.format_exc()}\n")
    sys.exit(failed)


if __name__ == "__main__":
    run_all(dict(globals()))
