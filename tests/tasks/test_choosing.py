"""Choosing: scores are log-probabilities, worked out token by token; labels are chosen without training."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer.cli import main
from glassformer.errors import ConfigurationError, InputError
from glassformer.tasks.choosing import evaluate_choices, labelled
from glassformer.tasks.language import LanguageModel
from stories import SAYS, recipe, stories


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    file = stories(tmp_path_factory.mktemp("stories") / "t.txt")
    made = gf.train(recipe(file, "language-modelling"), file.parent / "run")
    assert isinstance(made, LanguageModel)
    return made


def test_scores_are_sums_of_log_probabilities(run: LanguageModel) -> None:
    prompt, choices = "the big cat says", ["miaow .", "woof", "moo . and"]
    (found,) = run.choose([prompt], choices)
    before = run.read(prompt)
    for each in found.choices:
        ids = run.read(f"{prompt} {each.text}")
        assert ids[: len(before)] == before
        with torch.inference_mode():
            log_p = run.model(torch.tensor([ids])).log_softmax(dim=-1)[0]
        by_hand = [float(log_p[place, token]) for place, token in enumerate(ids[1:]) if place + 1 >= len(before)]
        assert each.tokens == len(by_hand)
        assert each.log_probability == pytest.approx(sum(by_hand), abs=1e-4)
        assert each.per_token == pytest.approx(sum(by_hand) / len(by_hand), abs=1e-4)
    assert found.text == found.choices[0].text == "miaow ."
    assert [each.per_token for each in found.choices] == sorted(
        (each.per_token for each in found.choices), reverse=True
    )


def test_a_language_model_classifies_without_having_been_taught(run: LanguageModel, tmp_path: Path) -> None:
    file = tmp_path / "labelled.tsv"
    file.write_text("".join(f"the old {animal}\t{said}\n" for animal, said in SAYS.items()), encoding="utf-8")
    said = list(SAYS.values())
    found = evaluate_choices(run, labelled(file, tmp_path, said), said, "{} says")
    assert found.scores.accuracy == 1
    assert found.answers[0].label == "miaow"
    assert sum(found.answers[0].probabilities.values()) == pytest.approx(1)
    with pytest.raises(InputError, match="the label 'woof' is not among the choices, which are "):
        evaluate_choices(run, [("the old dog", "woof")], ["miaow", "moo", "cluck"], "{} says")
    with pytest.raises(ConfigurationError, match="has no place for the text"):
        evaluate_choices(run, [("a", "b")], ["b", "c"], "says")


@pytest.mark.parametrize(
    ("label", "told"),
    [
        ("", "the label '' is not among the choices, which are good, bad"),
        ("god", "the label 'god' is not among the choices: did you mean good?"),
    ],
)
def test_a_label_that_cannot_be_chosen_is_refused_by_line(label: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "labelled.tsv"
    file.write_text(f"a film\tgood\nanother\t{label}\n", encoding="utf-8")
    with pytest.raises(InputError) as refused:
        labelled(file, tmp_path, ["good", "bad"])
    assert str(refused.value) == f"{file}:2: {told}"
    with pytest.raises(InputError) as refused:
        evaluate_choices(None, [("another", label)], ["good", "bad"])
    assert str(refused.value) == told


def test_what_cannot_be_chosen_from_is_a_sentence(run: LanguageModel) -> None:
    wrong: list[tuple[Any, str]] = [
        (["a"], "two choices or more"),
        (["a", " "], "a choice is empty"),
        (["a", "a"], "the choice 'a' is given twice"),
        ("ab", "takes a list"),
    ]
    for choices, sentence in wrong:
        with pytest.raises(InputError, match=sentence):
            run.choose(["the"], choices)
    with pytest.raises(InputError, match="does not choose: it was trained for translation"):
        gf.load("en-de", "cpu").choose(["a"], ["b", "c"])


def test_the_commands_choose_and_evaluate(
    run: LanguageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["choose", "--run", str(run.path), "the big dog says", "moo", "woof", "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["output"] == "woof"
    assert [each["text"] for each in facts["choices"]] == ["woof", "moo"]
    file = tmp_path / "labelled.tsv"
    file.write_text("the old cow\tmoo\nthe red hen\tcluck\n", encoding="utf-8")
    asked = ["evaluate", "--run", str(run.path), "--data", str(file), "--choice", "moo", "--choice", "cluck"]
    with pytest.raises(SystemExit, match="0"):
        main([*asked, "--prompt", "{} says", "--json"])
    assert json.loads(capsys.readouterr().out)["accuracy"] == 1
