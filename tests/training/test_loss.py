"""The chunked loss is PyTorch's cross entropy, in value and gradients, and never holds all logits."""

from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer.models import transformer
from glassformer.parts.embeddings import Embedding, Head, TiedHead
from glassformer.tasks import losses as loss
from glassformer.tasks.losses import consistent_loss, sequence_loss, smoothed
from glassformer.tasks.objective import Objective
from glassformer.tasks.translation import translation_loss

from .helpers import batch, model

WIDTH, VOCABULARY = 8, 12


def head(kind: str) -> nn.Module:
    bias = kind.endswith("bias")
    made = TiedHead(Embedding(VOCABULARY, WIDTH), bias) if kind.startswith("tied") else Head(WIDTH, VOCABULARY, bias)
    if bias:
        nn.init.normal_(made.bias)  # type: ignore[arg-type]
    return made


def both(made: nn.Module, hidden: Tensor, right: Tensor, mask: Tensor, smoothing: float) -> list[list[Tensor]]:
    """Value and gradients, ours and PyTorch's."""
    wanted = right.masked_fill(~mask, -100).flatten()
    results = []
    for ours in (True, False):
        x = hidden.clone().requires_grad_()
        if ours:
            value = sequence_loss(x, right, mask, int(mask.sum()), made, smoothing)
        else:
            value = F.cross_entropy(made(x).flatten(0, 1), wanted, reduction="sum", label_smoothing=smoothing)
        results.append([value, *torch.autograd.grad(value * 0.7, [x, *made.parameters()])])
    return results


@pytest.mark.parametrize("kind", ["tied", "tied bias", "untied", "untied bias"])
@given(
    seed=st.integers(0, 2**31), smoothing=st.sampled_from([0.0, 0.1, 0.5]), share=st.floats(0.05, 1), one=st.booleans()
)
def test_it_is_the_cross_entropy_of_torch(kind: str, seed: int, smoothing: float, share: float, one: bool) -> None:
    torch.manual_seed(seed)
    hidden, right = torch.randn(3, 13, WIDTH), torch.randint(VOCABULARY, (3, 13))
    mask = torch.rand(3, 13) <= share
    mask[0, 0] = True
    patch = pytest.MonkeyPatch()
    patch.setattr(loss, "CPU_ROWS", 4 if one else 512)  # many chunks, or a single one
    try:
        ours, theirs = both(head(kind), hidden, right, mask, smoothing)
    finally:
        patch.undo()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["tied bias", "untied bias", "untied"])
def test_a_frozen_head_passes_the_gradient_on(kind: str) -> None:
    made, hidden, right = head(kind), torch.randn(2, 5, WIDTH, requires_grad=True), torch.randint(VOCABULARY, (2, 5))
    mask = torch.ones(2, 5, dtype=torch.bool)
    (expected,) = torch.autograd.grad(sequence_loss(hidden, right, mask, 10, made), hidden)
    value = sequence_loss(hidden, right, mask, 10, made.requires_grad_(False))
    assert torch.equal(torch.autograd.grad(value, hidden)[0], expected)


def test_extreme_logits_give_finite_losses() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0], [-1e30, 0.0, 1e30]])
    value, slope = smoothed(logits, torch.tensor([1, 0]), 0.0)
    assert slope.isfinite().all()
    assert value.isfinite()
    assert value > 1e30


