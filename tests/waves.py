"""Series that can be learned in seconds, tables of them, and recipes."""

import csv
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SMALL: dict[str, dict[str, Any]] = {
    "model": {"width": 16, "heads": 2, "layers": 1, "hidden": 32, "dropout": 0.0},
    "train": {
        "steps": 40, "batch_tokens": 256, "validate_every": 20, "warmup": 5, "lr": 0.01, "device": "cpu",
        "log_every": 10, "save_every": 20,
    },
}  # fmt: skip


def waves(steps: int, season: int = 8, seed: int = 0, noise: float = 0.1) -> list[float]:
    """A season with noise and a small trend."""
    draw = random.Random(seed)
    return [
        round(10 + 0.01 * at + 3 * math.sin(2 * math.pi * at / season) + draw.gauss(0, noise), 3) for at in range(steps)
    ]


def written(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]], delimiter: str = ",") -> Path:
    """A CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])
    return path


def merged(*tables: dict[str, Any]) -> dict[str, Any]:
    """Tables of recipes on top of each other."""
    made: dict[str, Any] = {}
    for table in tables:
        for name, section in table.items():
            made[name] = {**made.get(name, {}), **section}
    return made


def forecasting(folder: Path, **changes: dict[str, Any]) -> dict[str, Any]:
    """A recipe that forecasts the waves of a file of two columns; `load` follows `heat` by two steps."""
    heat = waves(240)
    rows = [(at, heat[at], round(2 * heat[at - 2], 3) if at > 1 else "") for at in range(len(heat))]
    file = written(folder / "waves.csv", ("hour", "heat", "load"), rows)
    own = {
        "task": {"kind": "forecasting", "window": 16, "horizon": 4, "season": 8},
        "source": {"kind": "csv", "train": str(file), "columns": ["heat", "load"], "time": "hour"},
    }
    return merged(SMALL, own, changes)


def recognising(folder: Path, **changes: dict[str, Any]) -> dict[str, Any]:
    """A recipe that tells a quick wave from a slow one, in a file of several recordings."""
    rows = []
    for number in range(6):
        quick, slow = waves(160, 4, number), waves(160, 16, number)
        for at in range(160):
            label = ("quick", "slow")[at // 16 % 2]
            rows.append((f"person {number}", quick[at] if label == "quick" else slow[at], label))
    file = written(folder / "moves.csv", ("who", "x", "move"), rows)
    own = {
        "task": {"kind": "series-classification", "window": 8, "stride": 3},
        "source": {"kind": "csv", "train": str(file), "columns": ["x"], "series": "who", "label": "move"},
    }
    return merged(SMALL, own, changes)
