"""SentencePiece models, read without SentencePiece: the same ids as its own."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.errors import InputError
from glassformer.text import Tokenizer

library = pytest.importorskip("sentencepiece")
TEXTS = [
    "The cat sat on the mat, and the dog sat on the cat.",
    "Der Hund saß auf der Matte; die Katze saß auf dem Hund!",
    "A dog and a cat, a mat and a hat: 1234 5678.",
    "Zwei Katzen, drei Hunde, vier Matten.",
] * 20


def trained(folder: Path, **options: object) -> tuple[Tokenizer, Any]:
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_prefix=str(folder / "m"), minloglevel=9, **options
    )
    return Tokenizer.load(folder / "m.model"), library.SentencePieceProcessor(model_file=str(folder / "m.model"))


@pytest.fixture(scope="module", params=["unigram", "bpe", "unigram-bytes", "bpe-bytes", "bpe-plain"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Any]:
    kind, _, variant = request.param.partition("-")
    more: dict[str, dict[str, Any]] = {
        "bytes": {"byte_fallback": True, "vocab_size": 330},
        "plain": {"normalization_rule_name": "identity"},
        "unigram": {"hard_vocab_limit": False},
    }
    options = {"model_type": kind, "vocab_size": 70, **more.get(variant, {}), **more.get(kind, {})}
    return trained(tmp_path_factory.mktemp("model"), **options)


words = st.sampled_from([*" ".join(TEXTS[:4]).split(), "ﬁsh", "ξ", "🎉", "  ", "Matte!"])


@given(text=st.lists(words).map(" ".join))
def test_the_ids_are_sentencepiece_s(both: tuple[Tokenizer, Any], text: str) -> None:
    ours, theirs = both
    assert ours.encode(text) == theirs.encode(text)


def test_text_comes_back(both: tuple[Tokenizer, Any]) -> None:
    ours, theirs = both
    for text in TEXTS[:4]:
        assert ours.decode(ours.encode(text)) == text == theirs.decode(theirs.encode(text))


def test_special_tokens_are_found(both: tuple[Tokenizer, Any]) -> None:
    ours, theirs = both
    assert (ours.unknown, ours.start, ours.end) == (theirs.unk_id(), theirs.bos_id(), theirs.eos_id())
    assert ours.pad == theirs.get_piece_size()  # it has none, so one is added


def test_other_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"m\.model: is a SentencePiece model of kind 4: only unigram"):
        trained(tmp_path, model_type="char", vocab_size=40)
