"""What files are is told by what is in them: the source that reads them, and the task that they are meant for."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from glassformer.errors import InputError
from glassformer.suggest.recognising import language, recognise

PAIRS = [
    (f"the cat number {number} is not in the house", f"die Katze {number} ist nicht im Haus") for number in range(40)
]
LABELS = [(f"a text with the number {number}", "good" if number % 3 else "bad") for number in range(60)]
TAGS = [(f"cat {number} sleeps here", "NOUN NUM VERB ADV") for number in range(40)]


def tsv(rows: list[tuple[str, str]], header: str = "") -> str:
    return header + "".join(f"{one}\t{two}\n" for one, two in rows)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def aligned(folder: Path) -> list[Path]:
    return [
        write(folder / f"x.{name}", "\n".join(row[side] for row in PAIRS)) for side, name in enumerate(("en", "de"))
    ]


def packed(folder: Path) -> list[Path]:
    (folder / "x.tsv.gz").write_bytes(gzip.compress(tsv(PAIRS).encode()))
    return [folder / "x.tsv.gz"]


def objects(folder: Path) -> list[Path]:
    rows = [json.dumps({"id": [1], "review": text, "stars": 1 + len(label) % 2}) for text, label in LABELS]
    return [write(folder / "x.jsonl", "\n".join(rows))]


def memory(folder: Path) -> list[Path]:
    unit = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="de-AT"><seg>{}</seg></tuv></tu>\n'
    units = "".join(unit.format(*row) for row in PAIRS)
    return [write(folder / "x.tmx", f'<?xml version="1.0"?>\n<tmx version="1.4"><header/><body>{units}</body></tmx>')]


def texts(folder: Path) -> list[Path]:
    for number in range(4):
        write(folder / f"{number % 2}" / f"{number}.txt", f"text {number}")
    return [folder]


def pictures(folder: Path) -> list[Path]:
    for number in range(20):
        (folder / f"{number % 2}").mkdir(exist_ok=True)
        Image.fromarray(np.full((4, 4), 9 * number, np.uint8)).save(folder / f"{number % 2}" / f"{number}.png")
    return [folder]


def splits(folder: Path) -> list[Path]:
    for split in ("train", "valid"):
        for side, name in enumerate(("de", "en")):
            write(folder / f"{split}.{name}", "\n".join(row[1 - side] for row in PAIRS))
    return [folder]


def documents(folder: Path) -> list[Path]:
    write(folder / "a.txt", "A text.\n")
    return [folder]


FILES: dict[str, tuple[Callable[[Path], list[Path]], str, str, dict[str, Any]]] = {
    "pairs": (lambda folder: [write(folder / "x.txt", tsv(PAIRS))], "tsv", "translation", {}),
    "packed": (packed, "tsv", "translation", {}),
    "named columns": (
        lambda folder: [write(folder / "x.tsv", tsv(LABELS, "sentence\tlabel\n"))],
        "tsv",
        "classification",
        {"header": True},
    ),
    "label first": (
        lambda folder: [write(folder / "x.tsv", tsv([row[::-1] for row in LABELS]))],
        "tsv",
        "classification",
        {"columns": [1, 0]},
    ),
    "tags": (lambda folder: [write(folder / "x.tsv", tsv(TAGS))], "tsv", "tagging", {}),
    "aligned": (aligned, "aligned", "translation", {}),
    "objects": (objects, "jsonl", "classification", {"fields": ["review", "stars"]}),
    "memory": (memory, "tmx", "translation", {"languages": ["en", "de-AT"]}),
    "catalogue": (
        lambda folder: [write(folder / "x.po", "".join(f'msgid "{a}"\nmsgstr "{b}"\n\n' for a, b in PAIRS))],
        "po",
        "translation",
        {},
    ),
    "lines": (
        lambda folder: [write(folder / "x.txt", "A line.\nAnother.\n")],
        "text",
        "language-modelling",
        {"documents": "line"},
    ),
    "paragraphs": (lambda folder: [write(folder / "x.txt", "A line.\n\nAnother.\n")], "text", "language-modelling", {}),
    "labelled texts": (texts, "labelled-folder", "classification", {}),
    "pictures": (pictures, "image-folder", "images", {}),
    "splits": (splits, "folder", "translation", {"languages": ["de", "en"]}),
    "documents": (documents, "files", "language-modelling", {}),
}


@pytest.mark.parametrize("name", FILES)
def test_files_are_recognised(name: str, tmp_path: Path) -> None:
    make, source, task, keys = FILES[name]
    paths = make(tmp_path)
    found = recognise(paths)
    assert (found.source["kind"], found.task) == (source, task)
    assert {key: value for key, value in found.source.items() if key not in ("kind", "train", "path")} == keys
    assert found.rows
    assert found.count() >= len(found.rows)


def test_a_task_that_is_given_is_not_guessed(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", tsv(LABELS))
    assert recognise([path], "translation").task == "translation"
    assert recognise([path], "masked-language-modelling").source["kind"] == "tsv"


def test_what_is_not_recognised_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"y.tsv: there is no such file or folder"):
        recognise([tmp_path / "y.tsv"])
    with pytest.raises(InputError, match=r"x.bin: nothing was recognised: expected two aligned files"):
        recognise([write(tmp_path / "x.bin", "a")])
    with pytest.raises(InputError, match=r"there is no task 'dance': expected one of answering"):
        recognise([write(tmp_path / "x.tsv", tsv(PAIRS))], "dance")
    with pytest.raises(InputError, match=r"nothing that images can learn from was recognised"):
        recognise([tmp_path / "x.tsv"], "images")


def test_languages_are_known_by_their_words() -> None:
    assert language([one for one, _ in PAIRS]) == "English"
    assert language([two for _, two in PAIRS]) == "German"
    assert language(["le chat est dans la maison et il ne dort pas"]) == "French"
    assert language(["x y z", "1 2 3"]) is None
