"""Answering: the loss of the positions that are pointed at, and what makes questions the same."""

import pytest
import torch
import torch.nn.functional as F

from glassformer.data import Assets
from glassformer.data.examples import AnswerSpan, Question
from glassformer.models import bert
from glassformer.recipe import Tokenizer as Section
from glassformer.tasks.answering import AnsweringTask, answering_loss
from glassformer.tasks.gathering import TextBatch
from glassformer.tasks.objective import Objective
from glassformer.text import Tokenizer


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_cross_entropy_over_the_real_tokens_whatever_the_padding(smoothing: float) -> None:
    torch.manual_seed(0)
    model = bert(20, 16, 2, 1, 32, length=12, answer="span", dropout=0.0, attention_dropout=0.0)
    text = torch.randint(4, 20, (2, 6))
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    right = torch.tensor([[2, 5], [0, 0]])
    batch = TextBatch(text, mask, None, right, 10)
    loss = Objective(model, answering_loss, smoothing)
    value = loss(batch)
    alone = [model(text[:1]), model(text[1:, :4])]
    expected = sum(
        F.cross_entropy(logits[:, :, side], places[None, side], label_smoothing=smoothing)
        for logits, places in zip(alone, right, strict=True)
        for side in (0, 1)
    )
    torch.testing.assert_close(value, expected)
    wider = TextBatch(F.pad(text, (0, 3)), F.pad(mask, (0, 3)), None, right, 10)
    torch.testing.assert_close(loss(wider), value)
    assert (batch.targets, batch.padded_tokens) == (4, 12)
    value.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)


def test_contexts_decide_on_the_split_and_places_of_answers_on_duplicates() -> None:
    task = AnsweringTask(kind="answering")
    one, other = (Question("who", "A  man, a man", (AnswerSpan("man", start),)) for start in (3, 10))
    assert task.split_key(one) == task.split_key(other) == b"a man, a man"
    assert len({task.identity(one), task.identity(other), task.identity(one._replace(answers=()))}) == 3


def test_rows_have_room_for_every_position_in_a_window() -> None:
    task, tokenizer = AnsweringTask(kind="answering"), Tokenizer.train(["a b"], Section(kind="word", vocabulary=9))
    assert task.largest_number(Assets((tokenizer,))) == 2**16 - 1
