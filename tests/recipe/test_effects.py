"""Every key does something, or somebody says that it does not."""

import json
import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest
import torch

import captions
import questions
import stories
import waves
from glassformer.errors import ConfigurationError, GlassformerError, RecipeError
from glassformer.recipe import Recipe, RecipeWarning, make_recipe, reset_idle_keys, without_effect
from glassformer.recipe import effects as effects_of_keys
from glassformer.recipe.model import Fresh, FreshReader, families_for, section_of
from glassformer.registry import TASKS
from glassformer.runs import prepare_corpus, train
from glassformer.tasks.task import fresh_model
from labels import examples, folder_of_bars, image_recipe, table, text_recipe
from tiny import IDLE
from tiny import table as letters

SIZES: dict[str, Any] = {"width": 8, "heads": 2, "layers": 1, "hidden": 16, "head_width": 4, "patch": 2}
LONG = 24  # tokens: enough for distances to matter
SOURCES: dict[str, dict[str, Any]] = {
    "answering": {"kind": "squad", "train": "t"},
    "forecasting": {"kind": "seasons"},
    "images": {"kind": "image-folder", "path": "t"},
    "series-classification": {"kind": "activities"},
    "captioning": {"kind": "captions", "train": "t"},
}
OPTIONS: dict[str, dict[str, Any]] = {"images": {"size": 8}, "captioning": {"size": 8, "frames": 2}}
TASK_FAMILIES = [(kind, family) for kind, task in TASKS.items() for family in families_for(task.answer)]


# --- [model]: another value is another model


