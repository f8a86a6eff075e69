"""Small texts with questions about them, in SQuAD's layout, and a recipe that learns to answer them."""

import json
import random
from pathlib import Path
from typing import Any

WORDS = {"colour": ["red", "blue", "green", "brown"], "number": ["two", "five", "nine", "ten"]}
FILLERS = ["the", "old", "house", "is", "near", "a", "river", "and", "has", "windows"]


def paragraphs(count: int, seed: int = 0, unanswerable: float = 0.0, length: int = 6) -> list[dict[str, Any]]:
    """Texts with a colour and a number somewhere, and questions for both; some texts lack what is asked for."""
    draw, made = random.Random(seed), []
    for _ in range(count):
        chosen = {kind: draw.choice(words) for kind, words in WORDS.items() if draw.random() >= unanswerable}
        words = draw.choices(FILLERS, k=draw.randint(2, length))
        for word in chosen.values():
            words.insert(draw.randint(0, len(words)), word)
        context = " ".join(words)
        questions = []
        for kind in WORDS:
            there = [chosen[kind]] if kind in chosen else []
            answers = [{"text": word, "answer_start": context.index(word)} for word in there]
            questions.append({"question": f"which {kind}", "answers": answers, "is_impossible": not there})
        made.append({"context": context, "qas": questions})
    return made


def written(path: Path, some: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": some}]}), encoding="utf-8")
    return path


def recipe(file: Path, **changes: dict[str, Any]) -> dict[str, Any]:
    table: dict[str, dict[str, Any]] = {
        "task": {"kind": "answering", "stride": 4, "max_question": 4, "max_answer": 3},
        "source": {"kind": "squad", "train": str(file)},
        "data": {"valid": 0.1, "test": 0.2, "max_tokens": 24},
        "tokenizer": {"kind": "bpe", "vocabulary": 330},
        "model": {"width": 32, "heads": 2, "layers": 1, "hidden": 64, "dropout": 0.0, "attention_dropout": 0.0},
        "train": {"steps": 150, "batch_tokens": 512, "validate_every": 75, "warmup": 10, "lr": 0.01, "device": "cpu"},
    }
    return {name: {**table.get(name, {}), **changes.get(name, {})} for name in {**table, **changes}}
