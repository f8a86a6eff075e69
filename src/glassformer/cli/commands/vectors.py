"""Vectors of words: `vectors train`, `vectors near`, `vectors analogy`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer.cli.app import STUDY, app
from glassformer.cli.options import AsJson, Seed, check_new_file, count, lines_of, out, path_of
from glassformer.errors import ConfigurationError

VectorFile = Annotated[Path, typer.Argument(metavar="VECTORS", parser=path_of, help="a file in word2vec's text format")]
Top = Annotated[int, count("how many words")]
WITH = ("ours", "gensim")

vectors = typer.Typer(no_args_is_help=True, help="Train vectors of words; find neighbours and analogies.")
app.add_typer(vectors, name="vectors", rich_help_panel=STUDY)


@vectors.command()
def train(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", parser=lines_of, help="texts, plain, .gz or .xz; -: standard input")
    ],
    file: Annotated[Path, out("where the vectors go, in word2vec's text format", metavar="FILE")],
    program: Annotated[
        str, typer.Option("--with", metavar="NAME", help="ours, or gensim (the extra `vectors`)")
    ] = "ours",
    width: Annotated[int, count("numbers in a vector")] = 100,
    window: Annotated[int, count("neighbours on each side at most")] = 5,
    negatives: Annotated[int, count("random words for each neighbour")] = 5,
    epochs: Annotated[int, count("passes over the text")] = 5,
    least: Annotated[int, count("occurrences that a word needs to get a vector")] = 5,
    sample: Annotated[
        float,
        typer.Option(
            metavar="X",
            help="occurrences of words that are more than this fraction of a text are skipped at random, the more "
            "frequent the more often; 0: none",
        ),
    ] = 1e-3,
    capitals: Annotated[bool, typer.Option("--capitals", metavar="", help="King and king are different words")] = False,
    seed: Seed = 0,
) -> None:
    """Train a vector for each word of a text: Word2Vec, skip-gram with negative sampling. A line is a sentence.

    - `glassformer vectors train plays.txt --out vectors.txt`
    - `glassformer vectors train small.txt --out vectors.txt --sample 0 --epochs 20`
    - `glassformer vectors train wiki.txt.gz --out vectors.txt --with gensim --width 300`
    """
    if program not in WITH:
        raise ConfigurationError(f'--with is "{program}": expected {" or ".join(WITH)}')
    check_new_file(file, "vectors.txt")
    from glassformer.cli.items import read_lines
    from glassformer.cli.showing import bar, say
    from glassformer.static import gensim_vectors, skip_gram, words_of, write_vectors
    from glassformer.static.skipgram import Settings

    settings = Settings(width, window, negatives, epochs, least, sample, seed)
    sentences = [words_of(line, not capitals) for name in files for line in read_lines(name)]
    with bar("learning vectors", 2) as progress:
        learn: Any = gensim_vectors if program == "gensim" else skip_gram
        found = learn(sentences, settings, progress=progress)
    write_vectors(found, file)
    tokens = sum(map(len, sentences))
    say(f"{file}: {len(found):,} words of {found.width} numbers, learned from {tokens:,} words of text")


@vectors.command()
def near(
    file: VectorFile,
    words: Annotated[list[str], typer.Argument(metavar="WORD", help="words to find the neighbours of")],
    top: Top = 10,
    as_json: AsJson = False,
) -> None:
    """The words nearest to each word, and the cosine of the angle between them.

    - `glassformer vectors near vectors.txt king`
    - `glassformer vectors near vectors.txt king queen --top 3 --json`
    """
    from glassformer.static import read_vectors

    known = read_vectors(file)
    found = {word: known.near(word, top) for word in words}
    if as_json:
        facts = {word: _facts(each) for word, each in found.items()}
        sys.stdout.write(json.dumps(facts, ensure_ascii=False) + "\n")
        return
    for word, neighbours in found.items():
        for each in neighbours:
            first = f"{word}\t" if len(found) > 1 else ""
            sys.stdout.write(f"{first}{each.word}\t{each.similarity:.4f}\n")


@vectors.command()
def analogy(
    file: VectorFile,
    start: Annotated[str, typer.Argument(metavar="A", help="the word to start from")],
    minus: Annotated[str, typer.Argument(metavar="B", help="the word to subtract")],
    plus: Annotated[str, typer.Argument(metavar="C", help="the word to add")],
    top: Top = 10,
    as_json: AsJson = False,
) -> None:
    """Complete an analogy, A is to B as what is to C: the words nearest to A - B + C.

    - `glassformer vectors analogy vectors.txt king man woman`
    """
    from glassformer.static import read_vectors

    found = read_vectors(file).analogy(start, minus, plus, top)
    if as_json:
        sys.stdout.write(json.dumps(_facts(found), ensure_ascii=False) + "\n")
        return
    for each in found:
        sys.stdout.write(f"{each.word}\t{each.similarity:.4f}\n")


def _facts(found: list[Any]) -> list[dict[str, Any]]:
    return [{"word": each.word, "similarity": each.similarity} for each in found]