def recipe_of(kind: str, family: str, changes: dict[str, Any]) -> Recipe:
    """A tiny recipe; keys without effect are refused like wrong ones."""
    known = section_of(family, TASKS[kind].answer).model_fields
    model = {key: size for key, size in SIZES.items() if key in known and (key != "head_width" or family == "t5")}
    asked = {
        "task": {"kind": kind, **OPTIONS.get(kind, {})},
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
        film = torch.randn(2, 2, 3, 8, 8)
        known = {"image-classes": (image,), "target": (tokens, tokens), "caption": (film, tokens)}
        inputs = known.get(self.recipe.task.answer, (tokens,))
        if self.recipe.task.answer in ("numbers", "series-classes"):
            inputs = (torch.randn(2, LONG, self.recipe.source.columns_read()),)
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


# --- the other sections: another value gives other rows, another training, other files or other outputs

ADDRESS = re.compile(" at 0x[0-9a-f]+")  # of an object in memory, which is another each time
BASE: dict[str, dict[str, Any]] = {
    "train": {
        "steps": 4, "optimiser": "adamw", "schedule": "wsd", "warmup": 1, "ema": 0.5, "validate_every": 1,
        "save_every": 1, "keep": 2, "log_every": 1, "device": "cpu", "clip": 0.1,
    },
    "decode": {"beam": 2, "max_length": 4},
}  # fmt: skip
BESIDE: dict[str, dict[str, dict[str, Any]]] = {  # what some keys need to have an effect
    "train.muon_lr": {"train": {"optimiser": "muon"}},
    "train.patience": {"train": {"lr": 1e-30}},
    "train.watch": {"train": {"lr": 4.5e-3, "steps": 6, "patience": 1}},  # the loss falls, a score may not
    "train.save_every": {"train": {"validate_every": 9}},  # else each validation saves the best
    "train.keep": {"train": {"validate_every": 9}},
    "data.long": {"data": {"max_tokens": 6}},
    "task.name_words": {"task": {"swap_names": 0.9}},
    "data.views": {"tokenizer": {"dropout": 0.5}},
    "decode.top_k": {"decode": {"temperature": 1.0}},
    "decode.top_p": {"decode": {"temperature": 1.0}},
    "decode.min_p": {"decode": {"temperature": 1.0}},
    "decode.count_prompt": {"decode": {"max_length": 6}},
}
OTHER: dict[str, Any] = {
    "train.tokens": 1, "train.precision": "bf16", "train.schedule": "cosine", "train.optimiser": "muon",
    "train.betas": (0.5, 0.5), "train.patience": 1, "train.average": 2, "train.device": "abacus", "train.clip": 0.01,
    "train.decay": 0.9, "train.ema": 0.01, "train.minutes": 1e-4,
    "train.validate_sentences": 1, "train.validate_every": 2, "train.warmup": 3, "train.steps": 2,
    "train.log_every": 2, "train.save_every": 2, "data.long": "drop", "data.normalise": "none", "data.max_ratio": 1.5,
    "data.max_characters": 9, "data.max_tokens": 5, "data.valid": 0.3, "data.test": 0.3, "data.duplicates": "keep",
    "tokenizer.kind": "character", "tokenizer.vocabulary": 20, "tokenizer.sample": 3, "tokenizer.path": "no-such-file",
    "train.strategy": "fsdp", "tune.mode": "head", "tune.targets": ("query",), "tune.rank": 1,
    "decode.batch": 1, "decode.length_penalty": -3.0, "decode.max_length": 2, "decode.beam": 1,
    "decode.temperature": 1.0, "decode.top_k": 1, "decode.top_p": 0.01, "decode.min_p": 1.0, "decode.min_length": 3,
    "decode.repetition_penalty": 9.0, "decode.no_repeat_ngram": 1, "tokenizer.dropout": 0.9,
    "task.name_words": (("the", "a"),), "look.texts": ("the a",),
}  # fmt: skip
# What no result shows, and where a test holds what it does instead.
ELSEWHERE = {
    "data.workers": "tests/data/test_preparing.py",
    "train.compile": "tests/training/test_loss.py",
    "train.max_bad_steps": "tests/training/test_loop.py",
    "look.every": "tests/runs/test_looks.py",
    "decode.early_stopping": "tests/parity/test_generation_settings.py",
    "decode.min_length": "tests/parity/test_generation_settings.py",
    "decode.renormalise": "tests/parity/test_generation_settings.py",
}
CLOCK = {"tokens_per_s", "elapsed", "eta", "memory"}  # measurements of the machine
ODD = "cafe\u0301  old  the"  # that normalising and stripping change


def translation(folder: Path) -> dict[str, Any]:
    rows: list[tuple[str, ...]] = [(f"the {a} {b}", f"{b} {a}") for a in "abcdefgh" for b in "abcdefgh"]
    rows += [(ODD, "a b c d e"), ("a b c d e f g h", "a b c d e f"), ("the a b", "b a"), ("The A", "b a"), ("one",)]
    return {
        **letters(IDLE),
        "source": {"kind": "tsv", "train": str(table(folder / "t.tsv", rows))},
        "data": {"max_tokens": 16, "valid": 0.1, "test": 0.1, "max_ratio": 9.0},
        "tokenizer": {"kind": "bpe", "vocabulary": 300},
    }


def classification(folder: Path) -> dict[str, Any]:
    rows = [*examples(60), (ODD, "fruit"), ("The old saw", "tool"), ("the saw",), *examples(2), ("a zebra", "tool")]
    return text_recipe(table(folder / "t.tsv", rows), tokenizer={"vocabulary": 19})  # all words but the last


def tagging(folder: Path) -> dict[str, Any]:
    rows = [(text, " ".join("x" if word < "m" else "y" for word in text.split())) for text, _ in examples(60)]
    rows += [(ODD, "x y x"), ("The Saw", "x y"), ("the saw", "x"), rows[0], ("a zebra", "x y")]
    asked = text_recipe(table(folder / "t.tsv", rows), tokenizer={"vocabulary": 20})
    return {**asked, "task": {"kind": "tagging"}, "model": {"family": "recurrent", "width": 8}}


def embedding(folder: Path) -> dict[str, Any]:
    pairs = [(text, f"a {label}") for text, label in examples(60)]
    rows = [*pairs, (ODD, "odd"), ("The old saw", "Tool"), ("the saw",), pairs[0]]
    # A seed with which the loss falls before the accuracy rises.
    asked = text_recipe(table(folder / "t.tsv", rows), tokenizer={"vocabulary": 22}, train={"seed": 4})
    return {**asked, "task": {"kind": "embedding"}}


def documents(kind: str) -> Callable[[Path], dict[str, Any]]:
    small = {"width": 8, "heads": 2, "layers": 1, "hidden": 16}

    def made(folder: Path) -> dict[str, Any]:
        path = stories.stories(folder / "t.txt", 60)
        path.write_bytes(path.read_bytes() + f"\n\n{ODD}\n\n{ODD} {ODD}\n\nThe Cat\n\nThe Cat".encode())
        (folder / "bad.txt").write_bytes(b"a \xff b")
        files = {"kind": "text", "train": [str(path), str(folder / "bad.txt")]}
        return stories.recipe(path, kind, model=small, source=files)

    return made


def answering(folder: Path) -> dict[str, Any]:
    some = questions.paragraphs(30)
    odd = [{"question": "Which", "answers": [{"text": "no", "answer_start": 0}]}]
    some += [{"context": f"{ODD} Red", "qas": odd}, some[0]]
    return questions.recipe(questions.written(folder / "q.json", some))


def images(folder: Path) -> dict[str, Any]:
    path = folder_of_bars(folder / "images", 12)
    (path / "lying" / "bad.png").write_bytes(b"no image")
    (path / "lying" / "same.png").write_bytes((path / "lying" / "000.png").read_bytes())
    return image_recipe(path)


def forecasting(folder: Path) -> dict[str, Any]:
    odd = [(240 + at, "x" if at == 3 else at, at) for at in range(8)]
    asked = waves.forecasting(folder, source={"series": "name"})
    file = Path(asked["source"]["train"])
    rows = [line.split(",") for line in file.read_text().splitlines()[1:]]
    waves.written(
        file, ("name", "hour", "heat", "load"), [(name, *row) for name in "abc" for row in [*rows, *odd][name == "c" :]]
    )
    return asked


def series_classification(folder: Path) -> dict[str, Any]:
    asked = waves.recognising(folder, train={"seed": 2})  # with which the loss falls before the accuracy rises
    file = Path(asked["source"]["train"])
    lines = file.read_text().splitlines()
    twin = [line.replace("person 0", "twin") for line in lines if line.startswith("person 0")]
    file.write_text("\n".join([*lines, *twin, "person 5,x,quick"]) + "\n")
    return asked


def captioning(folder: Path) -> dict[str, Any]:
    file = captions.written(folder, 24)
    rows = file.read_text(encoding="utf-8").splitlines()
    odd = {"image": "seen/000.png", "caption": [ODD, "The Circle", "a b c d e f g h i j k l m n"]}
    (folder / "seen" / "bad.png").write_bytes(b"no image")
    bad = {"image": "seen/bad.png", "caption": "a circle"}
    file.write_text("\n".join([*rows, rows[0], json.dumps(odd), json.dumps(bad)]), encoding="utf-8")
    return captions.caption_recipe(file)


MADE: dict[str, Callable[[Path], dict[str, Any]]] = {
    "answering": answering,
    "captioning": captioning,
    "classification": classification,
    "denoising": documents("denoising"),
    "embedding": embedding,
    "forecasting": forecasting,
    "images": images,
    "language-modelling": documents("language-modelling"),
    "masked-language-modelling": documents("masked-language-modelling"),
    "series-classification": series_classification,
    "span-corruption": documents("span-corruption"),
    "tagging": tagging,
    "translation": translation,
}
USED: dict[str, Callable[[Any], object]] = {
    "translation": lambda run: run.search(["the a b"], best=2),
    "captioning": lambda run: run.search([each.frames for each in run.examples("test")[:2]], best=2),
    "language-modelling": lambda run: run.generate(["the big", "the old cow"]),
    "masked-language-modelling": lambda run: run.fill(["the big [MASK] says moo"]),
    "denoising": lambda run: run.outputs([run.read("the big <mask> moo")] * 2, [run.limits] * 2),
    "span-corruption": lambda run: run.outputs([run.read_gaps("the big <extra_id_0> moo")] * 2, [run.limits] * 2),
}


def changed(*changes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Tables of recipes on top of each other."""
    made: dict[str, Any] = {}
    for change in changes:
        for name, section in change.items():
            made[name] = {**made.get(name, {}), **section}
    return made


def silently(asked: dict[str, Any]) -> Recipe:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecipeWarning)
        return make_recipe(asked)


def rows_of(recipe: Recipe) -> list[Any]:
    """What a training would learn from."""
    corpus = prepare_corpus(recipe)
    rows = [
        (row.lengths.tolist(), [numbers.tolist() for column in (0, 1) for _, numbers in row.blocks(column)])
        for row in corpus.splits.values()
    ]
    held_out = [repr(corpus.held_out(split)) for split in ("valid", "test")]
    return [rows, held_out, corpus.report.to_dict(), [each.to_json() for each in corpus.assets.tokenizers]]


def trained_with(recipe: Recipe, folder: Path, use: Callable[[Any], object] | None) -> list[Any]:
    """What a training says, measures and writes, what the run makes of some examples, and how much at a time."""
    shapes: list[Any] = []
    hook = torch.nn.modules.module.register_module_forward_pre_hook(
        lambda part, given: shapes.append([each.shape for each in given if isinstance(each, torch.Tensor)])
    )
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", RecipeWarning)
            run = train(recipe, folder)
        used = [ADDRESS.sub("", repr(each)) for each in (run.evaluate(run.examples("test")[:4]), use and use(run))]
    finally:
        hook.remove()
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    measured = [{key: each[key] for key in each if key not in CLOCK} for each in records]
    files = [(folder / name).read_bytes() for name in ("model.safetensors", "config.json")]
    checkpoints = sorted(path.name for path in folder.glob("checkpoints/*"))
    looks = sorted(path.name for path in folder.glob("looks/*"))
    return [[str(each.message) for each in said], measured, files, checkpoints, looks, used, shapes]


def outcome(asked: dict[str, Any], rows: bool, folder: Path, use: Callable[[Any], object] | None) -> list[Any]:
    """What comes of a recipe: the rows to learn from, or the training; a sentence of refusal is an outcome, too."""
    try:
        recipe = silently(asked)
        return rows_of(recipe) if rows else trained_with(recipe, folder, use)
    except GlassformerError as error:
        return [str(error).replace(str(folder), "")]


def another(recipe: Recipe, key: str) -> Any:
    """Another value for a key."""
    section, name = key.split(".")
    value = getattr(getattr(recipe, section), name)
    if key == "train.watch":
        return next((score for score in recipe.task.scores if score != value), "nothing")
    if key == "train.batch_tokens":
        return value // 8
    if key in OTHER:
        return OTHER[key] if OTHER[key] != value else "nfc"
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value / 2 + 0.1


def silent_keys(
    base: dict[str, Any], folder: Path, use: Callable[[Any], object] | None = None, only: str = ""
) -> list[str]:
    """The keys whose change is seen nowhere, though nothing says that they have no effect."""
    known: dict[str, list[Any]] = {}
    found = []
    for number, key in enumerate(keys_of(silently(base))):
        beside = BESIDE.get(key, {})
        asked = changed(base, beside)
        recipe = silently(asked)
        if key in ELSEWHERE or key in without_effect(recipe) or not key.startswith(only):
            continue
        section, name = key.split(".")
        other = changed(asked, {section: {name: another(recipe, key)}})
        for rows in (True, False) if section in ("data", "tokenizer") else (False,):
            place = f"{rows}{beside}"
            if place not in known:
                known[place] = outcome(asked, rows, folder / f"base{number}", use)
            if outcome(other, rows, folder / str(number), use) != known[place]:
                break
        else:
            found.append(key)
    return found


def keys_of(recipe: Recipe) -> list[str]:
    sections = {name: type(getattr(recipe, name)) for name in ("data", "tokenizer", "tune", "train", "look", "decode")}
    return [f"{name}.{key}" for name, section in sections.items() for key in section.model_fields]


def test_there_is_a_recipe_for_every_task() -> None:
    assert MADE.keys() == {*TASKS.names()}
    for key, file in ELSEWHERE.items():
        assert key.partition(".")[2] in (Path(__file__).parents[2] / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", MADE)
def test_every_key_has_an_effect_or_is_said_to_have_none(kind: str, tmp_path: Path) -> None:
    asked = MADE[kind](tmp_path)
    base = changed(asked, BASE, {"train": {"batch_tokens": asked["train"]["batch_tokens"]}})
    assert silent_keys(base, tmp_path / "runs", USED.get(kind)) == []


@pytest.mark.parametrize("tune", [{"mode": "lora", "rank": 2}, {"mode": "unfreeze", "every": 1}])
def test_every_key_of_tuning_has_an_effect(tune: dict[str, Any], tmp_path: Path) -> None:
    base = changed(translation(tmp_path), BASE)
    train(make_recipe(base), tmp_path / "base")
    tuned = {**base, "model": {"pretrained": str(tmp_path / "base")}, "tune": tune, "tokenizer": {}}
    assert silent_keys(tuned, tmp_path / "runs", only="tune.") == []


# --- what is said


@pytest.mark.filterwarnings("ignore::glassformer.recipe.RecipeWarning")
def test_keys_without_effect_are_reset_so_that_recipes_that_do_the_same_are_equal() -> None:
    plain = make_recipe(letters(IDLE))
    for section, changes in (("tune", {"rank": 3}), ("train", {"decay": 0.5}), ("decode", {"length_penalty": 2.0})):
        asked = letters(IDLE)
        asked[section] = {**asked.get(section, {}), **changes}
        assert make_recipe(asked) == plain
    assert reset_idle_keys(plain) == plain


def test_a_key_without_effect_is_a_warning_that_says_why() -> None:
    asked = letters(IDLE)
    asked["tune"] = {"rank": 3}
    sentence = r"^my.toml: tune.rank has no effect: it needs tune.mode = 'lora', not 'full'$"
    with pytest.warns(RecipeWarning, match=sentence):
        make_recipe(asked, "my.toml")


def test_every_rule_names_keys_that_exist() -> None:
    recipe = make_recipe(letters(IDLE))
    known = {
        f"{name}.{key}" for name in ("data", "tokenizer", "tune", "train", "look", "decode")
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
        ({"steps": 10, "minutes": 1}, "train.steps"),
        ({"tokens": 1000, "minutes": 1}, "train.tokens"),
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
