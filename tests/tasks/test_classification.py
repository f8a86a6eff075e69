"""Classification: what is read, what is lost, and what the ecosystem's formulas say."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score

from glassformer.data.examples import BadRow, Columns, from_line, to_line
from glassformer.errors import InputError
from glassformer.evaluation import class_scores
from glassformer.models import bert
from glassformer.recipe import Data
from glassformer.recipe import Tokenizer as Section
from glassformer.tasks.classification import ClassificationTask, Labelled, classification_loss
from glassformer.tasks.gathering import TextBatch, TextCollator, segments_of
from glassformer.tasks.objective import Objective
from glassformer.text import Tokenizer

from .contexts import context

labels = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=50)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    made = Tokenizer.train([], Section(kind="byte"))
    made.add_frame()
    return made


@given(labels)
def test_scores_are_those_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    said, right = zip(*pairs, strict=True)
    found = class_scores(said, right, 4)
    assert found.accuracy == pytest.approx(accuracy_score(right, said))
    assert found.macro_f1 == pytest.approx(f1_score(right, said, average="macro"))
    assert (found.confusion == confusion_matrix(right, said, labels=range(4))).all()


def test_nothing_is_no_score() -> None:
    with pytest.raises(InputError, match="nothing to score"):
        class_scores([], [], 2)
    with pytest.raises(InputError, match="1 predicted labels but 2 true labels"):
        class_scores([0], [0, 1], 2)


def test_a_framed_text_has_its_special_tokens_and_is_cut_inside_them(tokenizer: Tokenizer) -> None:
    start, end = tokenizer.start, tokenizer.end
    a, b = tokenizer.encode("a")[0], tokenizer.encode("b")[0]
    assert tokenizer.frame([["aa"], ["aa", "b"]]) == [[start, a, a, end], [start, a, a, end, b, end]]
    assert tokenizer.frame([["a" * 9]], limit=5) == [[start, a, a, a, end]]
    assert tokenizer.frame([["a" * 9, "bb"]], limit=7) == [[start, a, a, end, b, b, end]]


def test_segments_begin_after_the_first_end() -> None:
    tokens = torch.tensor([[1, 5, 2, 6, 7, 2, 0], [1, 5, 6, 7, 2, 0, 0]])
    assert segments_of(tokens, 2).tolist() == [[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1, 1]]


def test_rows_hold_the_framed_text_and_the_number_of_the_label(tokenizer: Tokenizer) -> None:
    examples = [(("ab",), "good"), (("a", "b"), "bad"), (("c",), "?"), (("d" * 9,), "bad")]
    task = ClassificationTask(kind="classification")
    rows = task.encode([Labelled(*each) for each in examples], context((tokenizer,), 6, ["bad", "good"]))
    assert rows.lengths.tolist() == [[4, 1], [5, 1], [6, 1]]
    assert rows.flat[[4, 10, 17]].tolist() == [1, 0, 0]
    assert rows.counts == {"label": 1, "truncate": 1}
    batch = TextCollator(rows.rows(), tokenizer.pad, tokenizer.end)(np.array([2, 1]), np.random.default_rng(0))
    assert (batch.labels.tolist(), batch.tokens, batch.targets, batch.padded_tokens) == ([0, 0], 11, 2, 12)
    assert batch.mask.tolist() == [[True] * 6, [True] * 5 + [False]]
    assert batch.segments is not None
    assert batch.segments.tolist() == [[0] * 6, [0, 0, 0, 1, 1, 1]]


def test_the_last_column_is_the_label_and_there_are_at_most_two_texts() -> None:
    task = ClassificationTask(kind="classification")
    assert task.example(Columns(("a", "x"))) == Labelled(("a",), "x")
    assert task.example(Columns(("a", "b", "x"))) == Labelled(("a", "b"), "x")
    for cells in (("x",), ("a", "b", "c", "x")):
        with pytest.raises(BadRow, match=rf"^{len(cells)} columns, not a text or two and a label$"):
            task.example(Columns(cells))


def test_one_text_is_split_and_compared_as_ever_and_two_are_kept_apart() -> None:
    task, one, two = ClassificationTask(kind="classification"), Labelled(("A  b",), "x"), Labelled(("a", "b"), "x")
    assert (task.split_key(one), task.identity(one)) == (b"a b", b"A  b\0x")
    assert task.split_key(two) != task.split_key(Labelled(("ab", ""), "x"))
    assert task.clean(one, Data()) == Labelled(("A b",), "x")
    assert task.why_dropped(Labelled(("a", "b" * 9), "x"), Data(max_characters=8)) == "too many characters"
    assert task.why_dropped(Labelled(("a", " "), "x"), Data()) == "empty after normalisation"
    assert task.shortened(Labelled(("a" * 9000, "b"), "x")) == Labelled(("a" * 5000, "b"), "x")
    assert from_line(Labelled, to_line(two)) == two


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_cross_entropy_whatever_the_padding(smoothing: float) -> None:
    torch.manual_seed(0)
    model = bert(20, 16, 2, 1, 32, length=12, answer="classes", classes=3, dropout=0.0, attention_dropout=0.0)
    text = torch.randint(4, 20, (2, 6))
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    right = torch.tensor([2, 0])
    loss = Objective(model, classification_loss, smoothing)
    value = loss(TextBatch(text, mask, None, right, 10))
    logits = torch.cat([model(text[:1]), model(text[1:, :4])])
    torch.testing.assert_close(value, F.cross_entropy(logits, right, reduction="sum", label_smoothing=smoothing))
    wider = TextBatch(F.pad(text, (0, 3)), F.pad(mask, (0, 3)), None, right, 10)
    torch.testing.assert_close(loss(wider), value)


def test_the_confusion_matrix_counts_right_labels_in_rows() -> None:
    found = class_scores([0, 1, 1], [0, 0, 1], 2)
    assert np.array_equal(found.confusion, [[1, 1], [0, 1]])
