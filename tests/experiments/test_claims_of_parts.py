"""The claims about single parts of a model: what is measured without training, verdicts, and tools of their own."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from glassformer.experiments import (
    Finding,
    binary_counting,
    deep_rnn,
    feed_forward,
    free_attention,
    skip_layers,
    two_readings,
    undo_layer_norm,
    unseen_lengths,
)
from glassformer.experiments.binary_counting import BINARY, COUNT, TANGENT, WAVES, table_of
from glassformer.experiments.deep_rnn import HELD, LENGTH, TOPIC, _states, _texts
from glassformer.experiments.free_attention import Reader, _before, _sense
from glassformer.experiments.trial import Trial
from glassformer.experiments.two_readings import EITHER, FEELS, IT, WITH, _it, _with
from glassformer.experiments.unseen_lengths import WRITTEN, OwnWeights, _latest
from glassformer.looking import record
from glassformer.models import recurrent
from glassformer.parts import Sinusoidal
from glassformer.parts.recurrent import GRU, LSTM, Cell

from .test_claims import given

Found = Callable[[str], Finding]


def test_one_hot_vectors_are_all_equally_far_apart_and_learned_ones_are_not(found: Found) -> None:
    finding = found("one-hot")
    facts = finding.facts
    assert finding.holds, finding.measured
    assert facts["closest one-hot"] == pytest.approx(2**0.5)
    assert facts["farthest one-hot"] == pytest.approx(2**0.5)
    assert facts["zeros one-hot"] == pytest.approx(1 - 1 / facts["width one-hot"])
    assert facts["cat dog learned"] < facts["cat table learned"]
    assert facts["right one-hot"] < 0.4  # a guess is 0.25
    assert facts["neighbours learned"] > facts["neighbours random"] + 0.3


def test_digits_flip_waves_turn_and_tan_explodes(found: Found) -> None:
    facts = found("binary-counting").facts
    assert facts["ratio_binary"] == pytest.approx(0.5, abs=0.01)
    assert facts["ratio_waves"] == pytest.approx(10_000 ** (-2 / 32))
    assert facts["longest_step binary"] == pytest.approx(3.0)  # √9 digits
    assert facts["longest_step sinusoidal"] == pytest.approx(facts["least_step sinusoidal"])
    assert facts["offset_error sinusoidal"] < 1e-6 < 0.1 < facts["offset_error binary"]
    assert facts["largest tan"] > 50


def test_feed_forward_has_the_largest_share_of_the_base_model_and_not_the_bulk(found: Found) -> None:
    finding = found("feed-forward")
    facts = finding.facts
    assert (facts["base_feed_forward"], facts["base_all"]) == (25_196_544, 63_082_496)
    assert facts["share_base_blocks"] == pytest.approx(4 / 7, abs=1e-3)  # 12 of 8 D², 18 of 4 D²
    assert facts["share_gpt2_blocks"] == pytest.approx(2 / 3, abs=1e-3)
    kinds = ("feed-forward", "attention", "embeddings", "others")
    for row in (row for row in finding.rows if row["part"] == "parameters"):
        assert sum(row[kind] for kind in kinds) == row["all"]
        assert row["feed-forward"] == max(row[kind] for kind in kinds)


def test_the_best_scale_and_shift_do_not_bring_a_size_back(found: Found) -> None:
    assert 0.6 < found("undo-layer-norm").facts["lost"] < 0.8


def test_similarity_has_the_highest_diagonal_before_training(found: Found) -> None:
    facts = found("free-attention").facts
    assert facts["diagonal before, cosine"] == 1
    assert min(facts["diagonal before, dot"], facts["diagonal before, scaled dot"]) > 0.88
    assert facts["diagonal before, learned Q, K, V"] < 0.5


@pytest.mark.parametrize(("tangent", "holds"), [(0.2, True), (0.97, False)])
def test_tan_is_judged_by_what_is_learned_with_it(monkeypatch: pytest.MonkeyPatch, tangent: float, holds: bool) -> None:
    given(monkeypatch, lambda kind, trial: dict.fromkeys(("seen", "unseen"), tangent if kind == TANGENT else 0.99))
    assert binary_counting.run(Trial(0)).holds is holds


def test_the_bulk_is_more_than_half(monkeypatch: pytest.MonkeyPatch) -> None:
    def result(variant: tuple[str, str], trial: Trial) -> Any:
        changes = {feed_forward.WHOLE: 1.0 if variant[1] in ("ReLU", "GELU") else 0.3}
        return changes | {feed_forward.FIXED: 0.9, feed_forward.STRAIGHT: 0.2}

    given(monkeypatch, result)
    finding = feed_forward.run(Trial(0))
    assert finding.facts["needs count"] == 1  # that part holds
    assert not finding.holds  # 40 % of the parameters are not the bulk
    monkeypatch.setattr(
        feed_forward, "_counted", lambda _: {"feed-forward": 6, "attention": 4, "embeddings": 1, "all": 11}
    )
    assert feed_forward.run(Trial(0)).holds


def test_copying_is_learned_for_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = list[int]()
    monkeypatch.setattr(Trial, "learn", lambda self, name, model, draw, loss, steps, rate: taken.append(steps))
    for task in (feed_forward.COPY, feed_forward.COUNT):
        feed_forward._learned(Trial(0), (task, feed_forward.NONE), 1e-3, 250)
    assert taken == [500, 250]


@pytest.mark.parametrize(("left", "right", "holds"), [(0.7, 0.5, False), (0.0, 0.5, False), (0.0, 1.0, True)])
def test_a_norm_is_undone_where_nothing_is_left_over_and_nothing_forgotten(
    monkeypatch: pytest.MonkeyPatch, left: float, right: float, holds: bool
) -> None:
    own = undo_layer_norm.OWN

    def result(variant: tuple[str, str], trial: Trial) -> float:
        kind = variant[0]
        return right if kind in (undo_layer_norm.SIZE, undo_layer_norm.MEAN) else left if kind == own else 0.0

    given(monkeypatch, result)
    assert undo_layer_norm.run(Trial(0)).holds is holds


@pytest.mark.parametrize(("kept", "lost", "holds"), [(0.95, 0.1, True), (0.95, 0.9, False), (0.3, 0.1, False)])
def test_skipping_is_judged_by_the_block_that_is_missed_least(
    monkeypatch: pytest.MonkeyPatch, kept: float, lost: float, holds: bool
) -> None:
    def result(name: str, trial: Trial) -> Any:
        right = kept if name == skip_layers.WITH else lost
        return [{"skipped": n, "right": right if n else 1.0, "loss": 0.0, "added": 0.1 * n} for n in range(5)]

    given(monkeypatch, result)
    assert skip_layers.run(Trial(0)).holds is holds


@pytest.mark.parametrize(("free", "ends", "holds"), [(0.5, 1.0, True), (0.97, 1.0, False), (0.5, 0.4, False)])
def test_attention_without_parameters_is_judged_by_the_best_similarity_and_by_its_diagonal_after_training(
    monkeypatch: pytest.MonkeyPatch, free: float, ends: float, holds: bool
) -> None:
    def result(variant: tuple[str, str], trial: Trial) -> Any:
        right = free if variant == ("word before", "cosine") else 0.3 if "Q" not in variant[1] else 1.0
        after = ends if variant == ("word before", "dot") else 1.0
        return {"numbers": {"right": right, "begins": 1.0, "ends": after}, "example": np.eye(6)}

    given(monkeypatch, result)
    finding = free_attention.run(Trial(0))
    assert finding.holds is holds
    assert ("stays the highest by cosine and dot and scaled dot." in finding.measured) is (ends == 1)


@pytest.mark.parametrize(("one", "holds"), [(1.0, False), (0.5, True)])
def test_two_readings_need_heads_only_if_one_head_fails(
    monkeypatch: pytest.MonkeyPatch, one: float, holds: bool
) -> None:
    def result(heads: int, trial: Trial) -> Any:
        right = [{"part": "right", "what": kind, "value": one if heads == 1 else 1.0} for kind in (IT, WITH)]
        attends = [
            {"part": "attends", "what": what, "value": value} for what, value in (("answer", 0.8), ("other", 0.1))
        ]
        return [*right, *attends, {"part": "verb", "value": 0.7}, {"part": "split", "value": 0.5}]

    given(monkeypatch, result)
    finding = two_readings.run(Trial(0))
    assert finding.holds is holds
    assert ("do not need two heads" in finding.measured) is not holds


@pytest.mark.parametrize(
    ("far", "own", "steps", "holds"),
    [(0.99, 0.4, 60, True), (0.5, 0.4, 60, False), (0.99, 0.95, 60, False), (0.99, 0.4, 40, False)],
)
def test_lengths_are_judged_far_beyond_training_and_efficiency_by_the_steps_it_takes(
    monkeypatch: pytest.MonkeyPatch, far: float, own: float, steps: int, holds: bool
) -> None:
    def result(name: str, trial: Trial) -> Any:
        shared = name != unseen_lengths.OWN  # within the length all are right in the end, also without sharing
        right = [1.0] * 12 + [far if shared else own] * 84
        size = 100 if shared else 1000
        return {"right": right, "parameters": size, "needed": 40 if shared else steps, "losses": [(5, 1.0)]}

    given(monkeypatch, result)
    assert unseen_lengths.run(Trial(0)).holds is holds


@pytest.mark.parametrize(("top", "holds"), [(1.0, True), (0.5, False)])
def test_a_deep_rnn_is_judged_by_short_and_long_patterns(
    monkeypatch: pytest.MonkeyPatch, top: float, holds: bool
) -> None:
    def result(cell: str, trial: Trial) -> Any:
        held = {what: (0.5, 0.7, top) if what == TOPIC else (1.0, 0.8, 0.6) for what in HELD}
        rows: list[dict[str, Any]] = [
            {"part": "held", "what": what, "layer": layer, "value": value}
            for what, values in held.items()
            for layer, value in enumerate(values, start=1)
        ]
        rows += [{"part": "stays", "layer": layer, "value": 0.1} for layer in (1, 2, 3)]
        return rows + [{"part": "right", "what": f"{which} letter", "value": 1.0} for which in ("second", "third")]

    given(monkeypatch, result)
    assert deep_rnn.run(Trial(0)).holds is holds


def test_tables_of_positions_are_what_they_are_called() -> None:
    torch.testing.assert_close(table_of(WAVES).float(), Sinusoidal(32).table)
    assert table_of(BINARY)[6, :4].tolist() == [0, 1, 1, 0]  # the last digit first
    assert table_of(COUNT)[[0, 7, 511], 0].tolist() == [0, 7, 511]
    tangent = table_of(TANGENT)
    assert tangent.isfinite().all()
    assert tangent[1, :2].tolist() == pytest.approx([np.tan(1), -1 / np.tan(1)])


def test_a_reader_without_parameters_has_none_in_its_attention() -> None:
    counts = {name: sum(each.numel() for each in Reader(name).parameters()) for name in ("cosine", "learned Q, K, V")}
    assert counts["learned Q, K, V"] - counts["cosine"] == 4 * (32 * 32 + 32)
    reader = Reader("learned Q, K, V").eval()
    text = _before(np.random.default_rng(0), 3).text
    with record(reader) as trace:
        reader(text)
    torch.testing.assert_close(reader.weights(text), trace["attention.weights"][:, 0])


def test_questions_about_bank_can_be_answered_from_their_sentences() -> None:
    batch = _sense(np.random.default_rng(1), 200)
    assert (batch.text[batch.label_mask] == 0).all()  # bank
    money = ((batch.text >= 1) & (batch.text < 5)).any(dim=1)
    river = ((batch.text >= 5) & (batch.text < 9)).any(dim=1)
    assert (money ^ river).all()
    assert torch.equal(batch.labels[batch.label_mask] - 12, river.long())


def test_sentences_of_the_grammar_ask_for_what_they_mean() -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        sentence = _it(rng)
        assert sentence.words[sentence.place] == "it"
        meant = sentence.words[sentence.answer]
        assert (meant in ("bear", "dog", "fox", "cow", "mouse", "badger")) == (sentence.words[-1] in FEELS)
    readings = {_with(rng, EITHER).answer for _ in range(50)}
    assert readings == {2, 4}  # the verb and the noun
    decided = [_with(rng, WITH) for _ in range(50)]
    assert all((each.answer == 2) == (each.words[-1] in ("hammer", "stick")) for each in decided)


def test_own_weights_are_an_rnn_where_all_steps_have_the_same() -> None:
    torch.manual_seed(0)
    own = OwnWeights(5, 3, length=4)
    for step in own.steps:
        step.load_state_dict(own.steps[0].state_dict())
    shared = torch.nn.RNN(3, 3, batch_first=True)
    weight, bias = (own.steps[0].get_parameter(name).detach() for name in ("weight", "bias"))
    shared.load_state_dict(
        {"weight_ih_l0": weight[:, :3], "weight_hh_l0": weight[:, 3:], "bias_ih_l0": bias, "bias_hh_l0": 0 * bias}
    )
    text = torch.tensor([[0, 1, 2, 3, 4, 0, 1]])  # longer than it has steps
    torch.testing.assert_close(own.hidden(text), shared(own.embedding(text))[0])


def test_the_symbol_that_was_written_last_is_asked_for() -> None:
    batch = _latest(np.random.default_rng(3), 30, 8)
    for text, labels in zip(batch.text.tolist(), batch.labels.tolist(), strict=True):
        written = [symbol for symbol in text if symbol < WRITTEN]
        assert labels[0] == text[0] == written[0]
        assert labels[-1] == written[-1]


@pytest.mark.parametrize("cell", [GRU, LSTM])
def test_states_of_layers_are_those_that_were_recorded(cell: type[Cell]) -> None:
    model = recurrent(28, 32, layers=3, dropout=0.0, answer="next", cell=cell).eval()
    text = _texts(np.random.default_rng(4), 2).text
    with record(model) as trace:
        model(text)
    states = _states(model, text)
    assert states.shape == (3, 2, LENGTH, 32)
    for layer, found in enumerate(states):
        torch.testing.assert_close(found, trace[f"decoder.{layer}.state"], atol=1e-5, rtol=1e-5)
