"""SentencePiece models, read without SentencePiece: the same ids as its own."""

import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
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


ODD = [
    *("</s>", "<s>", "<unk>", "<0x41>", "▁", "▁a", "\t", "\n", "\r", " ", "  ", "\u3000", "\u00a0", "\u200b", "\ufeff"),
    *("e´´", "´", "ｶﾞ", "ｶ", "ﾊﾟ", "カ", "e\u0301", "ﬁ", "Ⅻ", "ß", "İ", "ſ", "A", "É", "…"),
    *("½", "🎉", "한", "x", "\x01", "cat"),
]  # fmt: skip
odd = st.lists(st.sampled_from(ODD), min_size=1, max_size=7).map("".join)
NORMALISATIONS = ["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"]
OPTIONS = [{}, {"add_dummy_prefix": False}, {"remove_extra_whitespaces": False}, {"byte_fallback": True}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("rule", NORMALISATIONS)
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_odd_texts_are_normalised_as_by_sentencepiece(
    kind: str, rule: str, options: dict[str, Any], tmp_path: Path
) -> None:
    size = {"vocab_size": 330 if "byte_fallback" in options else 80}
    size |= {"hard_vocab_limit": False} if kind == "unigram" else {}
    ours, theirs = trained(tmp_path, model_type=kind, normalization_rule_name=rule, **size, **options)
    ours.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")

    @settings(max_examples=40, deadline=None)
    @given(odd)
    @example("a </s> b")
    @example("\t a\n")
    @example("\x01")
    @example("\r\n")
    @example(unicodedata.normalize("NFD", "Việt Ångström Ärger"))
    def equal(text: str) -> None:
        assert ours.encode(text) == theirs.encode(text) == again.encode(text)

    equal()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"treat_whitespace_as_suffix": True}, "has treat_whitespace_as_suffix, which cannot be read"),
        (
            {"user_defined_symbols": ["<s", "s>", "/s", "</"]},
            "texts that spell its control piece '<s>' would become it",
        ),
    ],
)
def test_what_cannot_be_read_alike_is_refused(options: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        trained(tmp_path, model_type="unigram", vocab_size=80, hard_vocab_limit=False, **options)


def test_normalisation_rules_of_one_s_own_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rules.tsv").write_text("61 65\tE4\n")  # ae becomes ä
    with pytest.raises(InputError, match="has normalisation rules of its own, which cannot be read"):
        trained(tmp_path, vocab_size=80, hard_vocab_limit=False, normalization_rule_tsv=str(tmp_path / "rules.tsv"))


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
