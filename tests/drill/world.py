"""The world that is attacked: small data files of every kind, a tiny recipe and run for every task, checkpoints.

What there is, is asked of the registries, so that a task or a family is attacked from the day it is added.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from drill.engine import Bench, Broken
from glassformer.recipe import RecipeWarning, make_recipe, to_toml
from glassformer.recipe.model import section_of
from glassformer.registry import FAMILIES, SOURCES, TASKS

Table = dict[str, Any]
LETTERS = "abcdefgh"
SMALL: Table = {"width": 8, "heads": 2, "layers": 1, "hidden": 16, "patch": 4, "segments": 1, "truncate": 8}
OPTIONS: Table = {"size": 8, "stride": 4, "max_question": 8, "max_answer": 4, "window": 8, "horizon": 2}  # of tasks
DATA: Table = {"max_tokens": 24, "valid": 0.1, "test": 0.1}
TRAIN: Table = {
    "steps": 4,
    "batch_tokens": 128,
    "optimiser": "muon",
    "warmup": 2,
    "validate_every": 2,
    "validate_sentences": 2,
    "save_every": 2,
    "log_every": 1,
    "keep": 2,
}
DECODE: Table = {"beam": 1, "max_length": 6}
STORY = "The cat sat on the mat. The dog saw a cat and ran home. A cat can see the dog in the house.\n\n"


@dataclass(eq=False)
class World:
    """Where everything is. The folders are everybody's: copy, then attack the copy."""

    root: Path
    tables: dict[str, Table] = field(default_factory=dict)  # the recipe of each task, as nested dictionaries
    exported: dict[str, Path] = field(default_factory=dict)  # checkpoints in Hugging Face's layout, by task

    @property
    def data(self) -> Path:
        """The data files."""
        return self.root / "data"

    def run(self, task: str) -> Path:
        """The run of a task."""
        return self.root / "runs" / task

    def recipe(self, task: str) -> Path:
        """The recipe file of a task."""
        return self.root / "recipes" / f"{task}.toml"

    def sources(self) -> dict[str, Table]:
        """The section [source] of each kind of source that can be used without a network."""
        return {kind: section for kind, section in self._sources().items() if kind in SOURCES}

    def _sources(self) -> dict[str, Table]:
        data = {path.name: str(path) for path in self.data.iterdir()}
        return {
            "tsv": {"train": data["pairs.tsv"]},
            "jsonl": {"train": data["pairs.jsonl"]},
            "aligned": {"train": [data["pairs.en"], data["pairs.de"]]},
            "folder": {"path": data["folder"], "languages": ["en", "de"]},
            "po": {"train": data["pairs.po"]},
            "tmx": {"train": data["pairs.tmx"], "languages": ["en", "de"]},
            "text": {"train": data["story.txt"], "documents": "line"},
            "files": {"path": data["texts"]},
            "labelled-folder": {"path": data["labelled"]},
            "image-folder": {"path": data["pictures"]},
            "captions": {"train": data["captions.jsonl"]},
            "squad": {"train": data["squad.json"]},
            "csv": {"train": data["series.csv"], "columns": ["x"], "time": "hour", "label": "kind"},
            "seasons": {"count": 2, "length": 80},
            "activities": {"count": 2, "seconds": 2},
            "copy": {"count": 40},
            "reverse": {"count": 40},
            "sort": {"count": 40},
            "dates": {"count": 40},
            "grammar": {"count": 40},
            "scenes": {"count": 40, "size": 16},
        }


def build(root: Path) -> World:
    """Write the data, train a run of every task, export those that can be."""
    world = World(root)
    write_data(world.data)
    for task in TASKS.names():
        world.tables[task] = tiny(world, task)
        path = write_recipe(world.recipe(task), world.tables[task])
        bench = Bench(root / f"making-{task}")
        made = bench.run("train", path, "--out", world.run(task))
        if made.code:
            raise Broken(f"the tiny recipe of {task} cannot be trained: {made.last}")
        target = root / "checkpoints" / task
        if bench.run("export", "--run", world.run(task), target, judged=False).code == 0:
            world.exported[task] = target
        shutil.rmtree(bench.root)
    return world


