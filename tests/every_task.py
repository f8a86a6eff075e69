"""A small run of every task, and of families that look different inside, trained in seconds when first asked for."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from time import monotonic, sleep
from typing import Any

import captions
import glassformer as gf
import labels
import questions
import stories
import waves
from glassformer.recipe import Recipe, make_recipe
from glassformer.tasks.run import Run
from tiny import table

PATIENCE = 600  # seconds that another process may take to train a run, on a busy machine
DETERMINERS, NOUNS, VERBS = ["the", "a"], ["man", "river", "fish", "can"], ["sees", "likes", "eats"]


def _pairs(folder: Path) -> dict[str, Any]:
    """Two texts, and whether they are about the same kind of thing."""
    draw, rows = random.Random(0), []
    for _ in range(400):
        one, two = (draw.choice(list(labels.WORDS)) for _ in range(2))
        first, second = (f"my {draw.choice(labels.WORDS[kind])}" for kind in (one, two))
        rows.append((first, second, "same" if one == two else "different"))
    file = labels.table(folder / "pairs.tsv", rows)
    return labels.text_recipe(file, source={"columns": [0, 1, 2]}, train={"steps": 120}, model={"layers": 2})


def _tags(folder: Path) -> dict[str, Any]:
    draw, rows = random.Random(0), []
    for _ in range(400):
        words = [draw.choice(some) for some in (DETERMINERS, NOUNS, VERBS, DETERMINERS, NOUNS)]
        rows.append((" ".join(words), "DET NOUN VERB DET NOUN"))
    made = labels.text_recipe(labels.table(folder / "tags.tsv", rows))
    return {**made, "task": {"kind": "tagging"}, "model": {**made["model"], "family": "bert"}}


def _alike(folder: Path) -> dict[str, Any]:
    """Two texts about the same kind of thing."""
    draw, rows = random.Random(0), []
    for _ in range(200):
        kind = draw.choice(list(labels.WORDS))
        rows.append((f"my {draw.choice(labels.WORDS[kind])}", f"the {draw.choice(labels.WORDS[kind])}"))
    made = labels.text_recipe(labels.table(folder / "alike.tsv", rows), train={"batch_tokens": 200})
    return {**made, "task": {"kind": "embedding"}, "data": {**made["data"], "duplicates": "keep"}}


def _story(task: str, **changes: Any) -> Callable[[Path], dict[str, Any]]:
    return lambda folder: stories.recipe(stories.stories(folder / "stories.txt"), task, **changes)


def _copy(**model: Any) -> Callable[[Path], Recipe]:
    made = table({"source": {"count": 400}, "train": {"steps": 60, "validate_every": 30}})
    return lambda folder: make_recipe({**made, "model": {"width": 32, "layers": 1, "dropout": 0.0, **model}})


MADE: dict[str, Callable[[Path], Any]] = {
    "copy": _copy(heads=2, hidden=64),
    "bart": _copy(family="bart", heads=2, hidden=64),
    "lstm": _copy(family="recurrent", cell="lstm"),
    "blind": _copy(family="recurrent", cell="gru", attention="none"),
    "classification": lambda folder: labels.text_recipe(labels.table(folder / "t.tsv", labels.examples(400))),
    "two texts": _pairs,
    "tagging": _tags,
    "answering": lambda folder: questions.recipe(questions.written(folder / "q.json", questions.paragraphs(300))),
    "gpt2": _story("language-modelling"),
    "llama": _story("language-modelling", model={"family": "llama", "width": 32, "heads": 2, "key_value_heads": 1}),
    "masked": _story("masked-language-modelling"),
    "spans": _story("span-corruption", train={"steps": 60}),
    "forecasting": waves.forecasting,
    "series": waves.recognising,
    "embedding": _alike,
    "captioning": lambda folder: captions.caption_recipe(captions.written(folder), train={"steps": 40}),
    "images": lambda folder: labels.image_recipe(labels.folder_of_bars(folder / "images")),
}


class EveryTask:
    """Runs by name, each trained when it is first asked for, by one of pytest's processes for all of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.made = folder, dict[str, Run]()

    def path(self, name: str) -> Path:
        """The folder of the run of some name, which is called the same."""
        done, data = self.folder / f"{name} is done", self.folder / f"data of {name}"
        try:
            data.mkdir(parents=True)
        except FileExistsError:  # another process trains it, or has
            late = monotonic() + PATIENCE
            while not done.exists():
                assert monotonic() < late, f"another process has not trained {name} in {PATIENCE} seconds"
                if not data.exists():  # it has failed, and told why
                    return self.path(name)
                sleep(0.1)
        else:
            try:
                gf.train(MADE[name](data), self.folder / name)
            except BaseException:
                rmtree(self.folder / name, ignore_errors=True)
                rmtree(data)
                raise
            done.touch()
        return self.folder / name

    def __call__(self, name: str) -> Run:
        """The run of some name."""
        if name not in self.made:
            self.made[name] = gf.load(self.path(name), "cpu")
        return self.made[name]
