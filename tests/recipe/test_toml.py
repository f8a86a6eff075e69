"""A recipe written as TOML is read back as it was."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.recipe import Recipe, bundled, make_recipe, read_recipe, to_toml, without_effect

TEXT = st.text(st.characters(exclude_categories=["Cs"]))  # half a surrogate pair is no text
FLOAT = st.floats(min_value=1e-12, max_value=1e12, allow_nan=False)
SHARE = st.floats(min_value=0, max_value=0.4)
COUNT = st.integers(min_value=1, max_value=10**9)
SEED = st.integers(min_value=0, max_value=2**63 - 1)


def some(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A table with some of these keys."""
    return st.fixed_dictionaries({}, optional=keys)


SOURCES = st.one_of(
    st.fixed_dictionaries(
        {"kind": st.just("tsv"), "train": TEXT}, optional={"valid": TEXT, "columns": st.tuples(COUNT, COUNT)}
    ),
    st.fixed_dictionaries({"kind": st.just("aligned"), "train": st.tuples(TEXT, TEXT)}),
    st.fixed_dictionaries({"kind": st.just("jsonl"), "train": TEXT}, optional={"fields": st.tuples(TEXT, TEXT)}),
    st.fixed_dictionaries({"kind": st.just("dates")}, optional={"locales": st.lists(TEXT, min_size=1), "seed": SEED}),
    st.fixed_dictionaries({"kind": st.sampled_from(["copy", "reverse", "sort"])}, optional={"count": COUNT}),
)
RECIPES = st.builds(
    lambda title, **sections: make_recipe({"title": title, **sections}),
    title=TEXT,
    source=SOURCES,
    data=some(strip=st.booleans(), max_ratio=FLOAT.filter(lambda ratio: ratio > 1), valid=SHARE, test=SHARE, seed=SEED),
    tokenizer=some(vocabulary=COUNT, lowercase=st.booleans(), path=TEXT),
    model=some(
        hidden=COUNT,
        dropout=SHARE,
        residual=st.sampled_from(["pre", "post"]),
        decoder_layers=COUNT,
        gated=st.booleans(),
        activation=st.sampled_from(["relu", "gelu"]),
    ),
    train=some(steps=COUNT, lr=FLOAT, betas=st.tuples(SHARE, SHARE), compile=st.booleans(), seed=SEED, device=TEXT),
    decode=some(length_penalty=st.floats(-1e9, 1e9), beam=COUNT),
)


def back(text: str) -> Recipe:
    return make_recipe(tomllib.loads(text))


@pytest.mark.filterwarnings("ignore::glassformer.recipe.RecipeWarning")
@given(made=RECIPES, comments=st.booleans())
def test_any_recipe_is_read_back_as_it_was(made: Recipe, comments: bool) -> None:
    assert back(to_toml(made, comments)) == made


def test_a_delete_character_survives() -> None:
    made = make_recipe({"title": 'a\x7fb "quoted" \\ \n\t\x00\u2028é', "source": {"kind": "copy"}})
    assert back(to_toml(made)) == made


@pytest.mark.parametrize("path", bundled().values(), ids=bundled())
def test_every_recipe_that_ships_is_read_back_as_it_was(path: Path) -> None:
    made = read_recipe(path)
    assert made.title
    assert back(to_toml(made)) == made
    assert back(to_toml(made, comments=True)) == made


def test_comments_say_what_every_key_means() -> None:
    made = make_recipe({"source": {"kind": "tsv", "train": "a.tsv"}})
    lines = to_toml(made, comments=True).splitlines()
    idle = without_effect(made)
    assert "train.muon_lr" in idle
    for name in ("source", "data", "tokenizer", "model", "train", "decode"):
        for key, field in type(getattr(made, name)).model_fields.items():
            named = [line for line in lines if line.removeprefix("# ").startswith(f"{key} =")]
            described = any((field.description or "") in line for line in named)
            assert described is (f"{name}.{key}" not in idle), key
    assert any(line.startswith("# valid =  # the validation file") for line in lines)


def test_without_comments_there_are_none() -> None:
    assert "#" not in to_toml(make_recipe({"source": {"kind": "copy"}}))


def test_all_keys_that_have_an_effect_are_spelled_out() -> None:
    made = make_recipe({"source": {"kind": "copy"}})
    written, idle = tomllib.loads(to_toml(made)), without_effect(made)
    assert {"data.valid", "data.test", "data.seed"} <= idle.keys()
    for name in ("source", "data", "tokenizer", "model", "train", "decode"):
        section = getattr(made, name)
        keys = {key for key in type(section).model_fields if f"{name}.{key}" not in idle}
        assert written[name].keys() == {key for key in keys if getattr(section, key) is not None}
