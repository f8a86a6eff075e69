"""The recurrent family: step by step as all at once, alone as in company, watched as unwatched."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer.decoding import Limits, beam_search, greedy, sample
from glassformer.errors import ConfigurationError, InputError
from glassformer.looking import record
from glassformer.models import DecoderOnly, EncoderDecoder, EncoderOnly, recurrent
from glassformer.parts import (
    GRU,
    LSTM,
    RNN,
    AdditiveScore,
    Alignment,
    MultiplicativeScore,
    pack,
    pad,
    quantise,
)
from glassformer.parts.masks import padding
from glassformer.tasks.gathering import TokenBatch, token_loss
from glassformer.tasks.objective import Objective

from .helpers import batches, seeds, sentences

V = 20
LIMITS = Limits(start=0, end=1, max_length=6)
cells = st.sampled_from([RNN, GRU, LSTM])
scores = st.sampled_from([None, AdditiveScore, MultiplicativeScore])
SOURCE, MASK = pad([[3, 4, 5, 6], [7, 8]])
TARGET = torch.tensor([[2, 3, 4], [5, 6, 7]])


def translator(seed: int = 0, **changes: Any) -> EncoderDecoder:
    """A small one in double precision, sure enough of itself for searches to have a winner."""
    torch.manual_seed(seed)
    options: dict[str, Any] = {"width": 8, "layers": 2, "dropout": 0.0, "bidirectional": True}
    model = recurrent(V, **options | changes)
    assert isinstance(model, EncoderDecoder)
    nn.init.normal_(model.decoder.embedding.weight, std=1.0)
    return model.double().eval()


def language(seed: int = 0, **changes: Any) -> DecoderOnly:
    torch.manual_seed(seed)
    options: dict[str, Any] = {"width": 8, "layers": 2, "dropout": 0.0}
    model = recurrent(V, answer="next", **options | changes)
    assert isinstance(model, DecoderOnly)
    nn.init.normal_(model.decoder.embedding.weight, std=1.0)
    return model.double().eval()


def same(ours: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(ours, expected, atol=tolerance, rtol=tolerance)


@given(seed=seeds, cell=cells, attention=scores, both_ways=st.booleans(), batch=batches, length=st.integers(1, 5))
@settings(max_examples=30, deadline=None)
@torch.no_grad()
def test_steps_give_the_logits_of_teacher_forcing(
    seed: int, cell: Any, attention: Any, both_ways: bool, batch: list[list[int]], length: int
) -> None:
    model = translator(seed, cell=cell, attention=attention, bidirectional=both_ways)
    source, mask = pad(batch)
    target = torch.randint(V, (len(batch), length))
    forced = model(source, target, mask)
    state = model.start(source, mask)
    for t in range(length):
        logits, state = model.step(state, target[:, t : t + 1])
        same(logits[:, 0], forced[:, t])


@given(seed=seeds, cell=cells, prompts=batches, length=st.integers(1, 4))
@settings(max_examples=30, deadline=None)
@torch.no_grad()
def test_a_prompt_is_read_as_if_it_had_been_stepped_through(
    seed: int, cell: Any, prompts: list[list[int]], length: int
) -> None:
    model = language(seed, cell=cell)
    tokens, mask = pad(prompts)
    state = model.start(tokens, mask)
    assert state.first is not None
    written = torch.randint(V, (len(prompts), length))
    logits, state = model.step(state, state.first)
    steps = [logits]
    for t in range(length):
        logits, state = model.step(state, written[:, t : t + 1])
        steps.append(logits)
    for row, prompt in enumerate(prompts):
        whole = model(torch.tensor([[*prompt, *written[row].tolist()]]))
        same(torch.cat([step[row] for step in steps]), whole[0, len(prompt) - 1 :])


@given(seed=seeds, cell=cells, attention=scores, batch=batches, more=st.integers(0, 3))
@settings(max_examples=25, deadline=None)
def test_batch_mates_and_padding_change_no_answer(
    seed: int, cell: Any, attention: Any, batch: list[list[int]], more: int
) -> None:
    model = translator(seed, cell=cell, attention=attention)
    longest = max(map(len, batch)) + more
    source = torch.tensor([[*row, *[9] * (longest - len(row))] for row in batch])
    mask = torch.arange(longest) < torch.tensor([len(row) for row in batch])[:, None]
    together = beam_search(model, source, mask, limits=LIMITS, width=3)
    first = greedy(model, source, mask, limits=LIMITS)
    drawn = sample(model, source, mask, limits=LIMITS, seed=list(range(len(batch))))
    for row, sentence in enumerate(batch):
        alone = torch.tensor([sentence])
        (best,) = beam_search(model, alone, None, limits=LIMITS, width=3)
        assert best[0].tokens == together[row][0].tokens
        assert best[0].score == pytest.approx(together[row][0].score, abs=1e-10)
        assert greedy(model, alone, None, limits=LIMITS)[0].tokens == first[row].tokens
        assert sample(model, alone, None, limits=LIMITS, seed=[row])[0].tokens == drawn[row].tokens


@given(seed=seeds, source=sentences, attention=scores)
@settings(max_examples=20, deadline=None)
@torch.no_grad()
def test_a_beam_scores_its_output_as_the_model_does(seed: int, source: list[int], attention: Any) -> None:
    """Beams exchange places at every step; the score says whether each took its own state along."""
    model = translator(seed, attention=attention)
    tokens = torch.tensor([source])
    for found in beam_search(model, tokens, limits=LIMITS, width=4, best=4)[0]:
        written = [*found.tokens, *([1] if found.finished else [])]
        logits = model(tokens, torch.tensor([[0, *written[:-1]]]))
        own = logits[0].float().log_softmax(-1).gather(1, torch.tensor(written)[:, None]).sum()
        assert found.log_probability == pytest.approx(float(own), abs=1e-5)


@given(seed=seeds, cell=cells, attention=scores)
@settings(max_examples=20, deadline=None)
def test_looking_changes_neither_logits_nor_gradients(seed: int, cell: Any, attention: Any) -> None:
    model = translator(seed, cell=cell, attention=attention, dropout=0.3).train()

    def outcome() -> tuple[Tensor, list[Tensor]]:
        torch.manual_seed(seed)
        logits = model(SOURCE, TARGET, MASK)
        return logits, list(torch.autograd.grad(logits.square().sum(), list(model.parameters())))

    before, gradients = outcome()
    with record(model):
        inside, watched = outcome()
    same(inside, before)
    for ours, expected in zip(watched, gradients, strict=True):
        same(ours, expected, 1e-11)


@torch.no_grad()
def test_a_recording_holds_cells_of_both_sides_and_weights_between() -> None:
    model = translator()
    with record(model) as trace:
        model(SOURCE, TARGET, MASK)
    cells = [name.removesuffix(".cell") for name in trace if name.endswith(".cell")]
    assert cells == ["encoder.0", "encoder.0.backward", "encoder.1", "encoder.1.backward", "decoder.0", "decoder.1"]
    assert trace["encoder.1.backward.gates.forget"].shape == (2, 4, 4)
    assert trace["decoder.0.cell"].shape == (2, 3, 8)
    weights = trace["decoder.cross"]
    assert weights.shape == (2, 1, 3, 4)
    same(weights.sum(-1), torch.ones(2, 1, 3).double())
    assert (weights[1, :, :, 2:] == 0).all()
    with record(model) as stepped:
        state = model.start(SOURCE, MASK)
        for t in range(3):
            _, state = model.step(state, TARGET[:, t : t + 1])
    assert stepped.names == trace.names
    for name in trace:
        same(stepped[name], trace[name])


def test_additive_and_multiplicative_scores_are_their_formulas() -> None:
    x, states = torch.randn(1, 2, 3), torch.randn(1, 4, 5)
    additive, product = AdditiveScore(3, 5), MultiplicativeScore(3, 5)
    for t in range(2):
        for s in range(4):
            hidden = torch.tanh(additive.query.weight @ x[0, t] + additive.key(states[0, s]))
            wanted = additive.score.weight[0] @ hidden
            same(additive(x, additive.key(states))[0, t, s], wanted, 1e-6)
            same(product(x, product.key(states))[0, t, s], x[0, t] @ product.key.weight @ states[0, s], 1e-6)


def test_attention_follows_the_notes_steps() -> None:
    part, x, states = Alignment(3, 5, MultiplicativeScore), torch.randn(2, 2, 3), torch.randn(2, 4, 5)
    keep = torch.tensor([[True, True, True, True], [True, True, False, False]])
    with record(part) as trace:
        y = part(x, part.project(states, padding(keep)))
    scores = part.score(x, part.score.key(states)).masked_fill(~keep[:, None], -torch.inf)  # score
    weights = scores.softmax(-1)  # softmax
    context = torch.einsum("bts,bsd->btd", weights, states)  # context vector
    same(y, torch.tanh(torch.cat((x, context), -1) @ part.output.weight.T + part.output.bias), 1e-6)  # concatenate
    same(trace["attention"][:, 0], weights, 1e-6)


@torch.no_grad()
def test_without_attention_only_the_last_state_is_known() -> None:
    model = translator(attention=None, bidirectional=False)
    memory, mask = model.encode(SOURCE, MASK)
    other = memory._replace(vectors=torch.randn_like(memory.vectors))
    assert torch.equal(model.decoder(TARGET, memory, mask), model.decoder(TARGET, other, mask))
    looking = translator(bidirectional=False)
    memory, mask = looking.encode(SOURCE, MASK)
    other = memory._replace(vectors=torch.randn_like(memory.vectors))
    assert not torch.allclose(looking.decoder(TARGET, memory, mask), looking.decoder(TARGET, other, mask))


@given(seed=seeds, cell=cells, numbers=st.lists(st.integers(1, 4), min_size=1, max_size=5), train=st.booleans())
@settings(max_examples=25, deadline=None)
def test_packed_documents_are_worth_what_they_are_worth_alone(
    seed: int, cell: Any, numbers: list[int], train: bool
) -> None:
    model = language(seed, cell=cell, truncate=2 if train else None).train(train)
    rows = [torch.randint(V, (1, length)) for length in numbers]
    documents = torch.cat([torch.full((1, n), number) for number, n in enumerate(numbers)], dim=1)
    together = model(torch.cat(rows, dim=1), None, documents)
    same(together, torch.cat([model(row) for row in rows], dim=1))


def by_embedding(model: DecoderOnly, tokens: Tensor, place: int) -> Tensor:
    """How much each token's vector moves the logits at a place."""
    seen: list[Tensor] = []

    def keep(part: nn.Module, inputs: Any, x: Tensor) -> None:
        x.retain_grad()
        seen.append(x)

    hook = model.decoder.embedding.register_forward_hook(keep)
    model(tokens)[0, place].square().sum().backward()
    hook.remove()
    gradient = seen[0].grad
    assert gradient is not None
    return gradient[0].abs().sum(-1)


