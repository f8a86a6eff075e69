"""A run that tells images apart, from a folder to answers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glassformer as gf
from glassformer.errors import ConfigurationError, DataError, InputError, RecipeError
from glassformer.recipe import make_recipe
from glassformer.tasks.images import ImageClassifier
from labels import drawn, folder_of_bars, image_recipe, trained_on


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> ImageClassifier:
    return trained_on(tmp_path_factory.mktemp("bars"), task={"shift": 1, "flip": True})


def test_it_learns_and_says_how_sure_it_is(trained: ImageClassifier) -> None:
    assert trained.evaluate(trained.examples("test")).scores.accuracy > 0.9
    answers = trained.classify([drawn("lying", 1000), drawn("standing", 1001)])
    assert [each.label for each in answers] == ["lying", "standing"]
    assert sum(answers[0].probabilities.values()) == pytest.approx(1.0, abs=1e-5)


def test_files_arrays_and_images_of_pillow_are_the_same(trained: ImageClassifier, tmp_path: Path) -> None:
    image = drawn("lying", 7)
    image.save(tmp_path / "a.png")
    answers = trained.classify([tmp_path / "a.png", str(tmp_path / "a.png"), np.asarray(image), image])
    assert len({each.probability for each in answers}) == 1


def test_a_loaded_run_answers_alike_and_has_its_images(trained: ImageClassifier) -> None:
    assert trained.path is not None
    loaded = gf.load(trained.path)
    assert isinstance(loaded, ImageClassifier)
    examples = loaded.examples("test")
    assert [label for _, label, _ in examples] == [label for _, label, _ in trained.examples("test")]
    assert all(name.split("/")[0] == label for _, label, name in examples)
    images = [image for image, _, _ in examples]
    assert loaded.classify(images) == trained.classify(images)
    assert loaded.evaluate(examples).scores.accuracy == trained.evaluate(examples).scores.accuracy


def test_what_is_no_image_is_told(trained: ImageClassifier, tmp_path: Path) -> None:
    (tmp_path / "notes.png").write_text("not a picture", encoding="utf-8")
    whole = (tmp_path / "whole.png", tmp_path / "half.png")
    drawn("lying", 1, 64).save(whole[0])
    whole[1].write_bytes(whole[0].read_bytes()[:2000])
    for image, sentence in (
        (tmp_path / "notes.png", r"notes\.png: is no image of a known format"),
        (tmp_path / "half.png", r"half\.png: is damaged: "),
        (tmp_path / "missing.png", r"missing\.png: cannot be read: No such file"),
        (tmp_path, "is a folder: name a file"),
        (5, "5 is no image"),
        (np.zeros((8, 8)), "float64 is no image"),
    ):
        with pytest.raises(InputError, match=sentence):
            trained.classify([image])
    with pytest.raises(InputError, match="takes a list"):
        trained.classify("one.png")
    with pytest.raises(InputError, match=r"'laying' is not among the labels .*: did you mean lying"):
        trained.evaluate([(drawn("lying", 1), "laying", "one")])
    assert trained.classify([]) == []


def test_another_size_is_resized_or_refused_as_the_recipe_says(trained: ImageClassifier, tmp_path: Path) -> None:
    assert trained.see(drawn("lying", 1, 16)).shape == (8, 8, 3)
    run = trained_on(tmp_path, task={"others": "refuse"}, train={"steps": 1})
    with pytest.raises(InputError, match="is 16 x 16 pixels, and not 8 x 8 as the recipe says"):
        run.classify([drawn("lying", 1, 16)])


def test_one_label_only_is_told(tmp_path: Path) -> None:
    folder = folder_of_bars(tmp_path / "images", 3)
    for path in (folder / "lying").iterdir():
        path.unlink()
    with pytest.raises(DataError, match=r"every training example has the label 'standing'"):
        gf.train(image_recipe(folder), tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"task": {"size": 9}}, "task.size 9 does not divide into model.patch 2"),
        ({"source": {"kind": "topics"}}, "source.kind is 'topics': images takes one of digits, image-folder"),
        ({"model": {"family": "bert"}}, "model.family is 'bert': for this task it is one of vit"),
        ({"task": {"colours": 2}}, "task.colours is 2"),
    ],
)
def test_recipes_that_cannot_be_are_told(changes: dict[str, Any], sentence: str) -> None:
    table = image_recipe(Path("nowhere"), **changes)
    if changes.get("source"):
        table["source"] = changes["source"]
    with pytest.raises(RecipeError, match=sentence):
        make_recipe(table)


def test_a_vit_checkpoint_goes_on_with_labels_of_its_own(tmp_path: Path) -> None:
    model = gf.models.vit(classes=None, image=8, patch=4, width=16, heads=2, layers=1, hidden=32, pooler=True)
    gf.interop.save(model, tmp_path / "checkpoint")
    folder = folder_of_bars(tmp_path / "images", 20)
    changes: dict[str, Any] = {"model": {"pretrained": str(tmp_path / "checkpoint")}, "train": {"steps": 1}}
    run = gf.train(image_recipe(folder, **changes), tmp_path / "run")
    assert (run.model.blueprint.arguments["patch"], run.model.blueprint.arguments["classes"]) == (4, 2)
    with pytest.raises(ConfigurationError, match=r"set task\.size = 8 and task\.colours = 3"):
        gf.train(image_recipe(folder, **changes, task={"size": 16}), tmp_path / "other")


def test_resuming_gives_the_same_weights(tmp_path: Path) -> None:
    folder = folder_of_bars(tmp_path / "images", 20)
    often: dict[str, Any] = {"save_every": 3, "schedule": "constant"}
    changed = {"shift": 1, "flip": True}
    whole = gf.train(image_recipe(folder, task=changed, train={"steps": 6, **often}), tmp_path / "whole")
    asked = image_recipe(folder, task=changed, train={"steps": 3, **often})
    gf.train(asked, tmp_path / "parts")
    asked["train"]["steps"] = 6
    resumed = gf.train(asked, tmp_path / "parts", resume=True)
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert one.equal(other)
    assert json.loads((tmp_path / "parts" / "data.json").read_text(encoding="utf-8"))["read"] == 40


def test_files_that_cannot_be_read_are_left_out_if_asked(trained: ImageClassifier, tmp_path: Path) -> None:
    drawn("lying", 1).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_text("not a picture", encoding="utf-8")
    examples = [(tmp_path / name, "lying", name) for name in ("b.png", "a.png")]
    with pytest.raises(InputError, match="no image of a known format"):
        trained.evaluate(examples)
    said: list[str] = []
    found = trained.evaluate(examples, complain=said.append)
    assert said == [f"{tmp_path / 'b.png'}: is no image of a known format"]
    assert (found.facts()["images"], found.facts()["unreadable"]) == (1, 1)
    assert found.lines()[-1] == "1 of the images could not be read, and are left out"
    with pytest.raises(InputError, match="none of the 1 images could be read"):
        trained.evaluate(examples[:1], complain=said.append)


def test_what_is_shown_of_it(trained: ImageClassifier, tmp_path: Path) -> None:
    examples = trained.examples("test")
    found = trained.evaluate(examples)
    assert found.facts()["unreadable"] == 0
    assert "baseline" not in found.facts()
    assert trained.shown(examples, found)[0].startswith(f"  {examples[0].name}  →  ")
    assert trained.draw(examples, found, tmp_path) == [tmp_path / "confusion.png"]
    assert trained.next_commands(examples) == ["classify --run RUN image.png", "evaluate --run RUN"]
    assert trained.judge(examples).value(range(len(examples))) == pytest.approx(100 * found.scores.accuracy)


def test_where_it_looks(trained: ImageClassifier) -> None:
    look = trained.look(drawn("lying", 1000))
    rows = look.axes("encoder.0.self")["token"]
    assert rows[:2] == ["class", "1,1"]
    assert rows[-1] == "4,4"
    assert look["encoder.0.self"].shape == (1, 2, 17, 17)
    assert look["encoder.patches"].shape[1] == 16
    assert look.axes("logits")["label"] == trained.labels
    assert look.output == "lying"


def test_a_recipe_with_batch_norm_trains_and_is_used_like_any_other(tmp_path: Path) -> None:
    trained = trained_on(tmp_path, model={"norm": "batch", "epsilon": 1e-5}, train={"ema": 0.9})
    assert trained.evaluate(trained.examples("test")).scores.accuracy > 0.9
    loaded = gf.load(tmp_path / "run", "cpu")
    assert isinstance(loaded, ImageClassifier)
    images = [image for image, _, _ in loaded.examples("test")]
    together = loaded.classify(images)
    assert together == trained.classify(images)
    for image, answer in zip(images[:3], together, strict=False):  # whoever the batch mates are
        assert loaded.classify([image])[0].probability == pytest.approx(answer.probability, abs=1e-5)
    with pytest.raises(
        ConfigurationError, match=r"^a vit with norm = batch has no counterpart .* model\.norm = layer$"
    ):
        gf.interop.save(loaded.model, tmp_path / "out")