def test_only_a_chunk_of_logits_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "CPU_ROWS", 20)
    seen: list[int] = []

    def watched(logits: Tensor, right: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        seen.append(len(logits))
        return smoothed(logits, right, smoothing)

    mask = torch.ones(4, 15, dtype=torch.bool)
    mask[0, :5] = False
    right = torch.zeros(4, 15, dtype=torch.long)
    sequence_loss(torch.randn(4, 15, WIDTH), right, mask, 55, head("tied"), 0.1, watched)
    assert seen == [20, 20, 15]


def test_another_head_is_served_too() -> None:
    made = nn.Sequential(nn.Linear(WIDTH, 4), nn.Linear(4, VOCABULARY))
    hidden, right = torch.randn(2, 5, WIDTH), torch.randint(VOCABULARY, (2, 5))
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    ours, theirs = both(made, hidden, right, mask, 0.1)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


def run(objective: Objective, sentences: Sequence[list[int]] = ([3, 4, 5], [6], [7, 8])) -> Tensor:
    return objective(batch(list(sentences)))  # type: ignore[no-any-return]


def test_the_objective_is_the_loss_of_the_model() -> None:
    net = model(dropout=0.0)
    some = batch([[3, 4, 5], [6], [7, 8]])
    logits = net(some.source, some.target_in, some.source_mask)
    wanted = some.target_out.masked_fill(~some.target_mask, -100)
    expected = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(run(Objective(net, translation_loss, 0.1)), expected)


def test_bf16_is_close_and_its_gradients_are_float32() -> None:
    net = model(dropout=0.0)
    exact = run(Objective(net, translation_loss, 0.1))
    with torch.autocast("cpu", torch.bfloat16):
        rough = run(Objective(net, translation_loss, 0.1))
    rough.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(rough, exact, rtol=0.02, atol=0.02)
    assert all(
        p.grad is not None and p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in net.parameters()
    )


def test_without_gradients_none_are_computed() -> None:
    net = model(dropout=0.0)
    with torch.no_grad():
        value = run(Objective(net, translation_loss, 0.1))
    assert value.grad_fn is None
    torch.testing.assert_close(value, run(Objective(net, translation_loss, 0.1)).detach())


@pytest.mark.parametrize("whole", [True, False])
def test_compiled_it_is_the_same_and_few_shapes_are_compiled_for(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    usual = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **how: usual(function, **how | {"backend": counter}))
    nets = [transformer(VOCABULARY, width=WIDTH, heads=2, layers=3, hidden=16, dropout=0.0) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    plain, compiled = (Objective(net, translation_loss, 0.1) for net in nets)
    compiled.compile_parts(whole)
    for size in range(2, 8):
        sentences = [[3 + (size * row) % 8 for _ in range(size + row % 3)] for row in range(2 * size)]
        torch.testing.assert_close(run(plain, sentences), run(compiled, sentences))
    assert counter.frame_count <= 6  # not one a block, not one a shape
    before = counter.frame_count
    if whole:  # the model itself, which validates, stays as it was
        nets[1](torch.ones(1, 30, dtype=torch.long), torch.ones(1, 1, dtype=torch.long))
        assert counter.frame_count == before


@given(seed=st.integers(0, 2**31), smoothing=st.sampled_from([0.0, 0.1]), weight=st.sampled_from([0.0, 1.0, 5.0]))
def test_two_passes_cost_the_mean_of_their_losses_and_their_divergence(
    seed: int, smoothing: float, weight: float
) -> None:
    torch.manual_seed(seed)
    made, passes, right = head("tied bias"), torch.randn(6, 5, WIDTH), torch.randint(VOCABULARY, (3, 5))
    mask = torch.rand(3, 5) < 0.7
    mask[0, 0] = True
    tokens = int(mask.sum())
    found = consistent_loss(passes, right, mask, tokens, made, smoothing, weight)
    losses = [sequence_loss(each, right, mask, tokens, made, smoothing) for each in (passes[:3], passes[3:])]
    p, q = (F.log_softmax(made(each), dim=-1)[mask] for each in (passes[:3], passes[3:]))
    divergence = F.kl_div(q, p, reduction="sum", log_target=True) + F.kl_div(p, q, reduction="sum", log_target=True)
    torch.testing.assert_close(found, sum(losses) / 2 + weight / 4 * divergence, atol=1e-4, rtol=1e-4)


def test_consistency_reads_a_batch_twice_and_without_dropout_changes_nothing() -> None:
    sentences = batch([[4, 5, 6], [7, 8]])
    for dropout in (0.0, 0.5):
        torch.manual_seed(0)
        made = transformer(VOCABULARY, 16, 2, 1, 32, dropout).train()
        plain, twice = (Objective(made, translation_loss, 0.1, weight)(sentences) for weight in (0.0, 3.0))
        assert torch.allclose(plain, twice, atol=1e-4) == (dropout == 0.0)
        assert twice > 0
