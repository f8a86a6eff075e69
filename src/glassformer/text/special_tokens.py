"""Special tokens: their names in the tokenizers of this field, and the ids that a generating model expects.

source:          source_prefix … source_suffix
decoder input:   start target_prefix …
decoder output:  target_prefix … end
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tokenizers import Tokenizer as Engine

if TYPE_CHECKING:
    from glassformer.text.tokenizer import Tokenizer

# The first name of each role is used where a tokenizer has none of them.
NAMES = {
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<PAD>"),
    "start": ("<start>", "<s>", "[CLS]", "<bos>", "[BOS]", "<|startoftext|>", "<|begin_of_text|>"),
    "end": ("<end>", "</s>", "[SEP]", "<eos>", "[EOS]", "<|endoftext|>", "<|end_of_text|>"),
    "unknown": ("<unk>", "[UNK]", "<|unk|>", "<UNK>"),
}
GPT2_END = "<|endoftext|>"  # GPT-2 puts it between texts: without another start token, it is the start token too
MASKS = ("<mask>", "[MASK]")  # the token that replaces a hidden token
SENTINEL, SENTINELS = "<extra_id_{}>", 100  # the tokens that replace hidden spans, as in T5


def ids_by_role(engine: Engine, complete: bool) -> dict[str, int | None]:
    """The ids of pad, start, end and unknown; missing tokens are added if `complete`, else their id is None."""
    vocabulary = engine.get_vocab(with_added_tokens=True)
    named = {role: next((n for n in names if n in vocabulary), names[0]) for role, names in NAMES.items()}
    if complete:
        engine.add_special_tokens(list(named.values()))
    ids = {role: engine.token_to_id(name) for role, name in named.items()}
    if ids["start"] is None and named["end"] == GPT2_END:
        ids["start"] = ids["end"]
    return ids


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of the special tokens of a generating model.

    `start` is the first input of the decoder, `end` ends an output, as does any of `other_ends`; `pad` fills rows. The
    ids in `suppressed` and the sequences in `suppressed_sequences` are never generated; `forced_first` and
    `forced_last` are the first token of an output and the last one of an output of the maximum length. Every source
    stands between `source_prefix` and `source_suffix`; every target begins with `target_prefix`, which the model
    generates like the other tokens.
    """

    start: int
    end: int
    pad: int
    suppressed: list[int] = field(default_factory=list)
    source_prefix: list[int] = field(default_factory=list)
    source_suffix: list[int] = field(default_factory=list)
    target_prefix: list[int] = field(default_factory=list)
    other_ends: list[int] = field(default_factory=list)
    suppressed_sequences: list[list[int]] = field(default_factory=list)
    forced_first: int | None = None
    forced_last: int | None = None

    def room(self, limit: int) -> int:
        """How many tokens of a source or target text fit into `limit` tokens together with the special ones."""
        return max(1, limit - max(len(self.source_prefix) + len(self.source_suffix), len(self.target_prefix)))


def own_special_tokens(source: Tokenizer, target: Tokenizer, alone: bool = False) -> SpecialTokens:
    """The special tokens of a model trained from scratch.

    Sources have no prefix and no suffix; with `alone` (a decoder-only model), a text begins with the start token.
    """
    suppressed = sorted(target.special - {target.end})
    prefix = [source.start] if alone else []
    return SpecialTokens(target.start, target.end, source.pad, suppressed, source_prefix=prefix)


def framed_special_tokens(special: SpecialTokens, source: Tokenizer, target: Tokenizer) -> SpecialTokens:
    """The special tokens of a checkpoint, with prefixes and suffixes as the files of its tokenizers define them.

    The start token is not repeated in `target_prefix`, because the decoder reads it anyway; nor is the end token.
    """
    source_prefix, source_suffix = source.around()
    target_prefix, _ = target.around()
    if target_prefix[:1] == [special.start]:
        target_prefix = target_prefix[1:]
    return replace(special, source_prefix=source_prefix, source_suffix=source_suffix, target_prefix=target_prefix)
