"""Stacks, shapes, transfer, patches and a real translator: what the experiments draw, and verdicts that test all."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.experiments import Finding, beam_fluency, stacked_layers, three_shapes, transfer, vit
from glassformer.experiments.trial import Trial, Tuned

Found = Callable[[str], Finding]
RNG = np.random.default_rng


def given(monkeypatch: pytest.MonkeyPatch, results: Callable[[Any, Trial], Any]) -> None:
    """Let a trial find these results, by variant and seed, instead of training."""

    def tuned(self: Trial, name: str, work: Any, variants: Any, rates: Any) -> dict[Any, Tuned[Any]]:
        return {each: Tuned(rates[0], {}, [results(each, trial) for trial in self.seeds()]) for each in variants}

    monkeypatch.setattr(Trial, "tuned", tuned)


# --- stacked-layers


def test_a_question_asks_for_the_digit_that_its_letter_was_given() -> None:
    asked = stacked_layers._texts(RNG(0), count=5)
    text, labels = asked.batch.text, asked.batch.labels
    for row in range(5):
        digit_of = {int(text[row, at - 1]): int(text[row, at]) for at in stacked_layers.DIGITS}
        assert len(digit_of) == stacked_layers.PAIRS
        for number, at in enumerate(stacked_layers.QUESTIONS):
            assert digit_of[int(text[row, at])] == int(labels[row, at])
            assert text[row, stacked_layers.DIGITS[asked.order[row, number]]] == labels[row, at]
        for at in stacked_layers.DIGITS:
            assert labels[row, at] == text[row, at - 1]
    assert asked.batch.label_mask.sum() == asked.batch.targets == 5 * 2 * stacked_layers.PAIRS


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        ({("whole", 1, None, "the answer"): 0.9}, False),  # one layer is enough
        ({("whole", 2, None, "the answer"): 0.5}, False),  # two are not
        ({("looks", 2, 1, "the answer"): 0.9}, False),  # the first layer has found the answer already
        ({("without", 2, 1, "the answer"): 0.9}, False),  # nobody misses the first layer
    ],
)
def test_a_stack_is_judged_by_both_layers(
    monkeypatch: pytest.MonkeyPatch, change: dict[Any, float], holds: bool
) -> None:
    usual = {("whole", 1, None, "the answer"): 0.3, ("looks", 2, 1, "the answer"): 0.2}
    usual |= {("without", 2, layer, "the answer"): 0.2 for layer in (1, 2)}

    def result(layers: int, trial: Trial) -> list[dict[str, Any]]:
        base, rows = {"seed": trial.seed, "layers": layers}, []
        for facet in stacked_layers.FACETS:
            for part, layer, value in [
                ("whole", None, "right"),
                *(("looks", layer, "attention") for layer in range(1, layers + 1)),
                *(("without", layer, "right") for layer in range(1, layers + 1)),
            ]:
                place = (part, layers, layer, facet)
                number = change[place] if place in change and trial.seed == 1 else usual.get(place, 1.0)
                where = {} if layer is None else {"layer": layer}
                rows.append({**base, **where, "part": part, "facet": facet, value: number, "parameters": 30_000})
        return rows

    given(monkeypatch, result)
    assert stacked_layers.run(Trial(0)).holds is holds


def test_one_layer_has_as_many_parameters_as_two(found: Found) -> None:
    facts = found("stacked-layers").facts
    assert facts["parameters 1"] >= facts["parameters 2"]


# --- three-shapes


def test_what_each_shape_cannot_see_does_not_change_it(found: Found) -> None:
    facts = found("three-shapes").facts
    assert facts["BERT first word → second word"] == 0  # also of a model that has learned nothing
    assert facts["GPT right clue → second word"] == 0
    for shape in ("BERT", "T5", "GPT, told first"):
        assert facts[f"{shape} right clue → second word"] > 0
    for shape in ("GPT", "T5", "GPT, told first"):
        assert facts[f"{shape} first word → second word"] > 0


def test_the_words_of_a_gap_fit_their_clues_and_each_other() -> None:
    some = three_shapes._sentences(RNG(0), count=20)
    first, second = some.first - three_shapes.FIRST, some.second - three_shapes.SECOND
    assert torch.equal(first % three_shapes.CLUES, some.left - three_shapes.LEFT)
    assert torch.equal(second % three_shapes.CLUES, some.right - three_shapes.RIGHT)
    assert torch.equal(first // three_shapes.CLUES, second // three_shapes.CLUES)
    whole = some.filled(some.first, some.second)
    for batch, shown in ((three_shapes._masked(some), False), (three_shapes._causal(some), True)):
        asked = batch.labels[batch.label_mask].reshape(20, 2)
        assert torch.equal(asked, torch.stack((some.first, some.second), dim=1))
        assert bool((batch.text == some.first[:, None]).any()) is shown
    assert torch.equal(three_shapes._causal(some).text, whole[:, :-1])
    assert three_shapes._rewritten(some).source.shape == (20, whole.shape[1] - 1)  # one mark for both words


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        ({("BERT", "fit each other"): 0.9}, False),
        ({("GPT", "fits the right"): 0.9}, False),
        ({("T5", "all of it"): 0.5}, False),
        ({("BERT", three_shapes.SEES[2]): 0.1}, False),
    ],
)
def test_shapes_are_judged_by_what_each_cannot_do_too(
    monkeypatch: pytest.MonkeyPatch, change: dict[Any, float], holds: bool
) -> None:
    usual = {("BERT", "fit each other"): 0.5, ("GPT", "fits the right"): 0.12}
    usual |= {("BERT", three_shapes.SEES[2]): 0.0, ("GPT", three_shapes.SEES[1]): 0.0}

    def result(shape: str, trial: Trial) -> dict[str, Any]:
        found = usual | (change if trial.seed == 2 else {})
        names = (*three_shapes.FITS, *three_shapes.SEES)
        return {"shape": shape, "seed": trial.seed} | {name: found.get((shape, name), 1.0) for name in names}

    given(monkeypatch, result)
    assert three_shapes.run(Trial(0)).holds is holds


# --- transfer


def test_a_label_is_the_topic_of_the_first_half() -> None:
    some = transfer._labelled(RNG(0), 30)
    assert torch.equal(some.text[:, 1 : 1 + transfer.HALF] // transfer.WORDS, some.labels[:, None].expand(-1, 4))
    hidden = transfer._hidden(RNG(0), count=30)
    assert hidden.label_mask.sum(dim=1).tolist() == [2] * 30
    assert torch.equal(hidden.text == transfer.MASK, hidden.label_mask)


def test_ways_to_tune_learn_what_they_say(found: Found) -> None:
    facts = found("transfer").facts
    assert facts["trained head only"] == 33 * transfer.TOPICS  # the width and a bias
    assert facts["trained head only"] < facts["trained LoRA, rank 4"] < 0.5 * facts["trained all weights"]
    assert facts["trained from scratch"] == facts["trained all weights"]


@pytest.mark.parametrize(
    ("change", "holds", "said"),
    [
        (
            {},
            True,
            "and LoRA learns as well as all weights (LoRA, rank 4 less all weights: 0% with 24 labels, 0% with 96).",
        ),
        (
            {(transfer.LORA, 96): 0.7},
            False,
            "and LoRA does not learn as well as all weights at every seed (LoRA, rank 4 less all weights: 0% ",
        ),
        ({(transfer.SCRATCH, 24): 0.9}, False, "Pretraining does not carry over by 10% at every seed"),
    ],
)
def test_transfer_is_judged_by_both_parts_at_every_seed(
    monkeypatch: pytest.MonkeyPatch, change: dict[Any, float], holds: bool, said: str
) -> None:
    def result(variant: tuple[str, int], trial: Trial) -> dict[str, Any]:
        way, few = variant
        usual = 0.5 if way == transfer.SCRATCH else 0.95
        right = change.get(variant, usual) if trial.seed == 1 else usual
        trained = {transfer.HEAD: 198, transfer.LORA: 8000}.get(way, 34_000)
        return {"way": way, "labels": few, "seed": trial.seed, "right": right, "trained": trained}

    given(monkeypatch, result)
    monkeypatch.setattr(Trial, "map", lambda *_: [({}, 4.0)] * 3)
    finding = transfer.run(Trial(0))
    assert finding.holds is holds
    assert said in finding.measured


# --- vit


def test_things_are_where_they_are_said_to_be_and_covering_hides_them() -> None:
    some = vit._images(RNG(0), 12)
    red = (some.pixels[:, 0] > 0.5) & (some.pixels[:, 1:] < -0.4).all(dim=1)  # (B, S, S)
    inside, outside = red & some.things[vit.ASKED], red & ~some.things[vit.ASKED]
    assert inside.flatten(1).sum(dim=1).min() > 20
    assert outside.sum() == 0
    covered = some.covered(vit.ASKED, 4)
    assert not ((covered[:, 0] > 0.5) & (covered[:, 1:] < -0.4).all(dim=1)).any()
    kept = ~some.in_patches(vit.ASKED, 4).repeat_interleave(4, 1).repeat_interleave(4, 2)
    assert torch.equal(covered.permute(0, 2, 3, 1)[kept], some.pixels.permute(0, 2, 3, 1)[kept])


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        ({"right": 0.5}, False),
        ({vit.ASKED: 0.2}, False),  # no more than its share of the image
        ({f"without {vit.ASKED}": 0.9}, False),
        ({f"without {vit.OTHER}": 0.4}, False),
    ],
)
def test_heads_are_judged_by_where_they_look_and_by_what_is_covered(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, float], holds: bool
) -> None:
    whole = {"right": 0.95, f"without {vit.ASKED}": 0.35, f"without {vit.OTHER}": 0.9}
    whole |= {f"area of {kind}": 0.2 for kind in vit.KINDS[:2]}
    looks = {vit.ASKED: 0.7, vit.OTHER: 0.1, vit.EMPTY: 0.2}

    def result(patch: int, trial: Trial) -> Any:
        base = {"seed": trial.seed, "patch": patch}
        numbers = change if trial.seed == 2 else {}
        first = base | whole | {name: value for name, value in numbers.items() if name in whole} | {"part": "whole"}
        head = base | looks | {name: value for name, value in numbers.items() if name in looks}
        picture = vit.Picture("1.1", np.zeros((24, 24, 3)), np.zeros((6, 6)))
        return [first, {**head, "part": "head", "head": "1.1"}], [picture] * 3

    given(monkeypatch, result)
    assert vit.run(Trial(0)).holds is holds


# --- beam-fluency


def test_our_sentences_are_pairs_and_none_is_there_twice() -> None:
    short, long = (beam_fluency._sentences(path) for path in beam_fluency.TEXTS.values())
    assert len(short) == len(long) == 50
    assert len({english for english, _ in short + long}) == 100
    assert beam_fluency._words(long) > 1.7 * beam_fluency._words(short)


def test_gains_are_those_of_the_same_sentences_twice() -> None:
    from glassformer.tasks.writing import Output

    ours = ["Das ist ein Haus.", "Der Hund schläft unter dem Tisch.", "Sie spricht drei Sprachen."]
    wrong = [Output("Das Haus.", 0.0, [], [1, 2], -4.0), *(Output(each, 0.0, [], [1, 2], -2.0) for each in ours[1:])]
    right = [Output(each, 0.0, [], [1, 2], -1.0) for each in ours]
    gains = beam_fluency._gains(wrong, right, ours)
    assert gains["score"][0] == pytest.approx(5 / 9)  # of three tokens each, the end included
    assert all(low <= gain <= high and gain > 0 for gain, low, high in gains.values())
    assert beam_fluency._gains(right, right, ours)["bleu"] == (0, 0, 0)


def test_translations_of_greedy_decoding_are_of_width_one(found: Found) -> None:
    finding = found("beam-fluency")
    assert {row["width"] for row in finding.rows if row["part"] == "width"} == {1, 2}
    assert finding.facts["score beam"] == pytest.approx(finding.facts["score greedy"] + finding.facts["score gain"])
    assert len([row for row in finding.rows if row["part"] == "sentence"]) == 4
