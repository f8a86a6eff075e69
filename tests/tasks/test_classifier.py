"""A run that classifies, from a file of labelled texts to answers."""

import math
import random
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import glassformer as gf
from glassformer.errors import DataError, InputError
from glassformer.looking.comparing import compare
from glassformer.tasks.classification import Classifier
from labels import WORDS, examples, table, text_recipe


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Classifier:
    folder = tmp_path_factory.mktemp("classifier")
    made = gf.train(text_recipe(table(folder / "t.tsv", examples(400))), folder / "run")
    assert isinstance(made, Classifier)
    return made


def test_it_learns_and_says_how_sure_it_is(trained: Classifier) -> None:
    found = trained.evaluate(trained.examples("test"))
    assert found.scores.accuracy > 0.95
    sure = trained.classify(["the old hammer", "a plum"])
    assert [each.label for each in sure] == ["tool", "fruit"]
    assert sum(sure[0].probabilities.values()) == pytest.approx(1.0, abs=1e-5)
    assert sure[0].probability == max(sure[0].probabilities.values())


def test_a_loaded_run_answers_alike_whatever_stands_beside_a_text(trained: Classifier) -> None:
    assert trained.path is not None
    loaded = gf.load(trained.path)
    texts = [texts for texts, _ in trained.examples("test")]
    together = loaded.classify(texts)
    for text, answer in zip(texts[:10], together, strict=False):
        alone = loaded.classify([text])[0]
        assert alone.label == answer.label
        assert alone.probability == pytest.approx(answer.probability, abs=1e-5)
    assert all(map(torch.equal, loaded.model.parameters(), trained.model.parameters()))


