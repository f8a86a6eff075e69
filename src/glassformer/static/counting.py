"""Counting: a word is a place, a text is how often each word is in it, weighed by how rare the word is elsewhere.

    one-hot         1 at the word's number, 0 elsewhere
    bag of words    the sum of its words' one-hot vectors
    TF-IDF          tf · idf, divided by its length;  idf = ln((1 + N) / (1 + df)) + 1

tf is how often the word is in the text (or 1 + ln of it: sublinear), df in how many of the N texts it is. All words are
at right angles: "film" is no nearer to "movie" than to "Tuesday", which is what Word2Vec is for.

N texts, V words
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.static.words import Cut, Vocabulary, words_of


def one_hot(words: Sequence[str], vocabulary: Vocabulary) -> Tensor:
    """Each word as a vector with a single 1, (N, V)."""
    table = torch.zeros(len(words), len(vocabulary), dtype=torch.float64)
    table[torch.arange(len(words)), [vocabulary.number(word) for word in words]] = 1
    return table  # (N, V)


def bag_of_words(texts: Iterable[str], vocabulary: Vocabulary, cut: Cut = words_of) -> Tensor:
    """How often each known word is in each text, (N, V); sparse, since most are in few. Others are not counted."""
    counts = [
        Counter(number for word in cut(text) if (number := vocabulary.numbers.get(word)) is not None) for text in texts
    ]
    rows = [row for row, each in enumerate(counts) for _ in each]
    columns = [number for each in counts for number in each]
    values = torch.tensor([float(count) for each in counts for count in each.values()], dtype=torch.float64)
    places = torch.tensor([rows, columns], dtype=torch.int64)
    return _sparse(places, values, (len(counts), len(vocabulary)))  # (N, V)


class TfIdf:
    """Texts as vectors of their words, each weighed by how rare it is among the texts that this was taught with."""

    def __init__(
        self, texts: Sequence[str], cut: Cut = words_of, most: int | None = None, sublinear: bool = False
    ) -> None:
        self.vocabulary, self.cut, self.sublinear = Vocabulary.of(texts, cut, most), cut, sublinear
        bags = bag_of_words(texts, self.vocabulary, cut)
        within = torch.bincount(bags.indices()[1], minlength=len(self.vocabulary))  # (V)
        self.idf = inverse_document_frequency(within, len(texts))  # (V)

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Texts as vectors of length 1, (N, V), sparse; one without a known word is all zeros."""
        bags = bag_of_words(texts, self.vocabulary, self.cut)
        rows, columns = bags.indices()
        values = (1 + bags.values().log() if self.sublinear else bags.values()) * self.idf[columns]
        lengths = torch.zeros(len(texts), dtype=torch.float64).index_add(0, rows, values.square()).sqrt()  # (N)
        return _sparse(bags.indices(), values / lengths[rows], bags.shape)  # (N, V)


def inverse_document_frequency(within: Tensor, texts: int) -> Tensor:
    """How much a word says, (V), by the number of texts that have it, (V): ln((1 + N) / (1 + df)) + 1."""
    if texts < 1:
        raise InputError("there is nothing to count: no text")
    return ((1 + texts) / (1 + within.double())).log() + 1


def _sparse(places: Tensor, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    return torch.sparse_coo_tensor(places, values, shape, check_invariants=True).coalesce()
