"""Classifying by command: texts and images, files and pipes, and what cannot be read."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from glassformer.recipe import make_recipe
from glassformer.runs import train
from labels import drawn, examples, folder_of_bars, image_recipe, table, text_recipe

from .helpers import Command, complains, envelopes, write


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    train(make_recipe(text_recipe(table(folder / "t.tsv", examples(300)))), folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    train(make_recipe(image_recipe(folder_of_bars(folder / "bars"), train={"steps": 100})), folder / "run")
    return folder / "run"


def test_a_line_in_a_line_out_in_order(texts: Path, command: Command, tmp_path: Path) -> None:
    answer = command("classify", "--run", texts, stdin=b"the old hammer\n\na plum\n")
    assert [line.split("\t")[0] for line in answer.out.split("\n")] == ["tool", "", "fruit", ""]
    (tmp_path / "a.txt").write_text("a saw\n", encoding="utf-8")
    answer = command(
        "classify", "--run", texts, "--file", tmp_path / "a.txt", "--file", tmp_path / "a.txt", "--top", "2"
    )
    assert [line.split("\t")[::2] for line in answer.out.splitlines()] == [["tool", "fruit"]] * 2
    answer = command("classify", "--run", texts, stdin=b"a plum\n\n" + b"a saw " * 20 + b"\n")
    assert answer.err == (
        "glassformer: standard input:3: longer than the 16 tokens that the model reads: "
        "what comes after them is left out\n"
    )
    first, second = envelopes(command("classify", "--run", texts, "--json", stdin=b"a plum\n\n"))
    assert (first["output"], list(first["probabilities"])) == ("fruit", ["fruit"])
    assert first.keys() == {"input", "output", "error", "probability", "probabilities"}
    assert second == {"input": "", "output": None, "error": None, "probability": None, "probabilities": {}}


def test_what_was_read_before_a_damage_is_answered(texts: Path, command: Command, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a saw\na plum\n", encoding="utf-8")
    packed = gzip.compress(b"".join(b"the old hammer %d\n" % number for number in range(20_000)))
    (tmp_path / "b.gz").write_bytes(packed[: len(packed) // 2])
    for other, sentence in (("nowhere.txt", "cannot be read"), ("b.gz", "is a damaged or unfinished archive")):
        answer = command("classify", "--run", texts, "--file", tmp_path / "a.txt", "--file", tmp_path / other)
        assert answer.code == 2
        assert [line.split("\t")[0] for line in answer.out.splitlines()][:2] == ["tool", "fruit"]
        assert sentence in answer.err
    assert len(answer.out.splitlines()) > 4096


def test_a_text_that_names_a_file_is_a_text_and_a_notice_says_so(
    texts: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "an old plum").write_text("a saw\n", encoding="utf-8")
    answer = command("classify", "--run", texts, "an old plum", "an old saw")
    assert [line.split("\t")[0] for line in answer.out.splitlines()] == ["fruit", "tool"]
    assert answer.code == 0
    notice = "an old plum is used as a text: to read the file of this name, write --file 'an old plum'"
    assert answer.err == f"glassformer: {notice}\n"
    assert command("classify", "--run", texts, "a plum").err == ""


@pytest.mark.parametrize("held_out", [0.0, 0.2])
def test_data_shows_labels_as_what_they_are(held_out: float, command: Command, tmp_path: Path) -> None:
    file = table(tmp_path / "t.tsv", [(f"number {n}", f"label-{n % 40}") for n in range(400)])
    asked = make_recipe(text_recipe(file, data={"valid": held_out, "test": 0.0}))
    described = command("data", write(tmp_path / "r.toml", asked))
    assert "  →  label-" in described.out
    (line,) = [each for each in described.out.splitlines() if each.startswith("tokens per word")]
    assert "target" not in line  # a label is no word


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    rows = [(f"{text} {number}", text[::-1], label) for number, (text, label) in enumerate(examples(60))]
    asked = text_recipe(table(folder / "t.tsv", rows), source={"columns": [0, 1, 2]}, train={"steps": 1})
    train(make_recipe(asked), folder / "run")
    return folder / "run"


def test_one_text_is_not_two(texts: Path, pairs: Path, command: Command) -> None:
    complains(
        command("classify", "--run", pairs, stdin=b"a plum\n"),
        2,
        "standard input:1: this run was trained on two texts with a tab between: found 1",
    )
    complains(
        command("classify", "--run", texts, stdin=b"a plum\ta saw\n"),
        2,
        "standard input:1: this run was trained on one text, without a tab: found 2",
    )
    complains(
        command("classify", "--run", pairs, stdin=b"a plum\t \n"), 2, "standard input:1: the second text is empty"
    )


def test_a_line_that_cannot_be_classified_leaves_the_others_their_labels(pairs: Path, command: Command) -> None:
    lines = b"a plum\tb\n\na saw\n\tc\na saw\td\te\n"
    answer = command("classify", "--run", pairs, stdin=lines)
    assert [bool(line) for line in answer.out.split("\n")] == [True, False, False, False, True, False]
    assert answer.code == 2
    assert [line.split(":")[2] for line in answer.err.splitlines()[:2]] == ["3", "4"]
    assert answer.err.endswith("glassformer: 2 of 5 texts could not be used\n")
    rows = envelopes(command("classify", "--run", pairs, "--json", stdin=lines))
    assert [row["error"] is not None for row in rows] == [False, False, True, True, False]
    assert [bool(row["output"]) for row in rows] == [True, False, False, False, True]
    one = command("classify", "--run", pairs, "a plum\tb")
    assert one.out == answer.out.splitlines()[0] + "\n"


def test_what_to_try_next_with_two_texts_has_a_tab_between_them(command: Command, tmp_path: Path) -> None:
    rows = [(f"{text} {number}", text[::-1], label) for number, (text, label) in enumerate(examples(60))]
    asked = text_recipe(table(tmp_path / "t.tsv", rows), source={"columns": [0, 1, 2]}, train={"steps": 1})
    told = command("train", write(tmp_path / "r.toml", make_recipe(asked)), "--out", tmp_path / "run").out
    line = next(line for line in told.splitlines() if f" classify --run {tmp_path / 'run'} " in line)
    typed = line.partition(f" classify --run {tmp_path / 'run'} ")[2]
    shell = ["/bin/sh", "-c", f"printf %s {typed}"]
    said = subprocess.run(shell, capture_output=True, check=True).stdout.decode()  # noqa: S603  # as a user types it
    assert len(said.split("\t")) == 2
    assert command("classify", "--run", tmp_path / "run", said).code == 0


def test_evaluating_shows_the_baseline_too_or_says_what_it_needs(
    texts: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = command("evaluate", "--run", texts)
    assert "baseline: TF-IDF + logistic regression 100.00%" in answer.out
    assert (texts / "confusion.png").is_file()
    mine = table(tmp_path / "mine.tsv", examples(20, seed=9))
    facts = json.loads(command("evaluate", "--run", texts, "--data", mine, "--json").out)
    assert facts["texts"] == 20
    assert facts["baseline"]["accuracy"] > 0.9
    monkeypatch.setattr(sys.modules["glassformer.evaluation.baseline"], "find_spec", lambda name: None)
    said = command("evaluate", "--run", texts).out
    assert "no baseline: TF-IDF + logistic regression needs scikit-learn: pip install 'glassformer[tasks]'" in said
    assert "needs scikit-learn" in json.loads(command("evaluate", "--run", texts, "--json").out)["baseline"]["missing"]
    complains(
        command("evaluate", "--run", texts, "--beam", "3"), 2, "--beam, --int8 and --rouge are for runs that write"
    )


def test_images_by_name_and_by_pipe(images: Path, command: Command, tmp_path: Path) -> None:
    for label in ("lying", "standing"):
        (tmp_path / label).mkdir()
        drawn(label, 5000).save(tmp_path / label / "a.png")
    names = [str(tmp_path / label / "a.png") for label in ("lying", "standing")]
    answer = command("classify", "--run", images, *names)
    assert [line.split("\t")[:2] for line in answer.out.splitlines()] == [[names[0], "lying"], [names[1], "standing"]]
    piped = command("classify", "--run", images, stdin="".join(f"{name}\n" for name in names).encode())
    assert piped == answer
    facts = json.loads(command("evaluate", "--run", images, "--data", tmp_path, "--json").out)
    assert (facts["images"], facts["accuracy"]) == (2, 1.0)


def test_what_cannot_be_read_is_told_and_the_rest_is_answered(images: Path, command: Command, tmp_path: Path) -> None:
    drawn("lying", 1).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    names = [str(tmp_path / name) for name in ("bad.png", "good.png", "gone.png")]
    answer = command("classify", "--run", images, *names)
    assert answer.code == 2
    assert [line.split("\t")[0] for line in answer.out.splitlines()] == ["", names[1], ""]
    assert answer.err.count("glassformer: ") == 3
    assert "gone.png: cannot be read: No such file or directory" in answer.err
    assert answer.err.endswith("glassformer: 2 of 3 images could not be used\n")
    rows = envelopes(command("classify", "--run", images, *names, "--json"))
    assert [row["error"] is not None for row in rows] == [True, False, True]
    assert [row["output"] for row in rows] == [None, "lying", None]
    assert [row["input"] for row in rows] == names


def test_lines_that_are_no_text_or_name_nothing_leave_the_others_theirs(
    texts: Path, images: Path, command: Command, tmp_path: Path
) -> None:
    answer = command("classify", "--run", texts, stdin=b"a plum\n\xff\na saw\n")
    assert [line.split("\t")[0] for line in answer.out.splitlines()] == ["fruit", "", "tool"]
    assert answer.err.splitlines()[0] == "glassformer: standard input:2: is not UTF-8 text"
    drawn("lying", 1).save(tmp_path / "good.png")
    answer = command("classify", "--run", images, stdin=f"{tmp_path / 'good.png'}\n\n".encode())
    assert (answer.code, answer.out.count("\n"), len(answer.out.split())) == (2, 2, 3)
    assert (
        answer.err.splitlines()[0]
        == "glassformer: standard input:2: the line is empty: expected the name of an image file"
    )


def test_an_image_that_cannot_be_read_is_left_out_of_the_score(images: Path, command: Command, tmp_path: Path) -> None:
    folder = folder_of_bars(tmp_path / "bars", 4)
    whole = json.loads(command("evaluate", "--run", images, "--data", folder, "--json").out)
    assert (whole["images"], whole["unreadable"]) == (8, 0)
    for name in ("lying/0bad.png", "standing/bad.png"):  # before and after the others
        (folder / name).write_bytes(b"nothing")
    answer = command("evaluate", "--run", images, "--data", folder, "--json")
    facts = json.loads(answer.out)
    assert (answer.code, facts["images"], facts["unreadable"]) == (0, 8, 2)
    assert facts["confusion"] == whole["confusion"]
    assert facts["loss"] == pytest.approx(whole["loss"], rel=1e-5)
    assert [line.rpartition("/")[2] for line in answer.err.splitlines()] == [
        f"{name}: is no image of a known format: left out" for name in ("0bad.png", "bad.png")
    ]
    assert "2 of the images could not be read" in command("evaluate", "--run", images, "--data", folder).out
    for path in folder.rglob("0*.png"):
        path.write_bytes(b"nothing")
    answer = command("evaluate", "--run", images, "--data", folder)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.endswith("glassformer: none of the 10 images could be read\n")


def test_other_commands_say_what_a_run_is_for(images: Path, command: Command) -> None:
    complains(command("translate", "--run", images), 2, "does not translate: it was trained for images")


def test_training_on_images_by_command(command: Command, tmp_path: Path) -> None:
    folder = folder_of_bars(tmp_path / "bars", 30)
    (folder / "lying" / "bad.png").write_bytes(b"nothing")
    path = write(tmp_path / "bars.toml", make_recipe(image_recipe(folder, train={"steps": 2})))
    described = command("data", path)
    assert "1 bad rows: 1 unreadable images" in described.out
    assert "lying/bad.png: is no image of a known format" in described.out
    facts = json.loads(command("data", path, "--json").out)
    counts = facts["splits"]["train"]["labels"]
    assert counts["lying"] + counts["standing"] == facts["report"]["kept"]["train"]
    assert f"  lying     {counts['lying']} train, " in described.out
    answer = command("train", path, "--out", tmp_path / "run")
    assert answer.code == 0
    assert "images: accuracy" in answer.out
    assert (tmp_path / "run" / "confusion.png").is_file()
    out = command("export", "--run", tmp_path / "run", tmp_path / "out").out
    assert "AutoModelForImageClassification" in out
    complains(command("train", path, "--out", tmp_path / "two", "--set", "data.strict=true"), 2, "lying/bad.png")
    assert not (tmp_path / "two").exists()


def test_training_on_texts_by_command(command: Command, tmp_path: Path) -> None:
    mine = table(tmp_path / "t.tsv", examples(120))
    path = write(tmp_path / "t.toml", make_recipe(text_recipe(mine, train={"steps": 2})))
    answer = command("train", path, "--out", tmp_path / "run")
    assert "baseline: TF-IDF + logistic regression" in answer.out
    assert "AutoModelForSequenceClassification" in command("export", "--run", tmp_path / "run", tmp_path / "out").out
    complains(command("classify", "--run", tmp_path / "out"), 2)
