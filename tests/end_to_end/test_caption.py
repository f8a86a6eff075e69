"""`caption`: names of images in, captions out; what cannot be read gets a sentence; runs go out and come back."""

import json
from pathlib import Path

import pytest

import glassformer as gf
from captions import caption_recipe, written

from .helpers import Command, complains, envelopes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    folder = tmp_path_factory.mktemp("captions")
    gf.train(caption_recipe(written(folder, 24)), folder / "run")
    return folder


def test_a_name_in_a_caption_out_in_order(folder: Path, command: Command) -> None:
    names = [str(folder / "seen" / f"{number:03}.png") for number in range(3)]
    answer = command("caption", "--run", folder / "run", *names)
    assert answer.code == 0, answer.err
    assert [line.split("\t")[0] for line in answer.out.splitlines()] == names
    piped = command("caption", "--run", folder / "run", stdin="\n".join(names).encode())
    assert piped.out == answer.out
    assert piped.err == ""
    rows = envelopes(command("caption", "--run", folder / "run", "--json", "--beam", "2", names[0]))
    assert rows[0].keys() == {"input", "output", "error", "score", "finished"}


def test_what_cannot_be_read_gets_a_sentence(folder: Path, command: Command) -> None:
    (folder / "bad.png").write_bytes(b"no image")
    good = folder / "seen" / "000.png"
    answer = command("caption", "--run", folder / "run", folder / "bad.png", good, folder / "gone.png")
    assert answer.code == 2
    assert [bool(line) for line in answer.out.splitlines()] == [False, True, False]
    assert "argument 1: " in answer.err
    assert "bad.png: is no image of a known format" in answer.err
    assert "2 of 3 files could not be used" in answer.err
    complains(command("caption", "--run", folder / "run", folder / "gone.png"), 2, "gone.png: cannot be read")
    complains(
        command("translate", "--run", folder / "run", "x"), 2, "does not translate: it was trained for captioning"
    )


def test_evaluate_takes_a_file(folder: Path, command: Command, tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"no image")
    row = {"image": str(folder / "seen" / "000.png"), "caption": ["a red circle", "a circle"]}
    rows = [row, {"image": "x.png", "caption": "a"}]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    answer = command("evaluate", "--run", folder / "run", "--data", tmp_path / "c.jsonl", "--json")
    facts = json.loads(answer.out)
    assert (facts["images"], facts["captions"], facts["references"], facts["unreadable"]) == (1, 2, [2, 2], 1)
    assert f"{tmp_path / 'x.png'}: is no image of a known format: left out" in answer.err
    (tmp_path / "c.jsonl").write_text('{"image": "x.png"}\n', encoding="utf-8")
    complains(command("evaluate", "--run", folder / "run", "--data", tmp_path / "c.jsonl"), 2, "c.jsonl:1: has no text")


def test_an_imported_captioner_is_advised_to_caption(folder: Path, command: Command, tmp_path: Path) -> None:
    assert command("export", "--run", folder / "run", tmp_path / "out").code == 0
    answer = command("import", tmp_path / "out", tmp_path / "back")
    assert answer.out.splitlines()[-1] == f'next: glassformer caption --run {tmp_path / "back"} "image.png"'
    good = folder / "seen" / "000.png"
    one, two = (command("caption", "--run", run, good, "--beam", "1") for run in (folder / "run", tmp_path / "back"))
    assert two.code == 0
    assert two.out.startswith(one.out.rstrip("\n"))
    assert command("data", folder / "run" / "recipe.toml").code == 0
