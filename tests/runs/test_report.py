"""The report of a run: one page that needs nothing but itself, for every task, and says what is missing."""

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import glassformer as gf
from drill.world import World, tiny, write_data
from glassformer.looking.page import page, svg, table
from glassformer.recipe import make_recipe
from glassformer.registry import TASKS
from glassformer.runs import train
from glassformer.runs.report import Report, marked, try_on
from glassformer.tasks.run import Run
from glassformer.tasks.translation import Translator
from tiny import IDLE, recipe

VOID = {"meta", "img", "br"}
SELF_CLOSING = re.compile(r"<[^>]*/>")


class Balance(HTMLParser):
    """Follows the tags of a page: each is closed by the right one, and no identifier is there twice."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.ids, self.seen, self.words = list[str](), list[str](), set[str](), list[str]()
        self.outside = list[str]()
        self.feed(text)
        self.close()
        assert self.open == []
        assert len(self.ids) == len({*self.ids})

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        self._note(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self._note(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def _note(self, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name in ("src", "href", "srcset", "action", "data") and not str(value).startswith(("#", "data:")):
                self.outside.append(str(value))


def checked(text: str) -> Balance:
    """A page that is whole, needs nothing but itself, and runs nothing."""
    found = Balance(text)
    assert found.outside == []
    assert not found.seen & {"script", "link", "iframe", "object", "base", "form"}
    tags = "".join(re.findall(r"<style>.*?</style>|<[^>]*>", text, flags=re.DOTALL))
    assert not re.search(r"https?:|url\((?!#)|@import|\son\w+=", tags)
    return found


def report_of(run: Run, **more: Any) -> str:
    assert run.path is not None
    tested = try_on(run.examples("test"), run)
    return Report(run.path, run.recipe, run, tested, **more).page()


def headings(text: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", text)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Small data for every task."""
    made = World(tmp_path_factory.mktemp("world"))
    write_data(made.data)
    return made


@pytest.mark.parametrize(
    ("task", "family"),
    [*((name, None) for name in TASKS.names()), ("translation", "recurrent"), ("tagging", "recurrent")],
)
@pytest.mark.filterwarnings("ignore::glassformer.recipe.RecipeWarning")
def test_every_task_has_a_report(task: str, family: str | None, world: World, tmp_path: Path) -> None:
    given = tiny(world, task, family)
    given["data"] = {**given["data"], "max_tokens": 80, "valid": 0.2, "test": 0.3}
    made = make_recipe({"title": "a title", **given})
    run = train(made, tmp_path / "run")
    text = report_of(run, commands=["glassformer evaluate"])
    found = checked(text)
    wanted = ["Scores", "Training", "Examples", "Pictures", "Use", "Recipe"]
    assert [name for name in headings(text) if name != "Pictures"] == [name for name in wanted if name != "Pictures"]
    words = "".join(found.words)
    for fact in (f"Task: {task}", "train examples", "steps4", "parameters", "minutes", "torch", "glassformer evaluate"):
        assert fact in words
    assert f"{sum(each.numel() for each in run.model.parameters()):,}" in words
    assert 'kind = "' in words  # of the recipe
    evaluated = run.evaluate(run.examples("test"))
    for score in evaluated.table():
        assert score.value in words
        assert score.interval in words
    assert any(score.interval for score in evaluated.table())
    for sample in run.samples(run.examples("test"), evaluated):
        assert sample.output[:20] in words
    pictures = run.pictures(run.examples("test"), evaluated)
    assert [each.name for each in pictures] == re.findall(r'id="(attention|confusion|forecast)-figure_1"', text)
    assert ("Pictures" in headings(text)) == bool(pictures)


def test_a_translation_shows_its_signature_and_attention(trained: Translator) -> None:
    text = report_of(trained)
    checked(text)
    assert re.search(r"nrefs:1\|case:mixed\|[^<]*version:", text)
    assert 'aria-label="Cross attention of layer 1' in text
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


HTML = '<script>alert("x")</script>&amp;<b'


