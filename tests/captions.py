"""Captioned images of scenes in files, and a captioner so small that tests can train it."""

import json
import random
from pathlib import Path
from typing import Any

from PIL import Image

from glassformer.data.scenes import descriptions, random_film, random_scene
from glassformer.data.sources.scenes import film, picture

SIZE = 16


def written(folder: Path, count: int = 40, films: bool = False, seed: int = 0) -> Path:
    """A file of captions beside its images: scenes as PNG, films as GIF."""
    rng, rows = random.Random(seed), []
    (folder / "seen").mkdir(parents=True, exist_ok=True)
    for number in range(count):
        if films:
            told: Any = random_film(rng, 1)
            first, *others = (Image.fromarray(each) for each in film(told, SIZE, rng))
            name = f"seen/{number:03}.gif"
            first.save(folder / name, save_all=True, append_images=others)
        else:
            told = random_scene(rng, 1)
            name = f"seen/{number:03}.png"
            Image.fromarray(picture(told, SIZE, rng)).save(folder / name)
        rows.append({"image": name, "caption": list(descriptions(told, ["phrase", "existence"]))})
    (folder / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder / "captions.jsonl"


def caption_recipe(file: Path, **changes: dict[str, Any]) -> dict[str, Any]:
    table: dict[str, dict[str, Any]] = {
        "task": {"kind": "captioning", "size": SIZE},
        "source": {"kind": "captions", "train": str(file)},
        "data": {"valid": 0.1, "test": 0.2, "max_tokens": 12},
        "tokenizer": {"kind": "word", "vocabulary": 60},
        "model": {"patch": 8, "width": 16, "heads": 2, "layers": 1, "hidden": 32, "dropout": 0.0},
        "train": {"steps": 4, "batch_tokens": 16, "validate_every": 4, "warmup": 2, "lr": 0.01, "device": "cpu"},
        "decode": {"beam": 1, "max_length": 12},
    }
    return {name: {**table.get(name, {}), **changes.get(name, {})} for name in {**table, **changes}}
