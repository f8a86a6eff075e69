"""Steps in fixed memory: what a CUDA graph repeats gives the outputs of steps that are taken one by one.

On a CPU nothing is captured, but the same steps are taken in the same memory. tests/test_accelerator.py captures.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassformer.decoding import Hypothesis, Limits, Sampler, beam_search, capturing, greedy, sample, stream
from glassformer.decoding.largest import largest
from glassformer.errors import InputError, NonFiniteError
from glassformer.looking.recording import record
from glassformer.models import gpt2, llama, t5, transformer
from glassformer.models.recurrent import recurrent
from glassformer.parts import cpu_kernels, pad, window
from glassformer.parts.schemes import alibi, learned, rotary

from . import reference
from .helpers import END, START, VOCABULARY, ByHand, batches, lines, penalties, seeds, talker

LIMITS = Limits(START, END, max_length=20)
LONG = Limits(START, END, max_length=150)
QUICK = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def fixed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[capturing.Bucket]]:
    """Fixed memory on a CPU; the buckets that were made."""
    made: list[capturing.Bucket] = []
    capture = capturing._capture

    def counted(*given: Any) -> capturing.Bucket | None:
        bucket = capture(*given)
        assert bucket is not None
        made.append(bucket)
        return bucket

    monkeypatch.setattr(capturing, "supports", lambda device: True)
    monkeypatch.setattr(capturing, "_capture", counted)
    yield made
    capturing.stores.clear()


def same(some: list[list[Hypothesis]], others: list[list[Hypothesis]]) -> None:
    assert [[each.tokens for each in row] for row in some] == [[each.tokens for each in row] for row in others]
    for row, other in zip(some, others, strict=True):
        for one, two in zip(row, other, strict=True):
            assert one.finished == two.finished
            assert one.score == pytest.approx(two.score, rel=1e-5, abs=1e-5)
            assert one.log_probabilities == pytest.approx(two.log_probabilities, abs=1e-4)


searches = st.fixed_dictionaries(
    {
        "width": st.integers(1, 5),
        "length_penalty": penalties,
        "early_stopping": st.sampled_from(["never", "estimated", "filled"]),
    }
)
limits = st.builds(
    Limits,
    start=st.just(START),
    end=st.sampled_from([END, (END, 5), (END, 5, 6)]),
    max_length=st.integers(8, 20),
    min_length=st.integers(0, 8),
    suppress=st.sampled_from([(), (3,), (3, 4, 7)]),
    forced_first=st.sampled_from([None, 9]),
    forced_last=st.sampled_from([None, END]),
    renormalise=st.booleans(),
)


@pytest.fixture
def by_pytorch() -> Iterator[None]:
    """The reference adds up PyTorch's log-probabilities; kernels in C differ in the last digit."""
    with cpu_kernels.by_pytorch():
        yield


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seeds, batches, searches, limits, st.data())
def test_the_search_finds_what_the_one_in_python_lists_finds(
    by_pytorch: None, seed: int, batch: list[list[int]], options: dict[str, Any], limits: Limits, data: st.DataObject
) -> None:
    options["best"] = data.draw(st.integers(1, options["width"]))
    model = talker(seed)
    found = beam_search(model, *pad(batch), limits=limits, **options)
    assert found == reference.beam_search(model, *pad(batch), limits=limits, **options)


@QUICK
@given(seeds, batches, searches, limits, st.data())
def test_beams_in_fixed_memory_are_the_same(
    fixed: list[capturing.Bucket],
    seed: int,
    batch: list[list[int]],
    options: dict[str, Any],
    limits: Limits,
    data: st.DataObject,
) -> None:
    options["best"] = data.draw(st.integers(1, options["width"]))
    model = talker(seed)
    before = len(fixed)
    found = beam_search(model, *pad(batch), limits=limits, **options)
    assert len(fixed) == before + 1
    same(found, reference.beam_search(model, *pad(batch), limits=limits, **options))


FAMILIES: dict[str, Any] = {
    "transformer": lambda: transformer(VOCABULARY, 16, 2, 2, 24, tie_output=False),
    "rotary": lambda: transformer(VOCABULARY, 16, 2, 1, 24, tie_output=False, positions=rotary, key_value_heads=1),
    "alibi": lambda: transformer(VOCABULARY, 16, 2, 1, 24, tie_output=False, positions=alibi),
    "learned": lambda: transformer(VOCABULARY, 16, 2, 1, 24, tie_output=False, positions=learned, length=200),
    "t5": lambda: t5(VOCABULARY, 16, 2, 1, 24, tie_output=False),
    "gpt2": lambda: gpt2(VOCABULARY, 16, 2, 1, 24, length=200, tie_output=False),
    "llama": lambda: llama(VOCABULARY, 16, 2, 1, 24, tie_output=False),
}


