"""Ensembles: several models that write together give what their mean gives, in every search, in any company and memory.

B sentences, k beams, T length, V vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import glassformer as gf
from glassformer.decoding import Ensemble, Hypothesis, Limits, Mean, beam_search, capturing, greedy, sample, stream
from glassformer.errors import ConfigurationError, InputError
from glassformer.models import gpt2, llama, t5, transformer
from glassformer.models.recurrent import recurrent
from glassformer.parts import pack, pad, quantise
from glassformer.parts.schemes import rotary
from glassformer.tasks.losses import row_losses

from .helpers import END, START, VOCABULARY, Recurrent, all_outputs, batches, penalties, seeds, sentences, talker

LIMITS = Limits(START, END, max_length=10)
MEANS: tuple[Mean, ...] = ("probabilities", "log-probabilities")
means = st.sampled_from(MEANS)
limits = st.builds(
    Limits,
    start=st.just(START),
    end=st.sampled_from([END, (END, 5)]),
    max_length=st.integers(4, 12),
    min_length=st.integers(0, 4),
    suppress=st.sampled_from([(), (3, 4, 7)]),
    suppress_sequences=st.sampled_from([(), ((6, 8), (9,))]),
    no_repeat_ngram=st.sampled_from([0, 1, 2]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.8]),
    forced_first=st.sampled_from([None, 9]),
    forced_last=st.sampled_from([None, END]),
    renormalise=st.booleans(),
)


def close(found: Hypothesis, expected: Hypothesis) -> None:
    assert (found.tokens, found.finished) == (expected.tokens, expected.finished)
    assert found.score == pytest.approx(expected.score, abs=1e-4)
    assert found.log_probabilities == pytest.approx(expected.log_probabilities, abs=1e-4)


def random_model(make: Callable[[], Any], seed: int) -> Any:
    """A model of some family that is sure of itself; in float64, as two tokens may be nearly as likely."""
    torch.manual_seed(seed)
    model = make().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.double()


WRITERS: dict[str, Callable[[], Any]] = {
    "transformer": lambda: transformer(VOCABULARY, 16, 2, 1, 24, tie_output=False),
    "rotary, wider and deeper": lambda: transformer(VOCABULARY, 24, 2, 2, 32, tie_output=False, positions=rotary),
    "t5": lambda: t5(VOCABULARY, 16, 2, 1, 24, tie_output=False),
    "lstm": lambda: recurrent(VOCABULARY, 12, 1, tie_output=False),
    "lstm without attention": lambda: recurrent(VOCABULARY, 12, 2, tie_output=False, attention=None),
}
CONTINUERS: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: gpt2(VOCABULARY, 16, 2, 1, 24, length=200, tie_output=False),
    "llama": lambda: llama(VOCABULARY, 24, 2, 2, 32, tie_output=False),
    "lstm": lambda: recurrent(VOCABULARY, 12, 1, answer="next", tie_output=False),
}


def mixed(seed: int, mean: Mean = "probabilities", some: Sequence[str] = tuple(WRITERS)) -> Ensemble:
    return Ensemble([random_model(WRITERS[name], seed + number) for number, name in enumerate(some)], mean)


@settings(max_examples=40)
@given(seeds, batches, st.integers(1, 4), penalties, limits, means, st.integers(1, 3))
def test_equal_models_write_as_one_of_them(
    seed: int, batch: list[list[int]], width: int, alpha: float, limits: Limits, mean: Mean, count: int
) -> None:
    model = talker(seed).double()
    together = Ensemble([model] * count, mean)
    inputs = pad(batch)
    options: dict[str, Any] = {"limits": limits, "width": width, "best": width, "length_penalty": alpha}
    for row, expected in zip(
        beam_search(together, *inputs, **options), beam_search(model, *inputs, **options), strict=True
    ):
        for pair in zip(row, expected, strict=True):
            close(*pair)
    for search in (greedy, sample):
        for each in zip(search(together, *inputs, limits=limits), search(model, *inputs, limits=limits), strict=True):
            close(*each)


WORDS, WIDTH, ENOUGH = [2, 3, 4], 36, 40
FEW = Limits(START, END, max_length=4, suppress=[token for token in range(ENOUGH) if token not in {END, *WORDS}])


def by_hand(models: Iterable[Any], mean: Mean, sentence: list[int], output: Sequence[int]) -> list[float]:
    """The log-probability of each token of an output, from what each model says when it reads all of it at once."""
    with torch.no_grad():
        given = torch.tensor([sentence]), torch.tensor([[START, *output[:-1]]])
        each = torch.stack([model(*given)[0].softmax(dim=-1) for model in models])  # (M, T, V)
    p = each.mean(dim=0) if mean == "probabilities" else each.log().mean(dim=0).exp()
    p = p / p.sum(dim=-1, keepdim=True)  # (T, V)
    return [math.log(p[place, token]) for place, token in enumerate(output)]


@settings(max_examples=25)
@given(seeds, sentences, penalties, means, st.sampled_from([-2.0, 0.0, 3.0]))
def test_a_wide_beam_finds_the_best_outputs_of_the_mean(
    seed: int, sentence: list[int], alpha: float, mean: Mean, end_bias: float
) -> None:
    models = [talker(seed + number, vocabulary=ENOUGH, end_bias=end_bias).double() for number in range(3)]
    options: dict[str, Any] = {"width": WIDTH, "best": 5, "length_penalty": alpha}
    found = beam_search(Ensemble(models, mean), *pad([sentence]), limits=FEW, **options)[0]
    scored = [
        (sum(by_hand(models, mean, sentence, output)) / len(output) ** alpha, output)
        for output in all_outputs(WORDS, FEW)
    ]
    expected = sorted(scored, reverse=True)[:5]
    assert [each.score for each in found] == pytest.approx([score for score, _ in expected], abs=1e-4)
    if all(one[0] - other[0] > 1e-5 for one, other in pairwise(expected)):
        assert [[*each.tokens, END] if each.finished else each.tokens for each in found] == [row for _, row in expected]


@settings(max_examples=15)
@given(seeds, batches, st.integers(1, 4), means)
def test_families_write_together_and_what_they_write_is_the_same_alone_and_in_company(
    seed: int, batch: list[list[int]], width: int, mean: Mean
) -> None:
    together = mixed(seed, mean)
    inputs, own = pad([*batch, [2] * 8]), list(range(len(batch) + 1))
    beams = beam_search(together, *inputs, limits=LIMITS, width=width)
    lines = greedy(together, *inputs, limits=LIMITS)
    drawn = sample(together, *inputs, limits=LIMITS, seed=own)
    for row, sentence in enumerate(batch):
        alone = pad([sentence])
        close(beams[row][0], beam_search(together, *alone, limits=LIMITS, width=width)[0][0])
        close(lines[row], greedy(together, *alone, limits=LIMITS)[0])
        close(drawn[row], sample(together, *alone, limits=LIMITS, seed=[own[row]])[0])


@pytest.mark.parametrize("mean", MEANS)
def test_scores_are_those_of_the_mean_and_of_forced_scoring(mean: Mean) -> None:
    together, batch = mixed(5, mean), [[2, 3, 4, 5], [6], [7, 8]]
    source, keep = pad(batch)
    for found in (greedy(together, source, keep, limits=LIMITS), sample(together, source, keep, limits=LIMITS)):
        written = [[*each.tokens, END] if each.finished else each.tokens for each in found]
        target, real = pad([[START, *row] for row in written])
        with torch.no_grad():
            hidden = together.hidden(source, target[:, :-1], keep)  # (B, T, D)
            assert together(source, target[:, :-1], keep).shape == (3, target.shape[1] - 1, VOCABULARY)
            nats = row_losses(hidden, target[:, 1:], real[:, 1:], together.head)
        for row, each in enumerate(found):
            assert each.log_probabilities == pytest.approx(
                by_hand(together.members, mean, batch[row], written[row]), abs=1e-4
            )
            assert -nats[row].item() == pytest.approx(each.log_probability, abs=1e-3)


def test_a_model_that_is_sure_carries_the_mean_of_probabilities_alone() -> None:
    sure, unsure = torch.tensor([[0.999, 0.001 - 1e-9, 1e-9]]), torch.tensor([[1e-6, 0.3, 0.7 - 1e-6]])
    models = [torch.nn.Identity(), torch.nn.Identity()]
    likeliest = {mean: int(Ensemble(models, mean).combined([sure.log(), unsure.log()]).argmax()) for mean in MEANS}
    assert likeliest == {"probabilities": 0, "log-probabilities": 1}


def test_a_level_of_logits_changes_no_probability() -> None:
    low, high = torch.randn(2, 3, 5).unbind()
    for mean in MEANS:
        combined: Callable[[list[Tensor]], Tensor] = Ensemble([torch.nn.Identity()] * 2, mean).combined
        expected = combined([low, high]).softmax(dim=-1)
        assert torch.allclose(combined([low, high + 50]).softmax(dim=-1), expected, atol=1e-5)


def test_language_models_continue_prompts_together() -> None:
    together = Ensemble([random_model(make, number) for number, make in enumerate(CONTINUERS.values())])
    limits, prompts = replace(LIMITS, start=None, no_repeat_ngram=2), [[2, 3, 4, 5], [6], [7, 8]]
    beams = beam_search(together, *pad(prompts), limits=limits, width=3)
    lines = greedy(together, *pad(prompts), limits=limits)
    for row, prompt in enumerate(prompts):
        close(beams[row][0], beam_search(together, *pad([prompt]), limits=limits, width=3)[0][0])
        close(lines[row], greedy(together, *pad([prompt]), limits=limits)[0])
        whole = [*prompt, *lines[row].tokens]
        assert len({*pairwise(whole)}) - len({*pairwise(prompt)}) == len(lines[row].tokens)


@pytest.mark.parametrize("names", [tuple(WRITERS)[:3], tuple(WRITERS)])
def test_outputs_begin_with_their_prefixes(names: tuple[str, ...]) -> None:
    together, inputs, prefixes = mixed(3, some=names), pad([[2, 3], [4], [5, 6, 7]]), [[8, 9], [], [10]]
    found = [best for best, *_ in beam_search(together, *inputs, limits=LIMITS, width=3, prefix=prefixes)]
    for each in (found, greedy(together, *inputs, limits=LIMITS, prefix=prefixes)):
        assert [one.tokens[: len(prefix)] for one, prefix in zip(each, prefixes, strict=True)] == prefixes
    batch = [[2, 3], [4], [5, 6, 7]]
    for row, one in enumerate(found):
        output = [*one.tokens, END] if one.finished else one.tokens
        scores = by_hand(together.members, "probabilities", batch[row], output)
        assert one.log_probabilities == pytest.approx(scores, abs=1e-4)


def test_a_model_that_only_starts_and_steps_can_be_among_them() -> None:
    torch.manual_seed(0)
    together = Ensemble([Recurrent(), talker(1)])
    found = greedy(together, *pad([[2, 3], [4]]), limits=LIMITS)
    written = [event.token for event in stream(together, *pad([[2, 3]]), limits=LIMITS)]
    assert written[: len(found[0].tokens)] == found[0].tokens


def test_packed_and_quantised_ensembles_write() -> None:
    together = Ensemble([talker(1), talker(2)])
    inputs = pad([[2, 3], [4, 5, 6]])
    for pair in zip(
        greedy(pack(together), *inputs, limits=LIMITS), greedy(together, *inputs, limits=LIMITS), strict=True
    ):
        close(*pair)
    assert len(greedy(quantise(together, least=1), *inputs, limits=LIMITS)) == 2


# --- fixed memory, as for CUDA graphs


@pytest.mark.parametrize("names", [("transformer", "transformer"), tuple(WRITERS)[:3]])
@pytest.mark.parametrize("mean", MEANS)
def test_members_that_can_be_captured_are_captured_together(
    names: tuple[str, ...], mean: Mean, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, batch = mixed(7, mean, names), [[2, 3, 4, 5], [6], [7, 8], [9, 10, 11]]
    for limits in (replace(LIMITS, max_length=20), replace(LIMITS, max_length=100, min_length=80)):
        inputs = pad(batch)

        def decoded(inputs: Any = inputs, limits: Limits = limits) -> list[Hypothesis]:
            beams = beam_search(together, *inputs, limits=limits, width=3, best=2)
            drawn = sample(together, *inputs, limits=limits, seed=3, temperature=0.7, top_k=9)
            return [*(one for row in beams for one in row), *greedy(together, *inputs, limits=limits), *drawn]

        expected = decoded()
        with monkeypatch.context() as patch:
            patch.setattr(capturing, "supports", lambda device: True)
            for _ in range(2):  # sources are read in fixed memory from the second time on
                for pair in zip(decoded(), expected, strict=True):
                    close(*pair)
            store = capturing.stores[together]
            assert store.buckets
            assert not store.refused
            assert [type(each).__name__ for each in store.readings.values()] == ["Reading"]


def test_an_ensemble_with_a_member_that_cannot_be_captured_is_decoded_step_by_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together, inputs = mixed(7), pad([[2, 3, 4, 5], [6], [7, 8]])
    expected = beam_search(together, *inputs, limits=LIMITS, width=3)
    monkeypatch.setattr(capturing, "supports", lambda device: True)
    for _ in range(3):
        for one, other in zip(beam_search(together, *inputs, limits=LIMITS, width=3), expected, strict=True):
            close(one[0], other[0])
    assert not capturing.stores[together].buckets
    assert [*capturing.stores[together].readings.values()] == [False]  # it is not tried again and again
    assert not capturing.stores[together].refused
    capturing.stores.clear()


# --- what is refused


def test_what_is_no_ensemble_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="needs one model at least"):
        Ensemble([])
    with pytest.raises(ConfigurationError, match="the mean is of probabilities or log-probabilities, not of 'median'"):
        Ensemble([talker(1)], "median")  # type: ignore[arg-type]
    together = Ensemble([talker(1), talker(2, vocabulary=40)])
    with pytest.raises(ConfigurationError, match=r"score \[32, 40\] tokens: expected the same vocabulary"):
        greedy(together, *pad([[2]]), limits=LIMITS)


def test_an_ensemble_is_not_looked_into() -> None:
    together = Ensemble([talker(1), talker(2)])
    for look in (gf.points, gf.record(together).__enter__):
        with pytest.raises(InputError, match="an ensemble of 2 models cannot be looked into"):
            look(*([together] if look is gf.points else []))


def test_bad_inputs_are_the_sentence_of_a_single_model() -> None:
    with pytest.raises(InputError, match="the source holds the id 99"):
        greedy(Ensemble([talker(1), talker(2)]), torch.tensor([[99]]), limits=LIMITS)
