"""SentencePiece models, read without SentencePiece: the same ids as its own."""

import struct
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import normalizers

from glassformer.errors import InputError
from glassformer.text import Tokenizer
from glassformer.text.charsmap import Normaliser, Prepared
from glassformer.text.sentencepiece import read

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


LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
marked = st.lists(st.one_of(LETTERS, st.characters(categories=["M"])), max_size=12).map("".join)


@pytest.mark.parametrize("options", [*OPTIONS[:3], {"user_defined_symbols": ["<x>", "ca", "Ca", "e\u0301x"]}], ids=str)
@pytest.mark.parametrize("rule", NORMALISATIONS)
def test_any_letters_and_marks_are_normalised_as_by_sentencepiece(
    rule: str, options: dict[str, Any], tmp_path: Path
) -> None:
    size = {"vocab_size": 340, "byte_fallback": True}  # so that each letter counts
    ours, theirs = trained(tmp_path, model_type="bpe", normalization_rule_name=rule, **size, **options)

    @settings(max_examples=200, deadline=None)
    @given(marked)
    @example("ᵉͧ")
    @example("a\u0323\u0302 a\u0302\u0323 \u1ea5\u0323")  # marks in Unicode's order, and not
    @example("\u1100\u1161\u11a8 \uac00\u11a8")  # Hangul
    @example("\r\n \u00a8 \ufdfa \ufb2c")
    @example("Ca<x>ca e\u0301x \u00e9x")
    def equal(text: str) -> None:
        assert ours.encode(text) == ours.encode_batch([text])[0] == theirs.encode(text)

    equal()


OVERLAPPING = ["ab", "bc", "cat", "▁ca", "\n", "\u0301", "a b", " ca", "<x>"]


@pytest.mark.parametrize("options", [*OPTIONS[:3], OPTIONS[1] | OPTIONS[2]], ids=str)
@pytest.mark.parametrize("rule", ["nmt_nfkc", "nfkc_cf", "identity"])
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_what_a_user_has_defined_is_weighed_as_by_sentencepiece(
    kind: str, rule: str, options: dict[str, Any], tmp_path: Path
) -> None:
    size = {"vocab_size": 380, "byte_fallback": True} | ({"hard_vocab_limit": False} if kind == "unigram" else {})
    options = options | {"model_type": kind, "user_defined_symbols": OVERLAPPING, "normalization_rule_name": rule}
    ours, theirs = trained(tmp_path, **size, **options)
    ours.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json", complete=False)
    ours.save(tmp_path / "once more.json")
    assert (tmp_path / "once more.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()

    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.sampled_from([*OVERLAPPING, *"abc c▁e<", "  ", "the", "cab"]), max_size=9).map("".join))
    @example("abc cab  cat")
    @example("the ca, a b")
    @example("e\u0301")
    def equal(text: str) -> None:
        assert ours.encode(text) == theirs.encode(text) == again.encode(text)
        ((ids, spans),) = ours.spelled([text])
        assert ids == theirs.encode(text)
        assert all(0 <= first <= last <= len(text) for first, last in spans)

    equal()


def test_tokens_know_which_characters_they_stand_for(tmp_path: Path) -> None:
    ours, _ = trained(tmp_path, model_type="bpe", vocab_size=330, byte_fallback=True)
    text = "  The ﬁsh e\u0301  sat"
    ((ids, spans),) = ours.spelled([text])
    assert ids == ours.encode(text)
    assert [text[first:last] for first, last in spans] == [
        *("", "T", "he", " ", "ﬁ", "ﬁ", "s", "h", " "),
        *("e\u0301", "e\u0301", "  sat"),  # the letter that they became has two bytes
    ]


def test_its_file_is_one_for_other_programs_too(tmp_path: Path) -> None:
    ours, _ = trained(tmp_path, model_type="bpe", vocab_size=330, byte_fallback=True)
    ours.save(tmp_path / "tokenizer.json")
    library_s = Engine.from_file(str(tmp_path / "tokenizer.json"))
    text = "  The cat saß  auf A\u0308rger, e\u0301\t!"
    assert library_s.encode(text, add_special_tokens=False).ids == ours.encode(text)
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.to_json() == ours.to_json()
    assert again.encode("ᵉͧ") == ours.encode("ᵉͧ") != library_s.encode("ᵉͧ", add_special_tokens=False).ids


