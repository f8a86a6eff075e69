"""SentencePiece models, read without the SentencePiece library.

The file is a protocol buffer: a list of fields, each with a number and a value. Only the necessary fields are read:
the pieces with their scores, the kind of model, and the normalisation of the text. What cannot be done as SentencePiece
does it is refused. One thing is left to chance: where a unigram model can cut a text in two ways of the same score,
SentencePiece takes the one that its sums in float32 are rounded up for, the tokenizers library the first.
"""

from __future__ import annotations

import json
import math
import re
import struct
from base64 import b64decode
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Engine

from glassformer.errors import InputError
from glassformer.text.charsmap import SPACE, Normaliser, Prepared
from glassformer.text.limits import MOST_LETTERS, MOST_MERGED, check_table

UNIGRAM, BPE = 1, 2  # the kinds of model that can be read
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)  # the kinds of pieces
RULES = (b"nmt_nfkc", b"nfkc", b"nmt_nfkc_cf", b"nfkc_cf")  # the normalisations that compose letters as NFC does
SPACES, STRIP = normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()
FORMS = {"nfc": normalizers.NFC(), "nfkc": normalizers.NFKC()}  # of Unicode
PREPARING = (*FORMS.values(), SPACES, STRIP)  # what a run does to a text before its tokenizer sees it
MAKING_SPACES = (b"nmt_nfkc", b"nmt_nfkc_cf")  # those that make a space of each line's end

Field = tuple[int, int | bytes]


class Piece(NamedTuple):
    """A token of the model."""

    text: str
    score: float
    kind: int


def read(data: bytes, name: str) -> Engine:
    """The tokenizer in a SentencePiece model; `name` is the file name for error messages."""
    try:
        fields = list(_fields(data))
        pieces = [_piece(value) for number, value in fields if number == 1 and isinstance(value, bytes)]
        trainer = dict(_fields(_last(fields, 2)))
        normaliser, denormaliser = (dict(_fields(_last(fields, number))) for number in (3, 5))
    except (ValueError, LookupError, struct.error):
        pieces = []
    if not pieces:
        raise InputError(f"{name}: is neither a tokenizer.json nor a SentencePiece model")
    kind, fallback = trainer.get(3, UNIGRAM), bool(trainer.get(35, 0))
    if kind not in (UNIGRAM, BPE):
        raise InputError(f"{name}: is a SentencePiece model of kind {kind!r}: only unigram (1) and BPE (2) can be read")
    if trainer.get(24, 0):
        raise InputError(f"{name}: has treat_whitespace_as_suffix, which cannot be read: train it without")
    if normaliser.get(2) and normaliser.get(1) not in RULES:
        known = ", ".join(rule.decode() for rule in RULES)
        raise InputError(
            f"{name}: has normalisation rules of its own, which cannot be read: train it with one of {known}"
        )
    if denormaliser.get(2):
        raise InputError(f"{name}: has rules for what it writes, which cannot be read: train it without")
    if not normaliser.get(5, 1):
        raise InputError(f"{name}: keeps spaces as they are, which cannot be read: train it with escape_whitespaces")
    if any(piece.kind == UNUSED for piece in pieces):
        raise InputError(f"{name}: has pieces that are not used, which cannot be read: save it with all of them in use")
    unknown = next((i for i, piece in enumerate(pieces) if piece.kind == UNKNOWN), None)
    if unknown is None:
        raise InputError(f"{name}: is damaged: it has no piece for what is unknown")
    try:
        engine = Engine((_unigram if kind == UNIGRAM else _bpe)(pieces, unknown, fallback))
        engine.normalizer = _normaliser(normaliser)
    except ValueError as error:
        raise InputError(f"{name}: cannot be read: {error}") from None
    if kind == UNIGRAM:
        words = not any(SPACE in piece.text[1:] for piece in pieces)
        spaces = pre_tokenizers.Metaspace(SPACE, prepend_scheme="never", split=words)
        engine.pre_tokenizer = pre_tokenizers.Sequence([spaces, _cutting_controls(pieces, fallback, name)])
    engine.decoder = _joining(fallback, bool(normaliser.get(3, 1)), bool(normaliser.get(4, 1)))
    engine.add_special_tokens([piece.text for piece in pieces if piece.kind in (UNKNOWN, CONTROL)])
    engine.add_tokens([piece.text for piece in pieces if piece.kind == USER])
    return engine


