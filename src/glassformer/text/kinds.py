"""The kinds of tokenizers: how each splits text, is trained, and joins tokens again.

Byte, BPE and unigram tokens are made of bytes, so they encode any text without loss. Word and character tokens are
pieces of text; a piece that was not in the training texts is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from tokenizers import Regex, decoders, models, normalizers, processors, trainers
from tokenizers import Tokenizer as Engine
from tokenizers.decoders import Decoder
from tokenizers.models import Model
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Split
from tokenizers.trainers import Trainer

from glassformer.errors import ConfigurationError
from glassformer.recipe.sections import Tokenizer as Section
from glassformer.registry import TOKENIZERS

Kind = Callable[[Iterable[str], Section], Engine]

PAD, START, END, UNKNOWN = "<pad>", "<start>", "<end>", "<unk>"
SPECIAL = [PAD, START, END, UNKNOWN]

# A word includes the space before it, so that joining the tokens gives the text again. The first word gets one, too:
# it is the same token as everywhere else. Decoding takes that space away.
WORD_PATTERN = r" ?[\p{L}\p{M}\p{N}_]+| ?[^\s\p{L}\p{M}\p{N}_]+|\s"
WORD = Regex(WORD_PATTERN)
FIRST_SPACE = normalizers.Prepend(" ")
# As in the Penn Treebank, "doesn't" is "does" and "n't", "it's" is "it" and "'s".
ENDS = r"(?![\p{L}\p{M}\p{N}_])"
NOT, OTHERS = rf"[nN]['’][tT]{ENDS}", rf"['’](?i:s|m|d|re|ve|ll){ENDS}"  # people type both
CONTRACTION_PATTERN = rf" ?[\p{{L}}\p{{M}}\p{{N}}_]+?(?={NOT})|{NOT}|{OTHERS}|{WORD_PATTERN}"
CUT_AT_SPACES = (WORD_PATTERN, CONTRACTION_PATTERN)
CHARACTER = Regex(r"[\s\S]")

LONGEST, IN_ALL = 1_000, 30_000  # characters of a word, and of longer words together, that a tokenizer learns from
PIECE = re.compile(r"(?:\S{1,1000}+(?!\S)|\s{1,1000}+(?!\s))*+(?:\S{1000}|\s{1000})?")  # up to where a word is cut


def byte_letters() -> list[str]:
    """The printable letter that represents each byte, from 0 to 255."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(rest)}
    return [letters[byte] for byte in range(256)]


def _engine(
    model: Model, cut: PreTokenizer, join: Decoder, lowercase: bool = False, first: Normalizer | None = None
) -> Engine:
    engine = Engine(model)
    steps = [*([normalizers.Lowercase()] if lowercase else []), *([] if first is None else [first])]
    engine.normalizer = normalizers.Sequence(steps) if len(steps) > 1 else steps[0] if steps else None
    engine.pre_tokenizer, engine.decoder = cut, join
    return engine


def _learned(
    model: Callable[[], Model],
    trainer: Callable[..., Trainer],
    cut: PreTokenizer,
    join: Decoder,
    first: Normalizer | None = None,
    **options: Any,
) -> Kind:
    """A kind of tokenizer that learns its vocabulary from texts."""

    def train(texts: Iterable[str], section: Section) -> Engine:
        engine = _engine(model(), cut, join, section.lowercase, first)
        chosen = {"vocab_size": section.vocabulary, "special_tokens": SPECIAL, "show_progress": False, **options}
        engine.train_from_iterator(texts, trainer(**chosen))
        return engine

    return train


_PIECES = partial(models.WordLevel, unk_token=UNKNOWN), trainers.WordLevelTrainer  # the most frequent pieces of texts


def _words(texts: Iterable[str], section: Section) -> Engine:
    """Tokens that are words, each with the space before it."""
    pattern = CONTRACTION_PATTERN if section.contractions else WORD_PATTERN
    join = decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return _learned(*_PIECES, Split(Regex(pattern), "isolated"), join, first=FIRST_SPACE)(texts, section)


def _bytes(texts: Iterable[str], section: Section) -> Engine:
    vocabulary = {name: number for number, name in enumerate([*SPECIAL, *byte_letters()])}
    model = models.BPE(vocab=vocabulary, merges=[])
    cut = ByteLevel(add_prefix_space=False, use_regex=False)
    engine = _engine(model, cut, decoders.ByteLevel(), section.lowercase)
    engine.add_special_tokens(SPECIAL)
    return engine


def _subwords(model: Callable[[], Model], trainer: Callable[..., Trainer], **options: Any) -> Kind:
    """Tokens that are sequences of bytes within a word."""
    cut, join = ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return _learned(model, trainer, cut, join, initial_alphabet=byte_letters(), **options)


TOKENIZERS.register("byte", _bytes)
TOKENIZERS.register("bpe", _subwords(models.BPE, trainers.BpeTrainer))
TOKENIZERS.register("unigram", _subwords(models.Unigram, trainers.UnigramTrainer, unk_token=UNKNOWN))
TOKENIZERS.register("word", _words)
TOKENIZERS.register("character", _learned(*_PIECES, Split(CHARACTER, "isolated"), decoders.Fuse()))


def train(texts: Iterable[str], section: Section, tell: Callable[[int], None] | None = None) -> Engine:
    """A tokenizer of the kind in the section, trained on texts.

    Words and runs of spaces of over LONGEST characters are cut, since each merge takes time in proportion to a word;
    `tell` is called with the number of cuts in a text.
    """
    least = len(SPECIAL) + (256 if section.kind in ("bpe", "unigram") else 1)
    if section.kind != "byte" and section.vocabulary < least:
        raise ConfigurationError(
            f"tokenizer.vocabulary is {section.vocabulary}, but tokenizer.kind {section.kind} needs at least {least}"
        )
    return TOKENIZERS[section.kind](_cut(texts, tell), section)  # type: ignore[no-any-return]


def _cut(texts: Iterable[str], tell: Callable[[int], None] | None) -> Iterator[str]:
    left = IN_ALL
    for text in texts:
        pieces = [piece for piece in PIECE.findall(text) if piece] if len(text) > LONGEST else [text]
        for piece in pieces[:-1]:
            left -= LONGEST
            yield piece if left >= 0 else piece[:-LONGEST]
        yield from pieces[-1:]
        if tell is not None and len(pieces) > 1:
            tell(len(pieces) - 1)


def of_letters(letters: str) -> Engine:
    """One token per letter; its id is its position. The first four positions belong to the special tokens."""
    vocabulary = {name: number for number, name in enumerate([*SPECIAL, *letters[len(SPECIAL) :]])}
    model = models.WordLevel(vocab=vocabulary, unk_token=UNKNOWN)
    engine = _engine(model, Split(CHARACTER, "isolated"), decoders.Fuse())
    engine.add_special_tokens(SPECIAL)
    around = [(START, vocabulary[START]), (END, vocabulary[END])]
    engine.post_processor = processors.TemplateProcessing(single=f"{START} $A {END}", special_tokens=around)
    return engine