@pytest.mark.parametrize("options", [*OPTIONS, {"user_defined_symbols": ["ca", "<x>"]}], ids=str)
@pytest.mark.parametrize(("form", "strip"), [("nfc", True), ("nfkc", False), ("none", True)])
def test_an_export_with_what_its_run_does_to_texts_is_exact_again(
    form: str, strip: bool, options: dict[str, Any], tmp_path: Path
) -> None:
    ours, _ = trained(tmp_path, model_type="bpe", vocab_size=340, **({"byte_fallback": True} | options))
    exported = ours.normalising(form, strip)
    exported.add_frame()
    exported.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json", complete=False)
    for text in ("ᵉͧ \t the  ﬁsh e\u0301 ", "a\u0302\u0323<x> Ca ｶﾞ", " ", ""):
        done = text if form == "none" else unicodedata.normalize("NFC" if form == "nfc" else "NFKC", text)
        done = " ".join(done.split()) if strip else done
        assert again.encode(text) == ours.encode(done)
        assert again.framed(text) == [ours.start, *ours.encode(done), ours.end]
        ((ids, spans),) = again.spelled([text])
        assert ids == ours.encode(done)
        assert all(0 <= first <= last <= len(text) for first, last in spans)
    ((_, spans),) = again.spelled(["  the  e\u0301 x"])
    assert spans[-1] == (10, 11)


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


@pytest.mark.parametrize("size", [0, 3, 7, 2**32 - 4])
def test_a_damaged_table_is_told(size: int, tmp_path: Path) -> None:
    trained(tmp_path, vocab_size=80, hard_vocab_limit=False)
    path = tmp_path / "m.model"
    whole = path.read_bytes()
    place = whole.index(b"nmt_nfkc") + len("nmt_nfkc") + 4  # after the key and the length of the table
    path.write_bytes(whole[:place] + size.to_bytes(4, "little") + whole[place + 4 :])
    with pytest.raises(InputError, match="the table of its normalizer is damaged"):
        Tokenizer.load(path)


def with_units(table: bytes, change: Callable[[int], int]) -> bytes:
    """A table with other units in its trie."""
    size = int.from_bytes(table[:4], "little")
    units = [change(unit) for (unit,) in struct.iter_unpack("<I", table[4 : 4 + size])]
    return table[:4] + struct.pack(f"<{len(units)}I", *units) + table[4 + size :]


TABLES: dict[str, Callable[[bytes], bytes]] = {
    "its end is missing": lambda table: table[:-500],
    "its texts are missing": lambda table: table[:179_204],
    "its texts are no text": lambda table: table[:179_204] + b"\xff\0" * 40_000,
    "its rules begin within a letter": lambda table: with_units(table, lambda unit: unit + 1 if unit >> 31 else unit),
    "its rules have no text": lambda table: with_units(table, lambda unit: unit & 0x7FFFFFFF),
    "its trie leads out of it": lambda table: (256).to_bytes(4, "little") + Random(0).randbytes(256) + b"text\0",
}


@pytest.mark.parametrize("what", TABLES)
def test_a_table_that_leads_nowhere_is_told(what: str, tmp_path: Path) -> None:
    trained(tmp_path, vocab_size=80, hard_vocab_limit=False, user_defined_symbols=["<x>", "ｶﾞ", "é"])

    def damage(model: Any) -> None:
        model.normalizer_spec.precompiled_charsmap = TABLES[what](model.normalizer_spec.precompiled_charsmap)

    changed(tmp_path / "m.model", damage)
    with pytest.raises(InputError, match=r"m\.model: cannot be read: the table of its normalizer is damaged"):
        Tokenizer.load(tmp_path / "m.model")


def changed(path: Path, change: Callable[[Any], None]) -> None:
    """Change the model in a file."""
    protocol = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
    model = protocol.ModelProto()
    model.ParseFromString(path.read_bytes())
    change(model)
    path.write_bytes(model.SerializeToString())


@settings(max_examples=50, deadline=None)
@given(st.randoms(use_true_random=False), marked)
def test_any_table_is_read_to_its_end(rng: Random, text: str) -> None:
    Normaliser((64).to_bytes(4, "little") + rng.randbytes(128), True, True)(text)


def test_a_rule_without_end_does_not_take_quadratic_time() -> None:
    units = [((unit & 0xFF | 0x100) << 10) | unit & 0xFF for unit in range(1, 1024)]  # any byte leads to any other
    table = struct.pack("<1025I", 4096, 0x100 << 10, *units)
    began = time.process_time()
    assert Normaliser(table, False, False)("é" * 20_000) == "é" * 20_000
    assert time.process_time() - began < 20  # without a limit of letters: minutes


def test_the_places_of_letters_are_found_in_linear_time() -> None:
    steps = normalizers.Sequence([normalizers.NFC(), normalizers.Strip()])
    prepared = Prepared(steps, Normaliser(b"", True, True))
    assert prepared.aligned(" ße\u0301 b\n") == ("▁ßé▁b", [(0, 0), (1, 2), (2, 3), (4, 5), (5, 6)])
    text = "ße\u0301 b" * 40_000
    began = time.perf_counter()
    found, spans = prepared.aligned(text)
    assert time.perf_counter() - began < 10  # quadratic: minutes
    assert (len(found), spans[-1]) == (len(spans), (len(text) - 1, len(text)))


def varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def model_of(kind: int, pieces: list[tuple[str, int]]) -> bytes:
    """A model of pieces and their kinds, written by hand; a protocol buffer."""
    some = [field(1, field(1, text.encode()) + b"\x18" + varint(of)) for text, of in [("<unk>", 2), *pieces]]
    return b"".join(some) + field(2, b"\x18" + varint(kind))


