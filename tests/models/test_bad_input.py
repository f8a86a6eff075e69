"""What a model refuses to read, and the sentence with which it does."""

from typing import Any

import pytest
import torch
from torch import Tensor

from glassformer.errors import GlassformerError, InputError
from glassformer.models import EncoderDecoder, captioner, transformer, vit
from glassformer.parts import pad
from glassformer.parts.schemes import learned

from .helpers import VOCABULARY, tiny

GOOD = torch.tensor([[1, 2, 3], [4, 5, 6]])


@pytest.fixture(scope="module")
def model() -> EncoderDecoder:
    return tiny()


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        (torch.tensor([[1, VOCABULARY, 3], [4, 5, 6]]), r"holds the id 20, but the vocabulary has the ids 0 to 19"),
        (torch.tensor([[1, -1, 3], [4, 5, 6]]), r"holds the id -1, but the vocabulary has the ids 0 to 19"),
        (torch.zeros(2, 0, dtype=torch.long), r"is empty: every sentence needs at least one token"),
        (torch.zeros(0, 3, dtype=torch.long), r"is an empty batch: it has no sentence"),
        (torch.tensor([1, 2, 3]), r"must have the shape \(batch, length\), not \(3,\)"),
        (GOOD[None], r"must have the shape \(batch, length\), not \(1, 2, 3\)"),
        (GOOD.float(), r"must hold whole numbers \(token ids\), not torch.float32"),
        (GOOD > 2, r"must hold whole numbers \(token ids\), not torch.bool"),
    ],
)
class TestTokens:
    def test_a_bad_source_is_refused_in_a_sentence(self, model: EncoderDecoder, tokens: Tensor, sentence: str) -> None:
        with pytest.raises(InputError, match=sentence):
            model(tokens, GOOD)

    def test_a_bad_target_is_refused_in_a_sentence(self, model: EncoderDecoder, tokens: Tensor, sentence: str) -> None:
        with pytest.raises(InputError, match=sentence):
            model(GOOD, tokens)

    def test_decoding_names_the_source_it_refuses(self, model: EncoderDecoder, tokens: Tensor, sentence: str) -> None:
        with pytest.raises(InputError, match=f"the source {sentence}"):
            model.start(tokens)