def _cutting_controls(pieces: Sequence[Piece], fallback: bool, name: str) -> pre_tokenizers.PreTokenizer:
    """What cuts a text that spells a control piece or a byte, so that it stays text: between letters no piece joins.

    One of these letters must be a piece, because SentencePiece makes one unknown token of neighbours that are none.
    """
    normal = [piece.text for piece in pieces if piece.kind in (NORMAL, USER)]
    known = set(normal)
    joined = {text[place : place + 2] for text in normal for place in range(len(text) - 1)}

    def cut(control: str, more: str = "") -> str:
        for place in range(1, len(control)):
            before, after = control[place - 1], control[place]
            alone = fallback or before in known or after in known
            if alone and before + after not in joined:
                parts = control[:place], after, control[place + 1 :]
                return "(?<={}){}(?={}{})".format(*map(re.escape, parts), more)
        raise InputError(
            f"{name}: cannot be read, since texts that spell its control piece {control!r} would become it"
        )

    controls = [piece.text for piece in pieces if piece.kind in (UNKNOWN, CONTROL)]
    bytes_too = [cut("<0x", "[0-9A-F]{2}>")] if any(piece.kind == BYTE for piece in pieces) else []
    pattern = Regex("|".join([*map(cut, controls), *bytes_too]))
    return pre_tokenizers.Split(pattern, "merged_with_next")


def _weight(piece: Piece) -> float:
    """What a piece of a unigram model counts for; one that a user has defined nearly always wins."""
    return float(np.float32((len(piece.text.encode("utf-8")) - 1) * 0.1)) if piece.kind == USER else piece.score


def _joining(fallback: bool, first_space: bool, single_spaces: bool) -> decoders.Decoder:
    """What makes a text of pieces: without the first space, or without all at its start if it has single ones."""
    first = r"\A▁+" if single_spaces else r"\A▁" if first_space else None
    steps: list[decoders.Decoder] = [decoders.ByteFallback()] if fallback else []
    steps += [decoders.Fuse()] + ([decoders.Replace(Regex(first), "")] if first else [])
    return decoders.Sequence([*steps, decoders.Replace(SPACE, " ")])


def exact_normaliser(engine: Engine) -> Normaliser | Prepared | None:
    """What normalises as SentencePiece does, where the engine's own normaliser is the nearest to it that `read` found.

    A tokenizer.json cannot say more than the library can do, and other programs read it, so it stays as it is. Before
    the nearest normaliser, that of an export does what its run does to a text.
    """
    if not isinstance(engine.normalizer, normalizers.Sequence):
        return None
    steps, defined = _states(engine.normalizer), _defined(engine)
    tables = [step["precompiled_charsmap"] for step in steps if step["type"] == "Precompiled"]
    table = b64decode(tables[0] or "") if tables else b""
    for first, single, ends in product((True, False), repeat=3):
        nearest = _states(_nearest(table, first, single, ends))
        before = [each for state in steps[: -len(nearest)] for each in PREPARING if _states(each) == [state]]
        if [state for each in before for state in _states(each)] + nearest != steps:
            continue
        if len(nearest) + bool(defined) < 2:  # one step, which makes ▁ of each space, is exact
            return None
        exact = Normaliser(table, first, single, defined)
        return Prepared(normalizers.Sequence(before), exact) if before else exact
    return None


def _states(normaliser: normalizers.Normalizer) -> list[dict[str, Any]]:
    """The steps of a normaliser, as its file spells them."""
    state = json.loads(normaliser.__getstate__())
    return list(state.get("normalizers", [state]))


def for_normal_texts(engine: Engine) -> Engine:
    """The engine for texts that are normalised already.

    A unigram model weighs the pieces that a user has defined as it weighs the others, so it must not cut texts at them.
    """
    defined = _defined(engine)
    if defined and isinstance(engine.model, models.Unigram):
        state = json.loads(engine.to_str())
        state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] not in defined]
        engine = Engine.from_str(json.dumps(state))
        engine.encode_special_tokens = True
    engine.normalizer = normalizers.Sequence([])
    return engine


def for_other_programs(engine: Engine, normaliser: Normaliser | Prepared, nearest: normalizers.Normalizer) -> Engine:
    """The same, again with what other programs read: the nearest normaliser, and what a user has defined."""
    engine = Engine.from_str(engine.to_str())
    engine.normalizer = nearest
    engine.add_tokens(list(normaliser.untouched))
    return engine


def _defined(engine: Engine) -> list[str]:
    """The pieces that a user has defined."""
    return [token.content for token in engine.get_added_tokens_decoder().values() if not token.special]


