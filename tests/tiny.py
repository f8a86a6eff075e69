"""A recipe so small that tests can train it, and one that learns nothing at all, quicker still."""

from typing import Any

from glassformer.recipe import Recipe, make_recipe

COPY: dict[str, dict[str, Any]] = {
    "source": {"kind": "copy", "count": 1500, "symbols": 8, "length": 5},
    "data": {"max_tokens": 64},
    "tokenizer": {"kind": "word", "vocabulary": 40},
    "model": {"width": 32, "heads": 4, "layers": 2, "hidden": 64, "dropout": 0.0},
    "train": {
        "steps": 220,
        "batch_tokens": 512,
        "optimiser": "muon",
        "lr": 5e-3,
        "schedule": "linear",
        "warmup": 15,
        "smoothing": 0.0,
        "validate_every": 110,
        "validate_sentences": 50,
        "save_every": 1000,
        "log_every": 20,
    },
    "decode": {"beam": 1, "max_length": 24, "batch": 16},
}
THOROUGH: dict[str, dict[str, Any]] = {  # with these, all texts are learned, however the processor rounds
    "train": {"seed": 1, "batch_tokens": 1024, "lr": 2e-2}
}
IDLE: dict[str, dict[str, Any]] = {
    "source": {"count": 200},
    "model": {"width": 16, "heads": 2, "layers": 1, "hidden": 32, "dropout": 0.1},
    "train": {"steps": 4, "validate_every": 2, "validate_sentences": 4, "save_every": 2, "log_every": 1},
}


def table(*changes: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The tables of the recipe that learns to copy, changed."""
    made = {name: dict(section) for name, section in COPY.items()}
    for change in changes:
        for name, section in change.items():
            before = made.get(name, {})
            kept = {} if section.get("kind", before.get("kind")) != before.get("kind") else before
            made[name] = kept | section
    if made["source"]["kind"] != "copy" and not any("tokenizer" in change for change in changes):
        made["tokenizer"] = {"kind": "bpe", "vocabulary": 300}  # the few words that suffice for letters are too few
    return made


def recipe(*changes: dict[str, dict[str, Any]]) -> Recipe:
    """The same as a recipe."""
    return make_recipe(table(*changes), "tiny")
