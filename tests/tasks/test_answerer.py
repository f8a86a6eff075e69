"""A run that answers, from a file in SQuAD's layout to words of a text."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer.errors import DataError, InputError, RecipeError
from glassformer.evaluation import drawn
from glassformer.runs import export_run
from glassformer.tasks.answering import Answerer
from questions import paragraphs, recipe, written


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Answerer:
    folder = tmp_path_factory.mktemp("answerer")
    made = gf.train(recipe(written(folder / "t.json", paragraphs(300))), folder / "run")
    assert isinstance(made, Answerer)
    return made


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Answerer:
    """A run that has learned to say nothing."""
    folder = tmp_path_factory.mktemp("silent")
    asked = recipe(written(folder / "t.json", paragraphs(400, unanswerable=0.4)), task={"unanswerable": True})
    made = gf.train(asked, folder / "run")
    assert isinstance(made, Answerer)
    return made


def test_it_learns_and_says_where_the_answer_stands(trained: Answerer) -> None:
    assert trained.evaluate(trained.examples("test")).scores.exact > 0.95
    context = "the old green house has  nine windows"
    number, colour = trained.answer([("which number", context), ("which colour", context)])
    assert (number.text, number.start, number.end) == ("nine", 25, 29)
    assert (colour.text, context[colour.start : colour.end]) == ("green", "green")
    assert 0.5 < number.score <= 1


def test_an_answer_far_into_a_long_text_is_found_whatever_stands_beside(trained: Answerer) -> None:
    context = " ".join(["the river is near a house and"] * 9 + ["has five", *["the house is old"] * 9])
    assert len(trained.tokenizer.encode(context)) > 3 * 24
    asked = [("which number", context), ("which colour", "a red house")]
    together = trained.answer(asked)
    assert [each.text for each in together] == ["five", "red"]
    assert context[together[0].start : together[0].end] == "five"
    alone = [trained.answer([each])[0] for each in asked]
    for one, other in zip(alone, together, strict=True):
        assert one.text == other.text
        assert one.score == pytest.approx(other.score, abs=1e-5)


def test_it_says_nothing_only_where_that_was_learned(silent: Answerer, trained: Answerer) -> None:
    found = silent.evaluate(silent.examples("test"))
    assert found.scores.unanswerable > 10
    assert found.scores.unanswerable_exact is not None
    assert found.scores.unanswerable_exact > 0.9
    assert found.scores.answerable_exact is not None
    assert found.scores.answerable_exact > 0.9
    asked = [("which number", "the old house is blue and near a river")]
    assert silent.answer(asked)[0].text == ""
    assert trained.answer(asked)[0].text != ""


def test_a_threshold_decides_between_words_and_silence(silent: Answerer, trained: Answerer) -> None:
    context = "the old house is blue and near a river"
    asked = [("which number", context), ("which colour", context)]
    assert [each.text for each in silent.answer(asked)] == ["", "blue"]
    assert all(each.text for each in silent.answer(asked, threshold=1e6))
    assert not any(each.text for each in silent.answer(asked, threshold=-1e6))
    found = silent.evaluate(silent.examples("valid"))
    best = found.at(found.best_threshold())
    assert best.scores.f1 >= found.scores.f1
    assert (found.at(-1e6).scores.unanswerable_exact, found.at(-1e6).scores.answerable_exact) == (1, 0)
    assert found.at(1e6).scores.unanswerable_exact == 0
    with pytest.raises(InputError, match="has learned to answer every question"):
        trained.answer(asked, threshold=1.0)


def test_the_recipe_says_the_threshold(silent: Answerer) -> None:
    task = silent.task.model_copy(update={"threshold": -1e6})
    mute = Answerer(silent.recipe.model_copy(update={"task": task}), silent.model, silent.assets)
    assert mute.answer([("which colour", "a red house")])[0].text == ""
    assert mute.evaluate(silent.examples("valid")).scores.answerable_exact == 0


def test_a_loaded_run_answers_alike(trained: Answerer) -> None:
    assert trained.path is not None
    loaded = gf.load(trained.path)
    assert isinstance(loaded, Answerer)
    examples = trained.examples("valid")
    assert loaded.evaluate(examples).answers == trained.evaluate(examples).answers
    assert loaded.evaluate(examples).loss == pytest.approx(trained.evaluate(examples).loss)


def test_a_context_is_in_one_split_only(trained: Answerer) -> None:
    contexts = {split: {context for _, context, _ in trained.examples(split)} for split in ("valid", "test")}
    assert not contexts["valid"] & contexts["test"]
    both = [context for _, context, _ in trained.examples("test")]
    assert len(both) == 2 * len(contexts["test"])  # both questions about each


def test_answers_that_do_not_fit_their_context_are_counted_with_their_place(tmp_path: Path) -> None:
    some = paragraphs(60)
    some[0]["qas"][0]["answers"][0]["answer_start"] = 999
    some[1]["qas"][0] = {**some[1]["qas"][0], "id": "q7", "answers": [{"text": "x", "answer_start": 0}]}
    some[2]["qas"][0]["question"] = " "
    some[3]["context"] = ""
    some[4]["qas"] = [{"question": "which"}]
    file = written(tmp_path / "t.json", some)
    gf.train(recipe(file, train={"steps": 1}), tmp_path / "run")
    report = json.loads((tmp_path / "run" / "data.json").read_text(encoding="utf-8"))
    assert report["bad"] == {
        "answer outside its context": 1,
        "answer not at its place": 1,
        "empty question": 1,
        "empty context": 2,
        "missing field": 1,
    }
    assert re.search(r"t\.json: question 1: '\w+' at 999 is outside its context", report["examples"][0])
    assert "t.json: question q7: 'x' does not stand at 0" in report["examples"][1]
    with pytest.raises(DataError, match=r"question 1: .* outside its context .*data\.strict is on"):
        gf.train(recipe(file, data={"strict": True}), tmp_path / "strict")


def test_questions_without_answer_are_left_out_unless_wanted(tmp_path: Path) -> None:
    file = written(tmp_path / "t.json", paragraphs(60, unanswerable=0.5))
    gf.train(recipe(file, train={"steps": 1}), tmp_path / "run")
    report = json.loads((tmp_path / "run" / "data.json").read_text(encoding="utf-8"))
    assert report["dropped"]["without an answer (task.unanswerable is off)"] > 20


def test_files_of_another_layout_are_told(tmp_path: Path) -> None:
    for name, text in (("a", "{}"), ("b", "no JSON"), ("c", '{"data": [{"paragraphs": 3}]}')):
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match="is not in SQuAD's layout"):
            gf.train(recipe(tmp_path / name), tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"data": {"normalise": "nfc"}}, 'data.normalise must be "none"'),
        ({"source": {"kind": "tsv"}}, "source.kind is 'tsv': answering takes one of squad"),
        (
            {"model": {"family": "transformer"}},
            "model.family is 'transformer': for this task it is one of bert, roberta",
        ),
        ({"task": {"threshold": 1.0}}, "task.threshold is for questions without an answer"),
        ({"train": {"watch": "bleu"}}, "for answering it is one of loss, exact, f1"),
    ],
)
def test_recipes_that_cannot_work_are_refused(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RecipeError, match=re.escape(sentence)):
        gf.train(recipe(tmp_path / "t.json", **changes), tmp_path / "run")


def test_a_window_too_small_for_its_stride_is_told(tmp_path: Path) -> None:
    with pytest.raises(gf.ConfigurationError, match=r"raise data\.max_tokens, or lower task\.stride"):
        gf.train(recipe(written(tmp_path / "t.json", paragraphs(30)), task={"stride": 20}), tmp_path / "run")


def test_nothing_to_answer_is_told(trained: Answerer) -> None:
    with pytest.raises(InputError, match="the question is empty"):
        trained.answer([(" ", "a text")])
    with pytest.raises(InputError, match="the context is empty"):
        trained.answer([("which number", "\n")])
    with pytest.raises(InputError, match="a list of pairs"):
        trained.answer("which number")  # type: ignore[arg-type]
    assert trained.answer([]) == []


def test_what_is_exported_points_to_the_same_tokens_in_transformers(trained: Answerer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    assert export_run(trained, tmp_path).startswith("AutoModelForQuestionAnswering")
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path).eval()
    inputs = transformers.AutoTokenizer.from_pretrained(tmp_path)(
        "which number", "the house has nine windows", return_tensors="pt"
    )
    with torch.inference_mode():
        ours = trained.model(inputs["input_ids"], None, inputs["token_type_ids"])
        theirs = model(**inputs)
    assert inputs["token_type_ids"].sum() > 0
    torch.testing.assert_close(ours[..., 0], theirs.start_logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours[..., 1], theirs.end_logits, atol=1e-5, rtol=1e-5)


def test_what_is_shown_of_it(trained: Answerer, silent: Answerer) -> None:
    examples = trained.examples("test")
    found = trained.evaluate(examples)
    assert found.summary() == {"loss": found.loss, "exact": found.scores.exact, "f1": found.scores.f1}
    assert (found.facts()["questions"], "threshold" in found.facts()) == (len(examples), False)
    assert len(found.lines()) == 1
    assert trained.shown(examples, found)[0].startswith(f"  {examples[0].question}  →  {found.answers[0].text} ")
    assert trained.next_commands(examples)[0] == f"answer --run RUN --context FILE '{examples[0].question}'"
    judged = trained.judge(examples)
    assert judged.value(range(len(examples))) == pytest.approx(100 * found.scores.f1)
    quiet = silent.evaluate(silent.examples("test"))
    best = silent.evaluate(silent.examples("valid")).best_threshold()
    assert (quiet.facts()["threshold"], quiet.facts()["best_on_valid"]["threshold"]) == (0.0, best)
    assert quiet.lines()[3].startswith("threshold 0; the best on valid is ")
    assert any("→  nothing " in line for line in silent.shown(silent.examples("test"), quiet))


def test_validation_scores_only_as_many_as_it_may_drawn_over_all(trained: Answerer) -> None:
    examples, asked = trained.examples("valid"), list[int]()
    some = drawn(examples, 3)
    assert some != examples[:3]
    assert trained.measure(examples, 3) == trained.evaluate(some, lambda done, of: asked.append(of)).summary()
    assert asked[-1] >= 3


def test_where_it_looks(trained: Answerer) -> None:
    look = trained.look(("which colour", "a red house"))
    axes = look.axes("encoder.0.self")
    assert (look.output, axes["token"]) == ("red", axes["key"])
    assert look["encoder.0.self"].shape == (1, 2, len(axes["token"]), len(axes["token"]))
