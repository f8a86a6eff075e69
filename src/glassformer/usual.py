"""What is usual for each task: the families that do it, the scores that progress is measured by, its defaults."""

from __future__ import annotations

from typing import Any

DOCUMENTS = ("language-modelling", "masked-language-modelling", "span-corruption")  # tasks that need no targets
WHOLE = {"strip": False, "max_characters": 2**31 - 1}  # documents are as they are, line breaks and all
# What a task's recipe says where it says nothing; the other tasks' defaults are the fields' own.
TASK_DEFAULTS: dict[str, dict[str, dict[str, Any]]] = {
    "classification": {
        "data": {"max_characters": 100_000},  # a long text is cut, not dropped
        "model": {"family": "bert"},
        "train": {"smoothing": 0.0, "watch": "accuracy"},
    },
    "tagging": {
        "model": {"family": "recurrent"},
        "train": {"smoothing": 0.0, "watch": "accuracy"},
    },
    "images": {
        "model": {"family": "vit"},
        "train": {"batch_tokens": 64, "smoothing": 0.0, "watch": "accuracy"},
    },
    "answering": {
        "data": {"normalise": "none", "strip": False, "max_characters": 1_000_000, "max_tokens": 384},
        "model": {"family": "bert"},
        "train": {"smoothing": 0.0, "watch": "f1"},
    },
    "language-modelling": {"data": WHOLE, "model": {"family": "gpt2"}, "train": {"smoothing": 0.0}},
    "masked-language-modelling": {"data": WHOLE, "model": {"family": "bert"}, "train": {"smoothing": 0.0}},
    "span-corruption": {"data": WHOLE, "model": {"family": "t5"}, "train": {"smoothing": 0.0}},
}
FAMILIES = {
    "translation": ("transformer", "t5", "bart", "marian", "recurrent"),
    "classification": ("bert", "roberta", "recurrent"),
    "tagging": ("recurrent", "bert", "roberta"),
    "images": ("vit",),
    "answering": ("bert", "roberta"),
    "language-modelling": ("gpt2", "llama", "recurrent"),
    "masked-language-modelling": ("bert", "roberta"),
    "span-corruption": ("t5", "transformer"),
}
WATCHED = {
    "translation": ("loss", "bleu", "chrf", "exact", "rouge1", "rouge2", "rougeL"),
    "classification": ("loss", "accuracy", "f1"),
    "tagging": ("loss", "accuracy", "f1", "exact"),
    "images": ("loss", "accuracy", "f1"),
    "answering": ("loss", "exact", "f1"),
    "language-modelling": ("loss",),
    "masked-language-modelling": ("loss", "accuracy"),
    "span-corruption": ("loss",),
}
