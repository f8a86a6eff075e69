"""Language modelling: windows on documents, which are worth what the documents are worth by themselves."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from glassformer.data import Encoded, Rows
from glassformer.models import gpt2, llama
from glassformer.parts.positions import restarting
from glassformer.tasks.gathering import token_loss
from glassformer.tasks.language import LanguageEvaluation, WindowCollator, Windows, sliding
from glassformer.tasks.objective import Objective

RNG = np.random.default_rng(0)
some_documents = st.lists(st.lists(st.integers(4, 19), max_size=9), min_size=1, max_size=8)


def packed(documents: list[list[int]]) -> Rows:
    return Encoded.of([([1, *document, 2], []) for document in documents]).rows()


def pieces(documents: list[list[int]], length: int) -> list[list[int]]:
    """What each window shows of each document, with the token after."""
    flat, found, at = [token for each in documents for token in (1, *each, 2)], [], 0
    ends = np.cumsum([len(each) + 2 for each in documents]).tolist()
    for first in range(0, len(flat) - 1, length):
        at = first
        last = min(first + length, len(flat) - 1)
        while at < last:
            end = next(end for end in ends if end > at)
            found.append(flat[at : min(end, last + 1)])
            at = min(end, last)
    return [piece for piece in found if len(piece) > 1]


def families() -> list[Callable[[], nn.Module]]:
    return [
        lambda: gpt2(20, 16, 2, 2, 32, length=16, dropout=0.0, attention_dropout=0.0),
        lambda: llama(20, 16, 2, 2, 32, dropout=0.0),
    ]


@pytest.mark.parametrize("family", families())
def test_a_packed_row_gives_the_logits_of_its_documents_alone(family: Callable[[], nn.Module]) -> None:
    model = family().eval()
    tokens, numbers = torch.randint(0, 20, (2, 12)), torch.tensor([[1] * 4 + [2] * 3 + [3] * 5, [3] * 9 + [4] * 3])
    logits = model(tokens, documents=numbers)
    for row, spans in ((0, [(0, 4), (4, 7), (7, 12)]), (1, [(0, 9), (9, 12)])):
        for start, end in spans:
            alone = model(tokens[row : row + 1, start:end])
            torch.testing.assert_close(logits[row : row + 1, start:end], alone, atol=1e-5, rtol=1e-4)


def test_labels_with_little_before_them_can_be_left_out() -> None:
    windows = Windows(packed([[4] * 16]), 6)  # 17 labels in windows of 6, 6 and 5
    batch = WindowCollator(windows, pad=0, skipped=3)(np.arange(3), RNG)
    assert batch.label_mask.int().tolist() == [[0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 0]]
    assert batch.targets == 8
    assert WindowCollator(Windows(packed([[4]]), 6), pad=0, skipped=3)(np.arange(1), RNG).targets == 2  # all there is


@pytest.mark.parametrize("family", families())
@given(documents=some_documents, length=st.integers(2, 12))
def test_the_loss_of_windows_is_that_of_what_they_show_of_each_document(
    family: Callable[[], nn.Module], documents: list[list[int]], length: int
) -> None:
    torch.manual_seed(0)
    model = family().eval()
    windows = Windows(packed(documents), length)
    batch = WindowCollator(windows, pad=0)(np.arange(len(windows.begins)), RNG)
    wanted = pieces(documents, length)
    assert batch.targets == sum(len(piece) - 1 for piece in wanted)
    assert batch.tokens == sum(len(each) + 2 for each in documents) - 1
    alone = [
        F.cross_entropy(model(torch.tensor([piece[:-1]]))[0], torch.tensor(piece[1:]), reduction="sum")
        for piece in wanted
    ]
    found = Objective(model, token_loss)(batch)
    torch.testing.assert_close(found, torch.stack(alone).sum(), atol=1e-3, rtol=1e-4)


def test_positions_begin_anew_with_each_document() -> None:
    assert restarting(torch.tensor([[5, 5, 5, 7, 7, 5], [1, 2, 2, 2, 2, 2]])).tolist() == [
        [0, 1, 2, 0, 1, 0],
        [0, 0, 1, 2, 3, 4],
    ]


def test_windows_on_one_document_need_no_table() -> None:
    windows = Windows(packed([[5] * 20]), 4)
    batch = WindowCollator(windows, pad=0)(np.arange(3), RNG)
    assert batch.documents is None
    assert batch.label_mask.all()


def test_shifted_windows_begin_elsewhere_each_time_and_stay_within_the_text() -> None:
    flat = list(range(4, 19))  # each token says where it stands
    windows = Windows(packed([flat]), 4)
    collate, begins = WindowCollator(windows, pad=0, shifted=True), set()
    for seed in range(50):
        batch = collate(np.arange(len(windows.begins)), np.random.default_rng(seed))
        real = batch.label_mask
        assert batch.targets == len(flat) + 1
        inside = real & (batch.text >= 4) & (batch.labels >= 4)
        assert (batch.labels[inside] == batch.text[inside] + 1).all()
        begins.add(tuple(batch.text[:, 0].tolist()))
    assert len(begins) > 10


@given(st.integers(0, 60), st.integers(1, 20))
def test_sliding_windows_predict_everything_once_with_half_a_window_before_it(total: int, length: int) -> None:
    predicted: list[int] = []
    for begin, end, seen in sliding(total, length):
        assert end - begin <= length
        assert seen >= length // 2 or begin == 0
        predicted += range(begin + seen, end)
    assert predicted == list(range(total))


def test_perplexities_by_hand() -> None:
    found = LanguageEvaluation(nats=8 * np.log(2), tokens=4, words=2, bytes=16, texts=3)
    assert found.perplexity == pytest.approx(4.0)  # two bits a token
    assert found.word_perplexity == pytest.approx(16.0)
    assert found.bits_per_byte == pytest.approx(0.5)
    scores = {"loss": found.loss, "perplexity": found.perplexity, "word_perplexity": found.word_perplexity}
    assert found.loss == pytest.approx(2 * np.log(2))
    assert found.summary() == scores | {"bits_per_byte": found.bits_per_byte}
    assert found.facts() == found.summary() | {"texts": 3, "tokens": 4, "words": 2, "bytes": 16}
    assert found.lines() == [
        "3 texts",
        "perplexity     4.000 per token   (loss 1.3863)",
        "perplexity     16.000 per word",
        "bits per byte  0.5000",
    ]