def test_truncation_cuts_gradients_and_changes_no_logit() -> None:
    tokens = torch.randint(V, (1, 10))
    whole, cut = language(), language(truncate=4).train()
    same(cut(tokens), whole(tokens))
    assert (by_embedding(whole, tokens, 9) > 0).all()
    reached = (by_embedding(cut, tokens, 9) > 0).tolist()
    assert reached == [False] * 8 + [True] * 2  # the stretch from 8 on
    assert (by_embedding(cut, tokens, 7) > 0).tolist() == [False] * 4 + [True] * 4 + [False] * 2
    assert (by_embedding(cut.eval(), tokens, 9) > 0).all()


def test_truncated_training_has_the_gradient_of_stretches_with_a_state_carried_over() -> None:
    model, tokens = language(truncate=3).train(), torch.randint(V, (2, 7))
    right = tokens.roll(-1, dims=1)
    batch = TokenBatch(tokens, right, torch.ones_like(tokens, dtype=torch.bool), None, 14, 14)
    Objective(model, token_loss)(batch).backward()
    ours = {name: parameter.grad for name, parameter in model.named_parameters()}
    twin = copy.deepcopy(model)
    twin.zero_grad()
    state = None
    for begin in (0, 3, 6):
        x = twin.decoder.embedding(tokens[:, begin : begin + 3])
        y, state = twin.decoder.layers(x, None, state)  # type: ignore[operator]
        state = tuple(each.detach() for each in state)
        logits = twin.head(y).flatten(0, 1)
        nn.functional.cross_entropy(logits, right[:, begin : begin + 3].flatten(), reduction="sum").backward()  # type: ignore[no-untyped-call]
    for name, parameter in twin.named_parameters():
        expected, found = parameter.grad, ours[name]
        assert expected is not None
        assert found is not None
        same(found, expected, 1e-6)  # the loss itself is summed in float32


