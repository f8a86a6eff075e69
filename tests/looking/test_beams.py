"""Beams: what is recorded follows the beam that was chosen, as if its output had been read at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import glassformer as gf
from glassformer.decoding import BeamTrees, Limits, beam_search, greedy, sample
from glassformer.decoding.tree import Fate
from glassformer.looking import recording
from glassformer.looking.session import Decoding
from glassformer.parts import cache

from .families import FAMILIES, KEEP, SOURCE, SPEAKERS, WRITERS, same, translator

LIMITS = Limits(1, 2, max_length=7)
AFTER_PROMPT = Limits(None, 2, max_length=5)
FEW = {"max_examples": 6, "deadline": None}


@pytest.fixture(scope="module", autouse=True)
def _forgetful() -> Iterator[None]:
    """Beams that came to nothing, and their slots, are let go at every second step, not only in long outputs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "FORGET", 2)
        patch.setattr(cache, "FEW", 2)
        yield


def lively(name: str, seed: int) -> Any:
    """A model that is less sure of itself, so that its beams differ, and that ends at times; exact to many digits."""
    model = FAMILIES[name].model(seed).double()
    with torch.no_grad():
        model.decoder.embedding.weight.normal_(std=0.6)
        bias = getattr(model.head, "bias", None)
        if bias is not None:
            bias[2] += 2.0
    return model


def read_again(found: Any, first: int) -> list[int]:
    """What the decoder read to write an output."""
    return [first, *(found.tokens if found.finished else found.tokens[:-1])]


def check(trace: gf.Trace, forced: gf.Trace, sentence: int, points: list[str]) -> None:
    """What a decoding recorded of a sentence is what passes when its output is read at once."""
    for point in points:
        ours, expected = trace[point][sentence], forced[point][0]
        if point.endswith("self.scores"):
            expected = expected.tril()
        ours = ours[tuple(slice(0, length) for length in expected.shape)]
        same(ours.tril() if point.endswith("self.scores") else ours, expected)


@pytest.mark.parametrize("name", WRITERS)
@given(seed=st.integers(0, 2**31), width=st.integers(1, 5))
@settings(**FEW)  # type: ignore[arg-type]
@torch.no_grad()
def test_a_beam_search_is_recorded_along_the_chosen_beam(name: str, seed: int, width: int) -> None:
    model = lively(name, seed)
    source, _, *masks = FAMILIES[name].inputs
    inputs = (source, *masks)
    before = beam_search(model, *inputs, limits=LIMITS, width=width)
    with gf.record(model) as trace:
        found = beam_search(model, *inputs, limits=LIMITS, width=width)
    assert found == before
    for sentence, (best, *_) in enumerate(found):
        read = torch.tensor([read_again(best, 1)])
        real = slice(int(KEEP[sentence].sum()) if masks else None)  # an image has no padding
        with gf.record(model) as forced:
            model(source[sentence : sentence + 1, real], read)
        assert trace["decoder.tokens"][sentence, : read.shape[1]].tolist() == read[0].tolist()
        check(trace, forced, sentence, [point for point in forced if not point.startswith("encoder")])


@pytest.mark.parametrize("name", SPEAKERS)
@given(seed=st.integers(0, 2**31), width=st.integers(1, 5))
@settings(**FEW)  # type: ignore[arg-type]
@torch.no_grad()
def test_so_is_one_after_a_prompt(name: str, seed: int, width: int) -> None:
    model, prompt = lively(name, seed), SOURCE[:1, :3]
    with gf.record(model) as trace:
        ((best, *_),) = beam_search(model, prompt, limits=AFTER_PROMPT, width=width)
    read = [*prompt[0].tolist(), *read_again(best, 0)[1:]]
    with gf.record(model) as forced:
        model(torch.tensor([read]))
    assert trace["decoder.tokens"].tolist() == [read]
    check(trace, forced, 0, [point for point in forced if point != "logits"])
    same(trace["logits"][0], forced["logits"][0, 2:])


@pytest.mark.parametrize("name", SPEAKERS)
@given(seed=st.integers(0, 2**31), width=st.integers(1, 4))
@settings(**FEW)  # type: ignore[arg-type]
@torch.no_grad()
def test_prompts_of_different_lengths_are_recorded_without_their_padding(name: str, seed: int, width: int) -> None:
    model = lively(name, seed)
    with gf.record(model) as trace:
        found = beam_search(model, SOURCE, KEEP, limits=AFTER_PROMPT, width=width)
    for sentence, (best, *_) in enumerate(found):
        read = [*SOURCE[sentence, : KEEP[sentence].sum()].tolist(), *read_again(best, 0)[1:]]
        with gf.record(model) as forced:
            model(torch.tensor([read]))
        assert trace["decoder.tokens"][sentence, : len(read)].tolist() == read
        check(trace, forced, sentence, [point for point in forced if point != "logits"])


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@torch.no_grad()
def test_positions_of_a_change_are_those_of_the_text_whatever_the_padding(name: str) -> None:
    """The token after a prompt of three stands at 3 in a batch with longer ones, and reads its own second token."""
    model = lively(name, 1)
    limits = Limits(None, 2, max_length=3, min_length=3)
    with gf.intervene(model) as edit:
        edit.attend("decoder.1.self", query=[3, 4], key=1)
        edit.apply("decoder.0.after", torch.neg, positions=[2, 3])
        together = beam_search(model, SOURCE, KEEP, limits=limits, width=2)[1][0]
        alone = beam_search(model, SOURCE[1:, :3], limits=limits, width=2)[0][0]
    plain = beam_search(model, SOURCE[1:, :3], limits=limits, width=2)[0][0]
    assert together.log_probabilities == pytest.approx(alone.log_probabilities, abs=1e-5)
    assert alone.log_probabilities != pytest.approx(plain.log_probabilities, abs=1e-3)


