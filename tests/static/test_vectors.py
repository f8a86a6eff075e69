"""Vectors of words: neighbours, analogies, and files that gensim reads and writes."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from glassformer.errors import ConfigurationError, DataError, InputError
from glassformer.static import Vectors, read_vectors, write_vectors
from glassformer.static.vectors import make_vectors

WORDS = ["king", "queen", "man", "woman", "apple"]
SMALL = make_vectors(WORDS, np.array([[1, 1, 0], [1, -1, 0], [0, 1, 0], [0, -1, 0], [0.1, 0, 1]]))


def random(count: int, width: int = 8) -> Vectors:
    names = [f"w{number}" for number in range(count)]
    return make_vectors(names, np.random.default_rng(0).normal(size=(count, width)))


def test_neighbours_and_analogies_by_hand() -> None:
    assert [each.word for each in SMALL.near("king", 2)] == ["man", "apple"]
    assert SMALL.near("king", 1)[0].similarity == pytest.approx(0.5**0.5, abs=1e-6)
    assert SMALL.analogy("king", "man", "woman")[0].word == "queen"
    assert len(SMALL.near("king", 99)) == len(WORDS) - 1
    assert "king" in SMALL
    assert SMALL["apple"].tolist() == pytest.approx([0.1, 0, 1])


def test_an_unknown_word_gets_the_nearest_spelling() -> None:
    with pytest.raises(InputError, match=r"'quen' has no vector: did you mean queen\?"):
        SMALL.near("quen")
    with pytest.raises(InputError, match="'xyz' has no vector: there are 5 other words"):
        SMALL.analogy("king", "man", "xyz")
    with pytest.raises(ConfigurationError, match="at least 1, not 0"):
        SMALL.near("king", 0)


def test_neighbours_and_analogies_are_gensims() -> None:
    models = pytest.importorskip("gensim.models", reason="the extra `vectors` is not installed")
    ours = random(60)
    theirs = models.KeyedVectors(8)
    theirs.add_vectors(ours.vocabulary.words, ours.table)
    near, expected = ours.near("w7"), theirs.most_similar("w7", topn=10)
    assert [each.word for each in near] == [word for word, _ in expected]
    assert [each.similarity for each in near] == pytest.approx([value for _, value in expected], abs=1e-6)
    found = ours.analogy("w1", "w2", "w3")
    assert [each.word for each in found] == [w for w, _ in theirs.most_similar(["w1", "w3"], ["w2"], topn=10)]


@given(arrays.arrays(np.float32, (3, 4), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_a_file_gives_back_every_bit(tmp_path_factory: pytest.TempPathFactory, table: NDArray[np.float32]) -> None:
    path = tmp_path_factory.mktemp("vectors") / "v.txt"
    write_vectors(make_vectors(["a", "दिल्ली", "c\u00a0d"], table), path)
    back = read_vectors(path)
    assert back.vocabulary.words == ["a", "दिल्ली", "c\u00a0d"]
    assert back.table.tobytes() == table.tobytes()


def test_gensim_reads_what_we_write_and_we_what_it_writes(tmp_path: Path) -> None:
    models = pytest.importorskip("gensim.models", reason="the extra `vectors` is not installed")
    ours = make_vectors([*WORDS, "été", "दिल्ली"], np.random.default_rng(1).normal(size=(7, 5)))
    write_vectors(ours, tmp_path / "ours.txt")
    theirs = models.KeyedVectors.load_word2vec_format(str(tmp_path / "ours.txt"))
    assert theirs.index_to_key == ours.vocabulary.words
    assert theirs.vectors.tobytes() == ours.table.tobytes()
    theirs.save_word2vec_format(str(tmp_path / "theirs.txt"))
    back = read_vectors(tmp_path / "theirs.txt")
    assert back.vocabulary.words == ours.vocabulary.words
    assert back.table.tobytes() == ours.table.tobytes()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", ":1: '' is not a header"),
        (b"king 1 2\n", ":1: 'king 1 2' is not a header"),
        (b"0 3\n", ":1: '0 3' is not a header"),
        (b"2 2\nking 1 2\nqueen 1\n", ":3: 1 numbers after 'queen': expected 2"),
        (b"2 2\nking 1 2\nqueen 1 x\n", ":3: could not convert string to float"),
        (b"2 2\nking 1 2\nqueen 1 nan\n", ":3: the vector of 'queen' has a value that is not finite"),
        (b"2 2\nking 1 2\n\xff\xfe 1 2\n", r":3: is not UTF-8 text \(byte 0\)"),
        (b"1 2\nking 1 2\nqueen 1 2\n", ":3: too many vectors: the first line says 1"),
        (
            b"999999999999999 2\nking 1 2\n",
            ":2: the file ends after 1 vectors: the first line says 999,999,999,999,999",
        ),
        (b"3 2\nking 1 2\nqueen 1 2\n", ":3: the file ends after 2 vectors: the first line says 3"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: bytes, complaint: str) -> None:
    path = tmp_path / "v.txt"
    path.write_bytes(text)
    with pytest.raises(DataError, match=f"^{re.escape(str(path))}{complaint}"):
        read_vectors(path)


def test_a_word_that_comes_twice_has_its_first_vector(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("3 1\na 1\nb 2\na 3\n", encoding="utf-8")
    back = read_vectors(tmp_path / "v.txt")
    assert (back.vocabulary.words, back.table.tolist()) == (["a", "b"], [[1], [2]])


def test_what_cannot_be_written_or_read_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="'new york' cannot be written"):
        write_vectors(make_vectors(["new york"], np.ones((1, 2))), tmp_path / "v.txt")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_vectors(tmp_path / "none.txt")