def _normaliser(fields: dict[int, int | bytes]) -> normalizers.Normalizer:
    """The normalisation that a SentencePiece model names, as near as the library comes to it."""
    table = fields.get(2)
    table = table if isinstance(table, bytes) else b""
    check_table(table)
    return _nearest(table, bool(fields.get(3, 1)), bool(fields.get(4, 1)), fields.get(1) in MAKING_SPACES)


def _nearest(table: bytes, first_space: bool, single_spaces: bool, ends: bool) -> normalizers.Normalizer:
    """The library's normaliser that is nearest to SentencePiece's, whose spaces are ▁.

    The table composes letters with their marks, but the library's `Precompiled` looks at single letters: NFC composes
    them, before it and after it. The first space is put before any text, even one that begins with ▁, which `Metaspace`
    would not do; before one of which the table leaves nothing, too, unless extra spaces are removed. Line `ends` are
    spaces: a carriage return and a line feed are two of them, of which the library would make one.
    """
    composed: list[normalizers.Normalizer] = []
    if table:
        composed = [normalizers.NFC(), normalizers.Precompiled(table), normalizers.NFC()]
        if ends:
            composed.insert(0, normalizers.Replace("\r\n", "\n\n"))
    if not single_spaces:
        # A line's end, since a mark of the text cannot join it; some tables make a space of it.
        before, after = normalizers.Prepend("\n"), normalizers.Replace(Regex(r"\A[\n ]"), SPACE)
        around = [before, *composed, after] if first_space else composed
        return normalizers.Sequence([*around, normalizers.Replace(" ", SPACE)])
    single = [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Replace(Regex(rf"\A +|[ {SPACE}]+\z"), "")]
    start = [normalizers.Prepend(SPACE)] if first_space else []
    return normalizers.Sequence([*composed, *single, *start, normalizers.Replace(" ", SPACE)])


def _unigram(pieces: list[Piece], unknown: int, fallback: bool) -> models.Unigram:
    """A text is cut into the pieces whose weights sum to the most."""
    return models.Unigram([(piece.text, _weight(piece)) for piece in pieces], unknown, fallback)


def _bpe(pieces: list[Piece], unknown: int, fallback: bool) -> models.BPE:
    """BPE from pieces: every way to join two pieces into a third is a merge, best scores first."""
    ids = {piece.text: i for i, piece in enumerate(pieces)}
    merges: list[tuple[float, int, int]] = []
    letters = 0
    for piece in pieces:
        if piece.kind in (NORMAL, USER):
            for cut in range(1, len(piece.text)):
                left, right = ids.get(piece.text[:cut]), ids.get(piece.text[cut:])
                if left is not None and right is not None:
                    merges.append((-piece.score, left, right))
                    letters += len(piece.text)
            if letters > MOST_MERGED:
                raise ValueError(f"its pieces can be joined in ways of more than {MOST_MERGED:,} letters together")
    merges.sort()
    ordered = [(pieces[left].text, pieces[right].text) for _, left, right in merges]
    return models.BPE(vocab=ids, merges=ordered, unk_token=pieces[unknown].text, fuse_unk=True, byte_fallback=fallback)


def _piece(data: bytes) -> Piece:
    values = dict(_fields(data))
    text, score, kind = values[1], values.get(2, b"\0\0\0\0"), values.get(3, NORMAL)
    if not isinstance(text, bytes) or not isinstance(score, bytes) or not isinstance(kind, int):
        raise ValueError("not a SentencePiece piece")
    if len(text) > MOST_LETTERS:
        raise ValueError("a piece is too long")
    piece = Piece(text.decode("utf-8"), struct.unpack("<f", score)[0], kind)
    if not math.isfinite(piece.score):
        raise ValueError("a score is no number")
    return piece


def _last(fields: list[Field], number: int) -> bytes:
    found = [value for each, value in fields if each == number and isinstance(value, bytes)]
    return found[-1] if found else b""


def _fields(data: bytes) -> Iterator[Field]:
    """The fields of a protocol buffer: integers as int, all other values as bytes."""
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        number, form = tag >> 3, tag & 7
        if form == 0:
            value, at = _number(data, at)
            yield number, value
            continue
        if form == 2:
            size, at = _number(data, at)
        else:
            size = {1: 8, 5: 4}.get(form, -1)
        if size < 0 or at + size > len(data):
            raise ValueError("not a protocol buffer")
        yield number, data[at : at + size]
        at += size


def _number(data: bytes, at: int) -> tuple[int, int]:
    """An integer stored in groups of seven bits, and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("not a protocol buffer")
