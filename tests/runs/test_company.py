"""Company: what a run makes of a text does not depend on the texts beside it, their order, or the size of batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import questions
import stories
from glassformer import train
from glassformer.decoding import Sampler
from labels import examples, folder_of_bars, image_recipe, table, text_recipe
from tiny import table as letters

FEW: dict[str, Any] = {"steps": 15, "validate_every": 15, "warmup": 1}
ANIMALS = [f"the {how} {animal} says" for how in ("old", "big") for animal in stories.SAYS]
LONGER = [*ANIMALS, "the", "and 7", "the red cow says moo . the old hen", *(" ".join(ANIMALS[:n]) for n in (2, 3))]
SENTENCES = [text for text, _ in examples(12, seed=9)]
CONTEXTS = questions.paragraphs(6, seed=5, length=14)
Items = list[Any]


def documents(kind: str, **decode: Any) -> Callable[[Path], dict[str, Any]]:
    def recipe(folder: Path) -> dict[str, Any]:
        changes: dict[str, Any] = {"train": FEW | {"log_every": 15}, "decode": {"max_length": 6, **decode}}
        return stories.recipe(stories.stories(folder / "t.txt", 60), kind, **changes)

    return recipe


def tagging(folder: Path) -> dict[str, Any]:
    rows = [(text, " ".join("x" if word < "m" else "y" for word in text.split())) for text, _ in examples(60)]
    return {**text_recipe(table(folder / "t.tsv", rows), train=FEW), "task": {"kind": "tagging"},
            "model": {"family": "recurrent", "width": 8}}  # fmt: skip


def translating(folder: Path) -> dict[str, Any]:
    rows = [(f"the {a} {b}", f"{b} {a}") for a in "abcdefgh" for b in "abcdefgh"]
    source = {"kind": "tsv", "train": str(table(folder / "t.tsv", rows))}
    return {
        **letters({"train": {**FEW, "device": "cpu"}, "decode": {"beam": 3, "max_length": 8}}),
        "source": source,
        "data": {"max_tokens": 16},
    }


RECIPES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "answer": lambda folder: questions.recipe(questions.written(folder / "q", questions.paragraphs(30)), train=FEW),
    "classify": lambda folder: text_recipe(table(folder / "t.tsv", examples(60)), train=FEW),
    "classify images": lambda folder: image_recipe(folder_of_bars(folder / "images", 12), train=FEW),
    "fill": lambda folder: stories.recipe(stories.stories(folder / "t", 60), "masked-language-modelling", train=FEW),
    "generate": documents("language-modelling"),
    "generate by beams": documents("language-modelling", beam=3, no_repeat_ngram=2, repetition_penalty=1.3),
    "generate by chance": documents("language-modelling", temperature=1.0),
    "restore": documents("span-corruption"),
    "tag": tagging,
    "translate": translating,
}
ASKED: dict[str, Items] = {
    "answer": [(each["question"], paragraph["context"]) for paragraph in CONTEXTS for each in paragraph["qas"]],
    "classify": SENTENCES,
    "fill": [text.replace("says", "[MASK]") for text in LONGER if "says" in text] + ["[MASK] big [MASK]"],
    "generate": LONGER,
    "restore": [text.replace("says", "<extra_id_0>") for text in LONGER if text.count("says") == 1],
    "tag": SENTENCES,
    "translate": [f"the {a} {b}" for a in "abc" for b in "defgh"] + ["the", "a b c d e f"],
}


def plain(answer: Any) -> Any:
    """An answer without its numbers, and the numbers."""
    words: list[Any] = []
    numbers: list[float] = []

    def walk(part: Any) -> None:
        if isinstance(part, float):
            numbers.append(part)
        elif isinstance(part, dict):
            for key, value in sorted(part.items()):
                walk(key)
                walk(value)
        elif isinstance(part, list | tuple):
            for each in part:
                walk(each)
        else:
            words.append(part)

    walk(answer if isinstance(answer, str) else asdict(answer))
    return words, numbers


@pytest.mark.parametrize("name", RECIPES)
def test_an_answer_does_not_depend_on_company(name: str, tmp_path: Path) -> None:
    run: Any = train(RECIPES[name](tmp_path), tmp_path / "run")
    verb = name.split()[0]
    asked = ASKED[verb]
    if name == "classify images":
        asked = sorted((tmp_path / "images").rglob("*.png"))[::2]
    work = getattr(run, verb)
    alone = [work([item])[0] for item in asked]
    recipe = run.recipe

    @settings(max_examples=8, deadline=None)
    @given(st.lists(st.sampled_from(range(len(asked))), min_size=1, unique=True), st.integers(1, 9))
    def together(chosen: list[int], size: int) -> None:
        tokens = recipe.train.model_copy(update={"batch_tokens": 20 * size})
        decode = recipe.decode.model_copy(update={"batch": size})
        run.recipe = recipe.model_copy(update={"train": tokens, "decode": decode})
        for number, answer in zip(chosen, work([asked[number] for number in chosen]), strict=True):
            (words, numbers), (right, expected) = plain(answer), plain(alone[number])
            assert words == right
            assert numbers == pytest.approx(expected, rel=1e-6, abs=1e-6)  # log-probabilities are large

    together()


def test_texts_that_are_equal_are_drawn_apart_and_seeds_matter(tmp_path: Path) -> None:
    run = train(RECIPES["generate by chance"](tmp_path), tmp_path / "run")
    first, second, third = (each.ids for each in run.generate(["the old"] * 3))
    assert first != second != third
    assert [each.ids for each in run.generate(["the old"] * 2)] == [first, second]
    drawn = {seed: run.generate(["the old"], sampler=Sampler(seed=seed))[0].ids for seed in (0, 1)}
    assert drawn[0] == first != drawn[1]
    by_hand = run.generate(["the old", "and"], sampler=Sampler(seed=[4, 5]))
    assert by_hand[1].ids == run.generate(["and"], sampler=Sampler(seed=[5]))[0].ids
