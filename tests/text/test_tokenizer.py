"""Tokenizers: nothing is lost, nothing is mistaken for a special token, and files are everybody's."""

import copy
import json
import pickle
import string
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers, processors

from glassformer.errors import ConfigurationError, InputError
from glassformer.recipe import Tokenizer as Section
from glassformer.text import Tokenizer
from glassformer.text.word_cache import WordCache

TEXTS = [
    "The cat sat on the mat, and the dog sat on the cat.",
    "Der Hund saß auf der Matte; die Katze auch!",
    "सोमवार, 5 अगस्त 2013",
    "திங்கள், 5 ஆகஸ்ட், 2013",
    "<end> of <pad> <start> <unk>",
] * 3
TOKENIZERS = {
    "bpe": Tokenizer.train(TEXTS, Section(kind="bpe", vocabulary=320)),
    "unigram": Tokenizer.train(TEXTS, Section(kind="unigram", vocabulary=320)),
    "word": Tokenizer.train(TEXTS, Section(kind="word", vocabulary=100)),
    "character": Tokenizer.train(TEXTS, Section(kind="character", vocabulary=100)),
    "byte": Tokenizer.train(TEXTS, Section(kind="byte")),
}
LOSSLESS = ["bpe", "unigram", "byte"]
every_kind = pytest.mark.parametrize("kind", TOKENIZERS)
pieces = st.sampled_from(
    [" ", "  ", "\n", "\u00a0", "cat", "'s", "Hund", "5", "अगस्त", "🎉", "<end>", "é", "e\u0301", ".", "\x1f"]
)
texts = st.text() | st.lists(pieces).map("".join)


