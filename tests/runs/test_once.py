"""What takes long, or could differ the second time, is done once."""

import io
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from glassformer.data import preparing
from glassformer.runs import building, load, train
from glassformer.tasks import writing
from glassformer.tasks.translation import Translator
from tiny import IDLE, recipe


class Counted:
    """A function that counts its calls."""

    def __init__(self, function: Any) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.function(*args, **kwargs)


def counted(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> Counted:
    """The calls of a function by the name that a module has for it."""
    made = Counted(getattr(module, name))
    monkeypatch.setattr(module, name, made)
    return made


def test_the_data_is_prepared_once_for_a_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare, read_all = counted(monkeypatch, building, "prepare"), counted(monkeypatch, preparing, "read_all")
    asked = recipe(IDLE, {"source": {"seed": 4321}})
    train(asked, tmp_path / "one")
    assert (prepare.calls, read_all.calls) == (1, 1)
    train(asked, tmp_path / "two")
    assert (prepare.calls, read_all.calls) == (2, 1)  # it is in the cache


def test_the_recipe_and_the_configuration_are_read_once_when_a_run_is_loaded(
    trained: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    opened = io.open

    def watched(file: Any, *args: Any, **kwargs: Any) -> Any:
        names.append(Path(file).name)
        return opened(file, *args, **kwargs)

    monkeypatch.setattr(io, "open", watched)  # by which paths open their files
    assert trained.path is not None
    load(trained.path, "cpu")
    assert names.count("recipe.toml") == 1
    assert names.count("config.json") == 2  # once to be read, once to be compared with its checksum


def test_the_model_is_packed_once_for_all_that_is_translated(
    trained: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack, quantise = counted(monkeypatch, writing, "pack"), counted(monkeypatch, writing, "quantise")
    run = trained.with_model(trained.model)
    for beam in (1, 2, 1):
        run.translate(["a b", "c"], beam=beam)
        run.search(["a"], beam=2, best=2)
    assert (pack.calls, quantise.calls) == (1, 0)
    for _ in range(3):
        run.translate(["a b"], int8=True)
    assert (pack.calls, quantise.calls) == (1, 1)
    other = trained.with_model(load(str(trained.path), "cpu").model)
    other.translate(["a"])
    assert pack.calls == 2
