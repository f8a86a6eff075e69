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
