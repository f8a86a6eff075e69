"""Documents so simple that a tiny model learns them in seconds: which animal says what."""

import random
from pathlib import Path
from typing import Any

SAYS = {"cat": "miaow", "dog": "woof", "cow": "moo", "hen": "cluck"}


def stories(path: Path, count: int = 300) -> Path:
    """A file of paragraphs."""
    draw = random.Random(0)
    animals = draw.choices(list(SAYS), k=count)
    paragraphs = [
        f"the {draw.choice(['old', 'big', 'red'])} {each} says {SAYS[each]} .\nand {i}"
        for i, each in enumerate(animals)
    ]
    path.write_text("\n\n".join(paragraphs), encoding="utf-8")
    return path


def recipe(file: Path, task: str, /, **changes: dict[str, Any]) -> dict[str, Any]:
    """A recipe that learns from them."""
    table: dict[str, dict[str, Any]] = {
        "task": {"kind": task},
        "source": {"kind": "text", "train": str(file)},
        "data": {"max_tokens": 32, "valid": 0.1, "test": 0.1},
        "tokenizer": {"kind": "word", "vocabulary": 60},
        "model": {"width": 32, "heads": 2, "layers": 2, "hidden": 64, "dropout": 0.0},
        "train": {
            "steps": 150,
            "batch_tokens": 512,
            "lr": 5e-3,
            "warmup": 10,
            "validate_every": 75,
            "log_every": 50,
            "device": "cpu",
        },
    }
    return {name: {**table.get(name, {}), **changes.get(name, {})} for name in {**table, **changes}}
