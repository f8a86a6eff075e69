"""Words: pieces of any tokenizer are put together again."""

import pytest
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, normalizers, pre_tokenizers

from glassformer.recipe import Tokenizer as Section
from glassformer.text import Tokenizer
from glassformer.text.words import group

TEXTS = ["the old cats-house, again.", "das alte Haus (1999)", "日本語 の本", "सोमवार को", "naïve café"] * 3


def words_of(tokenizer: Tokenizer, text: str) -> list[str]:
    ids = tokenizer.encode(text)
    groups = tokenizer.words(ids)
    assert [place for some in groups for place in some] == list(range(len(ids)))  # each once, in order
    return [tokenizer.decode([ids[place] for place in some]).strip() for some in groups]


@pytest.mark.parametrize("kind", ["byte", "bpe", "unigram", "word", "character"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the old cats-house, again.", ["the", "old", "cats", "-", "house", ",", "again", "."]),
        ("das alte Haus (1999)", ["das", "alte", "Haus", "(", "1999", ")"]),
        ("日本語 の本", ["日", "本", "語", "の", "本"]),
        ("सोमवार को", ["सोमवार", "को"]),
        ("naïve  café", ["naïve", "café"]),
        ("", []),
    ],
)
def test_every_kind_of_tokenizer_finds_the_same_words(kind: str, text: str, words: list[str]) -> None:
    tokenizer = Tokenizer.train([*TEXTS, "naïve  café"], Section(kind=kind, vocabulary=300))
    if "日" in text:  # a token is never taken apart
        words = {"word": ["日本語", "の本"], "bpe": ["日本", "語", "の本"]}.get(kind, words)
    assert words_of(tokenizer, text) == words


def test_wordpieces() -> None:
    pieces = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "un", "##believ", "##able", "don", "'", "t", "!"]
    engine = Engine(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))  # noqa: S106
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    engine.normalizer = normalizers.Lowercase()
    engine.add_special_tokens(["[UNK]", "[CLS]", "[SEP]", "[PAD]"])
    tokenizer = Tokenizer(engine, complete=False)
    ids = [1, *tokenizer.encode("unbelievable don't!"), 2]
    assert tokenizer.tokens(ids) == ["[CLS]", "un", "##believ", "##able", "don", "'", "t", "!", "[SEP]"]
    assert tokenizer.words(ids) == [[0], [1, 2, 3], [4], [5], [6], [7], [8]]


def test_pieces_of_sentencepiece() -> None:
    vocabulary = [("<unk>", 0.0), ("▁", -2.0), ("▁the", -1.0), ("▁ca", -1.0), ("ts", -1.0), (".", -1.0)]
    vocabulary += [("<0xE6>", -9.0), ("<0x9D>", -9.0), ("<0xB1>", -9.0)]
    engine = Engine(models.Unigram(vocabulary, unk_id=0, byte_fallback=True))
    engine.pre_tokenizer = pre_tokenizers.Metaspace()
    engine.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer = Tokenizer(engine, complete=False)
    ids = tokenizer.encode("the cats 東.")
    assert tokenizer.tokens(ids) == ["▁the", "▁ca", "ts", "▁", "<0xE6>", "<0x9D>", "<0xB1>", "."]
    assert tokenizer.words(ids) == [[0], [1, 2], [3, 4, 5, 6], [7]]


def test_special_tokens_are_words_of_their_own_and_end_others() -> None:
    assert group([b"ab", None, b"cd", b"ef", None, None]) == [[0], [1], [2, 3], [4], [5]]
    assert group([]) == []


def test_spaces_belong_to_what_follows_and_at_the_end_to_nothing() -> None:
    assert group([b"a", b" ", b" ", b"b", b" "]) == [[0], [1, 2, 3], [4]]


def test_bytes_that_are_no_text_are_signs() -> None:
    assert group([b"a", b"\xff", b"\xfe", b"b", b"\xe2\x82"]) == [[0], [1, 2], [3], [4]]
