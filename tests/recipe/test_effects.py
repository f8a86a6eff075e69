"""Every key does something, or somebody says that it does not."""

import re
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest
import torch

import questions
import stories
from glassformer.data import preparing
from glassformer.errors import ConfigurationError, RecipeError
from glassformer.recipe import (
    Data,
    Decode,
    Recipe,
    RecipeWarning,
    Tokenizer,
    Train,
    Tune,
    make_recipe,
    settled,
    without_effect,
)
from glassformer.recipe import effects as effects_of_keys
from glassformer.recipe.model import Fresh, FreshReader, section_of, suited
from glassformer.registry import TASKS
from glassformer.runs import train
from glassformer.tasks.task import fresh_model
from labels import examples, folder_of_bars, image_recipe, table, text_recipe
from tiny import IDLE
from tiny import table as letters

SIZES: dict[str, Any] = {"width": 8, "heads": 2, "layers": 1, "hidden": 16, "head_width": 4, "patch": 2}
LONG = 24  # tokens: enough for distances to matter
SOURCES: dict[str, dict[str, Any]] = {
    "answering": {"kind": "squad", "train": "t"},
    "images": {"kind": "image-folder", "path": "t"},
}
TASK_FAMILIES = [(kind, family) for kind, task in TASKS.items() for family in suited(task.answer)]


# --- [model]: another value is another model


def recipe_of(kind: str, family: str, changes: dict[str, Any]) -> Recipe:
    """A tiny recipe; keys without effect are refused like wrong ones."""
    known = section_of(family, TASKS[kind].answer).model_fields
    model = {key: size for key, size in SIZES.items() if key in known and (key != "head_width" or family == "t5")}
    asked = {
        "task": {"kind": kind, **({"size": 8} if kind == "images" else {})},
        "source": SOURCES.get(kind, {"kind": "tsv", "train": "t"}),
        "data": {"max_tokens": 32},
        "model": {**model, "family": family, **changes},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", r".*model\..*has no effect", RecipeWarning)
        return make_recipe(asked if kind != "images" else {**asked, "data": {}})


class Built:
    """A model of a recipe: what it is, and what it does."""

    def __init__(self, recipe: Recipe, **changes: Any) -> None:
        self.recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update=changes)})
        torch.manual_seed(1)
        given = recipe.task.given(recipe, (20, 20) if recipe.task.tokenizers else (), 3)
        self.model = fresh_model(self.recipe, given).train()
        self.shape = repr(self.model), [(name, each.shape) for name, each in self.model.named_parameters()]

    @cached_property
    def behaviour(self) -> list[torch.Tensor]:
        """What the model answers in training, dropout and all, and the gradients of that."""
        torch.manual_seed(2)
        tokens, image = torch.randint(4, 20, (2, LONG)), torch.randn(2, 3, 8, 8)
        inputs = {"image-classes": (image,), "target": (tokens, tokens)}.get(self.recipe.task.answer, (tokens,))
        torch.manual_seed(3)
        answer = self.model(*inputs)
        (answer * torch.linspace(-1, 1, answer.numel()).view_as(answer)).sum().backward()
        return [answer.detach(), *(each.grad for each in self.model.parameters() if each.grad is not None)]

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Built)
        return self.shape == other.shape and all(map(torch.equal, self.behaviour, other.behaviour))