@pytest.mark.parametrize("answer", ["classes", "tags", "vectors"])
@pytest.mark.parametrize("both_ways", [False, True])
@torch.no_grad()
def test_readers_answer_alike_alone_and_in_company(answer: Any, both_ways: bool) -> None:
    model = recurrent(V, width=8, layers=2, answer=answer, classes=5, bidirectional=both_ways)
    assert isinstance(model, EncoderOnly)
    model.double().eval()
    found = model(SOURCE, MASK)
    assert found.shape == {"classes": (2, 5), "tags": (2, 4, 5), "vectors": (2, 4, 8)}[answer]
    alone = model(SOURCE[1:, :2])
    same(found[1:] if answer == "classes" else found[1:, :2], alone)


@torch.no_grad()
def test_a_class_is_read_off_the_state_in_the_end() -> None:
    model = recurrent(V, width=8, layers=2, answer="classes", bidirectional=True).eval()
    assert isinstance(model, EncoderOnly)
    with record(model) as trace:
        logits = model(SOURCE, MASK)
    there, back = trace["encoder.1.state"], trace["encoder.1.backward.state"]
    ends = torch.stack((torch.cat((there[0, 3], back[0, 0])), torch.cat((there[1, 1], back[1, 0]))))
    same(model.head(ends), logits, 1e-6)


