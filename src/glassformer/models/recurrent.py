"""Recurrent models: what came before the Transformer, from the same parts around another middle.

B batch, T length, D model width, V vocabulary, C classes
"""

from __future__ import annotations

import math
from typing import Literal

from torch import nn

from glassformer.errors import ConfigurationError
from glassformer.models.family import family
from glassformer.models.shapes import DecoderOnly, EncoderDecoder, EncoderOnly
from glassformer.parts.alignment import Alignment, MultiplicativeScore, ScoreKind
from glassformer.parts.checks import check_positive
from glassformer.parts.embeddings import Embedding, Head, TiedHead
from glassformer.parts.heads import Classifier
from glassformer.parts.recurrent import LSTM, CellKind, Recurrent
from glassformer.parts.recurrent_stacks import RecurrentDecoder, RecurrentEncoder, each_word, everything, the_end

Answer = Literal["target", "next", "classes", "tags", "vectors"]
RecurrentModel = EncoderDecoder | DecoderOnly | EncoderOnly


@family(
    only={
        "attention": ("target",),
        "bidirectional": ("target", "classes", "tags", "vectors"),
        "tie_output": ("target", "next"),
        "tie_source": ("target",),
        "truncate": ("next",),
    }
)
def recurrent(
    vocabulary: int,
    width: int = 256,
    layers: int = 1,
    dropout: float = 0.1,
    *,
    answer: Answer = "target",
    cell: CellKind = LSTM,
    attention: ScoreKind = MultiplicativeScore,
    bidirectional: bool = False,
    classes: int = 2,
    target_vocabulary: int | None = None,
    truncate: int | None = None,
    tie_source: bool = True,
    tie_output: bool = True,
) -> RecurrentModel:
    """A model of recurrent layers: RNN, GRU or LSTM.

    It answers with

    - the words of a `target` (B, T, V): an encoder reads the source, a decoder begins with its last states and writes.
      With `attention` it looks back at all of the source's words; without, these states are all it knows;
    - the `next` word after each (B, T, V), from those before: a language model, whose gradients go back `truncate`
      words at most, or all the way;
    - `classes` of the whole text (B, C), from the state when all is read;
    - `tags`, one of so many `classes` for each word (B, T, C); or its `vectors` (B, T, D).

    Where it is `bidirectional`, each direction has half of the width. `tie_source` and `tie_output` share tables
    of words as in the transformer.
    """
    check_positive(width=width, layers=layers)
    if bidirectional and width % 2:
        raise ConfigurationError(f"width {width} does not divide into two directions: make it even")

    def embed(vocabulary: int) -> Embedding:
        return Embedding(vocabulary, width, scale=math.sqrt(width), dropout=dropout)

    def reads() -> Recurrent:
        return Recurrent(cell, width, width // 2 if bidirectional else width, layers, bidirectional, dropout)

    def head(embedding: Embedding) -> nn.Module:
        return TiedHead(embedding, bias=True) if tie_output else Head(width, embedding.vocabulary, bias=True)

    source = embed(vocabulary)
    if answer == "target":
        target = source if tie_source else embed(target_vocabulary or vocabulary)
        if target.vocabulary != (target_vocabulary or vocabulary):
            raise ConfigurationError(
                f"source and target cannot share an embedding: their vocabularies have {vocabulary} and "
                f"{target_vocabulary} tokens; pass tie_source=False"
            )
        looks = None if attention is None else Alignment(width, width, attention)
        writes = Recurrent(cell, width, width, layers, dropout=dropout)
        encoder = RecurrentEncoder(source, reads(), dropout, everything)
        return EncoderDecoder(encoder, RecurrentDecoder(target, writes, looks, dropout), head(target))
    if answer == "next":
        return DecoderOnly(RecurrentDecoder(source, reads(), None, dropout, truncate), head(source))
    if answer == "classes":
        ends = RecurrentEncoder(source, reads(), dropout, the_end)
        return EncoderOnly(ends, Classifier(None, width, classes, dropout))
    if answer in ("tags", "vectors"):
        each = RecurrentEncoder(source, reads(), dropout, each_word)
        return EncoderOnly(each, Classifier(None, width, classes) if answer == "tags" else None)
    raise ConfigurationError(
        f'a recurrent model answers with "target", "next", "classes", "tags" or "vectors", not "{answer}"'
    )