def write_recipe(path: Path, table: Table) -> Path:
    """Write a valid recipe as a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecipeWarning)  # some keys are without effect in some tasks
        path.write_text(to_toml(make_recipe(table)), encoding="utf-8")
    return path


def tiny(world: World, task: str, family: str | None = None, source: str | None = None) -> Table:
    """A recipe for a task so small that it is trained in a quarter of a second."""
    kind = TASKS[task]
    family = family or kind.defaults.get("model", {}).get("family", "transformer")
    keys = section_of(family, kind.answer).model_fields
    return {
        "task": {"kind": task, **{key: value for key, value in OPTIONS.items() if key in kind.model_fields}},
        "source": source_for(world, task, source),
        "data": DATA,
        "tokenizer": {"kind": "word", "vocabulary": 60},
        "model": {"family": family, **{key: value for key, value in SMALL.items() if key in keys}},
        "train": TRAIN,
        "decode": DECODE,
    }


def source_for(world: World, task: str, kind: str | None = None) -> Table:
    """A [source] whose examples a task takes."""
    given = {"classification": "labels.tsv", "tagging": "tags.tsv"}.get(task)
    if kind is None and given is not None:
        return {"kind": "tsv", "train": str(world.data / given)}
    known = world.sources()
    reads = TASKS[task].reads
    suited = [each for each in known if issubclass(SOURCES[each].gives, reads[0])] or list(known)
    chosen = kind or suited[0]
    return {"kind": chosen, **known.get(chosen, {})}


def families(task: str) -> list[str]:
    """The families that a task can be trained with."""
    return [name for name in FAMILIES.names() if TASKS[task].answer in FAMILIES[name].answers]


def write_data(data: Path) -> None:
    """Write small files of every kind that there is a source for."""
    rng = random.Random(0)
    (data / "folder").mkdir(parents=True)
    words = [" ".join(rng.choices(LETTERS, k=rng.randint(1, 6))) for _ in range(60)]
    pairs = [(text, text[::-1]) for text in words]

    def write(name: str, text: str) -> Path:
        path = data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    packed = write("pairs.tsv", "".join(f"{one}\t{other}\n" for one, other in pairs)).read_bytes()
    (data / "pairs.tsv.gz").write_bytes(gzip.compress(packed))
    write("pairs.jsonl", "".join(json.dumps({"source": one, "target": other}) + "\n" for one, other in pairs))
    for language, side in (("en", 0), ("de", 1)):
        lines = "".join(f"{pair[side]}\n" for pair in pairs)
        for name in (f"pairs.{language}", f"folder/train.{language}"):
            write(name, lines)
    write("pairs.po", "".join(f'msgid "{one}"\nmsgstr "{other}"\n\n' for one, other in pairs))
    unit = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="de"><seg>{}</seg></tuv></tu>'
    units = "".join(unit.format(*pair) for pair in pairs)
    write("pairs.tmx", f'<?xml version="1.0"?><tmx version="1.4"><header/><body>{units}</body></tmx>')
    write("labels.tsv", "".join(f"{text}\t{'vowel' if 'a' in text else 'none'}\n" for text in words))
    write("tags.tsv", "".join(f"{text}\t{' '.join(map(str.upper, text.split()))}\n" for text in words))
    steps = [f"{hour},{hour % 7}.5,{'odd' if hour // 10 % 2 else 'even'}\n" for hour in range(120)]
    write("series.csv", "".join(["hour,x,kind\n", *steps]))
    write("story.txt", "".join(f"{text} . {STORY}" for text in words[:40]))
    for number in range(6):
        write(f"texts/{number}.txt", STORY)
        write(f"labelled/{'good' if number % 2 else 'bad'}/{number}.txt", words[number])
    for number in range(16):
        shade, label = 40 + 10 * number, "light" if number % 2 else "dark"
        path = data / "pictures" / label / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), shade, np.uint8)).save(path)
    names = [f"{data}/pictures/{'light' if number % 2 else 'dark'}/{number}.png" for number in range(16)]
    told = [{"image": name, "caption": [text, "a"]} for name, text in zip(names, words, strict=False)]
    write("captions.jsonl", "".join(json.dumps(row) + "\n" for row in told))
    questions = [
        {"id": str(i), "question": "who sat ?", "answers": [{"text": "cat", "answer_start": STORY.index("cat")}]}
        for i in range(6)
    ]
    contexts = [{"context": f"{STORY.strip()} {number}", "qas": questions} for number in range(6)]
    write("squad.json", json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": contexts}]}))
    write(
        "vectors.txt",
        f"{len(LETTERS)} 4\n" + "".join(f"{letter} 0.1 0.2 0.3 {i}\n" for i, letter in enumerate(LETTERS)),
    )
