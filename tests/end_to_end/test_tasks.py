"""Answers and summaries from the command line, from a data file to scores."""

import json
import sys
from pathlib import Path

import pytest

import glassformer as gf
from glassformer.recipe import make_recipe
from glassformer.tasks.translation import Translator
from questions import paragraphs, recipe, written

from .helpers import Command, complains, envelopes, write


@pytest.fixture(scope="module")
def answering(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("answering")
    gf.train(recipe(written(folder / "t.json", paragraphs(300))), folder / "run")
    return folder / "run"


def test_questions_about_a_file(command: Command, answering: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the old green house\nhas  nine windows\n", encoding="utf-8")
    answer = command("answer", "--run", answering, "--context", text, "which number", "which colour")
    assert answer.code == 0, answer.err
    assert [line.split("\t")[0] for line in answer.out.splitlines()] == ["nine", "green"]
    piped = command("answer", "--run", answering, "--context", text, stdin=b"which number\nwhich colour\n")
    assert piped.out == answer.out
    (facts,) = envelopes(command("answer", "--run", answering, "--context", text, "--json", "which number"))
    assert text.read_text()[facts["start"] : facts["end"]] == facts["output"] == "nine"
    assert facts.keys() == {"input", "output", "error", "start", "end", "score"}
    assert (facts["input"], facts["error"]) == ("which number", None)
    alone = command("answer", "--run", answering, "which number\tthe old house has nine windows")
    assert alone.out.split("\t")[0] == "nine"


def test_lines_of_questions_and_contexts_keep_their_order(command: Command, answering: Path) -> None:
    lines = "which colour\ta red house\n" + json.dumps({"question": "which number", "context": "has\nfive windows"})
    found = command("answer", "--run", answering, "--json", stdin=lines.encode())
    assert [row["output"] for row in envelopes(found)] == ["red", "five"]


def test_answers_are_scored(command: Command, answering: Path, tmp_path: Path) -> None:
    facts = json.loads(command("evaluate", "--run", answering, "--json").out)
    assert facts["exact"] > 0.95
    assert facts["questions"] == facts["answerable"]
    file = written(tmp_path / "mine.json", paragraphs(20, seed=5))
    said = command("evaluate", "--run", answering, "--data", file)
    assert said.out.startswith("40 questions: exact match ")
    wrong = paragraphs(2)
    wrong[0]["qas"][0]["answers"][0]["answer_start"] = 500
    complains(command("evaluate", "--run", answering, "--data", written(file, wrong)), 2, "outside its context")


@pytest.mark.parametrize(
    ("more", "stdin", "words"),
    [
        (("who?",), b"", ("--context FILE",)),
        ((), b"no tab\n", ("standard input:1:", "a question, a tab and its context")),
        ((), b'{"question": 1}\n', ("standard input:1:",)),
        ((), b'{"question": ' + b"[" * 99_999 + b"\n", ("standard input:1: expected a question",)),
        ((), b'{"question": "\\ud800", "context": "b"}\n', ("standard input:1: ", "is not Unicode text")),
        ((), b"which\t \n", ("standard input:1: the context is empty",)),
        ((), b"\tb\n", ("standard input:1: the question is empty",)),
        (("--context", "nowhere.txt", "who?"), b"", ("nowhere.txt: cannot be read",)),
    ],
)
def test_what_cannot_be_answered_is_told(
    command: Command, answering: Path, more: tuple[str, ...], stdin: bytes, words: tuple[str, ...]
) -> None:
    complains(command("answer", "--run", answering, *more, stdin=stdin), 2, *words)


def test_a_line_that_cannot_be_answered_leaves_the_others_their_answers(command: Command, answering: Path) -> None:
    lines = b"which colour\ta red house\n\tb\nwhich number\thas five windows\n"
    found = command("answer", "--run", answering, stdin=lines)
    assert [line.split("\t")[0] for line in found.out.splitlines()] == ["red", "", "five"]
    assert found.code == 2
    assert found.err.splitlines() == [
        "glassformer: standard input:2: the question is empty",
        "glassformer: 1 of 3 questions could not be used",
    ]
    rows = envelopes(command("answer", "--run", answering, "--json", stdin=lines))
    assert [row["output"] for row in rows] == ["red", None, "five"]
    assert [row["input"] for row in rows] == lines.decode().splitlines()
    assert rows[1]["error"] == "standard input:2: the question is empty"


def test_a_line_that_is_no_text_leaves_the_other_questions_theirs(command: Command, answering: Path) -> None:
    lines = b"which colour\ta red house\n\xff\tb\nwhich number\thas five windows\n"
    found = command("answer", "--run", answering, stdin=lines)
    assert [line.split("\t")[0] for line in found.out.splitlines()] == ["red", "", "five"]
    assert found.err.splitlines()[0] == "glassformer: standard input:2: is not UTF-8 text"


def test_the_best_threshold_is_found_and_may_be_given(command: Command, answering: Path, tmp_path: Path) -> None:
    asked = recipe(
        written(tmp_path / "t.json", paragraphs(60, unanswerable=0.4)), task={"unanswerable": True}, train={"steps": 5}
    )
    gf.train(asked, tmp_path / "run")
    facts = json.loads(command("evaluate", "--run", tmp_path / "run", "--split", "valid", "--json").out)
    assert facts["threshold"] == 0
    assert facts["best_on_valid"]["f1"] >= facts["f1"]
    assert "the best on valid is" in command("evaluate", "--run", tmp_path / "run").out
    said = [
        command("answer", "--run", tmp_path / "run", "--threshold", each, stdin=b"which colour\ta red house\n").out
        for each in ("1000", "-1000")
    ]
    assert said[0].split("\t")[0] != ""
    assert said[1].split("\t")[0] == ""
    lost = command("answer", "--run", tmp_path / "run", "--threshold", "nan", stdin=b"which colour\ta red house\n")
    complains(lost, 2, "--threshold is nan")
    plain = command("answer", "--run", answering, "--threshold", "1", stdin=b"which colour\ta red house\n")
    complains(plain, 2, "--threshold is for task.unanswerable")


def test_each_run_does_its_own_task(command: Command, answering: Path, trained: Translator, tmp_path: Path) -> None:
    complains(command("translate", "--run", answering), 2, "does not translate: it was trained for answering")
    complains(command("answer", "--run", trained.path), 2, "does not answer: it was trained for translation")
    complains(command("evaluate", "--run", answering, "--rouge"), 2, "for runs that write")


def test_transform_is_translate_by_another_name(command: Command, trained: Translator) -> None:
    lines = b"a b c\n\nd e\n"
    first = command("transform", "--run", trained.path, stdin=lines)
    assert first.code == 0
    assert first.out == command("translate", "--run", trained.path, stdin=lines).out
    found = envelopes(command("transform", "--run", trained.path, "--json", stdin=lines))
    assert [each["output"] for each in found] == first.out.splitlines()
    assert [each["input"] for each in found] == ["a b c", "", "d e"]
    (best,) = envelopes(command("translate", "--run", trained.path, "--json", "--nbest", "2", stdin=b"a b\n"))
    expected = trained.search(["a b"], beam=2, best=2)[0]
    assert best.keys() == {"input", "output", "error", "outputs"}
    assert best["outputs"][0] == {"text": expected[0].text, "score": expected[0].score, "finished": True}
    assert [each["text"] for each in best["outputs"]] == [each.text for each in expected]
    complains(command("transform", "--run", trained.path, "--json", "--stream"), 2, "--json")
    long = command("transform", "--run", trained.path, stdin=b"a b\n" + b"a b c " * 200 + b"\n" + b"c " * 600 + b"\n")
    assert long.err.startswith("glassformer: standard input:2 and 1 more: longer than the ")
    assert (long.code, len(long.out.splitlines())) == (0, 3)


@pytest.fixture
def summaries(tmp_path: Path) -> Path:
    rows = [(f"{a} {b} {c}", a) for a in "abcdef" for b in "abcdef" for c in "abc"]
    (tmp_path / "train.tsv").write_text("".join(f"{long}\t{short}\n" for long, short in rows), encoding="utf-8")
    table = {
        "source": {"kind": "tsv", "train": "train.tsv"},
        "data": {"max_tokens": 16, "valid": 0.2, "test": 0.2},
        "tokenizer": {"kind": "word", "vocabulary": 40},
        "model": {"width": 16, "heads": 2, "layers": 1, "hidden": 32, "dropout": 0.0},
        "train": {"steps": 4, "batch_tokens": 256, "validate_every": 2, "watch": "rougeL", "device": "cpu"},
        "decode": {"beam": 1, "max_length": 8},
    }
    return write(tmp_path / "my.toml", make_recipe(table))


def test_summaries_are_watched_and_scored_by_rouge(command: Command, summaries: Path) -> None:
    run = summaries.parent / "run"
    answer = command("train", summaries, "--out", run)
    assert answer.code == 0, answer.err
    assert "rougeL" in answer.err
    assert "ROUGE-L" in answer.out
    facts = json.loads(command("evaluate", "--run", run, "--json").out)
    assert {"rouge1", "rouge2", "rougeL", "chrf"} <= facts.keys()
    assert "ROUGE-1 " in command("evaluate", "--run", run).out


def test_rouge_is_there_for_the_asking(command: Command, trained: Translator) -> None:
    assert "rouge1" not in json.loads(command("evaluate", "--run", trained.path, "--json").out)
    assert json.loads(command("evaluate", "--run", trained.path, "--json", "--rouge").out)["rouge1"] >= 0


def test_without_its_library_a_sentence_says_so(
    command: Command, summaries: Path, trained: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    out = summaries.parent / "run"
    complains(command("train", summaries, "--out", out), 2, "pip install 'glassformer[tasks]'")
    assert not out.exists()
    complains(command("evaluate", "--run", trained.path, "--rouge"), 2, "pip install 'glassformer[tasks]'")
