"""Checkpoints that an installed package carries."""

from pathlib import Path

import pytest

from glassformer.errors import InputError
from glassformer.interop import checkpoints, load, save
from glassformer.models import bert


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "some_tiny_bert"
    (folder / "pooling").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemExit('it was run')", encoding="utf-8")
    (folder / "pooling" / "config.json").write_text("{}", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_the_folder_with_weights_is_found_and_nothing_of_the_package_is_run(package: Path) -> None:
    save(bert(20, 8, 2, 1, 16, length=8), package / "weights")
    assert checkpoints.find("package:some_tiny_bert") == package / "weights"
    assert load("package:some_tiny_bert").blueprint.arguments["width"] == 8  # type: ignore[union-attr, index]


def test_a_package_that_is_not_there_or_holds_nothing_is_told(package: Path) -> None:
    with pytest.raises(InputError, match="no package 'some_large_bert' on this machine: pip install some-large-bert"):
        checkpoints.find("package:some_large_bert")
    with pytest.raises(InputError, match="no package 'a/b'"):
        checkpoints.find("package:a/b")
    with pytest.raises(InputError, match=r"holds no config\.json with a model\.safetensors beside it"):
        checkpoints.find("package:some_tiny_bert")
