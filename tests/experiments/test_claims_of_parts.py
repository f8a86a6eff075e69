"""The claims about single parts of a model: what their experiments find, and the tools that only they have."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch

from glassformer.experiments import Finding
from glassformer.experiments.binary_counting import BINARY, COUNT, TANGENT, WAVES, table_of
from glassformer.experiments.deep_rnn import LENGTH, _states, _texts
from glassformer.experiments.finding import Spread
from glassformer.experiments.free_attention import Reader, _before, _sense
from glassformer.experiments.two_readings import EITHER, FEELS, IT, WITH, _it, _with
from glassformer.experiments.unseen_lengths import WRITTEN, OwnWeights, _latest
from glassformer.looking import record
from glassformer.models import recurrent
from glassformer.parts import Sinusoidal
from glassformer.parts.recurrent import GRU, LSTM, Cell

Found = Callable[[str], Finding]


def spread(finding: Finding, name: str) -> Spread:
    """A fact that several seeds measured."""
    value = finding.facts[name]
    assert isinstance(value, Spread)
    assert len(value.values) == len(finding.seeds) == 3
    return value


def test_one_hot_vectors_are_all_equally_far_apart_and_learned_ones_are_not(found: Found) -> None:
    finding = found("one-hot")
    facts = finding.facts
    assert facts["closest one-hot"] == pytest.approx(2**0.5)
    assert facts["farthest one-hot"] == pytest.approx(2**0.5)
    assert facts["zeros one-hot"] == pytest.approx(1 - 1 / facts["width one-hot"])
    assert spread(finding, "cat dog learned").high < spread(finding, "cat table learned").low
    assert spread(finding, "right one-hot").high < 0.4  # a guess is 0.25
    assert spread(finding, "right learned").low > 0.7
    assert spread(finding, "neighbours learned").low > spread(finding, "neighbours random").high + 0.3


def test_digits_flip_waves_turn_and_tan_explodes(found: Found) -> None:
    finding = found("binary-counting")
    facts = finding.facts
    assert facts["ratio_binary"] == pytest.approx(0.5, abs=0.01)
    assert facts["ratio_waves"] == pytest.approx(10_000 ** (-2 / 32))
    assert facts["longest_step binary"] == pytest.approx(3.0)  # √9 digits
    assert facts["longest_step sinusoidal"] == pytest.approx(facts["least_step sinusoidal"])
    assert facts["offset_error sinusoidal"] < 1e-6 < 0.1 < facts["offset_error binary"]
    assert facts["largest tan"] > 50
    assert spread(finding, f"right {TANGENT}").high < spread(finding, f"right {WAVES}").low


def test_tables_of_positions_are_what_they_are_called() -> None:
    torch.testing.assert_close(table_of(WAVES).float(), Sinusoidal(32).table)
    assert table_of(BINARY)[6, :4].tolist() == [0, 1, 1, 0]  # the last digit first
    assert table_of(COUNT)[[0, 7, 511], 0].tolist() == [0, 7, 511]
    tangent = table_of(TANGENT)
    assert tangent.isfinite().all()
    assert tangent[1, :2].tolist() == pytest.approx([np.tan(1), -1 / np.tan(1)])


def test_feed_forward_has_the_largest_share_of_the_base_model_and_not_the_bulk(found: Found) -> None:
    finding = found("feed-forward")
    facts = finding.facts
    assert (facts["base_feed_forward"], facts["base_all"]) == (25_196_544, 63_084_544)
    assert facts["share_base"] == pytest.approx(0.399, abs=1e-3)
    assert facts["share_base_blocks"] == pytest.approx(4 / 7, abs=1e-3)  # 12 of 8 D², 18 of 4 D²
    assert facts["share_gpt2_blocks"] == pytest.approx(2 / 3, abs=1e-3)
    parts = [row for row in finding.rows if row["part"] == "parameters"]
    for row in parts:
        assert sum(row[kind] for kind in ("feed-forward", "attention", "embeddings", "others")) == row["all"]
        assert row["feed-forward"] == max(row[kind] for kind in ("feed-forward", "attention", "embeddings", "others"))
    assert spread(finding, "count, ReLU").low > spread(finding, "count, linear").high
    assert spread(finding, "count, feed-forward made linear").high < spread(finding, "count, ReLU").low


def test_scale_and_shift_undo_a_norm_only_where_all_tokens_are_alike(found: Found) -> None:
    finding = found("undo-layer-norm")
    assert spread(finding, "left all tokens of one size, layer norm").high < 0.02
    assert spread(finding, "left tokens of their own size, layer norm").low > 0.5
    assert spread(finding, "left tokens of their own size, batch norm").high < 0.1
    assert finding.facts["lost"] == pytest.approx(finding.facts["left tokens of their own size, layer norm"], abs=0.1)
    for question in ("is it long?", "is its mean above 0?"):
        assert 0.4 < spread(finding, f"right {question}, layer norm").high < 0.6
        assert spread(finding, f"right {question}, batch norm").low > 0.85


def test_a_stack_with_residuals_can_spare_a_block(found: Found) -> None:
    finding = found("skip-layers")
    with_, without = "with residuals", "without residuals"
    assert spread(finding, f"all, {with_}").low > 0.7
    assert spread(finding, f"best, {with_}").low > spread(finding, f"best, {without}").high


def test_similarity_finds_a_sense_but_not_the_word_before(found: Found) -> None:
    finding = found("free-attention")
    for name in ("cosine", "dot", "scaled dot"):
        assert spread(finding, f"diagonal before, {name}").low > 0.88
        assert spread(finding, f"word before, {name}").high < spread(finding, "word before, learned Q, K, V").low
    assert spread(finding, "diagonal after, word before, learned Q, K, V").high < 0.5
    assert spread(finding, "sense of bank, learned Q, K, V").low > 0.8


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


def test_the_last_word_decides_what_it_is_and_nothing_who_has_the_telescope(found: Found) -> None:
    finding = found("two-readings")
    for heads in (1, 4):
        assert spread(finding, f"right {IT}, {heads}").low > 0.9
        assert spread(finding, f"right {WITH}, {heads}").low > 0.9
        assert finding.facts[f"verb {heads}"] == pytest.approx(0.7, abs=0.15)
    assert finding.facts["finds"]
    assert not finding.facts["several"]


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


def test_shared_weights_carry_over_to_unseen_lengths(found: Found) -> None:
    finding = found("unseen-lengths")
    for cell in ("RNN", "GRU"):
        assert spread(finding, f"far {cell}").low > 0.8
        assert finding.facts[f"far {cell}"] == pytest.approx(finding.facts[f"within {cell}"], abs=0.1)
    own = "own weights for each step"
    assert spread(finding, f"far {own}").high < spread(finding, "far RNN").low
    assert finding.facts[f"parameters {own}"] > 5 * finding.facts["parameters RNN"]


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


def test_layers_of_a_deep_rnn_hold_the_last_letter_lower_down(found: Found) -> None:
    finding = found("deep-rnn")
    held = [finding.facts[f"GRU, the letter just read, layer {layer}"] for layer in (1, 2, 3)]
    assert all(lower >= higher - 0.05 for lower, higher in pairwise(held))
    assert min(held) > 0.3
    assert finding.holds == bool(finding.facts["short"] and finding.facts["long"])
