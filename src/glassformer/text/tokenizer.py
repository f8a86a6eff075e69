"""The tokenizer: text to tokens and back, of our own making or from anybody's file."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, normalizers, processors
from tokenizers import Tokenizer as Engine

from glassformer.errors import InputError
from glassformer.recipe import Tokenizer as Section
from glassformer.text import kinds, sentencepiece
from glassformer.writing import replacing

# What the four special tokens are called, here and elsewhere; the first name is given where there is none.
NAMES = {
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<PAD>"),
    "start": ("<start>", "<s>", "[CLS]", "<bos>", "[BOS]", "<|startoftext|>", "<|begin_of_text|>"),
    "end": ("<end>", "</s>", "[SEP]", "<eos>", "[EOS]", "<|endoftext|>", "<|end_of_text|>"),
    "unknown": ("<unk>", "[UNK]", "<|unk|>", "<UNK>"),
}
GPT2_END = "<|endoftext|>"  # GPT-2 has it between texts: where nothing else does, it starts one too
MASKS = ("<mask>", "[MASK]")  # what stands for a hidden token
SENTINEL, SENTINELS = "<extra_id_{}>", 100  # what stands for hidden spans, in T5's words
FORMS = {"nfc": normalizers.NFC, "nfkc": normalizers.NFKC}  # of Unicode
SPACE = "▁"  # how a space is shown in a token
KNOWN_WORDS, KNOWN_LETTERS = 200_000, 32  # how many words, of what length, are remembered with their ids


class Tokenizer:
    """Text to token ids and back.

    `pad`, `start`, `end` and `unknown` are the ids of the special tokens, `size` is the number of ids. Encoding adds no
    special tokens, and text that spells one is only text. Special tokens that are missing are added, unless the ids are
    not ours to give (`complete=False`): then a missing one has the id 0.
    """

    def __init__(self, engine: Engine, complete: bool = True) -> None:
        engine.no_truncation()
        engine.no_padding()
        vocabulary = engine.get_vocab(with_added_tokens=True)
        named = {role: next((n for n in names if n in vocabulary), names[0]) for role, names in NAMES.items()}
        if complete:
            engine.add_special_tokens(list(named.values()))
        engine.encode_special_tokens = True  # "<end>" in a text is five letters
        self._engine = engine
        ids = {role: engine.token_to_id(name) for role, name in named.items()}
        if ids["start"] is None and named["end"] == GPT2_END:
            ids["start"] = ids["end"]
        self.pad, self.start, self.end, self.unknown = (int(ids[role] or 0) for role in NAMES)
        self._named = {int(token) for token in ids.values() if token is not None}
        self.size = max(engine.get_vocab(with_added_tokens=True).values()) + 1
        self._shown: dict[int, str] = {}
        self._by_words = _cuts_at_spaces(engine)
        self._known: dict[str, bytes] = {}  # ids of words, four bytes each

    @classmethod
    def train(cls, texts: Iterable[str], section: Section) -> Tokenizer:
        """Learn a tokenizer of the section's kind from texts."""
        return cls(kinds.train(texts, section))

    @classmethod
    def load(cls, path: Path, complete: bool = True) -> Tokenizer:
        """The tokenizer in a `tokenizer.json`, ours or anybody's, or in a SentencePiece model."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        if not data.lstrip().startswith(b"{"):
            return cls(sentencepiece.read(data, str(path)), complete)
        try:
            return cls(Engine.from_str(data.decode("utf-8")), complete)
        except Exception as error:  # the library raises nothing narrower
            raise InputError(f"{path}: is not a tokenizer.json that can be read: {error}") from None

    def save(self, path: Path) -> None:
        """Write a `tokenizer.json`, which `transformers` opens too; a file that was there is replaced at once."""
        with replacing(path) as new:
            new.write_text(self.to_json(), encoding="utf-8")

    def to_json(self) -> str:
        """The contents of its `tokenizer.json`."""
        return str(self._engine.to_str(pretty=True))

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """The tokenizer that `to_json` wrote."""
        return cls(Engine.from_str(text))

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        return list(self._engine.encode(text, add_special_tokens=False).ids)

    def framed(self, text: str) -> list[int]:
        """The ids of a text with the special tokens around it that the tokenizer's own file asks for."""
        return list(self._engine.encode(text, add_special_tokens=True).ids)

    def add_frame(self, ending: bool = True) -> None:
        """Let texts be framed, as `<start> text <end>` or `<start> text <end> text <end>`, if its file has no frame.

        Without an `ending` only the start is put before a text, which somebody will go on with.
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
        """The ids that stand for no text."""
        added = self._engine.get_added_tokens_decoder()
        return self._named | {token for token, facts in added.items() if facts.special}

    @property
    def mask(self) -> int:
        """The id of the token that hides another."""
        ids = [self._engine.token_to_id(name) for name in MASKS]
        known = [int(token) for token in ids if token is not None]
        if not known:
            raise InputError(f"this tokenizer has no token that hides others: neither {' nor '.join(MASKS)}")
        return known[0]

    @property
    def sentinels(self) -> list[int]:
        """The ids of the tokens that stand for hidden spans, first to last."""
        ids = [self._engine.token_to_id(SENTINEL.format(number)) for number in range(SENTINELS)]
        return [int(token) for token in ids if token is not None]

    def spellings(self) -> dict[str, str]:
        """How the special tokens are spelled, by role: pad, start, end and unknown."""
        return {role: str(self._engine.id_to_token(getattr(self, role))) for role in NAMES}

    def normalising(self, form: str, strip: bool) -> Tokenizer:
        """A copy whose own file does to a text what `data.normalise` and `data.strip` do, for others to use."""
        engine = Engine.from_str(self._engine.to_str())
        steps = [FORMS[form]()] if form in FORMS else []
        steps += [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()] if strip else []
        own = [] if engine.normalizer is None else [engine.normalizer]
        if steps:
            engine.normalizer = normalizers.Sequence([*steps, *own])
        return Tokenizer(engine, complete=False)

    def add_mask(self) -> None:
        """Add a token that hides others, if there is none; where words bring their space along, it hides that too."""
        if all(self._engine.token_to_id(name) is None for name in MASKS):
            self._add([AddedToken(MASKS[0], lstrip=self._by_words, special=True, normalized=False)])

    def add_sentinels(self) -> None:
        """Add tokens that stand for hidden spans, if there are none; they take spaces as a mask does."""
        if not self.sentinels:
            names = [SENTINEL.format(number) for number in range(SENTINELS)]
            self._add([AddedToken(name, lstrip=self._by_words, special=True, normalized=False) for name in names])

    def _add(self, tokens: list[AddedToken]) -> None:
        self._engine.add_special_tokens(tokens)
        self.size = max(self._engine.get_vocab(with_added_tokens=True).values()) + 1

    def encode_with(self, text: str, names: Mapping[str, int]) -> list[int]:
        """The ids of a text in which some names stand for tokens, such as `[MASK]`; all else is text."""
        ids = list[int]()
        for piece, token in self._around(text, names):
            ids += self.encode(piece)
            ids += [] if token is None else [token]
        return ids

    def filled(self, text: str, names: Mapping[str, int], fillings: Iterable[Sequence[int]]) -> str:
        """The text with what tokens spell in place of each of the names; all else stays as it is written."""
        whole, tokens = "", iter(fillings)
        for piece, token in self._around(text, names):
            whole += piece
            if token is not None:
                last = self.encode(whole)[-1:]  # it decides whether a space comes next
                words = self.decode([*last, *next(tokens)]).removeprefix(self.decode(last))
                whole += words.lstrip(" ") if not whole or whole[-1].isspace() else words
        return whole

    def _around(self, text: str, names: Mapping[str, int]) -> Iterator[tuple[str, int | None]]:
        """What stands before each of the names in a text, without the space that is the name's, and its token."""
        pieces = re.split("(" + "|".join(map(re.escape, names)) + ")", text)
        added = self._engine.get_added_tokens_decoder()
        for piece, after in zip(pieces[::2], [*pieces[1::2], None], strict=True):
            token = None if after is None else names[after]
            eaten = token is not None and token in added and added[token].lstrip
            yield piece.removesuffix(" ") if eaten else piece, token

    def frame(self, texts: Sequence[Sequence[str]], limit: int | None = None) -> list[list[int]]:
        """The ids of texts, or of pairs of texts, with the special tokens around and between; cut to the limit."""
        both = [tuple(text) if len(text) > 1 else text[0] for text in texts]
        if limit is not None:
            self._engine.enable_truncation(limit, strategy="longest_first")
        try:
            return [each.ids for each in self._engine.encode_batch(both, add_special_tokens=True)]
        finally:
            self._engine.no_truncation()

    def frame_within(self, texts: Sequence[Sequence[str]], limit: int) -> tuple[list[list[int]], list[int]]:
        """The same, and which of them had to be cut, by their places; only these are read twice."""
        framed = self.frame(texts)
        cut = [place for place, ids in enumerate(framed) if len(ids) > limit]
        for place, ids in zip(cut, self.frame([texts[place] for place in cut], limit), strict=True):
            framed[place] = ids
        return framed, cut

    def around(self, texts: int = 1) -> tuple[list[int], ...]:
        """The special tokens that a frame has before, between and after so many texts."""
        whole = self._engine.encode(*"a" * texts, add_special_tokens=True)  # type: ignore[misc]
        found: list[list[int]] = [[]]
        for token, text in zip(whole.ids, whole.sequence_ids, strict=True):
            if text is None:
                found[-1].append(token)
            elif text == len(found) - 1:
                found.append([])
        return tuple(found)

    def spelled(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """The ids of each text, and from which to which character of it each token stands."""
        return [(each.ids, each.offsets) for each in self._engine.encode_batch(list(texts), add_special_tokens=False)]

    @classmethod
    def of_letters(cls, letters: str) -> Tokenizer:
        """One token a letter, whose place in `letters` is its id; the first four are pad, start, end and unknown."""
        return cls(kinds.of_letters(letters), complete=False)

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """The ids of each text."""
        return [each.ids for each in self._engine.encode_batch_fast(texts, add_special_tokens=False)]

    def encode_flat(self, texts: list[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The ids of many texts end to end, and how many are each text's: the quick way for a corpus.

        Where the tokens of a text are those of its words, each word is encoded once and remembered.
        """
        pieces = [_words(text) for text in texts] if self._by_words else [[text] for text in texts]
        different, known = set(chain.from_iterable(pieces)), self._known
        found = {piece: known[piece] for piece in different if piece in known}
        new = list(different - found.keys())
        found.update((text, _packed(ids)) for text, ids in zip(new, self.encode_batch(new), strict=True))
        if self._by_words and len(known) < KNOWN_WORDS:
            known.update((piece, found[piece]) for piece in new if len(piece) <= KNOWN_LETTERS)
        packed = [b"".join([found[piece] for piece in each]) for each in pieces]
        lengths = np.fromiter(map(len, packed), np.int64, len(packed)) // 4
        return np.frombuffer(b"".join(packed), np.uint32), lengths

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids, without the special ones."""
        return str(self._engine.decode([int(i) for i in ids], skip_special_tokens=True))

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Each token by itself, for people to read: a space is shown as ▁, bytes that are no letter as ⟨E0 A4⟩."""
        return [self._show(int(i)) for i in ids]

    def _show(self, token: int) -> str:
        if token not in self._shown:
            name = self._engine.id_to_token(token)
            if name is None:
                raise InputError(f"the id {token} is not among the tokenizer's ids 0 to {self.size - 1}")
            plain = name if token in self.special else self._spelt(name)
            self._shown[token] = on_a_line(plain.replace(" ", SPACE))
        return self._shown[token]

    def _spelt(self, name: str) -> str:
        """A token's name with its letters for bytes turned into the bytes' text, if it has such letters."""
        if not self._made_of_bytes or any(letter not in BYTES for letter in name):
            return name
        data = bytes(BYTES[letter] for letter in name)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return f"⟨{data.hex(' ').upper()}⟩"

    @property
    def _made_of_bytes(self) -> bool:
        return "ByteLevel" in str(type(self._engine.decoder).__name__)


BYTES = {letter: byte for byte, letter in enumerate(kinds.byte_letters())}


def on_a_line(text: str) -> str:
    """A text that ends no line and no column, for people to read."""
    return text.replace("\n", "⏎").replace("\r", "␍").replace("\t", "⇥")


def _packed(ids: list[int]) -> bytes:
    return array("I", ids).tobytes()


def _words(text: str) -> list[str]:
    """A text cut before each space; whole, if it has other spaces than single ones between words."""
    words = text.split(" ")
    if len(words) < 2 or words != text.split():
        return [text]
    return [words[0], *[f" {word}" for word in words[1:]]]


def _cuts_at_spaces(engine: Engine) -> bool:
    """Whether a text's tokens are those of its words, each with the space before it."""
    state = json.loads(engine.to_str())
    cutter = state["pre_tokenizer"] or {}
    ordinary = [token for token in state["added_tokens"] if not token["special"]]
    if ordinary or (state["normalizer"] or {"type": "Lowercase"})["type"] != "Lowercase":
        return False
    if cutter.get("type") == "ByteLevel":
        return bool(cutter["use_regex"]) and not cutter["add_prefix_space"]
    return bool(cutter.get("type") == "Split" and cutter["pattern"] == {"Regex": kinds.WORD_PATTERN})
