"""Word counts as vectors: a word is one dimension, a text is the vector of its word counts.

    one-hot         1 at the word's number, 0 elsewhere
    bag of words    the sum of the one-hot vectors of a text's words
    TF-IDF          tf · idf, divided by the norm of the vector;  idf = ln((1 + N) / (1 + df)) + 1

tf is the count of the word in the text (or 1 + ln of it: sublinear), df the number of the N texts that contain it. All
words are orthogonal: "film" is as far from "movie" as from "Tuesday"; Word2Vec does not have this defect.

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
    """The count of each vocabulary word in each text, (N, V), as a sparse tensor; other words are not counted."""
    counts = [
        Counter(number for word in cut(text) if (number := vocabulary.numbers.get(word)) is not None) for text in texts
    ]
    rows = [row for row, each in enumerate(counts) for _ in each]
    columns = [number for each in counts for number in each]
    values = torch.tensor([float(count) for each in counts for count in each.values()], dtype=torch.float64)
    indices = torch.tensor([rows, columns], dtype=torch.int64)
    return _sparse(indices, values, (len(counts), len(vocabulary)))  # (N, V)


class TfIdf:
    """Texts as vectors of their word counts, weighted by how rare each word is in the texts given first."""

    def __init__(
        self, texts: Sequence[str], cut: Cut = words_of, most: int | None = None, sublinear: bool = False
    ) -> None:
        self.vocabulary, self.cut, self.sublinear = Vocabulary.of(texts, cut, most), cut, sublinear
        bags = bag_of_words(texts, self.vocabulary, cut)
        document_frequency = torch.bincount(bags.indices()[1], minlength=len(self.vocabulary))  # (V)
        self.idf = inverse_document_frequency(document_frequency, len(texts))  # (V)

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Texts as sparse vectors of norm 1, (N, V); a text without a vocabulary word is all zeros."""
        bags = bag_of_words(texts, self.vocabulary, self.cut)
        rows, columns = bags.indices()
        values = (1 + bags.values().log() if self.sublinear else bags.values()) * self.idf[columns]
        lengths = torch.zeros(len(texts), dtype=torch.float64).index_add(0, rows, values.square()).sqrt()  # (N)
        return _sparse(bags.indices(), values / lengths[rows], bags.shape)  # (N, V)


def inverse_document_frequency(document_frequency: Tensor, texts: int) -> Tensor:
    """The weight of each word, (V), from the number of texts that contain it, (V): ln((1 + N) / (1 + df)) + 1."""
    if texts < 1:
        raise InputError("there is nothing to count: no texts")
    return ((1 + texts) / (1 + document_frequency.double())).log() + 1


def _sparse(indices: Tensor, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    return torch.sparse_coo_tensor(indices, values, shape, check_invariants=True).coalesce()
