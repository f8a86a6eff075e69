"""A suggested recipe suits the data, the machine and the minutes; the size is the one that the sweep says."""

from pathlib import Path

import pytest

from glassformer.suggest import recognise, sizes, suggest
from glassformer.suggest import suggesting as rules
from glassformer.suggest.sizes import Trained, interpolated
from glassformer.suggest.speed import Speed

from .test_recognising import PAIRS, tsv, write

SWEEP = tuple(
    Trained(size, examples, tokens, rate, score + 10 * (rate == 0.3) * (examples == 1_000))
    for size, scores in {"tiny": (10, 20), "small": (5, 30)}.items()
    for examples in (1_000, 10_000)
    for tokens, score in zip((1_000_000, 100_000_000), scores, strict=True)
    for rate in (0.1, 0.3)
)


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another sweep, in which the larger model is better with more tokens."""
    monkeypatch.setattr(sizes, "sweep", lambda: SWEEP)
    sizes._best.cache_clear()


def test_scores_are_interpolated_on_a_logarithmic_scale() -> None:
    points = [(1.0, 10.0), (100.0, 30.0), (10_000.0, 40.0)]
    assert interpolated(10, points) == pytest.approx(20)
    assert interpolated(1_000, points) == pytest.approx(35)
    assert interpolated(0.5, points) == pytest.approx(10 - 20 * 0.150515, abs=1e-4)  # log100 2 below the first
    assert interpolated(1e-9, points) == 0
    assert interpolated(1e9, points) == 40
    assert interpolated(7, [(5.0, 3.0)]) == 3


def test_the_sweep_tells_what_to_expect(swept: None) -> None:
    assert sizes.known() == ["tiny", "small"]
    assert sizes.expected("tiny", 10_000, 10_000_000) == pytest.approx(15)
    assert sizes.expected("small", 10_000, 10_000_000) == pytest.approx(17.5)
    assert sizes.expected("small", 1_000, 100_000_000) == pytest.approx(40)
    assert sizes.dropout("tiny", 1_200, 2_000_000) == 0.3
    assert sizes.dropout("tiny", 8_000, 2_000_000) == 0.1


@pytest.mark.parametrize(("tokens_per_second", "size"), [(1_000, "tiny"), (1_000_000, "small")])
def test_a_fast_machine_gets_a_larger_model(
    tokens_per_second: float, size: str, swept: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "measured_speed", lambda recipe, corpus: Speed(tokens_per_second, 2.0))
    made = suggest(recognise([write(tmp_path / "x.tsv", tsv(PAIRS))]), 10.0)
    assert made.table["model"]["width"] == sizes.SIZES[size]["width"]
    assert made.table["model"]["dropout"] == 0.3
    assert made.tokens == int(600 * rules.TRAINING * tokens_per_second)
    assert made.steps == int(made.tokens / 2 / made.table["train"]["batch_tokens"])
    assert made.table["train"]["warmup"] <= max(1, made.steps // 20)
    assert made.table["train"]["watch"] == "chrf"  # BLEU of 100 sentences, near 0, goes up and down by chance


@pytest.mark.parametrize(
    ("rows", "examples"),
    [(100, 10), (1_000, 100), (1_500, 100), (2_000, 100), (5_000, 250), (20_000, 500), (10**6, 1_000)],
)
def test_a_small_corpus_keeps_most_of_it_to_learn_from(rows: int, examples: int) -> None:
    assert rules.held_out(rows) * rows == pytest.approx(examples, rel=0.01)


def test_vocabularies_grow_with_the_corpus() -> None:
    found = [rules.vocabulary(words) for words in (0, 3e4, 3e5, 2.3e6, 3e7, 1e12)]
    assert found == sorted(found)
    assert found[0] == rules.VOCABULARIES[0]
    assert found[3] == rules.TOKENS
    assert found[-1] == rules.VOCABULARIES[1]


@pytest.mark.parametrize("value", [1, 9, 10, 99, 123, 4_567, 99_999])
def test_numbers_are_rounded_to_two_digits(value: int) -> None:
    assert abs(rules.rounded(value) - value) <= 0.05 * value
    assert len(str(rules.rounded(value)).rstrip("0")) <= 2
