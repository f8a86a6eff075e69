"""Recurrent models: what came before the Transformer, from the same parts around another middle.

B batch, T length, D model width, V vocabulary, C classes
"""

from __future__ import annotations

import math
from typing import Literal

from torch import nn

from glassformer.errors import ConfigurationError
from glassformer.models.decoder_only import DecoderOnly
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.encoder_only import EncoderOnly
from glassformer.models.family import family
from glassformer.parts.alignment import Alignment, MultiplicativeScore, Score
from glassformer.parts.checks import check_positive
from glassformer.parts.embeddings import Embedding, Head, TiedHead
from glassformer.parts.heads import Scores
from glassformer.parts.recurrent import LSTM, Cell, Recurrent
from glassformer.parts.recurrent_stacks import RecurrentDecoder, RecurrentEncoder, each_word, everything, the_end

Answer = Literal["target", "next", "classes", "tags", "vectors"]
RecurrentModel = EncoderDecoder | DecoderOnly | EncoderOnly


@family
def recurrent(
    vocabulary: int,
    width: int = 256,
    layers: int = 1,
    dropout: float = 0.1,
    *,
    answer: Answer = "target",
    cell: type[Cell] = LSTM,
    attention: Score | None = MultiplicativeScore,
    bidirectional: bool = False,
    classes: int = 2,
    target_vocabulary: int | None = None,
    truncate: int | None = None,
    tie_source: bool = True,
    tie_output: bool = True,
) -> RecurrentModel:
    """A model of recurrent layers, which answers with

    - the words of a `target` (B, T, V): an encoder reads the source, a decoder begins with its last states and writes.
      With `attention` it looks back at all of the source's words; without, these states are all it knows;
    - the `next` word after each (B, T, V), from those before: a language model, whose gradients go back `truncate`
      words at most, or all the way;
    - `classes` of the whole text (B, C), from the state when all is read;
    - `tags`, one of so many `classes` for each word (B, T, C); or its `vectors` (B, T, D).

    Where it reads both ways (`bidirectional`), each way has half the width. `tie_source` and `tie_output` share tables
    of words as in the transformer.
    """  # noqa: D400, D415
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
        return EncoderOnly(ends, Scores(width, classes, dropout))
    if answer in ("tags", "vectors"):
        each = RecurrentEncoder(source, reads(), dropout, each_word)
        return EncoderOnly(each, Scores(width, classes) if answer == "tags" else None)
    raise ConfigurationError(
        f'a recurrent model answers with "target", "next", "classes", "tags" or "vectors", not "{answer}"'
    )
