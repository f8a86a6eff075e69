"""Every claim of the notes, as far as it holds, holds in its experiment, with room to spare."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from glassformer.experiments import EXPERIMENTS, Finding

Found = Callable[[str], Finding]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_finds_what_it_says(found: Found, name: str) -> None:
    finding = found(name)
    assert finding.holds, finding.measured
    assert finding.facts
    assert finding.rows
    assert finding.method.endswith(".")
    assert finding.measured.endswith(".")
    assert any(letter.isdigit() for letter in finding.measured)


def test_gradients_vanish_or_explode_and_clipping_mends_one_of_both(found: Found) -> None:
    finding = found("gradient-flow")
    at = {(row["model"], row["distance"]): row["gradient"] for row in finding.rows if row["part"] == "flow"}
    assert at["RNN", 50] < 1e-10 * at["RNN", 1]  # 1 % is all that was asked for
    assert at["LSTM", 50] > 1e6 * at["RNN", 50]
    assert at["GRU", 50] > 1e3 * at["RNN", 50]
    assert 0.3 < at["Transformer", 50] / at["Transformer", 1] < 3
    assert finding.facts["large_rnn_left"] > 100
    assert finding.facts["exploding_clipped"] < 0.2 < 1 < finding.facts["exploding_open"]
    assert min(finding.facts["vanished_clipped"], finding.facts["vanished_open"]) > 1.95
    assert finding.facts["attended"] < 1.2


def test_what_came_long_ago_is_out_of_reach_of_an_rnn(found: Found) -> None:
    facts = found("long-memory").facts
    assert facts["parameters_most"] < 1.05 * facts["parameters_least"]
    assert facts["reach RNN"] == 0  # of the one distance that is tried here
    assert facts["far RNN"] < 0.25
    assert min(facts["far GRU"], facts["far LSTM"]) > 0.5
    assert facts["far Transformer"] > 0.95


def test_a_fixed_vector_loses_long_sentences_and_attention_finds_them(found: Found) -> None:
    facts = found("bottleneck").facts
    fixed, attention = "LSTM, fixed vector", "LSTM with attention"
    assert facts[f"short {attention}"] > 90
    assert facts[f"long {attention}"] > facts[f"long {fixed}"] + 30
    assert facts[f"beginning {attention}"] > 0.9
    assert facts[f"beginning {fixed}"] < facts[f"beginning {attention}"] - 0.12


def test_an_rnn_waits_at_every_step_and_a_block_does_not(found: Found) -> None:
    finding = found("parallel-speed")
    facts = finding.facts
    assert facts["waits RNN"] == 3  # a product, a sum and a tanh
    assert facts["waits LSTM"] >= 3
    assert facts["waits Transformer block"] == 0
    assert all(row["seconds"] > 0 for row in finding.rows)
    assert facts["milliseconds LSTM, step by step in Python"] > facts["milliseconds Transformer block"]


def test_a_word_with_two_senses_has_one_static_vector_and_two_in_context(found: Found) -> None:
    facts = found("static-vs-contextual").facts
    for word, one, other, strange in (("bank", "money", "river", "fruit"), ("apple", "fruit", "computers", "money")):
        assert facts[f"told {word}"] > 0.95
        assert min(facts[f"near {word} {one}"], facts[f"near {word} {other}"]) > 0.6
        assert (
            min(facts[f"static {word} {one}"], facts[f"static {word} {other}"])
            > facts[f"static {word} {strange}"] + 0.3
        )


def test_scores_spread_as_the_width_and_scaling_undoes_it(found: Found) -> None:
    finding = found("dot-product-variance")
    plain = [row for row in finding.rows if row["score"] == "q · k"]
    scaled = [row for row in finding.rows if row["score"] != "q · k"]
    assert all(row["variance"] == pytest.approx(row["d"], rel=0.05) for row in plain)
    assert all(row["variance"] == pytest.approx(1, rel=0.05) for row in scaled)
    assert all(wide["slope"] < narrow["slope"] for narrow, wide in pairwise(plain))
    assert all(row["slope"] > 0.9 for row in scaled)
    assert plain[-1]["slope"] < 0.1


def test_without_positions_nobody_knows_who_bites(found: Found) -> None:
    rows = {row["positions"]: row for row in found("order-blind").rows}
    assert rows["none"]["change"] < 1e-5
    assert 0.4 < rows["none"]["accuracy"] < 0.6
    for scheme in ("sinusoidal", "learned", "rotary", "relative (T5)"):
        assert rows[scheme]["change"] > 1e-3
        assert rows[scheme]["accuracy"] > 0.95
    assert rows["ALiBi"]["change"] < 1e-5  # distances are the same from the other end
    assert rows["ALiBi"]["accuracy"] > 0.95  # but not to the beginning
    assert rows["none, but masked"]["change"] > 0.1


def test_waves_are_bounded_distinct_and_turn_by_an_offset(found: Found) -> None:
    facts = found("positions").facts
    assert facts["largest_wave"] <= 1
    assert facts["nearest"] > 0.5
    assert facts["nearest_one_wave"] < 1e-4
    assert facts["offset_error"] < 1e-6
    assert facts["offset_error_learned"] > 0.8


def test_what_was_learned_on_short_texts_carries_over_by_distances_only(found: Found) -> None:
    facts = found("positions").facts
    for scheme in ("sinusoidal", "learned", "rotary", "relative (T5)", "ALiBi"):
        assert facts[f"within {scheme}"] > 0.9
    assert facts["within none"] < 0.9
    assert max(facts["twice sinusoidal"], facts["twice learned"]) < 0.5
    assert min(facts["twice rotary"], facts["twice relative (T5)"], facts["twice ALiBi"]) > 0.6
    assert facts["four rotary"] < 0.5 < 0.8 < facts["four ALiBi"]


def test_batch_norm_minds_padding_and_small_batches(found: Found) -> None:
    facts = found("batch-vs-layer-norm").facts
    assert facts["padding_batch"] > 1
    assert facts["padding_layer"] == facts["padding_aware"] == 0
    assert facts["gap_few"] > 0.1
    assert abs(facts["gap_many"]) < 0.03
    assert facts["gap_layer"] == 0
    assert facts["rms_formula"] < 0.95


def test_depth_needs_residuals_and_norms_keep_it_in_size(found: Found) -> None:
    facts = found("residual-and-norm").facts
    assert facts["pre"] < facts["norm_only"] - 0.1
    assert min(facts["norm_only"], facts["neither"]) > 2.25
    assert facts["neither_shallow"] < 1.5
    assert facts["first_gradient_neither"] < 1e-6 * facts["first_gradient_pre"]
    assert facts["pre_from_large"] < 1
    assert facts["residual_only_from_large"] > 3


def test_without_the_mask_loss_falls_and_writing_fails(found: Found) -> None:
    facts = found("causal-mask").facts
    assert facts["open_loss"] < 0.4
    assert facts["open_right"] < 0.3
    assert facts["masked_right"] > 0.85


def test_all_places_at_once_teach_what_they_teach_one_by_one(found: Found) -> None:
    facts = found("teacher-forcing").facts
    assert facts["loss_error"] < 1e-12
    assert facts["gradient_error"] < 1e-12
    assert facts["speed"] > 5


def test_beams_find_what_greed_misses(found: Found) -> None:
    finding = found("greedy-vs-beam")
    facts = finding.facts
    assert facts["score_greedy"] < facts["score_two"] <= facts["score_beam"]
    assert facts["better"] > 0.5
    assert facts["worse"] <= 0.02
    assert facts["right_beam"] > facts["right_greedy"] + 0.25
    ahead, behind = (
        [row["total"] for row in finding.rows if row.get("search") == name] for name in ("beam 8", "greedy")
    )
    assert ahead[-1] > behind[-1] + 1


def test_an_adapted_model_begins_as_its_base_and_rank_buys_quality(found: Found) -> None:
    facts = found("lora").facts
    assert facts["difference_at_step_0"] == 0
    assert facts["copies"] > 0.9 > 0.5 > facts["base"]
    assert facts["base"] + 0.2 < facts["lowest"] < facts["highest"]
    assert facts["highest"] > facts["all"] - 0.05
    assert facts["lowest_share"] < 0.05


def test_heads_look_for_different_things_and_are_missed_for_them(found: Found) -> None:
    finding = found("heads")
    facts = finding.facts
    assert len(finding.rows) == 8
    assert facts["different"] >= 2
    for relation in ("previous token", "subject of the verb", "rare name"):
        assert facts[f"attends {relation}"] > 0.6
        assert facts[f"lost {relation}"] > 0.08
    assert facts["lost rare name"] > 0.5
    assert facts["known rare name"] < 0.2
    assert facts["known subject of the verb"] < 2.2  # of either number: ln 12 = 2.48