@pytest.mark.parametrize("search", [greedy, sample])
@torch.no_grad()
def test_sentences_that_end_early_are_recorded_to_their_ends(search: Any) -> None:
    for seed in range(100):
        model = lively("bart", seed)
        found = search(model, SOURCE, KEEP, limits=LIMITS)
        lengths = [len(read_again(each, 1)) for each in found]
        if len(set(lengths)) == 2:  # one of the two sentences leaves the batch before the other
            break
    else:
        pytest.fail("all sentences ended together")
    with gf.record(model) as trace:
        assert search(model, SOURCE, KEEP, limits=LIMITS) == found
    for sentence, each in enumerate(found):
        with gf.record(model) as forced:
            model(SOURCE[sentence : sentence + 1, : KEEP[sentence].sum()], torch.tensor([read_again(each, 1)]))
        check(
            trace, forced, sentence, ["decoder.0.self.weights", "decoder.1.cross.weights", "decoder.output", "logits"]
        )
        assert (trace["decoder.output"][sentence, lengths[sentence] :] == 0).all()
        assert (trace["decoder.tokens"][sentence, lengths[sentence] :] == -1).all()


@torch.no_grad()
def test_the_tree_of_the_search_is_kept() -> None:
    model, trees = lively("transformer", 3), BeamTrees()
    with gf.record(model, keep="logits") as trace:
        found = beam_search(model, SOURCE, KEEP, limits=LIMITS, width=4, watch=trees)
    assert [tree.nodes for tree in trace.beams] == [tree.nodes for tree in trees]
    for tree, (best, *_) in zip(trace.beams, found, strict=True):
        ends = [node for node in tree.nodes if node.fate == Fate.FINISHED]
        top = max(ends, key=lambda node: node.score)
        assert tree.path(top)[: len(best.tokens)] == best.tokens


@torch.no_grad()
def test_a_search_without_beams_has_no_tree() -> None:
    with gf.record(model := translator()) as trace:
        greedy(model, SOURCE, KEEP, limits=LIMITS)
    assert trace.beams == []


@torch.no_grad()
def test_beams_chosen_by_hand_are_followed_from_the_last_step() -> None:
    """Two beams that swap places: the first one of the end began as the second."""
    model = translator()
    with gf.record(model) as trace:
        state = model.start(SOURCE[:1], KEEP[:1])
        _, state = model.step(state, torch.tensor([[1]]))
        state.select(torch.tensor([[0, 0]]))
        _, state = model.step(state, torch.tensor([[12, 13]]))
        state.select(torch.tensor([[1, 0]]))
        model.step(state, torch.tensor([[14, 15]]))
    with gf.record(model) as forced:
        model(SOURCE[:1], torch.tensor([[1, 13, 14]]))
    assert trace["decoder.tokens"].tolist() == [[1, 13, 14]]
    check(trace, forced, 0, ["decoder.0.self.weights", "decoder.1.self.weights", "decoder.1.after", "logits"])


@torch.no_grad()
def test_two_decodings_are_two_calls() -> None:
    model = translator()
    with gf.record(model, keep="decoder.0.cross") as trace:
        for source in (SOURCE[:1], SOURCE[1:, :3]):
            greedy(model, source, limits=LIMITS)
    shapes: list[tuple[int, ...]] = [tuple(each.shape) for each in trace.calls("decoder.0.cross")]
    assert [shape[-1] for shape in shapes] == [5, 3]


def test_padding_of_another_length_changes_nothing() -> None:
    """The recording of a sentence is that of the sentence alone."""
    model = lively("bart", 1)
    with gf.record(model) as together:
        beam_search(model, SOURCE, KEEP, limits=LIMITS, width=3)
    with gf.record(model) as alone:
        beam_search(model, SOURCE[1:, :3], limits=LIMITS, width=3)
    ours: Tensor = together["decoder.1.cross"][1]
    same(ours[:, : alone["decoder.1.cross"].shape[2], :3], alone["decoder.1.cross"][0])


def test_slots_that_were_kept_are_those_of_their_sentence() -> None:
    watcher = Decoding(rows=torch.tensor([[0], [1]]))
    watcher.prune(torch.tensor([[0, 2], [1, 3]]))
    watcher.select(torch.tensor([[0]]), torch.tensor([1]))
    assert watcher.moved is not None
    assert (watcher.moved.tolist(), watcher.slots) == ([[1, 3]], 2)


@torch.no_grad()
def test_beams_that_came_to_nothing_take_no_room() -> None:
    """While five beams search they are let go, and in the end as much is left as one beam takes."""
    model, limits = lively("transformer", 3), Limits(1, 2, max_length=24, min_length=24)

    def taken(width: int, forget: int) -> tuple[int, int]:
        """The most bytes of the decoder that were kept at a time, and those in the end."""
        most = 0
        with pytest.MonkeyPatch.context() as patch, gf.record(model, keep="decoder.*") as trace:
            patch.setattr(recording, "FORGET", forget)
            kept: Any = trace.kept
            told = kept.begin

            def begin(*given: Any) -> None:
                nonlocal most
                most = max(most, kept.total)
                told(*given)

            kept.session.starting = begin
            beam_search(model, SOURCE, KEEP, limits=limits, width=width)
            most = max(most, kept.total)
        return most, kept.total

    one, all_beams, few = taken(1, 2), taken(5, 1000), taken(5, 2)
    assert all_beams[0] > 4 * one[0]
    assert few[0] < 0.6 * all_beams[0]
    assert few[1] == all_beams[1] == one[1]
