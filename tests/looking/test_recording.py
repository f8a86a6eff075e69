"""Recording: what is kept is what the formulas say, and looking changes no bit.

B sentences, T tokens, S keys, H heads, K head width
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import glassformer as gf
from glassformer.errors import GlassformerError, InputError
from glassformer.models import transformer
from glassformer.parts import (
    Decoder,
    Encoder,
    MultiHeadAttention,
    PreNorm,
    Recurrent,
    adapt,
    merge,
    pack,
    quantise,
)
from glassformer.parts.observing import Observable

from .families import (
    FAMILIES,
    KEEP,
    RECURRENT,
    SOURCE,
    SPEAKERS,
    TARGET,
    TRANSFORMERS,
    WRITERS,
    Case,
    same,
    translator,
)


def traced(case: Case, model: Any) -> tuple[gf.Trace, Tensor]:
    with gf.record(model) as trace:
        found = model(*case.inputs)
    return trace, found


@pytest.mark.parametrize("name", FAMILIES)
def test_looking_changes_no_bit(name: str) -> None:
    case = FAMILIES[name]
    model = case.model()
    before = model(*case.inputs)
    trace, inside = traced(case, model)
    assert torch.equal(inside, before)
    assert torch.equal(model(*case.inputs), before)
    if "logits" in trace:
        assert torch.equal(trace["logits"], before)
    assert not any(trace[point].requires_grad for point in trace)


@pytest.mark.parametrize("name", TRANSFORMERS)
@torch.no_grad()
def test_every_point_of_attention_and_blocks_is_its_formula(name: str) -> None:
    case = FAMILIES[name]
    model = case.model()
    trace, _ = traced(case, model)
    for stack_name in ("encoder", "decoder"):
        stack = getattr(model, stack_name, None)
        if isinstance(stack, Encoder | Decoder):
            x = trace[f"{stack_name}.0.before"]
            for layer, block in enumerate(stack.blocks):
                x = follow(trace, f"{stack_name}.{layer}", block, x, case)
            same(trace[f"{stack_name}.output"], stack.norm(x))
    if "logits" in trace:
        last = "decoder" if hasattr(model, "decoder") else "encoder"
        same(trace["logits"], model.head(trace[f"{last}.output"]))


def follow(trace: gf.Trace, place: str, block: Any, x: Tensor, case: Case) -> Tensor:
    """Compute a block by hand from what enters it, and compare at each of its points."""
    branches = {"self": getattr(block, "attention", None) or block.self_attention}
    if getattr(block, "cross_attention", None) is not None:
        branches["cross"] = block.cross_attention
    for part, branch in branches.items():
        read = branch.norm(x) if isinstance(branch, PreNorm) else x
        memory = trace["encoder.output"] if part == "cross" else read
        attend_by_hand(trace, f"{place}.{part}", branch.part, read, memory, allowed(place, part, x, memory, case))
        x = joined(branch, x, trace[f"{place}.{part}.output"])
        same(trace[f"{place}.{part}.after"], x)
    feed = block.feed_forward
    read = feed.norm(x) if isinstance(feed, PreNorm) else x
    hidden = feed.part.activation(feed.part.expand(read))
    if hasattr(feed.part, "gate"):
        hidden = feed.part.activation(feed.part.gate(read)) * feed.part.expand(read)
    same(trace[f"{place}.ff.hidden"], hidden)
    same(trace[f"{place}.ff.output"], feed.part.output(hidden))
    x = joined(feed, x, trace[f"{place}.ff.output"])
    same(trace[f"{place}.after"], x)
    return trace[f"{place}.after"]


def joined(branch: Any, x: Tensor, added: Tensor) -> Tensor:
    return x + added if isinstance(branch, PreNorm) else branch.norm(x + added)


def allowed(place: str, part: str, x: Tensor, memory: Tensor, case: Case) -> Tensor:
    """Which keys each token may attend to, (B, 1, T, S)."""
    table = torch.ones(len(x), 1, x.shape[1], memory.shape[1], dtype=torch.bool)
    if case.inputs[-1].dtype == torch.bool and (part == "cross" or memory.shape[1] == KEEP.shape[1]):
        table = table & KEEP[:, None, None]
    return table.tril() if place.startswith("decoder") and part == "self" else table


def attend_by_hand(trace: gf.Trace, place: str, part: Any, read: Tensor, memory: Tensor, allowed: Tensor) -> None:
    def split(x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, part.head_width).transpose(1, 2)

    query, key, value = split(part.query(read)), split(part.key(memory)), split(part.value(memory))
    if part.positions is not None:
        query, key = part.positions.rotate(query, None), part.positions.rotate(key, None)
    for name, expected in (("queries", query), ("keys", key), ("values", value)):
        same(trace[f"{place}.{name}"], expected)
    groups = part.heads // part.key_value_heads
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query @ key.transpose(2, 3) * (part.head_width**-0.5 if part.scale is None else part.scale)
    if part.positions is not None:
        places = (torch.arange(read.shape[1])[None], torch.arange(memory.shape[1])[None])
        bias = part.positions.bias(*places)
        scores = scores if bias is None else scores + bias
    same(trace[f"{place}.scores"], scores)
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
    same(trace[place], weights)
    same(trace[f"{place}.heads"], weights @ value)
    same(trace[f"{place}.output"], part.output((weights @ value).transpose(1, 2).flatten(2)))


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_embedding_and_positions_add_up_to_what_enters_the_first_block(name: str) -> None:
    case = FAMILIES[name]
    model = case.model()
    trace, _ = traced(case, model)
    for stack in [each for each in ("encoder", "decoder") if hasattr(model, each)]:
        embedding, x = getattr(model, stack).embedding, trace[f"{stack}.embedding"]
        if f"{stack}.tokens" in trace:
            tokens = embedding.weight[trace[f"{stack}.tokens"]] * embedding.scale
            same(x, tokens if embedding.segments is None else tokens + embedding.segments[0])
        elif f"{stack}.values" in trace:
            values = (trace[f"{stack}.values"] - embedding.mean) / embedding.deviation
            same(x, embedding.projection(torch.cat((values, torch.zeros_like(values)), dim=-1)))
        else:
            one = getattr(embedding, "patches", embedding)
            images = x.view(len(x), -1, 1 + (one.image // one.patch) ** 2, x.shape[-1])  # (B, F, 1 + N, D)
            same(images[:, :, 1:].flatten(1, 2), trace[f"{stack}.patches"])
            same(images[:, :, :1], one.class_token[:, None].expand(*images.shape[:2], -1, -1))
        positions = trace[f"{stack}.positions"] if f"{stack}.positions" in trace else torch.zeros_like(x)
        norm = getattr(embedding, "norm", nn.Identity())
        same(norm(x + positions), trace[f"{stack}.0.before"])


@pytest.mark.parametrize("name", RECURRENT)
@torch.no_grad()
def test_gates_and_states_are_their_formulas(name: str) -> None:
    case = FAMILIES[name]
    model = case.model()
    trace, _ = traced(case, model)
    for stack in [each for each in ("encoder", "decoder") if hasattr(model, each)]:
        layers: Recurrent = getattr(model, stack).layers
        x = trace[f"{stack}.0.before"]
        for layer in range(2):
            place = f"{stack}.{layer}"
            first = x[:, 0]  # from which the first step is computed, with the states from before
            before = torch.zeros(len(x), layers.fused.hidden_size)
            if stack == "decoder" and hasattr(model, "encoder"):
                continue  # which begins with the encoder's states: steps and passes are compared below
            numbers = {
                kind: getattr(layers.fused, f"{kind}_l{layer}")
                for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            }
            both = first @ numbers["weight_ih"].T + numbers["bias_ih"] + numbers["bias_hh"]
            if f"{place}.gates.forget" in trace:
                of_input, forget, candidate, output = both.chunk(4, -1)
                cell = of_input.sigmoid() * candidate.tanh()
                same(trace[f"{place}.gates.forget"][:, 0], forget.sigmoid())
                same(trace[f"{place}.gates.output"][:, 0], output.sigmoid())
                same(trace[f"{place}.cell"][:, 0], cell)
                same(trace[f"{place}.state"][:, 0], output.sigmoid() * cell.tanh())
            elif f"{place}.gates.reset" in trace:
                same(trace[f"{place}.gates.update"][:, 0], both.chunk(3, -1)[1].sigmoid())
            else:
                same(trace[f"{place}.state"][:, 0], (both + before @ numbers["weight_hh"].T).tanh())
            ways = [f"{place}.state", *([f"{place}.backward.state"] if layers.directions == 2 else [])]
            x = torch.cat([trace[way] for way in ways], dim=-1)


@pytest.mark.parametrize("name", [*WRITERS, *SPEAKERS])
@given(seed=st.integers(0, 2**31))
@settings(max_examples=5, deadline=None)
@torch.no_grad()
def test_steps_join_to_what_passes_at_once(name: str, seed: int) -> None:
    """With caches, step by step, as the decoder reads all at once."""
    case = FAMILIES[name]
    model = case.model(seed).double()  # so that no rounding is taken for a difference
    target = TARGET if name in WRITERS else SOURCE[:, :3]
    inputs = (case.inputs[0], target, *case.inputs[2:]) if name in WRITERS else (target,)
    with gf.record(model) as parallel:
        model(*inputs)
    with gf.record(model) as stepped:
        state = model.start(case.inputs[0], *case.inputs[2:]) if name in WRITERS else model.start(target[:, :2])
        for t in range(0 if name in WRITERS else 1, target.shape[1]):
            _, state = model.step(state, target[:, t : t + 1])
    for point in parallel:
        ours, expected = stepped[point], parallel[point]
        if point.endswith("self.scores") and point.startswith("decoder"):  # those of the future are never computed
            expected = expected.tril()
            ours = ours.tril()
        if point == "logits" and name in SPEAKERS:  # a prompt is read without a score
            expected = expected[:, 1:]
        same(ours, expected)


@pytest.mark.parametrize("name", ["transformer", "gru"])
def test_gradients_are_the_same_while_looking(name: str) -> None:
    model = FAMILIES[name].model().train()

    def gradients() -> list[Tensor]:
        torch.manual_seed(1)
        return list(torch.autograd.grad(model(SOURCE, TARGET, KEEP).square().mean(), list(model.parameters())))

    before = gradients()
    with gf.record(model):
        inside = gradients()
    assert all(torch.equal(ours, expected) for ours, expected in zip(inside, before, strict=True))


def test_looking_draws_no_random_number() -> None:
    """Dropout is drawn as if nobody looked, also between the layers of recurrent cells."""
    for model in (
        transformer(23, 16, 2, 2, 24, dropout=0.5).train(),
        gf.models.recurrent(23, 16, 2, 0.5).train(),
    ):
        torch.manual_seed(3)
        before, number = model(SOURCE, TARGET, KEEP), torch.rand(1)
        torch.manual_seed(3)
        with gf.record(model):
            assert torch.equal(model(SOURCE, TARGET, KEEP), before)
        assert torch.equal(torch.rand(1), number)


def test_weights_are_kept_from_before_dropout() -> None:
    attention = MultiHeadAttention(8, 2, dropout=0.5).train()
    with gf.record(attention) as trace:
        attention(torch.randn(1, 5, 8))
    same(trace["attention"].sum(-1), torch.ones(1, 2, 5), 1e-6)


# --- LoRA, 8 bits, packed


@torch.no_grad()
def test_adapted_models_are_recorded_with_what_the_adapter_adds() -> None:
    model = adapt(translator(), rank=2, targets=["query", "value"])
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.add_(0.1 * torch.randn_like(parameter))
    with gf.record(model) as trace:
        before = model(SOURCE, TARGET, KEEP)
    part = next(each for each in model.encoder.blocks[0].modules() if isinstance(each, MultiHeadAttention))
    read = model.encoder.blocks[0].attention.norm(trace["encoder.0.before"])
    same(trace["encoder.0.self.queries"], part.query(read).view(2, 5, 4, 4).transpose(1, 2))
    merge(model)
    with gf.record(model) as merged:
        same(model(SOURCE, TARGET, KEEP), before)
    for name in trace:
        same(merged[name], trace[name])


@pytest.mark.parametrize("make", [lambda model: quantise(model, least=1), pack])
@torch.no_grad()
def test_quantised_and_packed_models_are_recorded(make: Any) -> None:
    torch.manual_seed(0)
    model = make(transformer(4096, 256, 2, 1, 64, dropout=0.0).eval())
    before = model(SOURCE, TARGET, KEEP)
    with gf.record(model) as trace:
        assert torch.equal(model(SOURCE, TARGET, KEEP), before)
    assert trace.names == gf.points(model)
    x = trace["decoder.0.cross.heads"].transpose(1, 2).flatten(2)
    part = next(
        each for each in model.decoder.blocks[0].cross_attention.modules() if isinstance(each, MultiHeadAttention)
    )
    same(trace["decoder.0.cross.output"], part.output(x))
    same(trace["decoder.0.cross"].sum(-1), torch.ones(2, 2, 4))


# --- what is kept, and how


def observed(model: nn.Module) -> list[bool]:
    return [part.observe is not None for part in model.modules() if isinstance(part, Observable)]


def test_nothing_is_kept_outside_and_nobody_observes_then() -> None:
    model = translator()
    with gf.record(model) as trace:
        model(SOURCE, TARGET, KEEP)
    model(SOURCE, TARGET, KEEP)
    assert len(trace.calls("encoder.0.self")) == 1
    assert not any(observed(model))


def test_an_exception_ends_the_recording() -> None:
    model = translator()
    with pytest.raises(InputError), gf.record(model):  # noqa: PT012
        assert all(observed(model))
        model(SOURCE + 100, TARGET)
    assert not any(observed(model))
    with gf.record(model):
        model(SOURCE, TARGET)


def test_only_what_is_named_is_kept_and_observed() -> None:
    model = translator()
    with gf.record(model, keep=["decoder.*.cross", "logits"], layers=1, heads=[0, 3]) as trace:
        assert sum(observed(model)) == 4  # the model for its logits, two stacks, and the attention
        model(SOURCE, TARGET, KEEP)
    assert trace.names == ["encoder.tokens", "decoder.tokens", "decoder.1.cross.weights", "logits"]
    with gf.record(model) as whole:
        model(SOURCE, TARGET, KEEP)
    assert torch.equal(trace["decoder.1.cross"], whole["decoder.1.cross"][:, [0, 3]])
    assert trace.axes("decoder.1.cross")["head"] == [0, 3]


def test_shared_keys_are_kept_whole_when_heads_are_named() -> None:
    model = FAMILIES["llama"].model()
    with gf.record(model, heads=3) as trace:
        model(SOURCE)
    assert trace["decoder.0.self"].shape[1] == 1
    assert trace["decoder.0.self.keys"].shape[1] == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"layers": 2}, "there is no layer 2: there are 2 layers, 0 to 1"),
        ({"layers": -1}, "a layer is a number from 0, not -1"),
        ({"layers": []}, "no layer is named: leave layers out for all of them"),
        ({"heads": [0, 4]}, "there is no head 4: there are 4 heads, 0 to 3"),
        ({"heads": 0, "keep": "logits"}, "there is no head 0: there is no head"),
    ],
)
def test_what_does_not_exist_cannot_be_kept(options: dict[str, Any], sentence: str) -> None:
    model = translator()
    with pytest.raises(InputError, match=f"^{sentence}$"), gf.record(model, **options):
        pass
    assert not any(observed(model))


def test_a_recording_inside_a_recording_is_refused_and_the_first_goes_on() -> None:
    model = translator()
    with gf.record(model) as trace:
        with (
            pytest.raises(
                GlassformerError, match=r"^this model is being recorded already: use one record\(\) at a time$"
            ),
            gf.record(model),
        ):
            pass
        sentence = "^somebody looks into this model already, as a part of another one, or the other way round$"
        with pytest.raises(GlassformerError, match=sentence), gf.record(model.decoder):
            pass
        model(SOURCE, TARGET, KEEP)
    assert trace["decoder.0.self"].shape == (2, 4, 4, 4)


def test_two_models_are_recorded_side_by_side() -> None:
    first, second = translator(0), translator(1)
    with gf.record(first) as trace, gf.record(second) as other:
        first(SOURCE, TARGET)
    assert len(trace.calls("encoder.0.self")) == 1
    assert other.names == []


def test_several_calls_are_kept_apart() -> None:
    model = translator()
    with gf.record(model, keep="weights") as trace:
        model(SOURCE, TARGET)
        model(SOURCE[:, :2], TARGET[:, :3])
    assert [tuple(each.shape) for each in trace.calls("decoder.1.cross")] == [(2, 4, 4, 5), (2, 4, 3, 2)]
    with pytest.raises(InputError, match=r'^"decoder.1.cross" was passed in 2 calls: read them one by one from'):
        trace["decoder.1.cross"]


def test_what_was_not_recorded_is_answered_with_what_to_do() -> None:
    with gf.record(translator()) as trace:
        pass
    with pytest.raises(InputError, match=r"^nothing was recorded: run the model inside record\(\)$"):
        trace["decoder.0.cross"]
    with gf.record(model := translator(), keep="logits") as trace:
        model(SOURCE, TARGET)
    with pytest.raises(InputError, match=r'^there is no point "decoder.0.cross": '):
        trace["decoder.0.cross"]
    with pytest.raises(
        InputError, match=r"^no decoder.cross attention was recorded: the model has no attention, or it"
    ):
        trace.attention("decoder.cross")


def test_attention_of_all_layers_is_stacked() -> None:
    with gf.record(model := translator()) as trace:
        model(SOURCE, TARGET, KEEP)
    assert trace.kinds == ["encoder.self", "decoder.self", "decoder.cross"]
    assert trace.attention("decoder.cross").shape == (2, 2, 4, 4, 5)
    with pytest.raises(InputError, match=r"^no cross attention was recorded: there is encoder.self, decoder.self, "):
        trace.attention("cross")


def test_the_recording_is_a_copy() -> None:
    model = translator()
    with gf.record(model) as trace, torch.no_grad():
        logits = model(SOURCE, TARGET)
        before = logits.clone()
        logits.zero_()
    assert torch.equal(trace["logits"], before)


# --- how much memory


@torch.no_grad()
def test_everything_of_a_base_model_with_512_tokens_takes_less_than_2_gigabytes() -> None:
    model, tokens = gf.transformer_base(37_000).eval(), torch.zeros(1, 512, dtype=torch.long)
    with gf.record(model) as trace:
        model(tokens, tokens)
    kept: Any = trace.kept
    taken = sum(kept.bytes.values()) / 1e9
    assert 0.4 < taken < 2
    sentence = rf"^this recording needs {taken:.1f} GB \(scores 0.2, weights 0.2, .*\), but may take {taken - 0.1:g}: "
    with pytest.raises(InputError, match=sentence), gf.record(model, gigabytes=taken - 0.1):
        model(tokens, tokens)


@torch.no_grad()
def test_a_recording_that_would_be_too_large_is_refused_before_it_begins() -> None:
    model = translator()
    sentence = (
        r"^this recording needs 0.0 GB \(.*\), but may take 1e-05: "
        "take a shorter text, name less to keep by keep=, layers= or heads=, or allow more by gigabytes=$"
    )
    with pytest.raises(InputError, match=sentence), gf.record(model, gigabytes=1e-5) as trace:
        model(SOURCE, TARGET, KEEP)
    assert trace.names == []
    with gf.record(model, keep="encoder.0.self.weights", gigabytes=1e-5):
        model(SOURCE, TARGET, KEEP)


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_every_family_is_refused_before_it_begins(name: str) -> None:
    """Images, films and series, too: what a pass needs is known from what is read, within a tenth."""
    model, inputs = FAMILIES[name].model(), FAMILIES[name].inputs
    with gf.record(model) as trace:
        model(*inputs)
    kept: Any = trace.kept
    most, first = kept.total / 1e9, gf.points(model)[0].split(".")[0]
    with gf.record(model, gigabytes=1.2 * most):
        model(*inputs)
    with (
        pytest.raises(InputError, match=r"^this recording needs 0.0 GB \("),
        gf.record(model, gigabytes=0.8 * most) as few,
    ):
        model(*inputs)
    assert not [point for point in few if not point.startswith(first)]  # no more than the first stack has passed


@torch.no_grad()
def test_a_decoding_is_refused_as_soon_as_it_is_too_large() -> None:
    model = translator()
    with gf.record(model) as trace:
        state = model.start(SOURCE, KEEP)
    kept: Any = trace.kept
    sentence = r"^this recording needs .* GB so far \("
    most = 2 * sum(kept.bytes.values()) / 1e9
    with pytest.raises(InputError, match=sentence), gf.record(model, gigabytes=most):  # noqa: PT012
        state = model.start(SOURCE, KEEP)
        for _ in range(100):
            _, state = model.step(state, TARGET[:, :1])
