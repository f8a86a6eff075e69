"""Static word vectors, from word counts to Word2Vec: a word has one vector in every context."""

from glassformer.static.counting import TfIdf as TfIdf
from glassformer.static.counting import bag_of_words as bag_of_words
from glassformer.static.counting import one_hot as one_hot
from glassformer.static.skipgram import skip_gram as skip_gram
from glassformer.static.vectors import Vectors as Vectors
from glassformer.static.vectors import read_vectors as read_vectors
from glassformer.static.vectors import write_vectors as write_vectors
from glassformer.static.with_gensim import gensim_vectors as gensim_vectors
from glassformer.static.words import Vocabulary as Vocabulary
from glassformer.static.words import words_of as words_of
