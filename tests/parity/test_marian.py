"""The same weights in Hugging Face's Marian give the same logits, and the same outputs token for token."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.decoding import Hypothesis, Limits, beam_search, greedy
from glassformer.parts import pad

from .helpers import END, PAD, START, VOCABULARY, marian_pair

pytest.importorskip("transformers", reason="parity with Marian needs the extra glassformer[interop]")

seeds = st.integers(0, 2**31 - 1)
sentences = st.lists(st.integers(4, VOCABULARY - 1), min_size=1, max_size=6)
batches = st.lists(sentences, min_size=1, max_size=4)
lengths = st.sampled_from([1, 2, 5, 9])


@settings(max_examples=40)
@given(
    seed=seeds,
    heads=st.integers(1, 3),
    head_width=st.sampled_from([2, 4, 8]),
    hidden=st.integers(1, 40),
    layers=st.integers(1, 2),
    decoder_layers=st.integers(1, 2),
    activation=st.sampled_from(["relu", "gelu", "swish"]),
    batch=batches,
    length=st.integers(1, 7),
)
def test_the_same_weights_give_the_logits_of_marian(
    seed: int,
    heads: int,
    head_width: int,
    hidden: int,
    layers: int,
    decoder_layers: int,
    activation: str,
    batch: list[list[int]],
    length: int,
) -> None:
    ours, theirs = marian_pair(
        seed,
        width=heads * head_width,
        heads=heads,
        layers=layers,
        decoder_layers=decoder_layers,
        hidden=hidden,
        activation=activation,
    )
    source, mask = pad(batch, value=PAD)
    target = torch.randint(4, VOCABULARY, (len(batch), length))
    with torch.no_grad():
        expected = theirs(input_ids=source, attention_mask=mask.long(), decoder_input_ids=target).logits
        torch.testing.assert_close(ours(source, target, mask), expected, atol=1e-5, rtol=1e-5)


def generate(theirs: Any, batch: list[list[int]], **options: Any) -> tuple[list[list[int]], list[float]]:
    """What Hugging Face generates: tokens without start, end included, padding cut off; and scores of beam search."""
    from transformers import GenerationConfig

    source, mask = pad(batch, value=PAD)
    config = GenerationConfig(
        pad_token_id=PAD,
        eos_token_id=END,
        bos_token_id=START,
        decoder_start_token_id=START,
        do_sample=False,
        forced_eos_token_id=None,
        bad_words_ids=None,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    with torch.no_grad():
        found = theirs.generate(input_ids=source, attention_mask=mask.long(), generation_config=config)
    rows = []
    for row in found.sequences[:, 1:].tolist():
        rows.append(row[: row.index(END) + 1] if END in row else row)
    return rows, found.sequences_scores.tolist() if "sequences_scores" in found else []


def outputs(hypotheses: list[Hypothesis]) -> list[list[int]]:
    return [one.tokens + [END] * one.finished for one in hypotheses]


@settings(max_examples=50)
@given(seeds, batches, lengths, st.integers(0, 3))
def test_greedy_equals_generate_token_for_token(seed: int, batch: list[list[int]], longest: int, least: int) -> None:
    ours, theirs = marian_pair(seed, talkative=True)
    least = min(least, longest)
    found = greedy(ours, *pad(batch, value=PAD), limits=Limits(START, END, max_length=longest, min_length=least))
    expected, _ = generate(theirs, batch, max_new_tokens=longest, min_new_tokens=least or None)
    assert outputs(found) == expected


@settings(max_examples=60)
@given(seeds, batches, lengths, st.integers(0, 3), st.sampled_from([4, 5]), st.sampled_from([0.0, 0.6, 1.0, 2.0, -0.5]))
def test_beam_search_equals_generate_token_for_token_and_score_for_score(
    seed: int, batch: list[list[int]], longest: int, least: int, width: int, alpha: float
) -> None:
    ours, theirs = marian_pair(seed, talkative=True)
    least = min(least, longest)
    limits = Limits(START, END, max_length=longest, min_length=least)
    found = beam_search(ours, *pad(batch, value=PAD), limits=limits, width=width, length_penalty=alpha)
    expected, scores = generate(
        theirs,
        batch,
        max_new_tokens=longest,
        min_new_tokens=least or None,
        num_beams=width,
        length_penalty=alpha,
        early_stopping="never",
    )
    assert outputs([best[0] for best in found]) == expected
    assert [best[0].score for best in found] == pytest.approx(scores, abs=1e-5, rel=1e-5)


@settings(max_examples=25)
@given(seeds, batches, st.sampled_from([3, 8]), st.sampled_from([0.0, 1.0]))
def test_the_n_best_equal_those_of_generate_in_order(
    seed: int, batch: list[list[int]], longest: int, alpha: float
) -> None:
    ours, theirs = marian_pair(seed, talkative=True)
    limits = Limits(START, END, max_length=longest)
    found = beam_search(ours, *pad(batch, value=PAD), limits=limits, width=4, best=4, length_penalty=alpha)
    expected, scores = generate(
        theirs,
        batch,
        max_new_tokens=longest,
        num_beams=4,
        num_return_sequences=4,
        length_penalty=alpha,
        early_stopping="never",
    )
    assert outputs([one for best in found for one in best]) == expected
    assert [one.score for best in found for one in best] == pytest.approx(scores, abs=1e-5, rel=1e-5)


def test_these_models_end_at_various_lengths() -> None:
    """The comparisons above are about more than outputs that are cut off, or end at once."""
    lengths = set()
    for seed in range(16):
        ours, _ = marian_pair(seed, talkative=True)
        found = greedy(ours, *pad([[4, 5], [6], [7, 8, 9]], value=PAD), limits=Limits(START, END, max_length=9))
        lengths |= {len(one.tokens) for one in found if one.finished}
    assert len(lengths) >= 4
