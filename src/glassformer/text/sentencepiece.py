"""SentencePiece models, read without the SentencePiece library.

The file is a protocol buffer: a list of fields, each with a number and a value. Only the necessary fields are read:
the pieces with their scores, the kind of model, and the normalisation of the text.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Engine

from glassformer.errors import InputError
from glassformer.text.limits import MOST_LETTERS, check_table

UNIGRAM, BPE = 1, 2  # the kinds of model that can be read
NORMAL, UNKNOWN, CONTROL, USER = 1, 2, 3, 4  # the kinds of pieces
SPACE = "▁"

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
        normaliser = dict(_fields(_last(fields, 3)))
    except (ValueError, IndexError, struct.error):
        pieces = []
    if not pieces:
        raise InputError(f"{name}: is neither a tokenizer.json nor a SentencePiece model")
    kind, fallback = trainer.get(3, UNIGRAM), bool(trainer.get(35, 0))
    unknown = next((i for i, piece in enumerate(pieces) if piece.kind == UNKNOWN), None)
    if kind == UNIGRAM:
        engine = Engine(models.Unigram([(piece.text, piece.score) for piece in pieces], unknown, fallback))
    elif kind == BPE:
        engine = Engine(_bpe(pieces, unknown, fallback))
    else:
        raise InputError(f"{name}: is a SentencePiece model of kind {kind!r}: only unigram (1) and BPE (2) can be read")
    engine.normalizer = _normaliser(normaliser)
    prepend = "always" if normaliser.get(3, 1) else "never"
    engine.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme=prepend, split=kind == UNIGRAM)
    joined = decoders.Metaspace(SPACE, prepend_scheme=prepend)
    engine.decoder = decoders.Sequence([decoders.ByteFallback(), joined]) if fallback else joined
    engine.add_special_tokens([piece.text for piece in pieces if piece.kind in (UNKNOWN, CONTROL)])
    engine.add_tokens([piece.text for piece in pieces if piece.kind == USER])
    return engine


def _normaliser(fields: dict[int, int | bytes]) -> normalizers.Normalizer | None:
    steps: list[normalizers.Normalizer] = []
    table = fields.get(2)
    if isinstance(table, bytes) and table:
        check_table(table)
        steps.append(normalizers.Precompiled(table))
    if fields.get(4, 1):
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    return normalizers.Sequence(steps) if steps else None


def _bpe(pieces: list[Piece], unknown: int | None, fallback: bool) -> models.BPE:
    """BPE from pieces: every way to join two pieces into a third is a merge, best scores first."""
    ids = {piece.text: i for i, piece in enumerate(pieces)}
    merges: list[tuple[float, int, int, str, str]] = []
    for piece in pieces:
        if piece.kind in (NORMAL, USER):
            for cut in range(1, len(piece.text)):
                left, right = piece.text[:cut], piece.text[cut:]
                if left in ids and right in ids:
                    merges.append((-piece.score, ids[left], ids[right], left, right))
    merges.sort()
    name = None if unknown is None else pieces[unknown].text
    ordered = [(left, right) for *_, left, right in merges]
    return models.BPE(vocab=ids, merges=ordered, unk_token=name, fuse_unk=True, byte_fallback=fallback)


def _piece(data: bytes) -> Piece:
    values = dict(_fields(data))
    text, score, kind = values[1], values.get(2, b"\0\0\0\0"), values.get(3, NORMAL)
    if not isinstance(text, bytes) or not isinstance(score, bytes) or not isinstance(kind, int):
        raise ValueError("not a SentencePiece piece")
    if len(text) > MOST_LETTERS:
        raise ValueError("a piece is too long")
    return Piece(text.decode("utf-8"), struct.unpack("<f", score)[0], kind)


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
