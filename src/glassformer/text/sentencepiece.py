"""SentencePiece models, read without the SentencePiece library.

The file is a protocol buffer: a list of fields, each with a number and a value. Only the necessary fields are read:
the pieces with their scores, the kind of model, and the normalisation of the text. What the tokenizers library cannot
do as SentencePiece does is refused, with one exception: a combining mark after a letter with which Unicode does not
compose it, or marks that are not in Unicode's order, may be normalised otherwise.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Engine

from glassformer.errors import InputError
from glassformer.text.limits import MOST_LETTERS, check_table

UNIGRAM, BPE = 1, 2  # the kinds of model that can be read
NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6  # the kinds of pieces; 5: unused
SPACE = "▁"
RULES = (b"nmt_nfkc", b"nfkc", b"nmt_nfkc_cf", b"nfkc_cf")  # the normalisations that compose letters as NFC does
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
        normaliser = dict(_fields(_last(fields, 3)))
    except (ValueError, IndexError, struct.error):
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
    unknown = next((i for i, piece in enumerate(pieces) if piece.kind == UNKNOWN), None)
    cutters: list[pre_tokenizers.PreTokenizer] = []
    if kind == UNIGRAM:
        engine = Engine(models.Unigram([(piece.text, piece.score) for piece in pieces], unknown, fallback))
        words = not any(SPACE in piece.text[1:] for piece in pieces)
        cutters.append(pre_tokenizers.Metaspace(SPACE, prepend_scheme="never", split=words))
        cutters.append(_cutting_controls(pieces, fallback, name))
    else:
        engine = Engine(_bpe(pieces, unknown, fallback))
    engine.normalizer = _normaliser(normaliser)
    if cutters:
        engine.pre_tokenizer = pre_tokenizers.Sequence(cutters)
    prepend = "always" if normaliser.get(3, 1) else "never"
    joined = decoders.Metaspace(SPACE, prepend_scheme=prepend)
    engine.decoder = decoders.Sequence([decoders.ByteFallback(), joined]) if fallback else joined
    engine.add_special_tokens([piece.text for piece in pieces if piece.kind in (UNKNOWN, CONTROL)])
    engine.add_tokens([piece.text for piece in pieces if piece.kind == USER])
    return engine


def _cutting_controls(pieces: Sequence[Piece], fallback: bool, name: str) -> pre_tokenizers.PreTokenizer:
    """What cuts a text that spells a control piece or a byte, so that it stays text: between letters no piece joins.

    One of these letters must be a piece, because SentencePiece makes one unknown token of neighbours that are none.
    """
    normal = [piece.text for piece in pieces if piece.kind in (NORMAL, USER)]
    known = set(normal)

    def cut(control: str, more: str = "") -> str:
        for place in range(1, len(control)):
            before, after = control[place - 1], control[place]
            alone = fallback or before in known or after in known
            if alone and not any(before + after in text for text in normal):
                parts = control[:place], after, control[place + 1 :]
                return "(?<={}){}(?={}{})".format(*map(re.escape, parts), more)
        raise InputError(
            f"{name}: cannot be read, since texts that spell its control piece {control!r} would become it"
        )

    controls = [piece.text for piece in pieces if piece.kind not in (NORMAL, USER, BYTE)]
    bytes_too = [cut("<0x", "[0-9A-F]{2}>")] if any(piece.kind == BYTE for piece in pieces) else []
    pattern = Regex("|".join([*map(cut, controls), *bytes_too]))
    return pre_tokenizers.Split(pattern, "merged_with_next")


def _normaliser(fields: dict[int, int | bytes]) -> normalizers.Normalizer:
    """The normalisation of SentencePiece, whose spaces are ▁.

    Its table composes letters with their marks, but the library's `Precompiled` looks at single letters: NFC composes
    them, before it and after it. The first space is put before any text, even one that begins with ▁, which `Metaspace`
    would not do; before one of which the table leaves nothing, too, unless extra spaces are removed.
    """
    table, spaced = fields.get(2), bool(fields.get(3, 1))
    composed: list[normalizers.Normalizer] = []
    if isinstance(table, bytes) and table:
        check_table(table)
        composed = [normalizers.NFC(), normalizers.Precompiled(table), normalizers.NFC()]
        if fields.get(1) in MAKING_SPACES:  # two spaces, of which the library would make one
            composed.insert(0, normalizers.Replace("\r\n", "\n\n"))
    if not fields.get(4, 1):
        # A line's end, since a mark of the text cannot join it; some tables make a space of it.
        before, after = normalizers.Prepend("\n"), normalizers.Replace(Regex(r"\A[\n ]"), SPACE)
        around = [before, *composed, after] if spaced else composed
        return normalizers.Sequence([*around, normalizers.Replace(" ", SPACE)])
    single = [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Replace(Regex(rf"\A +|[ {SPACE}]+\z"), "")]
    first_space = [normalizers.Prepend(SPACE)] if spaced else []
    return normalizers.Sequence([*composed, *single, *first_space, normalizers.Replace(" ", SPACE)])


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
