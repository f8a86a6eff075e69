"""Recipes are read with a sentence for whatever is wrong with them."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from glassformer.data.sources.files import AlignedSource, FolderSource, TsvSource
from glassformer.errors import RecipeError
from glassformer.recipe import Section, bundled, find_recipe, make_recipe, read_recipe, to_toml, with_absolute_paths
from glassformer.recipe.model import section_of
from glassformer.registry import FAMILIES

COPY = {"source": {"kind": "copy"}}


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"train": {"stepz": 5}}, "train.stepz is not a key: did you mean steps?"),
        ({"trian": {"steps": 5}}, "trian is not a key: did you mean train?"),
        ({"train": {"qqq": 1}}, "train.qqq is not a key: its keys are steps, tokens"),
        ({"source": {"kind": "tsv", "train": "a", "tset": "b"}}, "source.tset is not a key: did you mean test?"),
        ({"source": {"kind": "tsv"}}, "source.train is missing: the training file (plain, .gz or .xz)"),
        ({"source": {"kind": "cpoy"}}, "source.kind is 'cpoy': did you mean copy?"),
        ({"source": {"kind": "xyzzy"}}, "source.kind is 'xyzzy': it is one of activities, aligned"),
        ({"source": {}}, "source is missing: where the examples come from; source.kind is one of activities, aligned"),
        ({"source": {"train": "a"}}, "source.kind is missing: it is one of activities, aligned"),
        ({"source": "dates"}, "source is 'dates': it should be a table of keys"),
        ({"train": {"steps": -1}}, "train.steps is -1: input should be greater than or equal to 0"),
        ({"train": {"steps": "many"}}, "train.steps is 'many': input should be a valid integer"),
        ({"train": {"steps": "100"}}, "train.steps is '100': input should be a valid integer"),
        ({"train": {"steps": True}}, "train.steps is True: input should be a valid integer"),
        ({"train": {"steps": 100.0}}, "train.steps is 100.0: input should be a valid integer"),
        ({"train": {"lr": "1e-3"}}, "train.lr is '1e-3': input should be a valid number"),
        ({"train": {"clip": False}}, "train.clip is False: input should be a valid number"),
        ({"train": {"warmup": True}}, "train.warmup is True: input should be a valid integer"),
        ({"train": {"betas": [0.9, True]}}, "train.betas.1 is True: input should be a valid number"),
        ({"train": {"compile": "yes"}}, "train.compile is 'yes': input should be 'auto', True or False"),
        ({"data": {"strict": 1}}, "data.strict is 1: input should be a valid boolean"),
        ({"data": {"max_ratio": True}}, "data.max_ratio is True: input should be a valid number"),
        ({"decode": {"length_penalty": "1"}}, "decode.length_penalty is '1': input should be a valid number"),
        ({"train": {"schedule": "sinus"}}, "train.schedule is 'sinus': input should be 'inverse-sqrt'"),
        ({"train": {"betas": [0.9]}}, "train.betas.1 is missing"),
        ({"train": {"lr": float("inf")}}, "train.lr is inf: input should be a finite number"),
        ({"train": {"seed": -1}}, "train.seed is -1"),
        ({"train": {"seed": 2**63}}, "train.seed is 9223372036854775808"),
        ({"train": 5}, "train is 5: it should be a table of keys"),
        ({"source": {"kind": "tsv", "train": "a", "columns": [0, 1, "x"]}}, "source.columns.2 is 'x'"),
        (
            {"source": {"kind": "tsv", "train": "a", "columns": [0]}},
            "source.columns is [0]: it should have at least 2 entries",
        ),
        ({"source": {"kind": "aligned", "train": "a"}}, "source.train is 'a': it should be a list in brackets"),
        ({"model": {"width": 10, "heads": 4}}, "model: width 10 does not divide into 4 heads"),
        ({"tokenizer": {"joint": False}}, "model.tie_source needs tokenizer.joint"),
        ({"data": {"max_tokens": 5000}}, "data.max_tokens must be below train.batch_tokens"),
        ({"data": {"valid": 0.5, "test": 0.5}}, "data.valid and data.test leave nothing to train on"),
        ({"source": {"kind": "dates", "first_year": 2000, "last_year": 1999}}, "source.first_year 2000 is after"),
        ({"title": 5}, "title is 5: input should be a valid string"),
    ],
)
def test_a_wrong_recipe_is_told_in_one_sentence(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RecipeError) as error:
        make_recipe({**COPY, **wrong}, "my.toml")
    assert str(error.value).startswith(f"my.toml: {sentence}")
    assert "\n" not in str(error.value)


def sections(above: type[Section] = Section) -> list[type[Section]]:
    return [each for below in above.__subclasses__() for each in (below, *sections(below))]


def test_no_key_of_any_section_takes_words_or_switches_for_numbers() -> None:
    made = [section_of(name, answer) for name, family in FAMILIES.items() for answer in family.answers]
    checked = 0
    for section in {*sections(), *made}:
        for key, field in section.model_fields.items():
            wrong: list[object] = ["yes", 1] if isinstance(field.default, bool) else ["1", True]
            if not isinstance(field.default, int | float):
                continue
            for value in wrong:
                with pytest.raises(ValidationError) as error:
                    section.model_validate({key: value})
                assert (key,) in [each["loc"] for each in error.value.errors()], f"{section.__name__}.{key} = {value!r}"
                checked += 1
    assert checked > 300


def test_an_empty_recipe_lacks_a_source() -> None:
    with pytest.raises(RecipeError, match="source is missing: where the examples come from"):
        make_recipe({})


def test_each_of_several_mistakes_has_its_line() -> None:
    with pytest.raises(RecipeError) as error:
        make_recipe({**COPY, "train": {"stepz": 5, "lr": -1}})
    assert len(str(error.value).splitlines()) == 2


def write(folder: Path, text: str) -> Path:
    path = folder / "my.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        ("train.lr=3e-4", "lr", 3e-4),
        ("train.steps=7", "steps", 7),
        ("train.lr=1", "lr", 1.0),
        ("train.betas=[0, 0.5]", "betas", (0.0, 0.5)),
        ("train.schedule=cosine", "schedule", "cosine"),
        ('train.schedule="cosine"', "schedule", "cosine"),
        ("train.compile=true", "compile", True),
        ("train.betas=[0.5, 0.6]", "betas", (0.5, 0.6)),
        ("train.device=cuda:1", "device", "cuda:1"),
    ],
)
def test_changes_are_made_to_what_is_read(tmp_path: Path, change: str, key: str, value: object) -> None:
    path = write(tmp_path, '[source]\nkind = "copy"\n[train]\nlr = 1.0\n')
    assert getattr(read_recipe(path, [change]).train, key) == value


def test_a_change_may_add_a_section_and_the_last_one_counts(tmp_path: Path) -> None:
    path = write(tmp_path, '[source]\nkind = "copy"\n')
    read = read_recipe(path, ["model.width=8", "model.heads=2", "model.width=6"])
    assert (read.model.width, read.model.heads) == (6, 2)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("train.lr", "'train.lr' is not of the form section.key=value"),
        ("=5", "'=5' is not of the form"),
        ("train..lr=5", "is not of the form"),
        ("title.x=5", "title is a value, not a section"),
        ("train.setps=5", "train.setps is not a key: did you mean steps?"),
    ],
)
def test_a_wrong_change_is_told(tmp_path: Path, change: str, sentence: str) -> None:
    path = write(tmp_path, 'title = "x"\n[source]\nkind = "copy"\n')
    with pytest.raises(RecipeError, match=sentence.replace("?", r"\?")):
        read_recipe(path, [change])


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        (
            r'"C:\Users\me\pairs.tsv"',
            "my.toml: is not TOML: Invalid hex value (at line 3, column 14): write a path with /",
        ),
        (
            r'"data\pairs.tsv"',
            "my.toml: is not TOML: Unescaped '\\' in a string (at line 3, column 16): write a path with /",
        ),
        (r'"data\test.tsv"', r"my.toml: source.train is 'data\test.tsv': write a path with / or in single quotes"),
        (
            r'["a.tsv", "data\new.tsv"]',
            r"my.toml: source.train is 'data\new.tsv': write a path with / or in single quotes",
        ),
    ],
)
def test_backslashes_of_windows_paths_are_told(tmp_path: Path, path: str, sentence: str) -> None:
    recipe = write(tmp_path, f'[source]\nkind = "tsv"\ntrain = {path}\n')
    with pytest.raises(RecipeError, match=re.escape(sentence)):
        read_recipe(recipe)


def test_only_backslashes_that_toml_refuses_are_told(tmp_path: Path) -> None:
    for text in ('["line 99"]\n["line 99"]\n', 'a = "x\\ty" b', "b = = 1 # \\"):
        with pytest.raises(RecipeError, match="is not TOML: ") as told:
            read_recipe(write(tmp_path, text))
        assert "single quotes" not in str(told.value)


def test_a_run_in_a_folder_with_a_tab_is_read_again(tmp_path: Path) -> None:
    recipe = with_absolute_paths(make_recipe({"source": {"kind": "tsv", "train": "a.tsv"}}), tmp_path / "my\tdata")
    assert read_recipe(write(tmp_path, to_toml(recipe))) == recipe


def test_a_path_of_windows_is_one_in_single_quotes(tmp_path: Path) -> None:
    recipe: Any = read_recipe(write(tmp_path, "[source]\r\nkind = \"tsv\"\r\ntrain = 'C:\\data\\test.tsv'\r\n"))
    assert str(recipe.source.train) == r"C:\data\test.tsv"


def test_files_that_are_no_recipes_are_told(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"my.toml: is not TOML: .*line 1, column"):
        read_recipe(write(tmp_path, "steps 5"))
    (tmp_path / "my.toml").write_bytes(b'title = "\xff"')
    with pytest.raises(RecipeError, match=r"my.toml: is not UTF-8 text \(byte 9\)"):
        read_recipe(tmp_path / "my.toml")
    with pytest.raises(RecipeError, match="cannot be read: No such file"):
        read_recipe(tmp_path / "none.toml")


def test_recipes_are_found_by_path_and_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_recipe("dates") == bundled()["dates"]
    (tmp_path / "dates").write_text("", encoding="utf-8")
    assert find_recipe("dates") == Path("dates")  # what the user has comes first
    with pytest.raises(RecipeError, match=r"daets: .* did you mean dates\?"):
        find_recipe("daets")
    with pytest.raises(RecipeError, match=r"zzz.toml: there is no such file, .* those that ship are"):
        find_recipe("zzz.toml")


def test_absolute_paths_are_read_from_anywhere(tmp_path: Path) -> None:
    tsv = with_absolute_paths(
        make_recipe({"source": {"kind": "tsv", "train": "a.tsv", "test": "/b.tsv"}}), tmp_path
    ).source
    assert isinstance(tsv, TsvSource)
    assert (tsv.train, tsv.valid, tsv.test) == (str(tmp_path / "a.tsv"), None, "/b.tsv")
    two = with_absolute_paths(
        make_recipe({"source": {"kind": "aligned", "train": ["a.en", "../a.de"]}}), tmp_path / "sub"
    ).source
    assert isinstance(two, AlignedSource)
    assert (two.train, two.valid) == ((str(tmp_path / "sub" / "a.en"), str(tmp_path / "a.de")), None)
    made = make_recipe({"source": {"kind": "folder", "path": "."}, "tokenizer": {"path": "t.json"}})
    folder = with_absolute_paths(made, tmp_path)
    assert isinstance(folder.source, FolderSource)
    assert (folder.source.path, folder.tokenizer.path) == (str(tmp_path), str(tmp_path / "t.json"))
    assert with_absolute_paths(folder, Path("/elsewhere")) == folder
    assert with_absolute_paths(make_recipe(COPY), tmp_path) == make_recipe(COPY)
