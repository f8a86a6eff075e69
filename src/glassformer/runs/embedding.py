"""What a model reads with: its input embedding may begin as word vectors, and stay so.

A table from elsewhere is scaled as a whole to the size of the fresh one, which the parts above it are made for; how its
vectors stand to each other stays.

V vocabulary, D model width
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.data import Rows as TokenRows
from glassformer.errors import ConfigurationError
from glassformer.parts import Embedding
from glassformer.recipe.model import FreshReader
from glassformer.static import read_vectors
from glassformer.static.counting import inverse_document_frequency
from glassformer.text import SPACE, Tokenizer

Rows = tuple[list[int], Tensor]  # numbers of tokens, and the vector of each


@dataclass(frozen=True)
class Filled:
    """How many tokens of a vocabulary got a vector from elsewhere."""

    name: str
    found: int
    of: int
    learns: bool

    def __str__(self) -> str:
        """A sentence about it."""
        others = "" if self.found == self.of else ", the others begin at random"
        return (
            f"embeddings: {self.found:,} of {self.of:,} tokens have a vector of {self.name}{others}; "
            f"{'they learn' if self.learns else 'they stay as they are'}"
        )


def fill(model: nn.Module, section: FreshReader, tokenizer: Tokenizer, pairs: TokenRows) -> Filled:
    """Give the embedding that a model reads with the vectors that the recipe names; freeze it if it says so."""
    name = str(section.embeddings)
    embedding = next(part for part in model.modules() if isinstance(part, Embedding))
    numbers, rows = TABLES.get(name, _from_file)(name, embedding, tokenizer, pairs)
    theirs = rows.square().sum(dim=1).mean().sqrt()
    if not theirs > 0:
        raise ConfigurationError(f"model.embeddings: all vectors in {name} that the tokenizer knows are zero")
    with torch.no_grad():
        size = embedding.weight.square().sum(dim=1).mean().sqrt()
        embedding.weight[numbers] = rows.to(embedding.weight) * (size / theirs.to(size))
    embedding.weight.requires_grad_(section.embeddings_learn)
    shown = name if name in TABLES else Path(name).name
    return Filled(shown, len(numbers), tokenizer.size, section.embeddings_learn)


def _from_file(name: str, embedding: Embedding, tokenizer: Tokenizer, pairs: TokenRows) -> Rows:
    """The vectors of those tokens that are words of a file, as they are or in lower case."""
    vectors = read_vectors(Path(name))
    if vectors.width != embedding.width:
        raise ConfigurationError(
            f"model.width is {embedding.width}, but the vectors in {name} have {vectors.width} numbers: "
            f"set model.width to {vectors.width}"
        )
    found: dict[int, int] = {}
    for token in set(range(tokenizer.size)) - tokenizer.special:
        word = tokenizer.tokens([token])[0].strip(SPACE)
        known = next((each for each in (word, word.lower()) if each in vectors), None)
        if known is not None:
            found[token] = vectors.vocabulary.number(known)
    if not found:
        raise ConfigurationError(f"model.embeddings: none of the tokenizer's tokens has a vector in {name}")
    return list(found), torch.from_numpy(vectors.table[list(found.values())])


def _one_hot(name: str, embedding: Embedding, tokenizer: Tokenizer, pairs: TokenRows) -> Rows:
    """A single 1 for each token, at its own number; places beyond the vocabulary stay 0."""
    if embedding.width < tokenizer.size:
        raise ConfigurationError(
            f"model.width is {embedding.width}, but {name} vectors of {tokenizer.size} tokens need {tokenizer.size} "
            "places or more: raise model.width, or lower tokenizer.vocabulary"
        )
    return list(range(tokenizer.size)), torch.eye(tokenizer.size, embedding.width)  # (V, D)


def _tf_idf(name: str, embedding: Embedding, tokenizer: Tokenizer, pairs: TokenRows) -> Rows:
    """The same, times how rare the token is among the texts in training."""
    within = np.zeros(tokenizer.size, np.int64)  # texts that have each token, (V)
    for texts, tokens in pairs.blocks(0):
        once = np.unique(texts * tokenizer.size + tokens)  # each token of a text counts once
        within += np.bincount(once % tokenizer.size, minlength=tokenizer.size)
    numbers, rows = _one_hot(name, embedding, tokenizer, pairs)
    return numbers, rows * inverse_document_frequency(torch.from_numpy(within), len(pairs)).float()[:, None]


TABLES: dict[str, Callable[[str, Embedding, Tokenizer, Any], Rows]] = {"one-hot": _one_hot, "tf-idf": _tf_idf}
