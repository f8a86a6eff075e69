"""An index: what is found is the nearest, exactly; folders are whole or refused; another run cannot search it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import glassformer as gf
from glassformer.errors import ConfigurationError, InputError, RunError
from glassformer.models import bert
from glassformer.recipe import Tokenizer as Section
from glassformer.runs import import_run
from glassformer.search import Index, Passage, make_index, passages, read_index, write_index
from glassformer.text import Tokenizer

WORDS = ["cat", "dog", "cow", "milk", "bread", "road"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Two imported encoders with the same tokenizer and other weights."""
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        folder = tmp_path_factory.mktemp("encoder")
        tokenizer = Tokenizer.train(WORDS * 9, Section(kind="bpe", vocabulary=300))
        tokenizer.add_frame()
        gf.interop.save(bert(tokenizer.size, 16, 2, 1, 32, 64), folder / "model", {"pad_token_id": tokenizer.pad})
        tokenizer.save(folder / "model" / "tokenizer.json")
        found.append(import_run(folder / "model", folder / "run"))
    return found


def test_the_nearest_are_those_of_a_loop(tmp_path: Path) -> None:
    vectors = F.normalize(torch.randn(200, 8), dim=1)
    known = Index([Passage(f"text {row}", f"file:{row}") for row in range(200)], vectors)
    asked = torch.randn(3, 8).numpy()
    for question, hits in zip(asked, known.search(asked, 7), strict=True):
        cosines = {row: float(vectors[row].numpy() @ question / np.linalg.norm(question)) for row in range(200)}
        expected = sorted(cosines, key=lambda row: -cosines[row])[:7]
        assert [hit.text for hit in hits] == [f"text {row}" for row in expected]
        assert [hit.score for hit in hits] == pytest.approx([cosines[row] for row in expected], abs=1e-6)
    assert len(known.search(asked[:1], 999)[0]) == 200
    with pytest.raises(ConfigurationError, match="at least 1, not 0"):
        known.search(asked, 0)
    with pytest.raises(InputError, match="vectors of 8 numbers, not 5"):
        known.search(np.ones((1, 5), np.float32))


def test_texts_of_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "notes" / "deep").mkdir(parents=True)
    (tmp_path / "notes" / "a.txt").write_text("one\ntwo\n\nthree\n", encoding="utf-8")
    (tmp_path / "notes" / "deep" / "b.md").write_text("four", encoding="utf-8")
    (tmp_path / "notes" / "c.png").write_bytes(b"\x89PNG")
    folder = tmp_path / "notes"
    assert [each.text for each in passages([folder])] == ["one\ntwo", "three", "four"]
    assert passages([folder])[1].place == f"{folder / 'a.txt'}:4"
    assert [each.text for each in passages([folder], "line")] == ["one", "two", "three", "four"]
    assert [each.text for each in passages([folder / "a.txt"], "file")] == ["one\ntwo\n\nthree\n"]
    with pytest.raises(ConfigurationError, match='--by is "page": expected paragraph, line, file'):
        passages([folder], "page")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no text file"):
        passages([tmp_path / "empty"])
    with pytest.raises(gf.GlassformerError, match=r"missing\.txt: cannot be read"):
        passages([tmp_path / "missing.txt"])


def test_an_index_is_written_read_and_checked(runs: list[Any], tmp_path: Path) -> None:
    texts = [Passage(f"{one} {two}", f"t:{one}") for one in WORDS for two in WORDS]
    made = make_index(runs[0], texts)
    write_index(made, tmp_path / "index")
    known = read_index(tmp_path / "index")
    assert torch.equal(known.vectors, made.vectors)
    assert known.passages == texts
    known.check(runs[0])
    ((best, *_),) = known.search(runs[0].embed(["cow road"]), 3)
    assert best.text == "cow road"
    assert best.score == pytest.approx(1, abs=1e-5)
    with pytest.raises(InputError, match=f"did not make this index: search it with {runs[0].path.resolve()}"):
        known.check(runs[1])
    with pytest.raises(RunError, match="is not empty"):
        write_index(made, tmp_path / "index")
    write_index(made, tmp_path / "index", force=True)
    texts_file = tmp_path / "index" / "texts.jsonl"
    texts_file.write_text(texts_file.read_text().replace("cow", "cat"), encoding="utf-8")
    with pytest.raises(RunError, match=r"is damaged: texts\.jsonl does not match its checksum"):
        read_index(tmp_path / "index")
    with pytest.raises(RunError, match="holds no index"):
        read_index(tmp_path)
    (tmp_path / "index" / "index.json").write_text(json.dumps({"format": 9}))
    with pytest.raises(RunError, match="the format is 9: expected 1"):
        read_index(tmp_path / "index")