def random_model(name: str, seed: int) -> Any:
    torch.manual_seed(seed)
    model = FAMILIES[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.double()  # in float32, two tokens that are nearly as likely would differ


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_writes_the_same_in_fixed_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prompted = name in {"gpt2", "llama"}
    for seed in range(4):
        model = random_model(name, seed)
        limits = replace(LONG if seed == 0 else LIMITS, start=None if prompted else START)
        if seed == 0:
            limits = replace(limits, min_length=120)
        if name != "t5" and seed == 2:
            model.decoder.mask = window(3)
        inputs = pad([[2, 3, 4, 5], [6], [7, 8], [9, 10, 11]], 0)
        options: dict[str, Any] = {"width": 3, "best": 2}
        beams = beam_search(model, *inputs, limits=limits, **options)
        lines = greedy(model, *inputs, limits=limits)
        drawn = sample(model, *inputs, limits=limits, seed=3, temperature=0.7, top_k=9)
        with monkeypatch.context() as patch:
            patch.setattr(capturing, "supports", lambda device: True)
            same(beam_search(model, *inputs, limits=limits, **options), beams)
            same([greedy(model, *inputs, limits=limits)], [lines])
            same([sample(model, *inputs, limits=limits, seed=3, temperature=0.7, top_k=9)], [drawn])
            assert [bucket.sizes[0] for bucket in capturing.stores[model].buckets]
            assert not capturing.stores[model].refused


def test_a_long_output_moves_to_more_slots_and_sentences_that_are_done_stay_behind(
    fixed: list[capturing.Bucket], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, draw = talker(4, end_bias=3.5), random.Random(0)
    inputs = pad([[draw.randint(2, 31) for _ in range(draw.randint(1, 6))] for _ in range(300)])
    found = greedy(model, *inputs, limits=LONG)
    assert len({bucket.sizes[1] for bucket in fixed}) > 1
    assert min(bucket.sizes[0] for bucket in fixed) < max(bucket.sizes[0] for bucket in fixed)
    monkeypatch.undo()
    same([found], [greedy(model, *inputs, limits=LONG)])


def test_sources_of_a_size_are_read_in_fixed_memory_from_the_second_time_on(fixed: list[capturing.Bucket]) -> None:
    model = talker(1)
    for batch in ([[2, 3], [4]], [[5, 6, 7], [8]], [[9], [10, 11]]):
        inputs = pad(batch)
        same(beam_search(model, *inputs, limits=LIMITS), reference.beam_search(model, *inputs, limits=LIMITS))
    assert [type(each).__name__ for each in capturing.stores[model].readings.values()] == ["Reading"]
    with pytest.raises(InputError, match="the source holds the id 99"):
        greedy(model, torch.tensor([[99], [3]]), limits=LIMITS)


def test_buckets_are_used_again_by_smaller_batches_and_other_lengths(fixed: list[capturing.Bucket]) -> None:
    model = talker(1)
    inputs = pad([[2, 3], [4], [5, 6, 7]])
    beam_search(model, *inputs, limits=LIMITS, width=2)
    beam_search(model, *(x[:2] for x in inputs), limits=replace(LIMITS, max_length=15), width=2, length_penalty=0.5)
    assert len(fixed) == 1
    other = beam_search(model, *(x[:2] for x in inputs), limits=replace(LIMITS, max_length=15), width=2)
    same(other, reference.beam_search(model, *(x[:2] for x in inputs), limits=replace(LIMITS, max_length=15), width=2))
    beam_search(model, *inputs, limits=LIMITS, width=3)
    assert len(fixed) == 2


def test_new_weights_in_the_same_place_are_read_and_moved_ones_are_captured_again(
    fixed: list[capturing.Bucket],
) -> None:
    model: Any = talker(1)
    other = talker(2)
    inputs = pad([[2, 3], [4]])
    greedy(model, *inputs, limits=LIMITS)
    model.load_state_dict(other.state_dict())
    expected = [each.tokens for each in greedy(other, *inputs, limits=LIMITS)]
    assert [each.tokens for each in greedy(model, *inputs, limits=LIMITS)] == expected
    made = len(fixed)
    model.head.weight = torch.nn.Parameter(model.head.weight.detach().clone())
    assert [each.tokens for each in greedy(model, *inputs, limits=LIMITS)] == expected
    assert len(fixed) == made + 1


def test_two_streams_have_a_bucket_each_and_a_closed_one_gives_it_back(fixed: list[capturing.Bucket]) -> None:
    model = talker(2, end_bias=-50.0)
    inputs = pad([[2, 3, 4], [5]])
    expected = [each.tokens for each in greedy(model, *inputs, limits=LIMITS)]
    one, other = (stream(model, *inputs, limits=LIMITS) for _ in range(2))
    next(one), next(other)
    assert len(fixed) == 2
    one.close()  # type: ignore[attr-defined]
    assert len(capturing.stores[model].buckets) == 1
    written = [event.token for event in other if event.sentence == 0]
    assert expected[0][1:] == written
    assert len(capturing.stores[model].buckets) == 2


def test_a_sampler_goes_on_with_the_next_random_number_after_captured_steps(fixed: list[capturing.Bucket]) -> None:
    model = talker(3, end_bias=1.0)
    inputs = pad([[2, 3, 4], [5], [6]])
    sampler = Sampler(temperature=1.5, seed=9)
    written = list(stream(model, *inputs, limits=LIMITS, choose=sampler))
    for sentence in range(3):
        used = sum(event.sentence == sentence for event in written)
        assert sampler.ahead(sentence, 1) == Sampler(seed=9).ahead(sentence, used + 1)[-1:]
    assert fixed


@pytest.mark.parametrize(
    "rules",
    [
        {"no_repeat_ngram": 2},
        {"repetition_penalty": 1.3},
        {"suppress_sequences": ((3, 4), (5,), (6, 7, 8))},
        {"no_repeat_ngram": 3, "repetition_penalty": 0.8, "forced_first": 4},
    ],
)
@pytest.mark.parametrize("name", ["transformer", "gpt2"])
def test_rules_that_look_back_are_kept_in_fixed_memory(
    fixed: list[capturing.Bucket], name: str, rules: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model(name, 1)
    limits = replace(LONG, start=None if name == "gpt2" else START, **rules)
    inputs = pad([[2, 3, 2, 3, 4], [4], [5, 5, 5]])
    beams, lines = beam_search(model, *inputs, limits=limits, width=3), greedy(model, *inputs, limits=limits)
    assert len({bucket.sizes[1] for bucket in fixed}) > 1
    monkeypatch.undo()
    same(beams, reference.beam_search(model, *inputs, limits=limits, width=3))
    assert beam_search(model, *inputs, limits=limits, width=3) == reference.beam_search(
        model, *inputs, limits=limits, width=3
    )
    same([lines], [greedy(model, *inputs, limits=limits)])


def test_what_is_watched_has_a_prefix_or_is_no_transformer_is_decoded_step_by_step(
    fixed: list[capturing.Bucket],
) -> None:
    model, inputs = talker(1), pad([[2, 3], [4]])
    beam_search(model, *inputs, limits=LIMITS, watch=lambda step: None)
    greedy(model, *inputs, limits=LIMITS, prefix=[[4], []])
    greedy(model, *inputs, limits=LIMITS, prefix=[[], []])
    with record(model, keep="logits"):
        greedy(model, *inputs, limits=LIMITS)
        beam_search(model, *inputs, limits=LIMITS)
    handle = model.decoder.register_forward_hook(lambda *_: None)
    greedy(model, *inputs, limits=LIMITS)
    handle.remove()
    greedy(model, *inputs, limits=Limits(START, END, max_length=4))  # too short to be worth it
    beam_search(ByHand({}, [0.1, 0.4, 0.3, 0.2]), lines(2), limits=LIMITS, width=2)
    torch.manual_seed(0)
    network: Any = recurrent(VOCABULARY, width=8, layers=1).eval()
    greedy(network, *inputs, limits=LIMITS)
    assert not fixed


def test_learned_positions_that_may_not_suffice_are_decoded_step_by_step(fixed: list[capturing.Bucket]) -> None:
    torch.manual_seed(0)
    model = gpt2(VOCABULARY, 16, 2, 1, 24, length=12, tie_output=False).eval()
    prompt = torch.tensor([[2, 3, 4]])
    assert greedy(model, prompt, limits=Limits(None, END, max_length=10))
    made = len(fixed)
    with pytest.raises(InputError, match="beyond the learned table"):
        greedy(model, prompt, limits=Limits(None, END, max_length=20, min_length=20))
    assert len(fixed) == made == 1


def test_outputs_that_are_not_finite_do_not_spoil_the_next_decoding(fixed: list[capturing.Bucket]) -> None:
    model, inputs = talker(1), pad([[2, 3], [4]])
    bias: Any = model.head.bias
    expected = [each.tokens for each in greedy(model, *inputs, limits=LIMITS)]
    searched = beam_search(model, *inputs, limits=LIMITS)
    with torch.no_grad():
        bias[3] = torch.nan
    decoders: list[Any] = [greedy, sample, beam_search]
    for decode in decoders:
        with pytest.raises(NonFiniteError, match="sentence 0"):
            decode(model, *inputs, limits=LIMITS)
    with torch.no_grad():
        bias[3] = 0.0
    assert [each.tokens for each in greedy(model, *inputs, limits=LIMITS)] == expected
    same(beam_search(model, *inputs, limits=LIMITS), searched)


@given(st.integers(4096, 9000), st.integers(1, 40), seeds)
def test_the_largest_are_those_of_topk(total: int, count: int, seed: int) -> None:
    x = torch.randn(2, 3, total, generator=torch.Generator().manual_seed(seed))
    x[0, 0, :-5] = -torch.inf
    values, places = largest(x, count)
    expected = x.topk(count, dim=-1)
    assert torch.equal(values, expected.values)
    assert torch.equal(x.gather(-1, places), values)
    assert torch.equal(places[1], expected.indices[1])