@pytest.mark.parametrize("make", [quantise, pack])
def test_copies_for_inference_do_the_same(make: Any) -> None:
    torch.manual_seed(0)
    model = recurrent(V, width=512, dropout=0.0).eval()
    assert isinstance(model, EncoderDecoder)
    made = make(model)
    (ours,), (theirs,) = (beam_search(each, SOURCE[:1], limits=LIMITS, width=2) for each in (made, model))
    assert ours[0].score == pytest.approx(theirs[0].score, abs=0.05 if make is quantise else 1e-5)


def test_it_compiles() -> None:
    model = recurrent(V, width=8).eval()
    compiled = torch.compile(model.hidden, dynamic=True, backend="eager")  # breaks its graph, but not the model
    same(compiled(SOURCE, TARGET, MASK), model.hidden(SOURCE, TARGET, MASK), 1e-6)


def test_it_computes_in_bf16() -> None:
    model = recurrent(V, width=8, layers=2, bidirectional=True)
    with torch.autocast("cpu", torch.bfloat16):
        model(SOURCE, TARGET, MASK).float().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 7, "bidirectional": True}, "width 7 does not divide into two directions: make it even"),
        (
            {"answer": "next", "bidirectional": True},
            "a decoder cannot be bidirectional: it would see the tokens",
        ),
        ({"answer": "words"}, 'a recurrent model answers with "target", "next", "classes", "tags" or "vectors", not'),
        ({"layers": 0}, "layers must be at least 1, not 0"),
        ({"truncate": 0, "answer": "next"}, "truncate must be at least 1, not 0"),
        ({"target_vocabulary": 9}, "source and target cannot share an embedding: their vocabularies have 20 and 9"),
    ],
)
def test_what_cannot_be_built_is_said(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        recurrent(V, **changes)


def test_two_vocabularies() -> None:
    model = recurrent(V, width=8, target_vocabulary=9, tie_source=False)
    assert model(SOURCE, TARGET, MASK).shape == (2, 3, 9)
    with pytest.raises(InputError, match=r"^the target holds the id 9, but the vocabulary has the ids 0 to 8$"):
        model(SOURCE, TARGET + 2, MASK)