def test_two_texts_are_read_together(tmp_path: Path) -> None:
    draw, words = random.Random(1), [word for some in WORDS.values() for word in some]
    rows: list[tuple[str, ...]] = []
    for _ in range(600):
        first, second = draw.choice(words), draw.choice(words)
        second = first if draw.random() < 0.5 else second
        rows.append((f"the {first}", f"my {second}", "same" if first == second else "other"))
    asked = text_recipe(
        table(tmp_path / "t.tsv", rows),
        source={"columns": [0, 1, 2]},
        data={"duplicates": "keep"},
        train={"steps": 10},
    )
    run = gf.train(asked, tmp_path / "run")
    assert isinstance(run, Classifier)
    with pytest.raises(InputError, match=r"learned from pairs of texts, \(first, second\), not 1 together"):
        run.classify(["the plum"])
    one, other = run.classify([("the plum", "my plum"), ("my plum", "the plum")])
    assert one.probabilities != other.probabilities
    assert run.evaluate(run.examples("test")).scores.confusion.sum() == len(run.examples("test"))
    look = run.look(("the plum", "my plum"))
    assert len(look.axes("encoder.0.self")["key"]) == len(run.read(("the plum", "my plum")))
    shown = f'set -- {run.next_commands(run.examples("test"))[0]}; printf %s "$4"'
    ran = subprocess.run(["sh", "-c", shown], capture_output=True, text=True, check=True)  # noqa: S603, S607
    typed = ran.stdout
    assert tuple(typed.split("\t")) in {texts for texts, _ in run.examples("test")}


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([("a text", "one"), ("another", "one")], "every training example has the label 'one'"),
        ([(f"text {n}", f"label {n}") for n in range(200)], "is the label in that column"),
    ],
)
def test_labels_that_cannot_be_learned_are_told(tmp_path: Path, rows: list[tuple[str, ...]], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        gf.train(text_recipe(table(tmp_path / "t.tsv", rows)), tmp_path / "run")


def test_a_label_unseen_in_training_is_counted_and_told(tmp_path: Path, trained: Classifier) -> None:
    train, valid = (
        table(tmp_path / "t.tsv", examples(60)),
        table(tmp_path / "v.tsv", [*examples(9, 5), ("x", "toy")]),
    )
    run = gf.train(text_recipe(train, source={"valid": str(valid)}, train={"steps": 2}), tmp_path / "run")
    assert isinstance(run, Classifier)
    assert '"label unseen in training": 1' in (tmp_path / "run" / "data.json").read_text(encoding="utf-8")
    assert "toy" not in [label for _, label in run.examples("valid")]
    assert len(run.evaluate(run.examples("valid")).answers) == len(run.examples("valid"))  # so the others can be scored
    sentence = "'tols' is not among the labels of this run's training: did you mean tool?"
    with pytest.raises(InputError, match=re.escape(sentence)):
        trained.evaluate([(("a hammer",), "tols")])


def test_nothing_is_validated_on_labels_that_are_all_unseen(tmp_path: Path) -> None:
    train, valid = table(tmp_path / "t.tsv", examples(60)), table(tmp_path / "v.tsv", [("x", "toy")])
    asked = text_recipe(train, source={"valid": str(valid)}, train={"steps": 2, "validate_every": 1})
    assert gf.train(asked, tmp_path / "run").classify(["a hammer"])


def test_empty_texts_are_told(trained: Classifier) -> None:
    with pytest.raises(InputError, match="nothing to classify in ' '"):
        trained.classify(["a", " "])
    with pytest.raises(InputError, match="takes a list"):
        trained.classify("a text")
    assert trained.classify([]) == []


def test_what_is_cut_is_told_and_one_text_is_not_two(trained: Classifier) -> None:
    assert [each.cut for each in trained.classify(["a plum", "a saw " * 20, "a saw"])] == [False, True, False]
    with pytest.raises(InputError, match="learned from one text at a time, not 2 together"):
        trained.classify([("a", "b")])


def test_counting_words_is_reported_beside_it(trained: Classifier) -> None:
    examples = trained.examples("test")
    found = trained.evaluate(examples)
    assert found.facts()["baseline"]["accuracy"] == trained.baseline(examples).accuracy > 0.9
    assert found.lines()[-1].startswith("baseline: TF-IDF + logistic regression ")
    assert found.facts()["texts"] == len(examples) == int(np.sum(found.facts()["confusion"]))
    assert found.summary() == {"loss": found.loss, "accuracy": found.scores.accuracy, "f1": found.scores.macro_f1}
    elsewhere = Classifier(trained.recipe, trained.model, trained.assets).evaluate(examples)
    assert "has no texts to learn from" in elsewhere.facts()["baseline"]["missing"]
    assert elsewhere.lines()[-1].startswith("no baseline: ")


def test_what_is_shown_of_it(trained: Classifier, tmp_path: Path) -> None:
    examples = trained.examples("test")
    found = trained.evaluate(examples)
    assert len(trained.shown(examples, found)) == 10
    assert trained.shown(examples, found)[0].startswith(f"  {examples[0].texts[0]}  →  ")
    assert [path.name for path in trained.draw(examples, found, tmp_path)] == ["confusion.png"]
    assert (tmp_path / "confusion.png").stat().st_size > 1000
    first, *_ = trained.next_commands(examples)
    assert re.fullmatch(r"classify --run RUN '[\w ]+'", first)
    judged = trained.judge([*examples, (("x",), "toy")])
    assert judged.value(range(len(examples))) == pytest.approx(100 * found.scores.accuracy)
    assert judged.values[-1] == 0


def test_two_runs_are_compared_by_how_sure_they_are_of_their_labels(trained: Classifier) -> None:
    (score,) = compare(trained, trained, "the old hammer").scores
    assert score.what == "the likeliest label"
    assert score.first == score.second
    assert score.first == pytest.approx(math.log(trained.classify(["the old hammer"])[0].probability), abs=1e-4)


def test_where_it_looks(trained: Classifier) -> None:
    look = trained.look("the old hammer")
    axes, weights = look.axes("encoder.0.self"), look["encoder.0.self"]
    assert (axes["token"], look.output) == (axes["key"], "tool")
    assert len(axes["token"]) == len(trained.read("the old hammer")) == 5
    assert weights.shape == (1, 2, 5, 5)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(1, 2, 5))
