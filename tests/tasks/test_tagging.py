"""Tagging: every word is in one piece of its sentence, is tagged where it ends, and has a tag."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.data import Assets, Report
from glassformer.data.examples import Columns
from glassformer.data.reading import Cleaner
from glassformer.data.source import Found
from glassformer.errors import DataError
from glassformer.models import bert
from glassformer.recipe import Data, make_recipe
from glassformer.recipe import Tokenizer as Section
from glassformer.tasks.gathering import TokenBatch, token_loss
from glassformer.tasks.objective import Objective
from glassformer.tasks.tagging import TagCollator, TaggedText, TaggingTask, cut
from glassformer.text import Tokenizer

from .contexts import context

TEXTS = ["the old dogs can fish", "they fished here in the river today", "dogs river can", "naïve café"] * 4
task = TaggingTask(kind="tagging")


def tokenizer(kind: str) -> Tokenizer:
    made = Tokenizer.train(iter(TEXTS), Section(kind=kind, vocabulary=400))
    made.add_frame()
    return made


KINDS = {kind: tokenizer(kind) for kind in ("bpe", "unigram", "word", "character", "byte")}
words = st.text(st.characters(codec="utf-8", exclude_categories=("Z", "C")), min_size=1, max_size=6)


@given(kind=st.sampled_from(sorted(KINDS)), sentence=st.lists(words, min_size=1, max_size=8), limit=st.integers(3, 30))
@settings(max_examples=120, deadline=None)
def test_every_word_is_in_one_piece_within_the_limit(kind: str, sentence: list[str], limit: int) -> None:
    sentence = [each for word in sentence for each in word.split()] or ["a"]
    own = KINDS[kind]
    (pieces,) = cut([sentence], own, limit)
    assert sum(len(piece.lasts) for piece in pieces) == len(sentence)
    for piece in pieces:
        assert len(piece.tokens) <= limit
        assert (piece.tokens[0], piece.tokens[-1]) == (own.start, own.end)
        assert piece.lasts == sorted({*piece.lasts})
        assert all(0 < last < len(piece.tokens) - 1 for last in piece.lasts)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_word_ends_where_its_last_letter_does(kind: str) -> None:
    own, sentence = KINDS[kind], ["the", "old", "river"]
    (piece,) = cut([sentence], own, 100)[0]
    assert piece.tokens[1:-1] == own.encode(" ".join(sentence))
    for number, last in enumerate(piece.lasts):
        assert own.decode(piece.tokens[1 : last + 1]).strip() == " ".join(sentence[: number + 1])


def test_rows_ask_for_tags_where_words_end_and_unknown_tags_are_left_out() -> None:
    own = KINDS["word"]
    examples = [("dogs can fish river", "N V V N"), ("the river", "D N")]
    rows = task.encode([task.example(Columns(each)) for each in examples], context((own,), 5, ["N", "V"]))
    assert rows.lengths.tolist() == [[5, 5], [3, 3]]
    assert rows.counts == {"label": 1, "split": 1}
    first, second = rows.flat[:10].tolist(), rows.flat[10:].tolist()
    assert first == [own.start, *own.encode("dogs can fish"), own.end, 0, 1, 2, 2, 0]
    assert second == [own.start, *own.encode("the river")[1:], own.end, 0, 1, 0]
    batch = TagCollator(rows.rows(), own.pad)(np.array([0, 1]), np.random.default_rng(0))
    assert batch.labels.tolist() == [[0, 0, 1, 1, 0], [0] * 5]
    assert batch.label_mask.tolist() == [[False, True, True, True, False], [False, True, False, False, False]]
    assert (batch.tokens, batch.targets, batch.padded_tokens) == (8, 4, 10)


def test_a_row_without_a_tag_for_each_word_is_bad(tmp_path: Path) -> None:
    table = {"task": {"kind": "tagging"}, "source": {"kind": "tsv", "train": str(tmp_path / "t.tsv")}}
    rows: list[Found] = [
        (Columns(("they fish", "P V")), "t.tsv:1"),
        (Columns(("they can fish", "P V")), "t.tsv:2"),
        (Columns(("they", "fish", "P V")), "t.tsv:3"),
    ]
    report = Report()
    with Cleaner(make_recipe(table)) as clean:
        assert clean(rows, report) == [TaggedText(("they", "fish"), ("P", "V"))]
        assert (report.read, report.bad, report.examples) == (
            3,
            {"not a tag a word": 1, "wrong column count": 1},
            ["t.tsv:2: has 3 words but 2 tags", "t.tsv:3: 3 columns, but words and tags are expected"],
        )
        with pytest.raises(DataError, match=r"^t.tsv:2: has 3 words but 2 tags \(data.strict is on\)$"):
            clean(rows, Report(strict=True))


def test_words_and_tags_count_together_and_stay_apart() -> None:
    example = TaggedText(("The", "nai\u0308ve\u00b4", "dog"), ("D", "A", "N"))
    clean = task.clean(example, Data(normalise="nfkc"))
    assert clean == TaggedText(("The", "na\u00efve\u0301", "dog"), ("D", "A", "N"))  # no word got a space
    assert task.split_key(TaggedText(("The", "dog"), ("D", "N"))) == b"the dog"
    assert task.identity(TaggedText(("The", "dog"), ("D", "N"))) == b"The dog\0D N"
    assert task.why_dropped(clean, Data(max_characters=13)) == "too many characters"
    assert task.why_dropped(clean, Data(max_characters=14)) is None
    assert task.largest_number(Assets((KINDS["word"],), [str(number) for number in range(256)])) == 256


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_cross_entropy_of_the_words_whatever_the_padding(smoothing: float) -> None:
    torch.manual_seed(0)
    model = bert(20, 16, 2, 1, 32, length=12, answer="tags", classes=3, dropout=0.0, attention_dropout=0.0)
    text, mask = torch.randint(4, 20, (2, 6)), torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    labels = torch.tensor([[0, 2, 1, 0, 1, 0], [0, 1, 2, 0, 0, 0]])
    ends = torch.tensor([[False, True, True, False, True, False], [False, True, True, False, False, False]])
    loss = Objective(model, token_loss, smoothing)
    value = loss(TokenBatch(text, labels, ends, None, 10, 5, mask))
    logits = torch.cat([model(text[:1])[0], model(text[1:, :4])[0], torch.zeros(2, 3)])
    right = F.cross_entropy(logits[ends.flatten()], labels[ends], reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(value, right)
    text, mask, labels, ends = (F.pad(each, (0, 3)) for each in (text, mask, labels, ends))
    torch.testing.assert_close(loss(TokenBatch(text, labels, ends, None, 10, 5, mask)), value)
