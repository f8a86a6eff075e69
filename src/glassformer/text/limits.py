"""Limits: what a tokenizer's file may ask for. It is not code, but it can ask for endless time and memory.

A pattern may repeat what repeats itself, a replacement may double a text forty times, an id may ask for four thousand
million embeddings. What real tokenizers hold is far within these limits.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from tokenizers import Tokenizer as Engine

from glassformer.errors import InputError

MOST_BYTES = 1 << 26  # in a file
MOST_STEPS = 200  # of a normalizer, a pre-tokenizer, a decoder or a template
MOST_GROWTH = 256  # times its length that a text may grow to by replacements
MOST_LETTERS = 1_000  # in a word that is cut by trying all its beginnings, in a token, in a text that is added
MOST_MERGED = 1 << 24  # letters of all ways to join two pieces of a SentencePiece model
UNNAMED = 1 << 18  # ids without a token
UNBOUNDED = 100  # repetitions that count as endless
CLASS = r"\[\^?\]?(?:\\.|[^\[\]\\]|\[(?:\\.|[^\]\\])*\])*\]"
SIGN = re.compile(  # an escape, a class, the start of a group; or one character
    rf"\\[pP]\{{[^}}]*\}}|\\.|{CLASS}|\((?:\?(?:#[^)]*|<?[=!]|[>|~]|<\w+>|[a-zA-Z-]*:?))?|\{{\d*,?\d*\}}|.", re.DOTALL
)
Given = TypeVar("Given")


def engine_of(data: bytes, name: str) -> Engine:
    """The tokenizer in a `tokenizer.json`; InputError if it is none, or asks for too much."""
    try:
        text = data.decode("utf-8")
        check(json.loads(text))
        engine: Engine = safely(Engine.from_str, text)
        ids = engine.get_vocab(with_added_tokens=True).values()
        if ids and max(ids) > 2 * len(ids) + UNNAMED:
            raise ValueError(f"its largest id is {max(ids):,}, but it has only {len(ids):,} tokens")
    except RecursionError:
        raise InputError(f"{name}: is not a valid tokenizer.json: it is nested too deeply") from None
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"{name}: is not a valid tokenizer.json: {error}") from None
    return engine


def safely(call: Callable[..., Given], *arguments: Any, **options: Any) -> Given:
    """What a function of the library returns; InputError where it fails, or gives up, which it does by no Exception."""
    try:
        return call(*arguments, **options)
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise InputError(f"the tokenizer fails: {error}") from None


def check(state: Any) -> None:
    """Refuse, by a ValueError, the contents of a `tokenizer.json` that could take endless time or memory."""
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        steps = list(_tables(state.get(part)))
        growth = 1.0
        for step in steps:
            if "Regex" in step:
                check_pattern(str(step["Regex"]))
            if any(len(str(step.get(key, ""))) > MOST_LETTERS for key in ("content", "prepend", "prefix", "suffix")):
                raise ValueError(f"its {part} adds a text of more than {MOST_LETTERS:,} characters")
            if step.get("type") == "TemplateProcessing":
                _check_template(step)
            if step.get("type") == "Replace":
                growth *= _growth(step)
            if step.get("type") == "Precompiled":
                check_table(base64.b64decode(step.get("precompiled_charsmap") or ""))
        if growth > MOST_GROWTH:
            raise ValueError(f"the replacements of its {part} make a text more than {MOST_GROWTH} times as long")
        if len(steps) > MOST_STEPS:
            raise ValueError(f"its {part} has {len(steps):,} steps: at most {MOST_STEPS} are read")
    model = state.get("model") or {}
    if model.get("type") == "WordPiece" and model.get("max_input_chars_per_word", 100) > MOST_LETTERS:
        raise ValueError(f"its words have more than {MOST_LETTERS:,} letters (max_input_chars_per_word)")


def _check_template(step: dict[str, Any]) -> None:
    """Refuse a frame that names a special token which it does not define: the library gives up at the first text."""
    pieces = [piece for side in ("single", "pair") for piece in step.get(side) or () if isinstance(piece, dict)]
    tokens = [piece["SpecialToken"] for piece in pieces if isinstance(piece.get("SpecialToken"), dict)]
    for token in tokens:
        if token.get("id") not in (step.get("special_tokens") or {}):
            raise ValueError(f"its post_processor has no special token {token.get('id')!r}")


def _tables(value: Any) -> Iterator[dict[str, Any]]:
    """All tables in some JSON."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _tables(each)


def _growth(step: dict[str, Any]) -> float:
    """How many times as long a replacement can make a text; a pattern may find nothing, between all characters."""
    content, pattern = str(step.get("content", "")), step.get("pattern") or {}
    if "String" in pattern:
        return max(1.0, len(content) / max(1, len(str(pattern["String"]))))
    return 1.0 + len(content)


def check_table(table: bytes) -> None:
    """Refuse, by a ValueError, a damaged table of SentencePiece's normalisation, or one that makes texts long."""
    if table:
        size = struct.unpack_from("<I", table)[0] if len(table) > 4 else 0
        trie, texts = table[4 : 4 + size], table[4 + size :]
        if re.search(rb"[^\0]{%d}" % (MOST_GROWTH + 1), texts):
            raise ValueError("its normalizer replaces a character by a long text")
        if size < 4 or size % 4 or not texts.endswith(b"\0") or not _is_text(texts) or _leads_out(trie, texts):
            raise ValueError("the table of its normalizer is damaged")


def _leads_out(trie: bytes, texts: bytes) -> bool:
    """Whether a unit leads out of its trie, where followers are in blocks of 256, or a rule to no beginning of a text.

    What a unit that ends a rule is replaced by stands in the first of its followers.
    """
    units = np.frombuffer(trie, "<u4").astype(np.int64)
    values, followers = units >> 31 == 1, np.arange(len(units)) ^ (units >> 10 << ((units & 0x200) >> 6))
    if (followers[~values] | 0xFF >= len(units)).any():
        return True
    found = units[followers[~values & (units & 0x100 != 0)]]
    places = found[found >> 31 == 1] & 0x7FFFFFFF
    if len(places) < len(found) or (places >= len(texts)).any():
        return True
    return bool((np.frombuffer(texts, np.uint8)[places] & 0xC0 == 0x80).any())  # within a letter


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def check_pattern(pattern: str) -> None:
    """Refuse a pattern that repeats a group with a repetition or a choice in it: it may take exponential time."""
    open_groups, before = [False], False  # whether each holds a repetition or a choice; and whether the last group did
    for sign in SIGN.findall(pattern):
        repeated = sign in "*+" or (sign[0] == "{" and _endless(sign))
        if repeated and before:
            raise ValueError(f"its pattern {pattern[:80]!r} repeats a group with a repetition or a choice in it")
        before = False
        if sign[0] == "(":
            open_groups.append(False)
        elif sign == ")" and len(open_groups) > 1:
            before = open_groups.pop()
            open_groups[-1] |= before
        elif repeated or sign in ("?", "|"):
            open_groups[-1] = True
        elif sign.startswith("\\g"):
            raise ValueError(f"its pattern {pattern[:80]!r} calls itself")


def _endless(count: str) -> bool:
    """Whether {2,} or {2,1000} repeats without end, or nearly; {3} and {1,3} do not."""
    least, comma, most = count[1:-1].partition(",")
    return bool(comma and not most) or int(most or least or 0) > UNBOUNDED
