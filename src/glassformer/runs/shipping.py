"""Models that ship: runs inside the package, by name, such as "en-de"; small, and each with a card."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from glassformer.interop.huggingface import JOINT, SEPARATE
from glassformer.recipe import to_toml, with_paths
from glassformer.runs import folder as files
from glassformer.tasks.run import Run
from glassformer.writing import is_trained, write_text

ASSETS = Path(__file__).parents[1] / "assets"
CARD = "card.md"


@dataclass(frozen=True)
class Shipped:
    """A model that ships: its name, its folder, and what it does in a line, the first of its card."""

    name: str
    folder: Path

    @property
    def title(self) -> str:
        """What it does."""
        return (self.folder / CARD).read_text(encoding="utf-8").split("\n", 1)[0].lstrip("# ")

    @property
    def bytes(self) -> int:
        """Its size on disk."""
        return sum(path.stat().st_size for path in self.folder.iterdir())


def shipped() -> dict[str, Shipped]:
    """The models that ship, by name."""
    folders = sorted(ASSETS.iterdir()) if ASSETS.is_dir() else []
    return {folder.name: Shipped(folder.name, folder) for folder in folders if is_trained(folder)}


def ship(run: Run, folder: Path) -> None:
    """Write what is needed to use a run, with its matrices rounded to 8 bits and without anything of the machine."""
    if run.path is None:
        raise ValueError("only a run in a folder can be shipped")
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / files.RECIPE, to_toml(with_paths(run.recipe, lambda path: Path(path).name)))
    write_text(folder / files.CONFIG, (run.path / files.CONFIG).read_text(encoding="utf-8"))
    for name in (*JOINT, *SEPARATE):
        if (run.path / name).is_file():
            table = json.loads((run.path / name).read_text(encoding="utf-8"))
            write_text(folder / name, json.dumps(table, ensure_ascii=False, separators=(",", ":")))
    files.write_weights(folder, run.model, small=True)