def test_what_users_write_is_text(trained: Translator, tmp_path: Path) -> None:
    folder = shutil.copytree(trained.path or "", tmp_path / "a <run> & 'more'")
    (folder / "recipe.toml").write_text(f"# {HTML}\n{(folder / 'recipe.toml').read_text()}", encoding="utf-8")
    run = gf.load(folder)
    run.recipe = run.recipe.model_copy(update={"title": HTML})
    examples = [(f"a b {HTML} c", f"a {HTML}"), *run.examples("test")[:3]]
    made = Report(folder, run.recipe, run, try_on(examples, run), commands=[f"glassformer translate {HTML}"])
    text = made.page()
    found = checked(text)
    assert "<script" not in text
    assert "".join(found.words).count(HTML) >= 5  # title, heading, input, recipe, command
    assert Report(folder, run.recipe, missing=HTML).page().count("&lt;script&gt;") >= 3


def test_letters_that_no_file_can_hold_are_replaced() -> None:
    assert "\ufffd and ?" in page("\0 and \udcff", [])


def test_figures_hold_what_users_write_as_text() -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().set_title(f'{HTML} id="x"', parse_math=False)
    text = svg(figure, "mine", HTML)
    found = checked(f"<p>{text}</p>")
    assert f'{HTML} id="x"' in "".join(found.words)
    assert "http" not in text
    assert "#000000" not in text
    assert all(name.startswith("mine-") for name in found.ids)
    assert {*re.findall(r'(?:url\(#|href="#)([^")]+)', text)} <= {*found.ids}


@pytest.mark.parametrize(
    ("output", "reference", "whole", "expected"),
    [
        ("the cat sat", "the dog sat", False, "the <mark>cat</mark> sat"),
        ("2031-05-06", "2031-05-05", False, "2031-05-0<mark>6</mark>"),
        ("the cat", "the cat sat", False, "the cat"),
        ("positive", "negative", True, "<mark>positive</mark>"),
        ("a <b> c", "a d c", False, "a <mark>&lt;b&gt;</mark> c"),
        ("", "a", False, ""),
        ("x " * 3000, "y " * 3000, False, "x " * 3000),
    ],
)
def test_differences_are_marked(output: str, reference: str, whole: bool, expected: str) -> None:
    assert marked(output, reference, whole) == expected


def test_a_table_has_as_many_cells_as_names() -> None:
    with pytest.raises(ValueError, match="argument 2 is longer"):
        table(["one", "two"], [["1"]])


def test_without_a_test_there_are_the_scores_of_validation(tmp_path: Path) -> None:
    run = train(recipe(IDLE), tmp_path / "run")
    text = Report(tmp_path / "run", run.recipe, run, missing="none <was> kept").page()
    words = "".join(checked(text).words)
    assert headings(text) == ["Scores", "Training", "Use", "Recipe"]
    assert "There are no scores of a test: none <was> kept." in words
    assert re.search(r"Validation at step \d, the best by loss:", words)
    assert "chrf" in words


def test_a_run_without_weights_says_so(tmp_path: Path, trained: Translator) -> None:
    folder = shutil.copytree(trained.path or "", tmp_path / "run")
    (folder / "model.safetensors").unlink()
    words = "".join(checked(Report(folder, trained.recipe, trained).page()).words)
    assert "The training is unfinished: its last checkpoint is of step 220; what follows is of the weights" in words
    shutil.rmtree(folder / "checkpoints")
    words = "".join(checked(Report(folder, trained.recipe).page()).words)
    assert "The training is unfinished: it has no checkpoint yet." in words


@pytest.mark.parametrize("damage", ["gone", "{}", "[]", "\0", "folder"])
@pytest.mark.parametrize("name", ["data.json", "environment.json", "metrics.jsonl", "recipe.toml"])
def test_damaged_files_cost_their_facts_and_no_more(
    name: str, damage: str, trained: Translator, tmp_path: Path
) -> None:
    folder = shutil.copytree(trained.path or "", tmp_path / "run")
    (folder / name).unlink()
    if damage == "folder":
        (folder / name).mkdir()
    elif damage != "gone":
        (folder / name).write_text(damage, encoding="utf-8")
    text = Report(folder, trained.recipe, trained, try_on(trained.examples("test")[:5], trained)).page()
    checked(text)
    assert {"Scores", "Examples", "Pictures"} <= {*headings(text)}
