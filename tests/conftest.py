"""What every test shares: one seed, few threads, a cache of its own, and hypothesis without a clock."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from every_task import EveryTask
from glassformer.runs import train
from glassformer.tasks.translation import Translator
from tiny import THOROUGH, recipe

settings.register_profile("glassformer", deadline=None, print_blob=True)
settings.load_profile("glassformer")
torch.set_num_threads(1)  # the models are tiny, and pytest's workers share the cores


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", choices=["write"], help="write the golden losses anew, after a change that is meant")
    parser.addoption("--screenshots", choices=["write"], help="write the pictures of pages in the documents anew")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(20260101)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where these tests, and the commands that they start, keep prepared data: not where the user does."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLASSFORMER_CACHE", str(folder))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield folder


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Translator:
    """A small run that has learned to copy letters. It is everybody's: look, do not touch."""
    made = train(recipe(THOROUGH), tmp_path_factory.mktemp("runs") / "copy")
    assert isinstance(made, Translator)
    return made


@pytest.fixture(scope="session")
def every_task(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> EveryTask:
    """Small runs of all tasks, trained when first asked for. They are everybody's: look, do not touch."""
    own = tmp_path_factory.getbasetemp()
    return EveryTask((own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "every_task")