@every_kind
def test_special_tokens_come_first(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    assert (tokenizer.pad, tokenizer.start, tokenizer.end, tokenizer.unknown) == (0, 1, 2, 3)
    assert tokenizer.tokens([0, 1, 2, 3]) == ["<pad>", "<start>", "<end>", "<unk>"]


@pytest.mark.parametrize("kind", LOSSLESS)
@given(text=texts)
def test_bytes_lose_nothing(kind: str, text: str) -> None:
    ids = TOKENIZERS[kind].encode(text)
    assert TOKENIZERS[kind].decode(ids) == text
    assert all(3 < i < TOKENIZERS[kind].size for i in ids)


@pytest.mark.parametrize("kind", ["word", "character"])
@pytest.mark.parametrize("text", TEXTS[:5])
def test_known_words_and_characters_lose_nothing(kind: str, text: str) -> None:
    ids = TOKENIZERS[kind].encode(text)
    assert TOKENIZERS[kind].unknown not in ids
    assert TOKENIZERS[kind].decode(ids) == text


@given(words=st.lists(st.sampled_from([" cat", " sat", ",", " and", " the", " dog", ".", ";", "!"]), min_size=1))
def test_known_words_in_any_order_lose_nothing(words: list[str]) -> None:
    text = "".join(words)
    for kind in ("word", "character"):
        ids = TOKENIZERS[kind].encode(text)
        if TOKENIZERS[kind].unknown not in ids:  # ".;" is a word of its own
            assert TOKENIZERS[kind].decode(ids) == text
    assert TOKENIZERS["character"].unknown not in TOKENIZERS["character"].encode(text)


@every_kind
def test_an_unknown_word_is_unknown(kind: str) -> None:
    unknown = TOKENIZERS[kind].unknown in TOKENIZERS[kind].encode("ξένος")
    assert unknown == (kind in ("word", "character"))


@every_kind
@given(parts=st.lists(st.sampled_from(["<end>", "<pad>", "<start>", "a", " ", "<unk>"]), min_size=1))
def test_text_that_spells_a_special_token_is_text(kind: str, parts: list[str]) -> None:
    ids = TOKENIZERS[kind].encode("".join(parts))
    assert not {0, 1, 2} & set(ids)
    if kind in LOSSLESS:
        assert TOKENIZERS[kind].decode(ids) == "".join(parts)


@every_kind
@given(batch=st.lists(texts, max_size=4))
def test_all_ways_to_encode_agree(kind: str, batch: list[str]) -> None:
    tokenizer = TOKENIZERS[kind]
    expected = [tokenizer.encode(text) for text in batch]
    assert tokenizer.encode_batch(batch) == expected
    flat, lengths = tokenizer.encode_flat(batch)
    assert flat.tolist() == [i for ids in expected for i in ids]
    assert lengths.tolist() == [len(ids) for ids in expected]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word"])
def test_words_are_remembered(kind: str) -> None:
    tokenizer = Tokenizer(Engine.from_str(TOKENIZERS[kind].to_json()))
    first = tokenizer.encode_flat(["the cat sat", "the dog"])[0].tolist()
    assert isinstance(tokenizer._cache, WordCache)
    space = "" if kind == "word" else " "  # which every text begins with, if its tokens are words
    assert {"the", f"{space}cat", f"{space}sat", f"{space}dog"} <= tokenizer._cache.known.keys()
    assert tokenizer.encode_flat(["the cat sat", "the dog"])[0].tolist() == first


@every_kind
def test_a_saved_tokenizer_is_the_same(kind: str, tmp_path: Path) -> None:
    TOKENIZERS[kind].save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.size == TOKENIZERS[kind].size
    assert loaded.encode_batch(TEXTS) == TOKENIZERS[kind].encode_batch(TEXTS)
    assert loaded.encode("<end>") == TOKENIZERS[kind].encode("<end>")
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tokenizer.json"
    TOKENIZERS["byte"].save(path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        TOKENIZERS["bpe"].save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@every_kind
def test_transformers_opens_the_file(kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    TOKENIZERS[kind].save(tmp_path / "tokenizer.json")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    for text in TEXTS[:4]:
        assert theirs(text)["input_ids"] == TOKENIZERS[kind].encode(text)
        assert theirs.decode(TOKENIZERS[kind].encode(text)) == TOKENIZERS[kind].decode(TOKENIZERS[kind].encode(text))
    assert len(theirs) == TOKENIZERS[kind].size


def test_decoding_leaves_special_tokens_out() -> None:
    for tokenizer in TOKENIZERS.values():
        assert tokenizer.decode([1, *tokenizer.encode("The cat"), 2, 0, 0]) == "The cat"


def test_tokens_can_be_read() -> None:
    assert TOKENIZERS["word"].tokens(TOKENIZERS["word"].encode("The cat sat.")) == ["▁The", "▁cat", "▁sat", "."]
    assert TOKENIZERS["byte"].tokens(TOKENIZERS["byte"].encode("a é\n")) == ["a", "▁", "⟨C3⟩", "⟨A9⟩", "⏎"]
    assert "".join(TOKENIZERS["bpe"].tokens(TOKENIZERS["bpe"].encode("The cat auf"))) == "The▁cat▁auf"
    with pytest.raises(InputError, match="99999"):
        TOKENIZERS["bpe"].tokens([99999])


def test_an_id_is_the_place_of_a_token_in_the_vocabulary() -> None:
    for tokenizer in TOKENIZERS.values():
        vocabulary = tokenizer.tokens(range(tokenizer.size))
        ids = tokenizer.encode("The cat sat.")
        assert [vocabulary[number] for number in ids] == tokenizer.tokens(ids)


def test_bytes_are_their_own_ids() -> None:
    assert TOKENIZERS["byte"].size == 260
    assert TOKENIZERS["byte"].encode("A\u00e9") == [4 + 0x41, 4 + 0xC3, 4 + 0xA9]


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_capitals_can_be_forgotten(kind: str) -> None:
    tokenizer = Tokenizer.train(TEXTS, Section.model_validate({"kind": kind, "vocabulary": 320, "lowercase": True}))
    assert tokenizer.encode("THE Cat") == tokenizer.encode("the cat")
    assert tokenizer.encode_flat(["THE Cat"])[0].tolist() == tokenizer.encode("the cat")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_vocabulary_is_as_large_as_asked_for(kind: str) -> None:
    assert TOKENIZERS[kind].size <= 320
    with pytest.raises(ConfigurationError, match=f"{kind} needs at least 260"):
        Tokenizer.train(TEXTS, Section.model_validate({"kind": kind, "vocabulary": 259}))


def foreign(vocabulary: list[str], **changes: object) -> Tokenizer:
    engine = Engine(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token=vocabulary[0]))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return Tokenizer(Engine.from_str(json.dumps(json.loads(engine.to_str()) | changes)))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["[UNK]", "[PAD]", "[CLS]", "[SEP]", "cat"], (1, 2, 3, 0)),
        (["<unk>", "<s>", "</s>", "<pad>", "cat"], (3, 1, 2, 0)),
        (["<unk>", "<|endoftext|>", "cat"], (3, 4, 1, 0)),  # pad and start are added
        (["<unk>", "cat"], (2, 3, 4, 0)),
    ],
)
def test_special_tokens_of_others_are_found_or_added(names: list[str], expected: tuple[int, ...]) -> None:
    tokenizer = foreign(names)
    assert (tokenizer.pad, tokenizer.start, tokenizer.end, tokenizer.unknown) == expected
    assert tokenizer.size == max(*expected, len(names) - 1) + 1
    assert tokenizer.encode("cat") == [names.index("cat")]
    assert tokenizer.decode([*expected[:3], names.index("cat")]) == "cat"


