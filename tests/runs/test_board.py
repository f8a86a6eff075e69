"""TensorBoard shows curves, samples, attention and the recipe, and changes nothing of the training."""

import importlib
import importlib.util
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from glassformer.errors import InputError
from glassformer.recipe import make_recipe
from glassformer.runs import board, train
from glassformer.runs.board import FEW, Board
from glassformer.tasks.run import SHORT, Run
from glassformer.tasks.translation import Translator
from labels import examples, table, text_recipe
from tiny import IDLE, recipe

pytest.importorskip("tensorboard")
WEIGHTS = "model.safetensors"


@pytest.fixture(autouse=True)
def _every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "SHARE", float("inf"))


def events(folder: Path) -> Any:
    """What TensorBoard itself reads in a run folder."""
    accumulator = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")

    found = accumulator.EventAccumulator(
        str(folder / "tensorboard"), size_guidance={"images": 0, "tensors": 0, "scalars": 0}
    )
    found.Reload()
    return found


def texts(found: Any, tag: str) -> dict[int, str]:
    """A text by step."""
    return {each.step: each.tensor_proto.string_val[0].decode() for each in found.Tensors(f"{tag}/text_summary")}


def test_a_translation_shows_samples_attention_and_recipe(tmp_path: Path) -> None:
    run = train(recipe(IDLE), tmp_path)
    found = events(tmp_path)
    assert {"loss", "valid/loss", "valid/bleu"} <= {*found.Tags()["scalars"]}
    samples = texts(found, "valid/samples")
    assert sorted(samples) == [2, 4]  # the validations
    for text in samples.values():
        assert text.count("    input ") == text.count("    output ") == text.count("    reference ") == FEW
    assert f"    reference  {run.examples('valid')[0].target}"[:14] in samples[4]
    pictures = found.Images("valid/attention")
    assert [each.step for each in pictures] == [2, 4]
    assert pictures[0].encoded_image_string.startswith(b"\x89PNG")
    assert min(pictures[0].width, pictures[0].height) > 100
    assert texts(found, "recipe") == {0: "".join(f"    {line}\n" for line in toml(tmp_path)).rstrip("\n")}


def toml(folder: Path) -> list[str]:
    return (folder / "recipe.toml").read_text(encoding="utf-8").splitlines()


def test_a_task_without_attention_shows_samples_alone(tmp_path: Path) -> None:
    made = text_recipe(table(tmp_path / "t.tsv", examples(80)), train={"steps": 2, "validate_every": 2})
    train(make_recipe(made), tmp_path / "run")
    found = events(tmp_path / "run")
    assert "    true label  " in texts(found, "valid/samples")[2]
    assert found.Tags()["images"] == []


def test_after_a_resume_the_recipe_of_then_is_shown_too(tmp_path: Path) -> None:
    train(recipe(IDLE), tmp_path)
    train(recipe(IDLE, {"train": {"steps": 6}}), tmp_path, resume=True)
    found = events(tmp_path)
    assert {0: "steps = 4", 4: "steps = 6"}.items() <= {
        step: next(line.strip() for line in text.splitlines() if line.strip().startswith("steps"))
        for step, text in texts(found, "recipe").items()
    }.items()
    assert 6 in texts(found, "valid/samples")


def test_it_changes_no_weight_and_costs_nothing_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(recipe(IDLE), tmp_path / "with")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "tensorboard" else find(name))
    monkeypatch.setattr(Run, "attention_picture", lambda *given: pytest.fail("it is drawn for nobody"))
    monkeypatch.setattr(Run, "new_samples", lambda *given: pytest.fail("it is made for nobody"))
    train(recipe(IDLE), tmp_path / "without")
    assert not (tmp_path / "without" / "tensorboard").exists()
    assert (tmp_path / "with" / WEIGHTS).read_bytes() == (tmp_path / "without" / WEIGHTS).read_bytes()


def test_a_sample_that_cannot_be_made_is_no_reason_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> None:
        raise InputError("no")

    monkeypatch.setattr(Run, "new_samples", refuse)
    train(recipe(IDLE), tmp_path)
    assert "valid/samples/text_summary" not in events(tmp_path).Tags()["tensors"]


def test_a_picture_is_shown_once(trained: Translator) -> None:
    class Writer:
        """Remembers the names of what is written."""

        def __init__(self) -> None:
            self.names = list[str]()

        def __getattr__(self, name: str) -> Any:
            return lambda tag, *more, **others: self.names.append(tag)

    writer: Any = Writer()
    board = Board(writer, 0)
    board.begin(trained, trained.examples("valid"))
    board.look(trained)
    for step in (1, 2):
        board.add({"step": step, "loss": 1.0})
    assert writer.names == ["recipe", "loss", "valid/samples", "valid/attention", "loss"]


def test_what_is_looked_at_in_a_validation_is_short(trained: Translator) -> None:
    slow = {"beam": 5, "max_length": 4000, "min_length": 3000, "temperature": 1.5}
    decode = trained.recipe.decode.model_copy(update=slow)
    run = Translator(trained.recipe.model_copy(update={"decode": decode}), trained.model, trained.assets, trained.path)
    found = run.quick().recipe.decode
    assert (found.beam, found.max_length, found.min_length, found.temperature) == (1, SHORT, SHORT, 0.0)
    assert run.recipe.decode.max_length == 4000


@pytest.mark.parametrize(("seconds", "looked"), [(1.0, False), (20.0, True)])  # from one look at the clock to the next
def test_looking_takes_a_small_part_of_the_time(
    seconds: float, looked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = count(0.0, seconds)
    monkeypatch.setattr(board, "monotonic", lambda: next(clock))
    monkeypatch.setattr(board, "SHARE", 0.05)
    train(recipe(IDLE), tmp_path)
    assert ("valid/attention" in events(tmp_path).Tags()["images"]) == looked
    assert {"loss", "valid/loss"} <= {*events(tmp_path).Tags()["scalars"]}
