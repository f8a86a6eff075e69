"""The tokenizer: text to token ids and back; trained, or loaded from a file."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, normalizers, processors
from tokenizers import Tokenizer as Engine

from glassformer.errors import InputError
from glassformer.files import read_whole
from glassformer.recipe import Tokenizer as Section
from glassformer.text import kinds, sentencepiece
from glassformer.text.bpe_dropout import BPEDropout
from glassformer.text.charsmap import covered
from glassformer.text.display import BYTES, SPACE, on_a_line, spelled
from glassformer.text.limits import MOST_BYTES, engine_of, safely
from glassformer.text.special_tokens import MASKS, NAMES, SENTINEL, SENTINELS, ids_by_role
from glassformer.text.word_cache import WordCache, adds_space, cuts_at_spaces, within_text
from glassformer.text.words import group
from glassformer.writing import write_text


class Tokenizer:
    """Text to token ids and back.

    `pad`, `start`, `end` and `unknown` are the ids of the special tokens, `size` is the number of ids. Encoding adds no
    special tokens, and the text "<end>" is encoded as text. Missing special tokens are added to the vocabulary, unless
    `complete` is False because a checkpoint defines the ids: then a missing one has the id 0, and `has_unknown` tells
    whether the unknown token is missing.
    """

    def __init__(self, engine: Engine, complete: bool = True) -> None:
        engine.no_truncation()
        engine.no_padding()
        ids = ids_by_role(engine, complete)
        engine.encode_special_tokens = True  # "<end>" in a text is five characters
        self._cache: WordCache | BPEDropout = WordCache(cuts_at_spaces(engine), adds_space(engine))
        self.pad, self.start, self.end, self.unknown = (int(ids[role] or 0) for role in NAMES)
        self.has_unknown = ids["unknown"] is not None
        self._named = {int(token) for token in ids.values() if token is not None}
        self.size = max(engine.get_vocab(with_added_tokens=True).values()) + 1
        self._shown: dict[int, str] = {}
        self._exact, self._nearest = sentencepiece.exact_normaliser(engine), engine.normalizer
        # The exact one, if there is one, normalises the texts before the engine sees them.
        self._engine = engine if self._exact is None else sentencepiece.for_normal_texts(engine)
        self._within = within_text(engine) if adds_space(engine) else self._engine  # for the rest of a text

    def __setstate__(self, state: dict[str, object]) -> None:
        """Take over the state of a tokenizer that is copied, or sent to another process."""
        self.__dict__.update(state)
        self._engine.encode_special_tokens = self._within.encode_special_tokens = True  # which the library forgets

    @classmethod
    def train(cls, texts: Iterable[str], section: Section, tell: Callable[[int], None] | None = None) -> Tokenizer:
        """Train a tokenizer of the kind in the section on texts; `tell` hears how often a long word was cut."""
        return cls(kinds.train(texts, section, tell))

    @classmethod
    def load(cls, path: Path, complete: bool = True) -> Tokenizer:
        """Load a `tokenizer.json` from any library, or a SentencePiece model."""
        data = read_whole(path, MOST_BYTES)
        read = engine_of if data.lstrip().startswith(b"{") else sentencepiece.read
        return cls(read(data, str(path)), complete)

    def save(self, path: Path) -> None:
        """Write a `tokenizer.json`, which `transformers` can load; an existing file is replaced atomically."""
        write_text(path, self.to_json())

    def to_json(self) -> str:
        """The contents of its `tokenizer.json`."""
        engine = self._engine
        if self._exact is not None:
            engine = sentencepiece.for_other_programs(engine, self._exact, self._nearest)
        return str(engine.to_str(pretty=True))

    def _normal(self, texts: Iterable[str]) -> list[str]:
        """Texts as the engine shall see them."""
        return list(texts) if self._exact is None else [self._exact(text) for text in texts]

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        return list(safely(self._engine.encode, *self._normal([text]), add_special_tokens=False).ids)

    def framed(self, text: str) -> list[int]:
        """The ids of a text with the special tokens that the tokenizer's file defines around it."""
        return self.frame([[text]])[0]

    def add_frame(self, ending: bool = True) -> None:
        """Define the frame `<start> text <end>`, or `<start> text <end> text <end>`, if the tokenizer has none.

        Without `ending`, a text has only the start token, because it will be continued.
        """
        if self._engine.num_special_tokens_to_add(False) == 0:
            start, end = (str(self._engine.id_to_token(token)) for token in (self.start, self.end))
            self._engine.post_processor = processors.TemplateProcessing(
                single=f"{start} $A {end}" if ending else f"{start} $A",
                pair=f"{start} $A {end} $B:1 {end}:1",
                special_tokens=[(start, self.start), (end, self.end)],
            )

    @property
    def special(self) -> set[int]:
        """The ids of all special tokens."""
        added = self._engine.get_added_tokens_decoder()
        return self._named | {token for token, facts in added.items() if facts.special}

    @property
    def mask(self) -> int:
        """The id of the mask token."""
        known = self._ids(MASKS)
        if not known:
            raise InputError(f"this tokenizer has no mask token: expected {' or '.join(MASKS)}")
        return known[0]

    @property
    def sentinels(self) -> list[int]:
        """The ids of the sentinel tokens, which replace hidden spans, in order."""
        return self._ids(SENTINEL.format(number) for number in range(SENTINELS))

    def _ids(self, names: Iterable[str]) -> list[int]:
        ids = map(self._engine.token_to_id, names)
        return [int(token) for token in ids if token is not None]

    def spellings(self) -> dict[str, str]:
        """The names of the special tokens by role: pad, start, end and unknown."""
        return {role: str(self._engine.id_to_token(getattr(self, role))) for role in NAMES}

    def normalising(self, form: str, strip: bool) -> Tokenizer:
        """A copy that applies `data.normalise` and `data.strip` itself, for use in other libraries."""
        engine = Engine.from_str(self.to_json())
        steps = [sentencepiece.FORMS[form]] if form in sentencepiece.FORMS else []
        steps += [sentencepiece.SPACES, sentencepiece.STRIP] if strip else []
        if steps:
            own = [] if engine.normalizer is None else [engine.normalizer]
            engine.normalizer = normalizers.Sequence([*steps, *own])
        return Tokenizer(engine, complete=False)

    def add_mask(self) -> None:
        """Add a mask token if there is none; if words include the space before them, the mask does too."""
        if not self._ids(MASKS):
            self._add(MASKS[:1])

    def add_sentinels(self) -> None:
        """Add sentinel tokens unless there are two, for a span and its end; they treat spaces like the mask token."""
        if len(self.sentinels) < 2:
            self._add([SENTINEL.format(number) for number in range(SENTINELS)])

    def _add(self, names: Sequence[str]) -> None:
        before, after = self._cache.by_words, adds_space(self._engine)  # the space beside it that a token takes
        tokens = [AddedToken(each, lstrip=before, rstrip=after, special=True, normalized=False) for each in names]
        self._engine.add_special_tokens(tokens)
        self.size = max(self._engine.get_vocab(with_added_tokens=True).values()) + 1

    def encode_with(self, text: str, names: Mapping[str, int]) -> list[int]:
        """The ids of a text in which `names`, such as `[MASK]`, are tokens; everything else is text."""
        ids = list[int]()
        for number, (piece, token) in enumerate(self._around(text, names)):
            ids += self._rest(piece) if number else self.encode(piece)
            ids += [] if token is None else [token]
        return ids

    def _rest(self, text: str) -> list[int]:
        """The ids of a text that is the rest of another: if first words get a space, its first word gets none."""
        return list(safely(self._within.encode, *self._normal([text]), add_special_tokens=False).ids)

    def part(self, ids: Sequence[int]) -> str:
        """The text of some ids within a text: with the space before the first word, if it has one."""
        before = next(([token] for token in ids if self.decode([token])), ids[:1])  # a text before it, not a space
        return self.decode([*before, *ids]).removeprefix(self.decode(before))

    def filled(self, text: str, names: Mapping[str, int], fillings: Iterable[Sequence[int]]) -> str:
        """The text with each occurrence of `names` replaced by the text of some tokens."""
        return "".join(self.filled_parts(text, names, fillings))

    def filled_parts(self, text: str, names: Mapping[str, int], fillings: Iterable[Sequence[int]]) -> list[str]:
        """The same in parts: every other one, from the second on, is what an occurrence was replaced by."""
        parts, whole, tokens = list[str](), "", iter(fillings)
        for piece, token in self._around(text, names):
            parts.append(piece)
            whole += piece
            if token is not None:
                last = self.encode(whole)[-1:]  # it decides whether the next token begins with a space
                words = self.decode([*last, *next(tokens)]).removeprefix(self.decode(last))
                parts.append(words.lstrip(" ") if not whole or whole[-1].isspace() else words)
                whole += parts[-1]
        return parts

    def _around(self, text: str, names: Mapping[str, int]) -> Iterator[tuple[str, int | None]]:
        """The text before each occurrence of `names`, without a space that belongs to the token, and the token."""
        pieces = re.split("(" + "|".join(map(re.escape, names)) + ")", text)
        added = self._engine.get_added_tokens_decoder()
        for piece, after in zip(pieces[::2], [*pieces[1::2], None], strict=True):
            token = None if after is None else names[after]
            eaten = token is not None and token in added and added[token].lstrip
            yield piece.removesuffix(" ") if eaten else piece, token

    def frame(self, texts: Sequence[Sequence[str]], limit: int | None = None) -> list[list[int]]:
        """The ids of texts, or of pairs of texts, with the special tokens around and between; cut to `limit` ids."""
        normal = map(self._normal, texts)
        both = [tuple(text) if len(text) > 1 else text[0] for text in normal]
        if limit is not None:
            self._engine.enable_truncation(limit, strategy="longest_first")
        try:
            return [each.ids for each in safely(self._engine.encode_batch, both, add_special_tokens=True)]
        finally:
            self._engine.no_truncation()

    def frame_within(self, texts: Sequence[Sequence[str]], limit: int) -> tuple[list[list[int]], list[int]]:
        """The same as `frame`, and the indices of the texts that were cut; only these are encoded twice."""
        framed = self.frame(texts)
        cut = [index for index, ids in enumerate(framed) if len(ids) > limit]
        for index, ids in zip(cut, self.frame([texts[index] for index in cut], limit), strict=True):
            framed[index] = ids
        return framed, cut

    def around(self, texts: int = 1) -> tuple[list[int], ...]:
        """The special tokens of a frame: before, between and after this number of texts."""
        whole = safely(self._engine.encode, *"a" * texts, add_special_tokens=True)
        found: list[list[int]] = [[]]
        for token, text in zip(whole.ids, whole.sequence_ids, strict=True):
            if text is None:
                found[-1].append(token)
            elif text == len(found) - 1:
                found.append([])
        return tuple(found)

    def spelled(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """The ids of each text, and the first and last character position of each token."""
        if self._exact is None:
            found = safely(self._engine.encode_batch, list(texts), add_special_tokens=False)
            return [(each.ids, each.offsets) for each in found]
        normal, spans = zip(*map(self._exact.aligned, texts), strict=True) if texts else ((), ())
        found = safely(self._engine.encode_batch, list(normal), add_special_tokens=False)
        return [
            (each.ids, [covered(own, part) for part in each.offsets]) for each, own in zip(found, spans, strict=True)
        ]

    @classmethod
    def of_letters(cls, letters: str) -> Tokenizer:
        """One token per letter; its index in `letters` is its id. The first four are pad, start, end and unknown."""
        return cls(kinds.of_letters(letters), complete=False)

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """The ids of each text."""
        found = safely(self._engine.encode_batch_fast, self._normal(texts), add_special_tokens=False)
        return [each.ids for each in found]

    def encode_flat(self, texts: list[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The ids of many texts in one flat array, and the number of ids of each text; fast for a whole corpus."""
        return self._cache.encode(texts, self.encode_batch)

    def with_dropout(self, rate: float, seeds: int) -> list[Tokenizer]:
        """Copies whose `encode_flat` draws segmentations with BPE-dropout, one copy for each seed."""
        dropout, copies = BPEDropout(self._engine, rate), [copy.copy(self) for _ in range(seeds)]
        for seed, each in enumerate(copies):
            each._cache = dropout.seeded(seed)
        return copies

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids, without special tokens."""
        return str(safely(self._engine.decode, [int(i) for i in ids], skip_special_tokens=True))

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Each token as a readable text: a space is shown as ▁, bytes that are not valid text as ⟨E0 A4⟩."""
        numbers = [int(i) for i in ids]
        if new := {token for token in numbers if token not in self._shown}:
            self._shown.update(self._spelled(new))
        return [self._shown[token] for token in numbers]

    @property
    def vocabulary(self) -> list[str]:
        """Every token as a readable text, by its id; empty, where an id has no token."""
        known = set(self._engine.get_vocab(with_added_tokens=True).values())
        self.tokens(known)
        return [self._shown.get(token, "") for token in range(self.size)]

    def words(self, ids: Iterable[int]) -> list[list[int]]:
        """Which tokens are pieces of one word: the places of the tokens of each, in order; special ones are apart."""
        tokens = [int(token) for token in ids]
        special, kind = self.special, type(self._engine.decoder).__name__
        names = [str(self._engine.id_to_token(token)) for token in tokens]
        return group([None if token in special else _spelling(n, kind) for token, n in zip(tokens, names, strict=True)])

    def _spelled(self, tokens: Iterable[int]) -> Iterator[tuple[int, str]]:
        made_of_bytes, special = type(self._engine.decoder).__name__ == "ByteLevel", self.special
        for token in tokens:
            name = self._engine.id_to_token(token)
            if name is None:
                raise InputError(f"the id {token} is not in the vocabulary, which has the ids 0 to {self.size - 1}")
            text = spelled(name) if made_of_bytes and token not in special else name
            yield token, on_a_line(text.replace(" ", SPACE))


BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # how SentencePiece names a byte


def _spelling(name: str, kind: str) -> bytes:
    """The text of a token, by its name and the kind of decoder that joins such tokens, with the space before a word."""
    if kind == "ByteLevel" and all(letter in BYTES for letter in name):
        return bytes(BYTES[letter] for letter in name)
    if kind == "WordPiece":
        return (name.removeprefix("##") if name.startswith("##") else f" {name}").encode()
    if found := BYTE.fullmatch(name):
        return bytes([int(found[1], 16)])
    return name.replace(SPACE, " ").encode()
