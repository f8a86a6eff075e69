"""Masked language modelling: what is hidden, how, and what is lost on it."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data import Document, Encoded, Rows
from glassformer.models import bert
from glassformer.recipe import Tokenizer as Section
from glassformer.tasks.gathering import token_loss
from glassformer.tasks.masked import MaskCollator, MaskedEvaluation, MaskedTask, chosen, hidden_at
from glassformer.tasks.objective import Objective
from glassformer.text import Tokenizer

from .contexts import context


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    made = Tokenizer.train([], Section(kind="byte"))
    made.add_mask()
    return made


def rows(tokenizer: Tokenizer, texts: list[str]) -> Rows:
    return Encoded.of([([tokenizer.start, *tokenizer.encode(text), tokenizer.end], []) for text in texts]).rows()


@given(st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=5), st.floats(0.01, 0.99))
def test_the_mask_ratio_is_chosen_among_what_may_be_and_at_least_one(may: list[list[bool]], ratio: float) -> None:
    allowed = np.array(may)
    found = chosen(allowed, ratio, np.random.default_rng(0))
    assert not (found & ~allowed).any()
    for row, count in zip(found, allowed.sum(axis=1), strict=True):
        assert row.sum() == min(max(round(ratio * count), 1), count)


def test_eight_of_ten_are_masked_one_is_replaced_one_stays() -> None:
    text, choice = np.full((100, 1000), 7), np.ones((100, 1000), bool)
    choice[:, 500:] = False
    shown = hidden_at(text, choice, mask=3, vocabulary=5000, rng=np.random.default_rng(0))
    assert (shown[:, 500:] == 7).all()
    part = shown[:, :500]
    assert (part == 3).mean() == pytest.approx(0.8, abs=0.01)
    assert (part == 7).mean() == pytest.approx(0.1, abs=0.01)
    others = part[(part != 3) & (part != 7)]
    assert len(others) / part.size == pytest.approx(0.1, abs=0.01)
    assert others.min() < 100
    assert others.max() > 4900


def test_a_piece_with_nothing_to_hide_is_left_out() -> None:
    words = Tokenizer.train(["a b c", "c b a"], Section(kind="word", vocabulary=20))
    words.add_mask()
    task = MaskedTask(kind="masked-language-modelling")
    made = task.encoder(context((words,), limit=4))([Document("a b éé éé"), Document("éé"), Document("c éé")])
    assert [row.tolist() for row in map(made.rows().source, range(len(made.lengths)))] == [
        [words.start, *words.encode(text), words.end] for text in ("a b", "c éé")
    ]
    assert made.counts == {"split": 1, "empty": 2}


def test_special_tokens_and_padding_are_never_chosen(tokenizer: Tokenizer) -> None:
    pairs = rows(tokenizer, ["ab", "abcdefgh", "a"])
    batch = MaskCollator(pairs, tokenizer, 0.9)(np.arange(3), np.random.default_rng(0))
    assert batch.label_mask.sum(dim=1).tolist() == [2, 7, 1]
    assert batch.targets == 10
    assert not batch.label_mask[:, 0].any()
    assert batch.mask is not None
    assert not (batch.label_mask & ~batch.mask).any()
    assert (batch.text[~batch.label_mask] == batch.labels[~batch.label_mask]).all()
    assert (batch.labels == tokenizer.end).sum() == 3


def test_the_same_rng_hides_the_same_and_others_others(tokenizer: Tokenizer) -> None:
    collate = MaskCollator(rows(tokenizer, ["the cat sat on the mat"] * 4), tokenizer, 0.3)
    first, again, other = (collate(np.arange(4), np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.text, again.text)
    assert not torch.equal(first.label_mask, other.label_mask)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_cross_entropy_of_the_hidden_tokens(tokenizer: Tokenizer, smoothing: float) -> None:
    batch = MaskCollator(rows(tokenizer, ["hello", "a longer text"]), tokenizer, 0.3)(
        np.arange(2), np.random.default_rng(0)
    )
    model = bert(tokenizer.size, 16, 2, 1, 32, length=32, answer="words", dropout=0.0, attention_dropout=0.0)
    logits = model(batch.text, batch.mask)[batch.label_mask]
    wanted = F.cross_entropy(logits, batch.labels[batch.label_mask], reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(Objective(model, token_loss, smoothing)(batch), wanted)


def test_a_gap_takes_the_space_before_it_where_words_do(tokenizer: Tokenizer) -> None:
    words = Tokenizer.train(["the cat sat"], Section(kind="word", vocabulary=20))
    words.add_mask()
    gap = {"[MASK]": words.mask}
    assert words.tokens(words.encode_with("the [MASK] sat", gap)) == ["▁the", "<mask>", "▁sat"]
    letters = tokenizer.tokens(tokenizer.encode_with("a [MASK]b", {"[MASK]": tokenizer.mask}))
    assert letters == ["a", "▁", "<mask>", "b"]
    assert tokenizer.encode_with("<mask>", {"[MASK]": tokenizer.mask}) == tokenizer.encode("<mask>")


def test_an_evaluation_by_hand() -> None:
    found = MaskedEvaluation(nats=4 * np.log(2), tokens=4, hits=1, texts=2)
    assert found.loss == pytest.approx(np.log(2))
    assert found.facts() == {
        "texts": 2,
        "loss": found.loss,
        "perplexity": found.perplexity,
        "accuracy": 0.25,
        "hidden": 4,
    }
    assert found.lines()[1:] == [
        "perplexity     2.000 per token   (loss 0.6931)",
        "accuracy       25.00% of 4 hidden tokens",
    ]
