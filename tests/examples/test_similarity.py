"""A package of somebody else's adds a task, a family, a source and a recipe, and the commands know them."""

import json
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent.parent / "examples" / "similarity"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of its own that sees the packages of this one, with the example installed into it by pip."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    found = folder / "bin" / "python"
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "parent.pth").write_text(
        "".join(f"import site; site.addsitedir({each!r})\n" for each in site.getsitepackages())
    )
    command = [sys.executable, "-m", "pip", "--python", str(found), "install", "--quiet", "--no-deps"]
    subprocess.run([*command, "--no-build-isolation", "--no-index", str(PACKAGE)], check=True)  # noqa: S603
    return found


def run(python: Path, folder: Path, *arguments: str) -> str:
    command = [str(python), "-m", "glassformer", *arguments]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_package_is_installed_and_used_as_its_page_shows(python: Path, tmp_path: Path) -> None:
    assert "similarity" in run(python, tmp_path, "recipes")
    run(python, tmp_path, "train", "similarity", "--out", "one", "--set", "train.steps=150")
    facts = json.loads(run(python, tmp_path, "evaluate", "--run", "one", "--json"))
    assert facts["pearson"] > 0.8
    assert facts["pairs"] == 300
    assert "siamese" in run(python, tmp_path, "recipes", "similarity", "--full")


def test_it_reads_tables_and_is_compared(python: Path, tmp_path: Path) -> None:
    rows = [("a b", "a b", "1.0"), ("a b", "c d", "0.0"), ("a c", "a d", "0.33"), ("b", "b", "bad")]
    (tmp_path / "pairs.tsv").write_text(
        "".join("\t".join((f"{one} w{n}", two, score)) + "\n" for n in range(40) for one, two, score in rows)
    )
    table = ("--set", "source.kind=tsv", "--set", "source.train=pairs.tsv", "--set", "source.columns=[0,1,2]")
    more = ("--set", "train.steps=5", "--set", "data.valid=0.1", "--set", "data.test=0.2")
    run(python, tmp_path, "train", "similarity", "--out", "wide", *table, *more)
    run(python, tmp_path, "train", "similarity", "--out", "slim", "--set", "model.width=8", *table, *more)
    found = json.loads(run(python, tmp_path, "compare", "wide", "slim", "--out", "compared", "--json"))
    assert found["score"] == "squared error"
    assert [each["name"] for each in found["runs"]] == ["wide", "slim"]
    described = json.loads((tmp_path / "wide" / "data.json").read_text())
    assert described["bad"] == {"no score": 40}


def test_the_example_is_three_files_of_200_lines() -> None:
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix in (".py", ".toml")]
    assert len(files) == 3
    assert sum(len(path.read_text().splitlines()) for path in files) <= 200