@pytest.mark.parametrize(
    ("mask", "sentence"),
    [
        (torch.ones(2, 4, dtype=torch.bool), r"source_mask has the shape \(2, 4\), but its tokens have \(2, 3\)"),
        (torch.ones(1, 3, dtype=torch.bool), r"source_mask has the shape \(1, 3\), but its tokens have \(2, 3\)"),
        (torch.ones(3, dtype=torch.bool), r"source_mask has the shape \(3,\), but its tokens have \(2, 3\)"),
        (torch.ones(2, 3), r"source_mask must be boolean \(True = a real token\), not torch.float32"),
        (torch.ones(2, 3, dtype=torch.long), r"source_mask must be boolean \(True = a real token\), not torch.int64"),
        (torch.tensor([[1, 1, 1], [0, 0, 0]]).bool(), r"sentence 1 of the batch is padding only"),
    ],
)
def test_a_bad_mask_is_refused_in_a_sentence(model: EncoderDecoder, mask: Tensor, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        model(GOOD, GOOD, mask)
    with pytest.raises(InputError, match=sentence):
        model.start(GOOD, mask)


def test_an_empty_sentence_among_others_is_refused_by_its_number(model: EncoderDecoder) -> None:
    source, mask = pad([[1, 2], [], [3]])
    with pytest.raises(InputError, match="sentence 1 of the batch is padding only"):
        model(source, torch.ones(3, 2, dtype=torch.long), mask)


def test_no_sentences_at_all_are_refused(model: EncoderDecoder) -> None:
    source, mask = pad([])
    with pytest.raises(InputError, match="is an empty batch"):
        model(source, source, mask)
    with pytest.raises(InputError, match="is an empty batch"):
        model.start(source, mask)


def test_a_target_of_another_batch_size_is_refused(model: EncoderDecoder) -> None:
    with pytest.raises(GlassformerError, match="3"):
        model(GOOD, torch.ones(3, 2, dtype=torch.long))


def test_a_target_id_beyond_its_own_vocabulary_is_refused() -> None:
    model = transformer(30, 16, 2, 1, 16, target_vocabulary=10, tie_source=False)
    model(torch.tensor([[29]]), torch.tensor([[9]]))
    with pytest.raises(InputError, match="holds the id 10, but the vocabulary has the ids 0 to 9"):
        model(torch.tensor([[29]]), torch.tensor([[10]]))


def test_learned_positions_end_in_a_sentence_and_not_before_their_end() -> None:
    model = transformer(VOCABULARY, 16, 2, 1, 16, positions=learned, length=4).eval()
    four, five = torch.ones(1, 4, dtype=torch.long), torch.ones(1, 5, dtype=torch.long)
    model(four, four)
    for source, target in ((five, four), (four, five)):
        with pytest.raises(InputError, match="position 4 is beyond the learned table, which has positions 0 to 3"):
            model(source, target)
    state = model.start(four)
    for _ in range(4):
        _, state = model.step(state, torch.ones(1, 1, dtype=torch.long))
    with pytest.raises(InputError, match="position 4 is beyond the learned table"):
        model.step(state, torch.ones(1, 1, dtype=torch.long))


def test_a_refused_input_leaves_the_model_as_it_was(model: EncoderDecoder) -> None:
    with torch.no_grad():
        before = model(GOOD, GOOD)
        with pytest.raises(InputError):
            model(GOOD, GOOD + VOCABULARY)
        assert torch.equal(model(GOOD, GOOD), before)


def test_32_bit_tokens_are_read_like_64_bit_ones(model: EncoderDecoder) -> None:
    with torch.no_grad():
        assert torch.equal(model(GOOD.int(), GOOD.int()), model(GOOD, GOOD))


@pytest.mark.parametrize("kind", [torch.int16, torch.int8, torch.uint8])
def test_smaller_whole_numbers_are_read_too_or_refused_in_a_sentence(model: EncoderDecoder, kind: torch.dtype) -> None:
    def read() -> Tensor | str:
        try:
            return model(GOOD.to(kind), GOOD.to(kind))  # type: ignore[no-any-return]
        except InputError as refusal:
            return str(refusal)

    with torch.no_grad():
        answer = read()
        assert str(kind) in answer if isinstance(answer, str) else torch.equal(answer, model(GOOD, GOOD))


@pytest.mark.parametrize(
    ("pixels", "sentence"),
    [
        (torch.zeros(1, 3, 5, 5), r"must be images \(batch, 3 colours, 4, 4\), not 1 x 3 x 5 x 5"),
        (torch.zeros(1, 1, 4, 4), r"must be images \(batch, 3 colours, 4, 4\), not 1 x 1 x 4 x 4"),
        (torch.zeros(3, 4, 4), r"must be images"),
        (torch.zeros(0, 3, 4, 4), r"must be images"),
        (torch.zeros(1, 3, 4, 4, dtype=torch.uint8), r"must hold numbers such as 0.0 to 1.0, not torch.uint8"),
        (torch.stack((torch.zeros(3, 4, 4), torch.full((3, 4, 4), torch.nan))), r"image 1 of the batch .* is damaged"),
        (torch.full((1, 3, 4, 4), torch.inf), r"image 0 of the batch .* is damaged"),
    ],
)
def test_bad_images_are_refused_in_a_sentence(pixels: Tensor, sentence: str) -> None:
    numbers: dict[str, Any] = {"image": 4, "patch": 2, "width": 8, "heads": 2, "layers": 1, "hidden": 8}
    with pytest.raises(InputError, match=sentence):
        vit(3, **numbers)(pixels)
    with pytest.raises(InputError, match=sentence):
        captioner(20, **numbers).start(pixels)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_images_may_come_in_any_precision(dtype: torch.dtype) -> None:
    model, pixels = vit(3, 4, 2, 8, 2, 1, 8), torch.ones(1, 3, 4, 4)
    assert torch.equal(model(pixels.to(dtype)), model(pixels))