def test_what_others_add_around_a_text_is_left_out(tmp_path: Path) -> None:
    engine = Engine(models.WordLevel({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[PAD]": 3, "cat": 4}, "[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    engine.enable_truncation(3)
    engine.enable_padding(length=9)
    engine.save(str(tmp_path / "t.json"))
    assert Tokenizer.load(tmp_path / "t.json").encode("cat cat cat cat") == [4] * 4


def test_ids_with_gaps_are_all_counted() -> None:
    engine = Engine(models.WordLevel({"<unk>": 0, "cat": 70}, "<unk>"))
    assert Tokenizer(engine).size > 70


@pytest.mark.parametrize(
    "contents", [b"{}", b'{"version": "1.0"', b"", b"\x00\x01garbage", b"\xff" * 50, string.printable.encode()]
)
def test_a_file_that_is_no_tokenizer_is_refused(contents: bytes, tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(contents)
    with pytest.raises(InputError, match="/t: is n"):
        Tokenizer.load(tmp_path / "t")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: cannot be read: No such file"):
        Tokenizer.load(tmp_path / "nowhere")


def test_the_first_word_of_a_text_is_the_same_token_as_later() -> None:
    tokenizer = Tokenizer.train(["the cat saw the dog", "dog and cat"], Section(kind="word", vocabulary=20))
    first, _, _, later, _ = tokenizer.encode("the cat saw the dog")
    assert first == later
    assert tokenizer.encode("dog saw cat") == [tokenizer.encode(word)[0] for word in ("dog", "saw", "cat")]
    assert tokenizer.encode_with("<mask> the cat.", {"<mask>": 99}) == [99, *tokenizer.encode("the cat.")]
    assert tokenizer.encode_with("the<mask>the", {"<mask>": 99}) == [first, 99, tokenizer.unknown]


@given(words=st.lists(st.sampled_from([" ", "the", " the", " cat", "cat"]), max_size=6))
def test_spaces_before_the_first_word_are_kept(words: list[str]) -> None:
    tokenizer = Tokenizer.train(["  the cat", "thethe catcat thecat catthe"], Section(kind="word", vocabulary=30))
    text = "".join(words)
    ids = tokenizer.encode(text)
    if tokenizer.unknown not in ids:
        assert tokenizer.decode(ids) == text
        assert tokenizer.part(ids) == (f" {text}" if text else "")


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])  # noqa: S301
def test_special_tokens_are_text_in_another_process_too(again: Callable[[Tokenizer], Tokenizer]) -> None:
    tokenizer = Tokenizer.train(["the cat saw the dog"], Section(kind="word", vocabulary=30))
    text = "the <end> cat"
    assert again(tokenizer).encode(text) == tokenizer.encode(text)
    assert again(tokenizer).encode_with(f"a|{text}", {"|": 99}) == tokenizer.encode_with(f"a|{text}", {"|": 99})
    assert tokenizer.end not in again(tokenizer).encode(text)


def test_contractions_are_two_words_if_the_recipe_says_so() -> None:
    texts = ["Doesn't it? It's what they’ll say: isn't n'te, don'ts", "ain't"]
    cut = Tokenizer.train(texts, Section(kind="word", vocabulary=60, contractions=True))
    assert cut.tokens(cut.encode("Doesn't it?")) == ["▁Does", "n't", "▁it", "?"]
    assert cut.tokens(cut.encode("It's what they’ll say")) == ["▁It", "'s", "▁what", "▁they", "’ll", "▁say"]
    assert cut.tokens(cut.encode("n'te, don'ts")) == ["▁n", "'", "te", ",", "▁don", "'", "ts"]
    whole = Tokenizer.train(texts, Section(kind="word", vocabulary=60))
    assert whole.tokens(whole.encode("Doesn't")) == ["▁Doesn", "'", "t"]
    for tokenizer in (cut, whole):
        assert [tokenizer.decode(tokenizer.encode(text)) for text in texts] == texts
        flat, _ = tokenizer.encode_flat(texts)
        assert flat.tolist() == [number for text in texts for number in tokenizer.encode(text)]
