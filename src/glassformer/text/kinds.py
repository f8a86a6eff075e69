"""The kinds of tokens: how each cuts text, what it learns from examples, and how its tokens are joined again.

Byte, BPE and unigram tokens are made of bytes, so they write any text and lose nothing; words and characters are
whole pieces of text, and what was not among the examples is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Engine

from glassformer.errors import ConfigurationError
from glassformer.recipe import Tokenizer as Section

PAD, START, END, UNKNOWN = "<pad>", "<start>", "<end>", "<unk>"
SPECIAL = [PAD, START, END, UNKNOWN]

# A word takes the space before it along, so that joining tokens gives back the text.
WORD_PATTERN = r" ?[\p{L}\p{M}\p{N}_]+| ?[^\s\p{L}\p{M}\p{N}_]+|\s"
WORD = Regex(WORD_PATTERN)
CHARACTER = Regex(r"[\s\S]")


def byte_letters() -> list[str]:
    """The printable letter that stands for each byte, from 0 to 255."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(rest)}
    return [letters[byte] for byte in range(256)]


def _bytes(texts: Iterable[str], section: Section) -> Engine:
    letters = {letter: len(SPECIAL) + byte for byte, letter in enumerate(byte_letters())}
    vocabulary = {name: i for i, name in enumerate(SPECIAL)} | letters
    engine = Engine(models.BPE(vocab=vocabulary, merges=[]))
    _made_of_bytes(engine, words=False)
    engine.add_special_tokens(SPECIAL)
    engine.normalizer = normalizers.Lowercase() if section.lowercase else None
    return engine


def _bpe(texts: Iterable[str], section: Section) -> Engine:
    engine = Engine(models.BPE())
    _made_of_bytes(engine)
    trainer = trainers.BpeTrainer(
        vocab_size=section.vocabulary, special_tokens=SPECIAL, initial_alphabet=byte_letters(), show_progress=False
    )
    return _train(engine, texts, trainer, section)


def _unigram(texts: Iterable[str], section: Section) -> Engine:
    engine = Engine(models.Unigram())
    _made_of_bytes(engine)
    trainer = trainers.UnigramTrainer(
        vocab_size=section.vocabulary,
        special_tokens=SPECIAL,
        unk_token=UNKNOWN,
        initial_alphabet=byte_letters(),
        show_progress=False,
    )
    return _train(engine, texts, trainer, section)


def _pieces(pattern: Regex) -> Callable[[Iterable[str], Section], Engine]:
    """Tokens that are whole pieces of text, the most frequent ones known."""

    def train(texts: Iterable[str], section: Section) -> Engine:
        engine = Engine(models.WordLevel(unk_token=UNKNOWN))
        engine.pre_tokenizer = pre_tokenizers.Split(pattern, behavior="isolated")
        engine.decoder = decoders.Fuse()
        trainer = trainers.WordLevelTrainer(vocab_size=section.vocabulary, special_tokens=SPECIAL, show_progress=False)
        return _train(engine, texts, trainer, section)

    return train


def _made_of_bytes(engine: Engine, words: bool = True) -> None:
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words)
    engine.decoder = decoders.ByteLevel()


def _train(engine: Engine, texts: Iterable[str], trainer: trainers.Trainer, section: Section) -> Engine:
    engine.normalizer = normalizers.Lowercase() if section.lowercase else None
    engine.train_from_iterator(texts, trainer)
    return engine


KINDS: dict[str, Callable[[Iterable[str], Section], Engine]] = {
    "byte": _bytes,
    "bpe": _bpe,
    "unigram": _unigram,
    "word": _pieces(WORD),
    "character": _pieces(CHARACTER),
}


def train(texts: Iterable[str], section: Section) -> Engine:
    """A tokenizer of the section's kind, learned from texts."""
    least = len(SPECIAL) + (256 if section.kind in ("bpe", "unigram") else 1)
    if section.kind != "byte" and section.vocabulary < least:
        raise ConfigurationError(
            f"tokenizer.vocabulary is {section.vocabulary}, but {section.kind} needs at least {least}"
        )
    return KINDS[section.kind](texts, section)


def of_letters(letters: str) -> Engine:
    """One token a letter, with the id of its place; the first four places are those of the special tokens."""
    vocabulary = {name: place for place, name in enumerate([*SPECIAL, *letters[len(SPECIAL) :]])}
    engine = Engine(models.WordLevel(vocab=vocabulary, unk_token=UNKNOWN))
    engine.pre_tokenizer = pre_tokenizers.Split(CHARACTER, "isolated")
    engine.decoder = decoders.Fuse()
    engine.add_special_tokens(SPECIAL)
    around = [(START, vocabulary[START]), (END, vocabulary[END])]
    engine.post_processor = processors.TemplateProcessing(single=f"{START} $A {END}", special_tokens=around)
    return engine
