"""What `export` writes, `import` takes: the same labels, tags and answers come back."""

import json
from pathlib import Path
from typing import Any

import pytest

import glassformer as gf
from glassformer.errors import InputError
from glassformer.runs import export_run, import_run
from labels import examples, table, text_recipe, trained_on
from questions import paragraphs, recipe, written


def returned(run: Any, folder: Path) -> Any:
    export_run(run, folder / "out")
    return import_run(folder / "out", folder / "again")


def test_a_classifier_comes_back(tmp_path: Path) -> None:
    run = gf.train(text_recipe(table(tmp_path / "t.tsv", examples(200)), train={"steps": 3}), tmp_path / "run")
    again = returned(run, tmp_path)
    texts = ["the old hammer", "a  plum", "x " * 50]
    for one, other in zip(run.classify(texts), again.classify(texts), strict=True):
        assert other.probabilities == pytest.approx(one.probabilities, abs=1e-5)
    found = again.evaluate(run.examples("test"))
    assert found.loss == pytest.approx(run.evaluate(run.examples("test")).loss, rel=1e-4)
    assert again.item("one\ttwo") == ("one", "two")
    with pytest.raises(InputError, match="the second text is empty"):
        again.item("one\t ")


def test_a_tagger_comes_back(tmp_path: Path) -> None:
    asked = {
        "task": {"kind": "tagging"},
        "source": {"kind": "grammar", "count": 200},
        "tokenizer": {"kind": "bpe", "vocabulary": 300},
        "model": {"family": "bert", "width": 16, "heads": 2, "layers": 1, "hidden": 32},
        "train": {"steps": 3, "batch_tokens": 512, "validate_every": 3, "device": "cpu"},
    }
    run = gf.train(asked, tmp_path / "run")
    again = returned(run, tmp_path)
    (one,), (other,) = run.tag(["the light can fish"]), again.tag(["the light can fish"])
    assert one.tags == other.tags
    assert other.probabilities == pytest.approx(one.probabilities, abs=1e-5)


def test_one_that_answers_comes_back(tmp_path: Path) -> None:
    asked = recipe(written(tmp_path / "t.json", paragraphs(60)), train={"steps": 3}, task={"max_answer": 20})
    run = gf.train(asked, tmp_path / "run")
    again = returned(run, tmp_path)
    assert again.task.stride <= 128
    question = [("which number", "the old green house has nine windows")]
    (one,), (other,) = run.answer(question), again.answer(question)
    assert (other.text, other.start) == (one.text, one.start)
    assert other.score == pytest.approx(one.score, abs=1e-4)


def test_one_for_images_comes_back(tmp_path: Path) -> None:
    run = trained_on(tmp_path, train={"steps": 3}, task={"mean": 0.25, "deviation": 0.5})
    again = returned(run, tmp_path)
    assert (again.task.size, again.task.colours, again.task.mean) == (8, 3, 0.25)
    images = [example[0] for example in run.examples("test")[:3]]
    for one, other in zip(run.classify(images), again.classify(images), strict=True):
        assert other.probabilities == pytest.approx(one.probabilities, abs=1e-5)
    processor = tmp_path / "out" / "preprocessor_config.json"
    known = json.loads(processor.read_text())
    for key, value in (("image_processor_type", "CLIPImageProcessor"), ("crop_pct", 0.9)):
        processor.write_text(json.dumps(known | {key: value}))
        with pytest.raises(InputError, match=rf"preprocessor_config.json: {key} is {value!r}, which is not supported"):
            import_run(tmp_path / "out", tmp_path / "third")
    processor.write_text(json.dumps(known, indent=2))
    processor.write_text(processor.read_text().replace("0.25,", "0.3,", 1))
    with pytest.raises(InputError, match=r"image_mean is \[0.3, 0.25, 0.25\]: expected one number"):
        import_run(tmp_path / "out", tmp_path / "third")
