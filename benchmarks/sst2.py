"""A split of SST-2's training file like that of GLUE: whole sentences to score, and phrases of other sentences to learn from.

    python benchmarks/sst2.py glue-sst2-train.tsv.gz sst2-sentences-train.txt.gz FOLDER

For those who have the training file only. 872 whole sentences, as many as GLUE's dev.tsv has, are drawn; every phrase
that stands in one of them leaves the training file, however short, so that nothing of them is known by heart.
"""  # noqa: E501

from __future__ import annotations

import argparse
import gzip
import random
from pathlib import Path

HELD_OUT, HEADER = 872, "sentence\tlabel\n"


def split(phrases: list[tuple[str, str]], sentences: list[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """The rows (text, label) of train.tsv and dev.tsv."""
    texts = sorted(dict(sentences).items())
    random.Random(0).shuffle(texts)
    dev = texts[:HELD_OUT]
    known = {
        " ".join(words[begin:end])
        for words in (text.split() for text, _ in dev)
        for begin in range(len(words))
        for end in range(begin + 1, len(words) + 1)
    }
    return {"train": [row for row in phrases if " ".join(row[0].split()) not in known], "dev": dev}


def main() -> None:
    """Read, split, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("phrases", "sentences", "folder"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    lines = {
        each: gzip.decompress(each.read_bytes()).decode().splitlines() for each in (given.phrases, given.sentences)
    }
    phrases = [tuple(line.split("\t")) for line in lines[given.phrases][1:]]
    sentences = [tuple(reversed(line.split(" ", 1))) for line in lines[given.sentences]]
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, rows in split(phrases, sentences).items():  # type: ignore[arg-type]  # lines have two columns
        text = HEADER + "".join(f"{text}\t{label}\n" for text, label in rows)
        (given.folder / f"{name}.tsv").write_text(text, encoding="utf-8")
        print(f"{name}.tsv: {len(rows):,} rows")


if __name__ == "__main__":
    main()
