"""Static representations: from counting words to Word2Vec. A word has one vector, whatever stands around it."""

from glassformer.static.counting import TfIdf, bag_of_words, one_hot
from glassformer.static.skipgram import skip_gram
from glassformer.static.vectors import Neighbour, Vectors, read_vectors, write_vectors
from glassformer.static.with_gensim import gensim_vectors
from glassformer.static.words import Vocabulary, words_of

__all__ = [
    "Neighbour",
    "TfIdf",
    "Vectors",
    "Vocabulary",
    "bag_of_words",
    "gensim_vectors",
    "one_hot",
    "read_vectors",
    "skip_gram",
    "words_of",
    "write_vectors",
]