def others(section: type[Fresh], key: str, value: Any) -> list[Any]:
    """Other values for a key, some of which should make another model."""
    annotation = str(section.model_fields[key].annotation)
    if key in section.named:
        return [name for name in section.named[key].names() if name != value]
    if isinstance(value, bool) or "bool" in annotation:
        return [each for each in (True, False) if each is not value]
    if isinstance(value, float) or "float" in annotation:
        return [0.5, 10.0]
    return [1, 2] if value is None else [2 * value, max(1, value // 8)]


@cache
def base(kind: str, family: str, *beside: Any) -> Built:
    return Built(recipe_of(kind, family, dict([beside]) if beside else {}))


def has_effect(kind: str, family: str, key: str, *beside: Any) -> bool:
    """Whether another value of a key makes another model, or a sentence says that it does not."""
    before = base(kind, family, *beside)
    section = before.recipe.model
    values = others(type(section), key, getattr(section, key))
    for value in values:
        with suppress(ConfigurationError):
            if Built(before.recipe, **{key: value}) != before:
                return True
    try:
        recipe_of(kind, family, {**dict([beside] if beside else []), key: values[0]})
    except (RecipeError, RecipeWarning) as sentence:
        return re.search(rf"model.*\b{key}\b.* ha(s|ve) no effect: ", str(sentence)) is not None
    return False


def own_keys(kind: str, family: str) -> list[str]:
    return [key for key in type(base(kind, family).recipe.model).model_fields if key not in FreshReader.model_fields]


@pytest.mark.parametrize(("kind", "family"), TASK_FAMILIES)
def test_every_key_of_every_family_makes_another_model(kind: str, family: str) -> None:
    keys = own_keys(kind, family)
    assert {"width", "layers", "dropout"} <= {*keys}
    assert [key for key in keys if not has_effect(kind, family, key)] == []


@pytest.mark.parametrize("family", {family: None for _, family in TASK_FAMILIES})
def test_no_choice_of_a_part_leaves_another_key_without_effect_and_without_a_sentence(family: str) -> None:
    kind = next(kind for kind, each in reversed(TASK_FAMILIES) if each == family)
    section = section_of(family, TASKS[kind].answer)
    idle = []
    for chosen in section.named:
        values = others(section, chosen, getattr(base(kind, family).recipe.model, chosen))
        for value in values if chosen == "positions" else values[:1]:
            keys = [key for key in own_keys(kind, family) if key != chosen]
            idle += [(key, chosen, value) for key in keys if not has_effect(kind, family, key, chosen, value)]
    assert idle == []


# --- the other sections: every key is read by a training and an evaluation

FEW: dict[str, Any] = {
    "steps": 2, "tokens": None, "batch_tokens": 256, "optimiser": "muon", "schedule": "wsd", "warmup": 1, "average": 2,
    "ema": 0.5, "validate_every": 1, "save_every": 1, "log_every": 1, "device": "cpu",
}  # fmt: skip
DECODE: dict[str, Any] = {"beam": 2, "max_length": 4}


def translation(folder: Path) -> dict[str, Any]:
    rows = [(f"the {a} {b}", f"{b} {a}") for a in "abcdefgh" for b in "abcdefgh"]
    return {
        **letters(IDLE),
        "source": {"kind": "tsv", "train": str(table(folder / "t.tsv", rows))},
        "data": {"max_tokens": 16, "valid": 0.1, "test": 0.1, "max_ratio": 9.0},
    }


def tagging(folder: Path) -> dict[str, Any]:
    asked = text_recipe(table(folder / "t.tsv", [(text, " ".join("x" if word < "m" else "y" for word in text.split()))
                                                 for text, _ in examples(60)]))  # fmt: skip
    return {**asked, "task": {"kind": "tagging"}, "model": {"family": "recurrent", "width": 8}}


def documents(kind: str) -> Callable[[Path], dict[str, Any]]:
    small = {"width": 8, "heads": 2, "layers": 1, "hidden": 16}
    return lambda folder: stories.recipe(stories.stories(folder / "t.txt", 60), kind, model=small)


MADE: dict[str, Callable[[Path], dict[str, Any]]] = {
    "answering": lambda folder: questions.recipe(questions.written(folder / "q.json", questions.paragraphs(30))),
    "classification": lambda folder: text_recipe(table(folder / "t.tsv", examples(60))),
    "images": lambda folder: image_recipe(folder_of_bars(folder / "images", 12)),
    "language-modelling": documents("language-modelling"),
    "masked-language-modelling": documents("masked-language-modelling"),
    "span-corruption": documents("span-corruption"),
    "tagging": tagging,
    "translation": translation,
}
USED: dict[str, Callable[[Any], object]] = {
    "language-modelling": lambda run: run.generate(["the big"]),
    "masked-language-modelling": lambda run: run.fill(["the big [MASK] says moo"]),
    "span-corruption": lambda run: run.fill(["the big <extra_id_0> moo"]),
}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The keys that the program reads, whoever writes or compares whole recipes not counted."""
    found: set[str] = set()

    def watch(section: type[Any]) -> Callable[[Any, str], Any]:
        name, keys = section.__name__.lower(), {*section.model_fields}

        def get(self: Any, key: str) -> Any:
            if key in keys:
                reader = sys._getframe(1).f_globals.get("__name__", "")
                if not reader.startswith(("glassformer.recipe", "pydantic")):
                    found.add(f"{name}.{key}")
            return object.__getattribute__(self, key)

        return get

    for section in (Data, Tokenizer, Tune, Train, Decode):
        monkeypatch.setattr(section, "__getattribute__", watch(section), raising=False)
    return found


def unread(asked: dict[str, Any], folder: Path, read: set[str], use: Callable[[Any], object] | None = None) -> set[str]:
    """The keys that were not read in a training, an evaluation and a use, and of which nothing is said."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecipeWarning)
        recipe = make_recipe(asked)
    read.clear()
    run = train(recipe, folder / "run")
    run.evaluate(run.examples("test"))
    if use is not None:
        use(run)
    known = {
        f"{name}.{key}" for name in ("data", "tokenizer", "tune", "train", "decode")
        for key in type(getattr(recipe, name)).model_fields
    }  # fmt: skip
    return known - read - without_effect(recipe).keys()


def test_there_is_a_recipe_for_every_task() -> None:
    assert MADE.keys() == {*TASKS.names()}


@pytest.mark.parametrize("kind", MADE)
def test_every_key_is_read_or_said_to_have_no_effect(
    kind: str, tmp_path: Path, read: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "WORTHWHILE", 0)  # so that tokenising may be shared by workers
    asked = MADE[kind](tmp_path)
    asked = {**asked, "train": {**FEW, "batch_tokens": asked["train"]["batch_tokens"]}, "decode": DECODE}
    asked["data"] = {**asked["data"], "workers": 1}
    for key in unread(asked, tmp_path, read, USED.get(kind)):
        assert (kind, key) in {("answering", "data.normalise"), ("answering", "data.strip")}
        other: dict[str, Any] = {"normalise": "nfc"} if key == "data.normalise" else {"strip": True}
        with pytest.raises(RecipeError, match=key):  # these may have one value only
            make_recipe({**asked, "data": {**asked["data"], **other}})


@pytest.mark.parametrize("tune", [{"mode": "lora", "rank": 2}, {"mode": "unfreeze", "every": 1}])
def test_every_key_of_tuning_is_read(tune: dict[str, Any], tmp_path: Path, read: set[str]) -> None:
    asked: dict[str, Any] = {
        **translation(tmp_path),
        "train": {**FEW, "optimiser": "adamw", "tokens": 500},
        "decode": DECODE,
    }
    train(make_recipe(asked), tmp_path / "base")
    asked |= {"model": {"pretrained": str(tmp_path / "base")}, "tune": tune, "data": {**asked["data"], "workers": 1}}
    assert unread(asked, tmp_path, read) == {"data.workers"}  # there are too few examples to share


# --- what is said


@pytest.mark.filterwarnings("ignore::glassformer.recipe.RecipeWarning")
def test_keys_without_effect_are_reset_so_that_recipes_that_do_the_same_are_equal() -> None:
    plain = make_recipe(letters(IDLE))
    for section, changes in (("tune", {"rank": 3}), ("train", {"decay": 0.5}), ("decode", {"length_penalty": 2.0})):
        asked = letters(IDLE)
        asked[section] = {**asked.get(section, {}), **changes}
        assert make_recipe(asked) == plain
    assert settled(plain) == plain


def test_a_key_without_effect_is_a_warning_that_says_why() -> None:
    asked = letters(IDLE)
    asked["tune"] = {"rank": 3}
    sentence = r"^my.toml: tune.rank has no effect: it needs tune.mode = 'lora', not 'full'$"
    with pytest.warns(RecipeWarning, match=sentence):
        make_recipe(asked, "my.toml")


def test_every_rule_names_keys_that_exist() -> None:
    recipe = make_recipe(letters(IDLE))
    known = {
        f"{name}.{key}" for name in ("data", "tokenizer", "tune", "train", "decode")
        for key in type(getattr(recipe, name)).model_fields
    }  # fmt: skip
    patterns = [pattern for some, _ in effects_of_keys.RULES for pattern in some]
    patterns += [pattern for _, task in TASKS.items() for pattern in task.unused]
    for pattern in patterns:
        assert any(fnmatchcase(key, pattern) for key in known), pattern


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"ema": 0.5, "average": 3}, "train.ema"),
        ({"average": 1}, "train.average"),
        ({"patience": 2, "steps": 10, "validate_every": 20}, "train.patience"),
        ({"steps": 10, "tokens": 1000}, "train.steps"),
        ({"optimiser": "adam", "weight_decay": 0.1}, "train.weight_decay"),
    ],
)
def test_a_key_that_changes_nothing_beside_others_is_reported(changes: dict[str, Any], key: str) -> None:
    with pytest.warns(RecipeWarning, match=f"{key} has no effect: "):
        made = make_recipe({"source": {"kind": "copy"}, "model": {"width": 16, "heads": 2}, "train": changes})
    name = key.split(".")[1]
    assert getattr(made.train, name) == type(made.train).model_fields[name].default


def test_an_image_model_has_no_word_vectors() -> None:
    table = {"task": {"kind": "images"}, "source": {"kind": "digits"}, "model": {"embeddings": "one-hot"}}
    with pytest.raises(RecipeError, match=r"model\.embeddings is not a key"):
        make_recipe(table)
