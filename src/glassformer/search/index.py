"""The index: a folder of texts and their vectors, in which the nearest ones are found by comparing with all of them.

index.json             the run that made it, and how
texts.jsonl            a text and its place a line
vectors.safetensors    its vector, of length 1, in the same order
checksums.json         of these files

Comparing is exact: the cosine of a question with every text is one product of a matrix and a vector.

N texts, D width, Q questions
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from glassformer.errors import ConfigurationError, InputError, RunError, TrainingError
from glassformer.files import regular
from glassformer.search.texts import Passage
from glassformer.tasks.run import Progress, Run
from glassformer.writing import check_free, damage, filling, read_json, write_checksums, write_json

FACTS, TEXTS, VECTORS = "index.json", "texts.jsonl", "vectors.safetensors"
FORMAT = 1
NEAR = 0.999  # the cosine of a text's vector with the one in the index, if the same run has made both


@dataclass(frozen=True)
class Hit:
    """A text that was found, its place, and the cosine of its vector with the question's."""

    text: str
    place: str
    score: float


@dataclass(frozen=True)
class Index:
    """Texts and their vectors: `index.search(run.embed(["where do cats sleep?"]), 3)`."""

    passages: Sequence[Passage]
    vectors: Tensor  # (N, D), of length 1
    run: str = ""  # the folder of the run that made it
    pooling: str = "mean"

    def __len__(self) -> int:
        return len(self.passages)

    def search(self, questions: NDArray[np.float32], top: int = 5) -> list[list[Hit]]:
        """The `top` nearest texts of each question's vector (Q, D), nearest first."""
        if top < 1:
            raise ConfigurationError(f"the number of texts to find must be at least 1, not {top}")
        asked = torch.nn.functional.normalize(torch.from_numpy(questions), dim=1)  # (Q, D)
        if asked.shape[1] != self.vectors.shape[1]:
            width = self.vectors.shape[1]
            raise InputError(f"the index has vectors of {width} numbers, not {asked.shape[1]}: another run made it")
        found = []
        for question in asked:
            scores, rows = torch.mv(self.vectors, question).topk(min(top, len(self)))  # (top), (top)
            found.append([self._hit(row, score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True)])
        return found

    def _hit(self, row: int, score: float) -> Hit:
        return Hit(*self.passages[row], score)

    def check(self, run: Run) -> None:
        """Refuse a run that did not make this index: its vector of the first text is another."""
        own = torch.from_numpy(run.embed([self.passages[0].text], self.pooling, normalised=True))[0]  # (D)
        if own.shape != self.vectors[0].shape or float(own @ self.vectors[0]) < NEAR:
            raise InputError(f"{run.path or 'this run'} did not make this index: search it with {self.run}")

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What index.json says."""
        size = {"texts": len(self), "width": int(self.vectors.shape[1])}
        return {"format": FORMAT, "run": self.run, "pooling": self.pooling, **size}


def make_index(
    run: Run, texts: Sequence[Passage], pooling: str | None = None, progress: Progress | None = None
) -> Index:
    """The index of some texts by a run that embeds."""
    chosen = str(pooling or getattr(run.task, "pooling", "mean"))
    vectors = run.embed([each.text for each in texts], chosen, normalised=True, progress=progress)
    place = str(run.path.resolve()) if run.path is not None else ""
    return Index(list(texts), torch.from_numpy(vectors), place, chosen)


def write_index(index: Index, folder: Path, force: bool = False) -> None:
    """Write an index into a folder, which gets its name when everything is written."""
    check_free(folder, force)
    try:
        with filling(folder, FACTS) as new:
            save_file({"vectors": index.vectors.contiguous()}, new / VECTORS)
            with (new / TEXTS).open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(json.dumps(each._asdict(), ensure_ascii=False) + "\n" for each in index.passages)
            write_checksums(new, [TEXTS, VECTORS])
            write_json(new / FACTS, index.facts)
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"{folder} cannot be written: {getattr(error, 'strerror', None) or error}") from None


def read_index(folder: Path) -> Index:
    """The index in a folder; a damaged one is refused."""
    if not (folder / FACTS).is_file():
        raise RunError(f"{folder} holds no index: make one with glassformer index")
    facts = read_json(folder / FACTS, dict[str, Any])
    if facts.get("format") != FORMAT:
        raise RunError(f"{folder / FACTS}: the format is {facts.get('format')!r}: expected {FORMAT}")
    if (wrong := damage(folder)) is not None:
        raise RunError(f"{folder} is damaged: {wrong}; make it again with glassformer index")
    try:
        lines = regular(folder / TEXTS).read_bytes().splitlines()
        found = TypeAdapter(list[Passage]).validate_python([json.loads(line) for line in lines])
        vectors = load_file(regular(folder / VECTORS))["vectors"]
    except (OSError, ValueError, KeyError, ValidationError, SafetensorError) as error:
        raise RunError(f"{folder} is damaged: {error}") from None
    if vectors.dim() != 2 or len(vectors) != len(found) or not found or vectors.dtype != torch.float32:
        raise RunError(
            f"{folder} is damaged: it has {len(found):,} texts, but vectors of the shape {tuple(vectors.shape)}"
        )
    return Index(found, vectors, str(facts.get("run", "")), str(facts.get("pooling", "mean")))
