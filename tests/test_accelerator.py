"""What must also hold on an accelerator; skipped where there is none.

On a GPU machine without pytest: `PYTHONPATH=src python tests/test_accelerator.py`.
"""

import copy
import importlib.util
import sys
from types import SimpleNamespace
from typing import Any

import torch

import glassformer as gf
from glassformer.data.planning import Grid
from glassformer.models import t5
from glassformer.parts import ALiBi, Mask, MultiHeadAttention, Rotary, attention, causal, fused_attention, padding
from glassformer.parts.schemes import rotary
from glassformer.parts.short_attention import suits
from glassformer.tasks.losses import IGNORED, smoothed
from glassformer.tasks.objective import Objective
from glassformer.tasks.translation import PairBatch, translation_loss
from glassformer.training.distribution import Distribution
from glassformer.training.meter import Meter
from glassformer.training.optimisers import optimiser
from glassformer.training.stepping import CapturedSteps, Setting, Steps, on_own_stream

if importlib.util.find_spec("pytest") is not None:
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
            assert suits(q.to(half), k.to(half), v.to(half), mask.allowed)
            short = fused_attention(q.to(half), k.to(half), v.to(half), mask)
            assert short.dtype == half
            near = 5e-2 if half == torch.bfloat16 else 8e-3
            torch.testing.assert_close(short.float(), exact, atol=near, rtol=near)
            got = torch.autograd.grad(short, (q, k, v), slope.to(half))
            torch.testing.assert_close(got, gradients, atol=near, rtol=near)


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


def test_captured_steps_change_the_weights_as_others_do() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    sizes: dict[str, Any] = {"width": 64, "heads": 4, "layers": 1, "hidden": 128, "dropout": 0.0}
    cases: tuple[tuple[str, Any, dict[str, Any]], ...] = (
        ("adamw", gf.transformer, {}),
        ("muon", gf.transformer, {"positions": rotary}),
        ("adam", t5, {}),
    )
    for how, family, more in cases:
        torch.manual_seed(0)
        model: Any = family(60, **sizes, **more)
        one, two = (stepping(copy.deepcopy(model), how, kind) for kind in (Steps, CapturedSteps))
        with on_own_stream(torch.device("cuda")):
            for step in range(12):
                batch = pair_batch(step % 5)
                one.begin()
                one.add(batch, True)
                two.add(batch.fitted(Grid(64)).pin(), True)
                one.prepare(batch.targets)(1 / (step + 1))
                two.prepare(batch.targets)(1 / (step + 1))
            torch.cuda.synchronize()
        assert len(two._graphs) > 1
        for name, weight in one.setting.objective.named_parameters():
            if not name.endswith("key.bias"):  # whose gradient is nothing but rounding
                other = two.setting.objective.get_parameter(name)
                torch.testing.assert_close(other, weight, atol=2e-4, rtol=1e-3, msg=f"{how} {name}")


def stepping(model: Any, how: str, kind: Any) -> Any:
    model, device = model.cuda().train(), torch.device("cuda")
    options: Any = SimpleNamespace(
        optimiser=how, lr=1e-3, muon_lr=1e-2, betas=(0.9, 0.98), weight_decay=0.01, clip=1.0, precision="float32"
    )
    parameters, method = [*model.parameters()], optimiser(model, options)
    objective = Objective(model, translation_loss, 0.1)
    return kind(Setting(objective, parameters, method, Distribution(device), Meter(device), False, 1.0))


def pair_batch(seed: int) -> PairBatch:
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 4 + 3 * seed, (2, 5), generator=draw).tolist()
    sides = [gf.pad([torch.randint(3, 60, (n,), generator=draw).tolist() for n in each]) for each in lengths]
    (source, source_mask), (target, target_mask) = sides
    read = torch.cat((torch.ones(5, 1, dtype=torch.long), target[:, :-1]), dim=1)
    counts = int(source_mask.sum()), int(target_mask.sum())
    return PairBatch(source, source_mask, read, target, target_mask, torch.arange(5), *counts)


def test_the_kernel_of_the_loss_equals_the_formula() -> None:
    torch.manual_seed(0)
    for dtype, near in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        for words, smoothing in ((50, 0.1), (5000, 0.0), (32000, 0.1)):
            logits, right = (3 * torch.randn(70, words)).to(dtype), torch.randint(words, (70,))
            right[::7] = IGNORED
            wanted, slope = smoothed(logits.float(), right, smoothing)
            total, got = smoothed(logits.cuda(), right.cuda(), smoothing)
            torch.testing.assert_close(total.cpu(), wanted, rtol=1e-4 if dtype == torch.float32 else 1e-2, atol=1e-3)
            torch.testing.assert_close(got.float().cpu(), slope, rtol=near, atol=near)


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            sys.stdout.write(f"{name} passed\n")
