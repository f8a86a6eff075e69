"""Classification: what is read, what is lost, and what the ecosystem's formulas say."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score

from glassformer.data.encoding import LabelEncoder
from glassformer.data.files import BETWEEN
from glassformer.errors import InputError
from glassformer.evaluation import class_scores
from glassformer.models import bert
from glassformer.recipe import Tokenizer as Section
from glassformer.tasks import TextBatch, classification_loss, segments_of
from glassformer.text import Tokenizer
from glassformer.training.objective import Objective

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
    with pytest.raises(InputError, match="1 answers but 2 labels"):
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
    rows = LabelEncoder(tokenizer, ["bad", "good"], limit=6)(
        ["ab", f"a{BETWEEN}b", "c", "d" * 9], ["good", "bad", "?", "bad"]
    )
    assert rows.lengths.tolist() == [[4, 1], [5, 1], [6, 1]]
    assert rows.flat[[4, 10, 17]].tolist() == [1, 0, 0]
    assert rows.counts == {"label": 1, "truncate": 1}


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_cross_entropy_whatever_the_padding(smoothing: float) -> None:
    torch.manual_seed(0)
    model = bert(20, 16, 2, 1, 32, length=12, answer="classes", classes=3, dropout=0.0, attention_dropout=0.0)
    text = torch.randint(4, 20, (2, 6))
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    right = torch.tensor([2, 0])
    loss = Objective(model, smoothing, classification_loss)
    value = loss(TextBatch(text, mask, None, right, 10))
    logits = torch.cat([model(text[:1]), model(text[1:, :4])])
    torch.testing.assert_close(value, F.cross_entropy(logits, right, reduction="sum", label_smoothing=smoothing))
    wider = TextBatch(F.pad(text, (0, 3)), F.pad(mask, (0, 3)), None, right, 10)
    torch.testing.assert_close(loss(wider), value)


def test_the_confusion_matrix_counts_right_labels_in_rows() -> None:
    found = class_scores([0, 1, 1], [0, 0, 1], 2)
    assert np.array_equal(found.confusion, [[1, 1], [0, 1]])
