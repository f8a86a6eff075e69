"""One protocol, every model: what a recurrent network and a table written by hand share with a Transformer."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import glassformer
from glassformer.decoding import Limits, beam_search, greedy, sample
from glassformer.parts import pad

from .helpers import END, START, ByHand, Recurrent, batches, lines, penalties, seeds, sentences, stepped, talker

LIMITS = Limits(START, END, max_length=8)


@settings(max_examples=30)
@given(seeds, batches, st.integers(1, 4), penalties)
def test_a_recurrent_network_decodes_alike_alone_and_in_company(
    seed: int, batch: list[list[int]], width: int, alpha: float
) -> None:
    torch.manual_seed(seed)
    model = Recurrent()
    inputs = pad([*batch, [2] * 8])
    own = list(range(len(batch) + 1))
    beams = beam_search(model, *inputs, limits=LIMITS, width=width, length_penalty=alpha)
    lone = greedy(model, *inputs, limits=LIMITS)
    drawn = sample(model, *inputs, limits=LIMITS, seed=own)
    for row, sentence in enumerate(batch):
        alone = pad([sentence])
        best = beam_search(model, *alone, limits=LIMITS, width=width, length_penalty=alpha)[0][0]
        assert beams[row][0].tokens == best.tokens
        assert lone[row].tokens == greedy(model, *alone, limits=LIMITS)[0].tokens
        assert drawn[row].tokens == sample(model, *alone, limits=LIMITS, seed=[own[row]])[0].tokens


@settings(max_examples=30)
@given(seeds, sentences, st.integers(1, 4), penalties)
def test_a_recurrent_networks_scores_are_its_own_log_probabilities(
    seed: int, sentence: list[int], width: int, alpha: float
) -> None:
    torch.manual_seed(seed)
    model, inputs = Recurrent(), pad([sentence])
    found = [
        *greedy(model, *inputs, limits=LIMITS),
        *sample(model, *inputs, limits=LIMITS, seed=seed),
        *beam_search(model, *inputs, limits=LIMITS, width=width, best=width, length_penalty=alpha)[0],
    ]
    outputs = [one.tokens + [END] * one.finished for one in found]
    assert [one.log_probability for one in found] == pytest.approx(stepped(model, sentence, outputs), abs=1e-4)
    for one, output in list(zip(found, outputs, strict=True))[2:]:
        assert one.score == pytest.approx(one.log_probability / len(output) ** alpha, abs=1e-6)


def test_a_table_by_hand_decodes_in_every_way() -> None:
    model = ByHand({(): [0, 0.1, 0.9, 0], (2,): [0, 0.2, 0, 0.8]}, [0, 1, 0, 0])
    searched = [best[0] for best in beam_search(model, lines(2), limits=LIMITS, width=3)]
    for found in (*greedy(model, lines(2), limits=LIMITS), *searched):
        assert found.tokens == [2, 3]
        assert found.log_probability == pytest.approx(math.log(0.9 * 0.8), abs=1e-5)
    outputs = sample(model, lines(300), limits=LIMITS)
    assert {tuple(one.tokens) for one in outputs} == {(), (2,), (2, 3)}


@settings(max_examples=20)
@given(seeds, batches)
def test_beams_of_a_transformer_go_on_from_their_own_past(seed: int, batch: list[list[int]]) -> None:
    """Choosing beams in a state and stepping gives what reading each beam's own tokens gives."""
    model = talker(seed)
    inputs = pad(batch)
    beams = torch.randint(2, 32, (len(batch), 3))  # the first tokens of three beams
    with torch.no_grad():
        state = model.start(*inputs)
        _, state = model.step(state, torch.full((len(batch), 1), START))
        state.select(torch.zeros(len(batch), 3, dtype=torch.long))
        _, state = model.step(state, beams)
        chosen = torch.randint(3, (len(batch), 3))
        state.select(chosen)
        after = torch.randint(2, 32, (len(batch), 3))
        logits, state = model.step(state, after)
        for beam in range(3):
            past = beams.gather(1, chosen)[:, beam]
            target = torch.stack((torch.full_like(past, START), past, after[:, beam]), dim=1)
            torch.testing.assert_close(
                logits[:, beam], model(inputs[0], target, inputs[1])[:, -1], atol=1e-5, rtol=1e-5
            )


def test_what_decoding_needs_is_at_the_top_of_the_library() -> None:
    for name in ("greedy", "beam_search", "sample", "stream", "Limits", "Hypothesis", "BeamTrees", "Sampler", "pad"):
        assert name in glassformer.__all__
        assert hasattr(glassformer, name)
