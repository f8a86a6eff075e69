"""`look`: a picture in the terminal, files on request, and a sentence for all that cannot be shown."""

from __future__ import annotations

import base64
import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib import font_manager

import captions
import glassformer as gf
import labels
import questions
import stories
from glassformer.looking import fonts
from glassformer.looking.answer import unpacked
from glassformer.recipe import make_recipe
from glassformer.tasks.translation import Translator
from tiny import IDLE, table

from .helpers import Command, complains

TEXT = "Where is the old station?"
SMALL = {"width": 8, "heads": 2, "layers": 1, "hidden": 16}


def packed(page: Path) -> dict[str, Any]:
    """What the interactive view of a page is told of its trace."""
    found = re.search(r'id="(trace|start)">([^<]*)<', page.read_text(encoding="utf-8"))
    assert found is not None
    text = found[2]
    if found[1] == "start":  # the Studio in one file
        (text,) = [each["packed"] for each in json.loads(text)["recorded"] if each["view"] == "read"]
    return unpacked(base64.b64decode(text)).header


def test_the_shipped_translator_is_looked_at_by_default(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = command("look", TEXT)
    assert answer.code == 0, answer.err
    first, title, _, head, *lines = answer.out.splitlines()
    assert first.startswith(f"{TEXT} → ")
    assert title.startswith("Cross attention of layer ")
    assert head.split() == ["Where", "is", "the", "old", "station", "?"]
    assert [line.split()[0] for line in lines][-2:] == ["?", "end"]
    assert all("█" in line or "▓" in line or "▒" in line or "░" in line for line in lines)
    pieces = command("look", "--run", "en-de", TEXT, "--pieces")
    assert "·is" in pieces.out


@pytest.mark.parametrize(
    ("what", "begins"),
    [("beam", "number,parent,step,token"), ("alignment", "token,token_text,key"), ("heads", "kind,layer,head")],
)
def test_numbers_are_written_as_a_table(command: Command, tmp_path: Path, what: str, begins: str) -> None:
    file = tmp_path / "x.csv"
    answer = command("look", "--run", "en-de", TEXT, "--what", what, "--out", file)
    assert (answer.code, answer.out) == (0, f"{file} is written.\n"), answer.err
    assert file.read_text(encoding="utf-8").startswith(begins)


def test_a_text_does_not_steer_the_terminal(command: Command, trained: Translator) -> None:
    answer = command("look", "--run", trained.path or "", "a \x1b[31m\x9b b")
    assert (answer.code, "\x1b" in answer.out, "\x9b" in answer.out) == (0, False, False)
    assert "a ␛[31m� b" in answer.out


def test_a_trace_is_kept_and_looked_at_later(command: Command, trained: Translator, tmp_path: Path) -> None:
    file = tmp_path / "x.trace"
    assert command("look", "--run", trained.path or "", "a b c", "--out", file).code == 0
    assert gf.load_trace(file).names == gf.points(trained)  # without --what, everything
    later = command("look", "--trace", file, "--what", "lines")
    assert later.out == command("look", "--run", trained.path or "", "a b c", "--what", "lines").out
    page = tmp_path / "x.html"
    assert command("look", "--trace", file, "--layer", "1", "--head", "2", "--out", page).code == 0
    header = packed(page)
    assert (header["first"]["layer"], header["first"]["head"]) == (1, 2)
    assert header["candidates"]
    complains(command("look", "--trace", file, "--what", "lens"), 2, "lens works with the model, which a trace")
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    complains(command("look", "--trace", file), 2, "x.trace is damaged")
    file.write_bytes(data.replace(b'"version":"1"', b'"version":"9"'))
    complains(command("look", "--trace", file), 2, "is a trace of version 9: this Glassformer reads version 1")
    file.write_text("no trace", encoding="utf-8")
    complains(command("look", "--trace", file), 2, "x.trace is no trace")
    complains(command("look", "--trace", tmp_path / "none.trace"), 2, "there is no such file")
    complains(command("look", "--trace", file, "a"), 2, "--trace takes the place of a run and a text")


@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "html"])
def test_pictures_and_pages(command: Command, trained: Translator, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"x.{ending}"
    answer = command("look", "--run", trained.path or "", "a b c", "--what", "heads", "--out", file)
    assert (answer.code, answer.err) == (0, "")
    assert file.stat().st_size > 3000
    if ending == "html":
        assert packed(file)["candidates"]  # the logits are recorded with the weights


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("there is no text to look at",)),
        (("",), ("there is nothing to look at in ''",)),
        (("a b", "--what", "bean"), ("did you mean beam?",)),
        (("a b", "--what", "gates"), ("has nothing to show of gates: it has attention, heads",)),
        (("a b", "--what", "patches"), ("has nothing to show of patches",)),
        (("a b", "--layer", "9"), ("there is no layer 9: decoder.cross attention has 2 layers, 0 to 1",)),
        (("a b", "--head", "9"), ("there is no head 9: decoder.cross attention has 4 heads, 0 to 3",)),
        (("a b", "--head", "-1"), ("--head", "greater than or equal to 0")),
        (("a b", "--kind", "encoder.cross"), ('there is no attention "encoder.cross": there is encoder.self',)),
        (("a b", "--kind", "foo", "--out", "x.html"), ('there is no attention "foo"',)),
        (("a b", "--what", "heads", "--layer", "1"), ("--layer has no effect on heads",)),
        (("a b", "--against", "a c"), ("--against has no effect on attention: it is for patching",)),
        (("a b", "--what", "patching"), ("name the other one with --against TEXT",)),
        (("a b", "--what", "patching", "--against", "a b c"), ("choose texts of the same length",)),
        (("a b", "--what", "beam", "--words"), ("beam is of tokens",)),
        (("a b", "--out", "x.gif"), ("x.gif: what it is to hold is told by its end",)),
        (("a b", "--out", "nowhere/x.png"), ("there is no folder nowhere",)),
        (("a b", "--out", "."), ("it is a folder",)),
        (("a b", "--word", "b"), ("--word has no effect on attention: it is for why, parts",)),
        (("a b", "--what", "why", "--word", "x"), ('there is no "x" among what the run answers: there is a, b',)),
        (("a b", "--what", "why", "--word", "b", "--instead", "x"), ('"x" is not in the vocabulary',)),
        (("--born",), ("was not looked at while it was trained: name texts in [look]",)),
        (("--born", "--layer", "1"), ("--layer has no effect with --born",)),
    ],
)
def test_what_cannot_be_shown_is_a_sentence(
    command: Command, trained: Translator, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    complains(command("look", "--run", trained.path or "", *arguments), 2, *words)


def test_a_model_that_ships_is_called_by_its_name(command: Command) -> None:
    answer = command("look", "--run", "en-de", "Hello.", "--what", "gates")
    complains(answer, 2, "glassformer: en-de has nothing to show of gates: it has attention, heads")


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_letters_that_no_font_has_are_told(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    own = [each for each in font_manager.fontManager.ttflist if each.name.startswith("DejaVu")]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    fonts._beside.cache_clear()
    try:
        answer = command("look", "Hello, 日本.", "--out", tmp_path / f"x.{ending}")
    finally:
        fonts._beside.cache_clear()
    assert (answer.code, (tmp_path / f"x.{ending}").is_file()) == (0, True)
    assert "no installed font has the letters 日 本, which are drawn as boxes" in answer.err


def test_a_text_of_two_thousand_tokens(command: Command, trained: Translator, tmp_path: Path) -> None:
    long = " ".join("abcdefgh"[number % 8] for number in range(2000))
    answer = command("look", "--run", trained.path or "", long, "--what", "positions")
    assert answer.code == 0
    assert "the text is longer than the 64 tokens that the model reads: the rest is cut" in answer.err
    numbers = command("look", "--run", trained.path or "", long, "--out", tmp_path / "x.csv")
    assert numbers.code == 0
    with (tmp_path / "x.csv").open(encoding="utf-8") as file:
        assert max(int(row["key"]) for row in csv.DictReader(file)) > 60


def test_attention_being_born(command: Command, tmp_path: Path) -> None:
    made = {**table(IDLE), "look": {"texts": ["a b c", "d e"], "every": 2}}
    run = tmp_path / "run"
    gf.train(make_recipe(made), run)
    answer = command("look", "--run", run, "--born", "d e")
    assert answer.code == 0, answer.err
    assert answer.out.startswith("d e\nCross attention")
    assert [line.split()[1] for line in answer.out.splitlines() if line.startswith("step ")] == ["0", "2", "4"]
    assert command("look", "--run", run, "--born", "--out", tmp_path / "x.svg").code == 0
    assert "step 4" in answer.out
    complains(command("look", "--run", run, "--born", "x"), 2, "was looked at with other texts: a b c | d e")
    complains(command("look", "--run", run, "--born", "--out", tmp_path / "x.csv"), 2, "one of .png, .svg, .pdf")


def text_task(folder: Path, model: dict[str, Any]) -> dict[str, Any]:
    made = labels.text_recipe(labels.table(folder / "t.tsv", labels.examples(60)))
    return {**made, "model": model, "train": {**made.get("train", {}), "steps": 2}}


def small(made: dict[str, Any]) -> dict[str, Any]:
    return {**made, "train": {**made.get("train", {}), "steps": 2}}


def documents(folder: Path, kind: str) -> dict[str, Any]:
    return small(stories.recipe(stories.stories(folder / "t.txt", 60), kind, model=SMALL))


def films(folder: Path) -> dict[str, Any]:
    return captions.caption_recipe(captions.written(folder, 24, films=True), task={"frames": 3})


TASKS: dict[str, Any] = {
    "classification": lambda folder: text_task(folder, {"family": "bert", **SMALL}),
    "recurrent": lambda folder: text_task(folder, {"family": "recurrent", "width": 8, "cell": "lstm"}),
    "language": lambda folder: documents(folder, "language-modelling"),
    "masked": lambda folder: documents(folder, "masked-language-modelling"),
    "spans": lambda folder: {**documents(folder, "span-corruption"), "decode": {"max_length": 8}},
    "answering": lambda folder: small(questions.recipe(questions.written(folder / "q.json", questions.paragraphs(30)))),
    "images": lambda folder: small(labels.image_recipe(labels.folder_of_bars(folder / "images", 12))),
    "captions": lambda folder: small(captions.caption_recipe(captions.written(folder, 24))),
    "films": lambda folder: small(films(folder)),
}  # fmt: skip
GIVEN = {
    "answering": "which number\tthe old house has nine windows",
    "masked": "the big [MASK] says moo",
    "spans": "the big <extra_id_0> moo",
}
IMAGES = {"images": "images/lying/000.png", "captions": "seen/000.png", "films": "seen/000.gif"}


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_something_to_show(command: Command, tmp_path: Path, task: str) -> None:
    run = tmp_path / "run"
    gf.train(make_recipe(TASKS[task](tmp_path)), run)
    text = GIVEN.get(task, "the big cow says moo")
    if task in IMAGES:
        text = str(tmp_path / IMAGES[task])
    answer = command("look", "--run", run, text)
    assert answer.code == 0, answer.err
    assert len(answer.out.splitlines()) > 3
    why, lens = (command("look", "--run", run, text, "--what", what) for what in ("why", "lens"))
    if task == "answering":
        complains(why, 2, "this run points at places in the text")
    else:
        assert "logit" in why.out
    assert lens.code == (2 if task == "recurrent" else 0)
    page = tmp_path / "x.html"
    assert command("look", "--run", run, text, "--out", page).code == 0
    pictures = page.read_text(encoding="utf-8").split("<script")[0].count("<figure>")  # of what cannot be pointed at
    assert pictures == (1 if task in ("recurrent", *IMAGES) else 0)
    if task != "recurrent":
        assert bool(packed(page)["candidates"]) == (task in ("language", "masked", "spans", "captions", "films"))
    if task == "recurrent":
        assert "gates of encoder.0" in answer.out
        complains(
            command("look", "--run", run, text, "--what", "attention"),
            2,
            "has nothing to show of attention: it has embeddings, gates, patching, why",
        )
    if task == "images":
        assert "how much the class token looks at each patch" in answer.out
        complains(command("look", "--run", run, "nowhere.png"), 2, "nowhere.png")
    if task in ("captions", "films"):
        assert "where in the image each word looks" in answer.out
        assert command("look", "--run", run, text, "--out", tmp_path / "x.csv", "--head", 0).code == 0
        first, *rows = (tmp_path / "x.csv").read_text(encoding="utf-8").splitlines()
        assert first == "token,token_text,frame,row,column,weight"
        assert len(rows) % (4 if task == "captions" else 12) == 0
        assert command("look", "--run", run, text, "--what", "beam").code == 0
    if task == "language":
        complains(command("look", "--run", run, "cow " * 2000, "--what", "lines"), 2, "tokens")