def test_pieces_that_can_be_joined_in_very_many_ways_are_refused() -> None:
    """Half a million merges of half a million letters and more would come of a file of 500 kB."""
    data = model_of(2, [("a" * length, 1) for length in range(1, 1000)])
    with pytest.raises(InputError, match=r"m: cannot be read: its pieces can be joined in ways of more than 16,7"):
        read(data, "m")
    few = read(model_of(2, [("▁" + "a" * length, 1) for length in range(100)] + [("a", 1)]), "m")
    assert few.encode("a" * 99).tokens == ["▁" + "a" * 99]


def test_many_control_pieces_are_read_in_linear_time() -> None:
    controls, normal = [(f"<{i}>", 3) for i in range(3000)], [(f"w{i}", 1) for i in range(20_000)]
    data = model_of(1, [*((letter, 1) for letter in "<unk>0123456789"), *controls, *normal])
    began = time.perf_counter()
    engine = read(data, "m")
    assert time.perf_counter() - began < 5  # half a minute, where each looks at all pieces
    engine.encode_special_tokens = True
    assert "<17>" not in engine.encode("<17>").tokens


def test_rules_for_what_it_writes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rules.tsv").write_text("63\t62\n", encoding="utf-8")
    with pytest.raises(InputError, match="has rules for what it writes"):
        trained(tmp_path, vocab_size=80, hard_vocab_limit=False, denormalization_rule_tsv=str(tmp_path / "rules.tsv"))


def test_a_model_that_keeps_spaces_is_refused(tmp_path: Path) -> None:
    trained(tmp_path, vocab_size=80, hard_vocab_limit=False)

    def keep(model: Any) -> None:
        model.normalizer_spec.escape_whitespaces = False

    changed(tmp_path / "m.model", keep)
    with pytest.raises(InputError, match="keeps spaces as they are"):
        Tokenizer.load(tmp_path / "m.model")


PIECES: dict[str, Callable[[Any], None]] = {
    "is neither a tokenizer.json nor": lambda model: model.pieces[3].ClearField("piece"),
    "is neither a tokenizer.json nor a": lambda model: setattr(model.pieces[3], "score", float("nan")),
    "has no piece for what is unknown": lambda model: setattr(model.pieces[0], "type", 3),
}


@pytest.mark.parametrize("sentence", PIECES)
def test_damaged_pieces_are_told(sentence: str, tmp_path: Path) -> None:
    trained(tmp_path, vocab_size=80, hard_vocab_limit=False, user_defined_symbols=["<x>"])
    changed(tmp_path / "m.model", PIECES[sentence])
    with pytest.raises(InputError, match=sentence):
        Tokenizer.load(tmp_path / "m.model")


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_model_with_pieces_that_are_not_used_is_refused(kind: str, tmp_path: Path) -> None:
    trained(tmp_path, model_type=kind, vocab_size=80, **({"hard_vocab_limit": False} if kind == "unigram" else {}))

    def leave_out(model: Any) -> None:
        next(piece for piece in model.pieces if piece.piece == "at").type = 5

    changed(tmp_path / "m.model", leave_out)
    with pytest.raises(InputError, match="has pieces that are not used"):
        Tokenizer.load(tmp_path / "m.model")


@pytest.mark.parametrize("options", [*OPTIONS[:3], OPTIONS[1] | OPTIONS[2]], ids=str)
def test_a_first_space_is_dropped_as_by_sentencepiece(options: dict[str, Any], tmp_path: Path) -> None:
    ours, theirs = trained(tmp_path, vocab_size=80, hard_vocab_limit=False, **options)
    for piece in range(3, theirs.get_piece_size()):
        ids = [piece, theirs.piece_to_id("t")]
        assert ours.decode(ids) == theirs.decode(ids)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_spaces_at_the_start_come_back(kind: str, tmp_path: Path) -> None:
    options = {"remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True, "byte_fallback": True}
    size = {"vocab_size": 380, "user_defined_symbols": ["▁▁▁"]}
    size |= {"hard_vocab_limit": False} if kind == "unigram" else {}
    ours, theirs = trained(tmp_path, model_type=kind, **options, **size)
    for text in ("   a", "      the cat", " ", "     ", "a   b   ", "\u00e9   x"):
        assert ours.decode(ours.encode(text)) == theirs.decode(theirs.encode(text)) == text


def test_all_spaces_at_the_start_are_dropped_as_by_sentencepiece(tmp_path: Path) -> None:
    ours, theirs = trained(tmp_path, vocab_size=80, hard_vocab_limit=False)
    space, the = theirs.encode("\N{FOX FACE}the cat")[0], theirs.encode("the")[0]
    assert theirs.id_to_piece([space, the]) == ["▁", "▁the"]
    for ids in ([space, the], [space, space, the, space, the], [space, space]):
        assert ours.decode(ids) == theirs.decode(ids)
    assert ours.part([space, the]) == "  the"  # within a text nothing is dropped


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
