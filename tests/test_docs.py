"""What the documents show is run, and what is made from the code is as the code is now."""

import re
from pathlib import Path
from typing import Any

import pytest

import glassformer as gf
from glassformer.recipe import make_recipe, read_recipe
from glassformer.recipe.reference import reference

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_building_a_transformer_by_hand_runs_as_the_readme_shows() -> None:
    (block,) = [block for block in blocks("python") if "gf.transformer(" in block]
    names: dict[str, object] = {}
    exec(block, names)  # noqa: S102
    logits, heads, best, second = (names[name] for name in ("logits", "heads", "best", "second"))
    assert tuple(logits.shape) == (2, 3, 1000)  # type: ignore[attr-defined]
    assert tuple(heads.shape) == (2, 4, 3, 4)  # type: ignore[attr-defined]
    assert best.score >= second.score  # type: ignore[attr-defined]


@pytest.mark.learning
def test_training_from_python_runs_as_the_readme_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = [block for block in blocks("python") if "gf.train(" in block]
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(block, names)  # noqa: S102
    assert names["run"].translate(["5 May 2031"], beam=5)[0].text == "2031-05-05"  # type: ignore[attr-defined]


def test_the_recipe_in_the_readme_is_one(tmp_path: Path) -> None:
    (block,) = blocks("toml")
    (tmp_path / "my.toml").write_text(block, encoding="utf-8")
    assert read_recipe(tmp_path / "my.toml").source.kind == "tsv"


def test_the_reference_of_recipe_keys_is_up_to_date() -> None:
    stale = "run: .venv/bin/python -m glassformer.recipe.reference > docs/recipe.md"
    assert (ROOT / "docs" / "recipe.md").read_text(encoding="utf-8") == reference(), stale


def test_the_defaults_in_the_reference_are_a_recipe() -> None:
    import tomllib

    tables: dict[str, object] = {}
    for block in re.findall(r"```toml\n(.*?)```", reference().split("## All else")[1], flags=re.DOTALL):
        tables |= tomllib.loads(block)
    assert make_recipe({"source": {"kind": "copy"}, **tables}) == make_recipe({"source": {"kind": "copy"}})


def test_every_file_that_the_readme_links_to_is_there() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / link).exists(), link


PAGES = "".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("families", "lora", "static"))


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", PAGES, flags=re.DOTALL))
def test_every_page_runs_as_it_shows(block: str) -> None:
    names: dict[str, object] = {}
    exec(block, names)  # noqa: S102
    wanted = re.search(r"logits = .*# \((.*)\)", block)
    if wanted is not None:
        assert ", ".join(map(str, names["logits"].shape)) == wanted[1]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["answering", "summarising"])
def test_each_task_is_learned_as_its_page_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(block, names)  # noqa: S102
    found = names["found"]
    assert found.scores.exact > 0.9


TASK_PAGES = ("classification", "images", "forecasting")


@pytest.mark.parametrize("page", TASK_PAGES)
def test_tasks_run_as_their_pages_show(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for number, block in enumerate(re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)):
        (tmp_path / f"{number}.toml").write_text(block, encoding="utf-8")
        assert read_recipe(tmp_path / f"{number}.toml").task.kind == page
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        names: dict[str, object] = {}
        exec(block, names)  # noqa: S102
        run: Any = names["run"]
        found = run.evaluate(run.examples("test"))
        if page == "forecasting":
            assert found.scores.mae < 0.3 * found.baselines["training mean"].mae
        else:
            assert found.scores.accuracy > 0.9


def test_the_page_of_captions_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "captioning.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for number, block in enumerate(re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)):
        (tmp_path / f"{number}.toml").write_text(block, encoding="utf-8")
        assert read_recipe(tmp_path / f"{number}.toml").task.kind == "captioning"
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(block, names)  # noqa: S102
    assert names["weights"].dim() == 4
    assert names["figure"].axes


LOOKING = (
    "trace",
    "causal",
    "figures",
    "training",
    "attention",
    "residual",
    "attribution",
    "representations",
    "recurrent",
)


@pytest.mark.parametrize("page", LOOKING)
def test_the_pages_of_looking_run_as_they_show(page: str) -> None:
    text = (ROOT / "docs" / "looking" / f"{page}.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(block, names)  # noqa: S102
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / "docs" / "looking" / link).exists(), link


def test_the_names_in_the_page_of_traces_are_points() -> None:
    """Every name in its table is a point of some family."""
    from glassformer.models import recurrent, series_encoder, transformer, vit

    of_vectors = series_encoder(2, 8, 2, 1, 8), vit(2, 8, 4, 8, 2, 1, 8)
    models = transformer(9, 8, 2, 1, 8), recurrent(9, 8), *of_vectors
    known = {point for model in models for point in gf.points(model)}
    text = (ROOT / "docs" / "looking" / "trace.md").read_text(encoding="utf-8")
    table = text.split("| --- | --- | --- |\n")[1].split("\n\n")[0]
    for row in table.splitlines():
        first, *more = re.findall(r"`([\w.…]+)`", row.split("|")[1])
        for name in [first, *(f"{first.rpartition('.')[0]}{each}" for each in more)]:
            assert name.replace("…", "weights") in known, name


@pytest.mark.parametrize("page", [*TASK_PAGES, "captioning", "shapes", "static", "comparing"])
def test_every_file_that_a_page_links_to_is_there(page: str) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")):
        assert (ROOT / "docs" / link).exists(), link


def test_the_page_of_recurrent_models_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "recurrent.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for number, block in enumerate(re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)):
        (tmp_path / f"{number}.toml").write_text(block, encoding="utf-8")
        assert read_recipe(tmp_path / f"{number}.toml").model.family == "recurrent"
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(block, names)  # noqa: S102
    assert (tuple(names["update"].shape), tuple(names["weights"].shape)) == ((2, 4, 16), (2, 1, 3, 4))
    assert names["answer"].tags == ["DET", "NOUN", "AUX", "VERB"]
    for link in re.findall(r"\]\(([^)#]+)\)", page):
        assert (ROOT / "docs" / link).exists(), link
