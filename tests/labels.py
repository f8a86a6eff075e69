"""Texts and images with labels that can be learned in seconds, and recipes for them."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import glassformer as gf
from glassformer.tasks.images import ImageClassifier

WORDS = {"fruit": ["apple", "pear", "plum", "cherry"], "tool": ["hammer", "saw", "drill", "wrench"]}


def text_recipe(file: Path, **changes: dict[str, Any]) -> dict[str, Any]:
    table: dict[str, dict[str, Any]] = {
        "task": {"kind": "classification"},
        "source": {"kind": "tsv", "train": str(file)},
        "data": {"valid": 0.1, "test": 0.2, "max_tokens": 16},
        "tokenizer": {"kind": "word", "vocabulary": 100},
        "model": {"width": 16, "heads": 2, "layers": 1, "hidden": 32, "dropout": 0.0},
        "train": {"steps": 60, "batch_tokens": 256, "validate_every": 30, "warmup": 5, "lr": 0.01, "device": "cpu"},
    }
    return {name: {**table.get(name, {}), **changes.get(name, {})} for name in {**table, **changes}}


def table(path: Path, rows: Sequence[tuple[str, ...]]) -> Path:
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path


def examples(count: int, seed: int = 0) -> list[tuple[str, ...]]:
    draw = random.Random(seed)
    rows: list[tuple[str, ...]] = []
    for _ in range(count):
        label = draw.choice(list(WORDS))
        others = draw.choices(["the", "a", "my", "old", "new"], k=draw.randint(1, 6))
        rows.append((" ".join([*others, draw.choice(WORDS[label]), *others[::-1]]), label))
    return rows


def drawn(label: str, seed: int, size: int = 8) -> Image.Image:
    """A bright bar that lies or stands, on noise."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 90, (size, size, 3), np.uint8)
    place = rng.integers(0, size)
    pixels[(place, slice(None)) if label == "lying" else (slice(None), place)] = rng.integers(170, 256, 3)
    return Image.fromarray(pixels)


def folder_of_bars(folder: Path, count: int = 60, size: int = 8) -> Path:
    for label in ("lying", "standing"):
        (folder / label).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            drawn(label, 2 * number + (label == "lying"), size).save(folder / label / f"{number:03}.png")
    return folder


def image_recipe(folder: Path, **changes: dict[str, Any]) -> dict[str, Any]:
    table: dict[str, dict[str, Any]] = {
        "task": {"kind": "images", "size": 8, "colours": 3},
        "source": {"kind": "image-folder", "path": str(folder)},
        "data": {"valid": 0.1, "test": 0.2},
        "model": {"patch": 2, "width": 16, "heads": 2, "layers": 1, "hidden": 32, "dropout": 0.0},
        "train": {"steps": 150, "batch_tokens": 16, "validate_every": 50, "warmup": 5, "lr": 0.01, "device": "cpu"},
    }
    return {name: {**table.get(name, {}), **changes.get(name, {})} for name in {**table, **changes}}


def trained_on(folder: Path, **changes: dict[str, Any]) -> ImageClassifier:
    run = gf.train(image_recipe(folder_of_bars(folder / "images"), **changes), folder / "run")
    assert isinstance(run, ImageClassifier)
    return run
