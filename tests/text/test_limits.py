"""A hostile tokenizer is refused, or its failure is a sentence; those of the field are within all limits."""

import base64
import json
import os
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Engine
from tokenizers import models, processors

from glassformer.errors import InputError
from glassformer.recipe import Tokenizer as Section
from glassformer.text import Tokenizer
from glassformer.text.limits import MOST_BYTES, check_pattern, engine_of

PLAIN: dict[str, Any] = json.loads(Tokenizer.train(["the cat"], Section(kind="word", vocabulary=20)).to_json())
GROWING = [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 40
INSERTING = [{"type": "Replace", "pattern": {"Regex": "x*"}, "content": "a"}] * 40
TABLE = base64.b64encode(struct.pack("<I", 4) + bytes(4) + b"a" * 10_000 + b"\0").decode()
PIECE = {"Sequence": {"id": "A", "type_id": 0}}

KNOWN = [  # of GPT-2, Llama 3, GPT-4o, BLOOM, StarCoder 2, DeepSeek, Kimi
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}]*[\p{Ll}\p{Lm}]+(?i:'s|'t|'re|'ve)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r" ?[^(\s|[.,!?…。，、।۔،])]+",
    r"\d{1,3}(?=(?:\d{3})*\b)",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*",
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{M}&&[^\p{Han}]]*[\p{Ll}&&[^\p{Han}]]+",
    r" {2,}",
]
HOSTILE = [
    "(a+)+$",
    "(a|a)+$",
    "(?:a*)*b",
    "((a{2,})x)+",
    "(?:[ab]?c)+",
    r"([a-z]+\)?)*",
    "(a{1,200}){3,}",
    "(?<n>a+)+",
    "(?i:a+)+",
    "(?:a+){0,5000}",
    "(x(?=a+))+",
    r"(?<x>a\g<x>?b)",
]


def load(folder: Path, **changes: Any) -> Tokenizer:
    (folder / "t.json").write_text(json.dumps(PLAIN | changes), encoding="utf-8")
    return Tokenizer.load(folder / "t.json")


@pytest.mark.parametrize("pattern", KNOWN)
def test_the_patterns_of_the_field_are_taken(pattern: str) -> None:
    check_pattern(pattern)


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_pattern_that_may_take_exponential_time_is_refused(pattern: str, tmp_path: Path) -> None:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    with pytest.raises(InputError, match=r"t\.json: is not a valid tokenizer\.json: its pattern"):
        load(tmp_path, pre_tokenizer={"type": "Sequence", "pretokenizers": [split]})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"normalizer": {"type": "Sequence", "normalizers": GROWING}}, "normalizer make a text more than 256 times"),
        ({"normalizer": {"type": "Sequence", "normalizers": INSERTING}}, "normalizer make a text more than 256 times"),
        ({"decoder": {"type": "Sequence", "decoders": GROWING}}, "decoder make a text more than 256 times"),
        ({"normalizer": {"type": "Prepend", "prepend": "a" * 5_000}}, "normalizer adds a text of more than 1,000"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": TABLE}}, "replaces a character by a long text"),
        (
            {
                "post_processor": {
                    "type": "TemplateProcessing",
                    "single": [PIECE] * 5_000,
                    "pair": [],
                    "special_tokens": {},
                }
            },
            "post_processor has 10,002 steps",
        ),
        ({"model": PLAIN["model"] | {"vocab": {"a": 2**32 - 1, "<unk>": 0}}}, "largest id is 4,294,967,295"),
        (
            {"model": {"type": "WordPiece", "vocab": {"a": 0}, "max_input_chars_per_word": 10**9}},
            "more than 1,000 letters",
        ),
        ({"model": {"type": "Nothing"}}, "t.json: is not a valid"),
    ],
)
def test_a_tokenizer_that_asks_for_too_much_is_refused(changes: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        load(tmp_path, **changes)


def test_a_tokenizer_that_is_too_deep_or_too_large_or_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deep").write_text('{"a":' * 100_000, encoding="utf-8")
    with pytest.raises(InputError, match="nested too deeply"):
        Tokenizer.load(tmp_path / "deep")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(InputError, match="at most 67,108,864 are read"):
        Tokenizer.load(tmp_path / "large")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a pipe"):
        Tokenizer.load(tmp_path / "pipe")


def test_where_the_library_gives_up_there_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.text.limits.check_pattern", lambda pattern: None)  # as if one had been missed
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    tokenizer = load(tmp_path, pre_tokenizer=split)
    start = time.process_time()
    for call in (tokenizer.encode, lambda text: tokenizer.encode_flat([text]), lambda text: tokenizer.frame([[text]])):
        with pytest.raises(InputError, match=r"the tokenizer fails: .*retry-limit"):
            call("a" * 1_000 + "b")
    assert time.process_time() - start < 20


@pytest.mark.parametrize(
    "model",
    [
        models.WordPiece({"a": 0}),
        models.WordLevel({"a": 0}),
        models.Unigram([("a", -1.0)]),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_letter_that_a_model_has_nothing_for_is_a_sentence(model: models.Model, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(Engine(model).to_str(), encoding="utf-8")
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json", complete=False)
    with pytest.raises(InputError, match="the tokenizer fails: "):
        tokenizer.encode("b")


def test_a_sentencepiece_model_with_a_piece_without_end_is_refused_at_once(tmp_path: Path) -> None:
    text = b"a" * 1_000_000
    piece = b"\x0a" + bytes([0x80 | len(text) & 0x7F, 0x80 | len(text) >> 7 & 0x7F, len(text) >> 14]) + text
    size = len(piece)
    (tmp_path / "m.model").write_bytes(
        b"\x0a" + bytes([0x80 | size & 0x7F, 0x80 | size >> 7 & 0x7F, size >> 14]) + piece
    )
    with pytest.raises(InputError, match=r"neither a tokenizer\.json nor a SentencePiece model"):
        Tokenizer.load(tmp_path / "m.model")


def test_a_frame_of_tokens_that_are_not_defined_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    engine = Engine(models.WordLevel({"x": 0, "[CLS]": 1}))
    engine.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 1)])
    state = json.loads(engine.to_str())
    assert engine_of(json.dumps(state).encode(), "t.json").encode("x").ids == [1, 0]
    state["post_processor"]["special_tokens"] = {}
    with pytest.raises(
        InputError, match=r"t\.json: is not a valid tokenizer\.json: its post_processor has no special tok"
    ):
        engine_of(json.dumps(state).encode(), "t.json")
    assert capfd.readouterr().err == ""  # Rust says nothing
