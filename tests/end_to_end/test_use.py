"""Using a run: translate, evaluate, and what describes data and recipes."""

import copy
import json
import re
import shutil
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

import glassformer as gf
from glassformer.cli import items, showing
from glassformer.cli.items import read_lines
from glassformer.parts import quantise
from glassformer.recipe import bundled, make_recipe
from glassformer.tasks import writing
from glassformer.tasks.translation import Translator, translator
from tiny import IDLE, recipe

from .helpers import Command, complains, envelopes, write

LINES = ["a b c", "", "h", "e f g h", "d d"]


def test_a_file_is_translated_line_by_line(trained: Translator, command: Command, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("\n".join(LINES), encoding="utf-8")  # without a last line feed
    answer = command("translate", "--run", trained.path, "--file", tmp_path / "in.txt")
    assert (answer.code, answer.out.split("\n"), answer.err) == (0, [*LINES, ""], "")


def test_only_a_line_feed_ends_a_line(trained: Translator, command: Command, tmp_path: Path) -> None:
    text = "\ufeffa b\r\nc\u2028d\x0b\x0c\x85e\rf\n\nh \n"
    (tmp_path / "in.txt").write_bytes(text.encode())
    assert list(read_lines(str(tmp_path / "in.txt"))) == ["a b", "c\u2028d\x0b\x0c\x85e\rf", "", "h "]
    answer = command("translate", "--run", trained.path, stdin=text.encode())
    first, _, third, last, end = answer.out.split("\n")
    assert (first, third, last, end) == ("a b", "", "h", "")


def test_nothing_in_nothing_out(trained: Translator, command: Command) -> None:
    assert command("translate", "--run", trained.path).out == ""


def test_many_outputs_for_a_line_have_its_number_and_their_scores(trained: Translator, command: Command) -> None:
    answer = command("translate", "--run", trained.path, "--nbest", "3", stdin=b"a b c\n\nh\n")
    rows = [line.split("\t") for line in answer.out.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "1", "2", "3", "3", "3"]
    assert [rows[0][2], rows[3][2], rows[4][2]] == ["a b c", "", "h"]
    scores = [float(row[1]) for row in rows[:3]]
    assert scores == sorted(scores, reverse=True)
    expected = trained.search(["a b c"], beam=3, best=3)[0]
    assert [row[2] for row in rows[:3]] == [each.text for each in expected]


def test_a_wider_beam_is_what_was_asked_for(trained: Translator, command: Command) -> None:
    answer = command("translate", "--run", trained.path, "--beam", "5", "--nbest", "2", stdin=b"a b c d e\n")
    expected = trained.search(["a b c d e"], beam=5, best=2)[0]
    assert answer.out == "".join(f"1\t{each.score:.4f}\t{each.text}\n" for each in expected)


def test_a_line_that_is_no_text_leaves_the_others_their_outputs(trained: Translator, command: Command) -> None:
    asked = b"a b\n\xff\xfe\nc d\n"
    good = command("translate", "--run", trained.path, stdin=b"a b\nc d\n").out.splitlines()
    told = ["standard input:2: is not UTF-8 text", "1 of 3 texts could not be used"]
    for more in ((), ("--stream",)):
        answer = command("translate", "--run", trained.path, "--beam", "1", *more, stdin=asked)
        assert answer.code == 2
        assert answer.err.splitlines() == [f"glassformer: {each}" for each in told]
        assert len(answer.out.splitlines()) == 3
    plain = command("translate", "--run", trained.path, stdin=asked)
    assert plain.out.splitlines() == [good[0], "", good[1]]
    rows = envelopes(command("translate", "--run", trained.path, "--json", stdin=asked))
    assert [row["input"] for row in rows] == ["a b", None, "c d"]
    assert [row["output"] for row in rows] == [good[0], None, good[1]]
    assert [row["error"] for row in rows] == [None, told[0], None]
    complains(command("translate", "--run", trained.path, stdin=asked[4:]), 2, "standard input:1: is not UTF-8 text")


def test_a_stream_tells_what_it_cuts(trained: Translator, command: Command) -> None:
    answer = command("translate", "--run", trained.path, "--stream", stdin=b"a b\n" + b"a b c " * 200 + b"\n")
    assert answer.err.startswith("glassformer: standard input:2: longer than the ")
    assert (answer.code, len(answer.out.splitlines())) == (0, 2)


def test_a_stream_is_the_greedy_output(trained: Translator, command: Command) -> None:
    answer = command("translate", "--run", trained.path, "--stream", stdin="\n".join(LINES).encode())
    assert answer.out.split("\n") == [*[each.text for each in trained.translate(LINES, beam=1)], ""]


def test_an_input_of_any_length_is_translated_a_portion_at_a_time(
    trained: Translator, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items, "PORTION", 2)
    answer = command("translate", "--run", trained.path, stdin="\n".join(LINES).encode())
    assert answer.out.split("\n") == [*LINES, ""]
    best = command("translate", "--run", trained.path, "--nbest", "2", stdin=b"a\nb\nc\n").out
    assert [line.split("\t")[0] for line in best.splitlines()] == ["1", "1", "2", "2", "3", "3"]
    late = command("translate", "--run", trained.path, stdin=b"h\na b c\nh\n\xff\n")
    assert (late.code, late.out) == (2, "h\na b c\nh\n\n")
    assert late.err.splitlines() == [
        "glassformer: standard input:4: is not UTF-8 text",
        "glassformer: 1 of 4 texts could not be used",
    ]


def test_eight_bits_translate_and_score_as_well(
    trained: Translator, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (writing, translator):
        monkeypatch.setattr(module, "quantise", partial(quantise, least=0))  # the model is small: all of it
    text = "\n".join(LINES).encode()
    assert command("translate", "--run", trained.path, "--int8", stdin=text).out.split("\n") == [*LINES, ""]
    answer = command("translate", "--run", trained.path, "--int8", "--nbest", "2", "--beam", "3", stdin=b"a b c\n")
    assert answer.out.split("\t")[2].split("\n")[0] == "a b c"
    plain, rounded = (
        json.loads(command("evaluate", "--run", trained.path, "--json", *more).out) for more in ([], ["--int8"])
    )
    assert rounded["exact"] == pytest.approx(plain["exact"], abs=0.02)
    assert rounded["perplexity"] != plain["perplexity"]  # it is the same model's that translated
    assert rounded["perplexity"] == pytest.approx(plain["perplexity"], rel=0.05)
    exact, close = (trained.search(["a b c d"], int8=int8)[0][0] for int8 in (False, True))
    assert exact.text == close.text
    assert exact.score != close.score  # it was another model
    elsewhere = trained.with_model(copy.deepcopy(trained.model).to("meta"))
    with pytest.raises(gf.ConfigurationError, match=r"8-bit parts need a CPU .* not meta"):
        elsewhere.translate(["a"], int8=True)


def test_a_run_that_was_moved_is_as_good(trained: Translator, command: Command, tmp_path: Path) -> None:
    assert trained.path is not None
    moved = shutil.copytree(trained.path, tmp_path / "else" / "where" / "my run")
    shutil.rmtree(moved / "checkpoints")
    assert command("translate", "--run", moved, stdin=b"a b\n").out == "a b\n"
    assert command("evaluate", "--run", moved, "--json").code == 0
    assert [each.text for each in gf.load(moved, device="cpu").translate(["c d", "e"], beam=2)] == ["c d", "e"]


def test_a_run_goes_on_elsewhere_with_its_data_and_smaller_batches(command: Command, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    rows = [f"a{i}\tb{i}\n" for i in range(300)]
    (here / "pairs.tsv").write_text("".join([*rows, "no target\n"]), encoding="utf-8")
    write(here / "my.toml", recipe(IDLE, {"source": {"kind": "tsv", "train": "pairs.tsv"}}))
    assert command("train", here / "my.toml", "--out", here / "run").code == 0
    here.rename(there)
    wish = ("--resume", "--set", "train.steps=8", "--set", "train.batch_tokens=100")
    answer = command("train", there / "my.toml", "--out", there / "run", *wish)
    assert answer.code == 0, answer.err
    assert gf.load(there / "run").recipe.train.steps == 8


def test_from_python_as_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = gf.train(write(tmp_path / "my.toml", recipe(IDLE)))
    assert run.path == Path("runs/my")
    assert len(gf.load("runs/my").translate(["a b"], beam=5)) == 1
    with pytest.raises(gf.ConfigurationError, match="name the run's folder with `out`"):
        gf.train(recipe(IDLE))


@pytest.mark.parametrize(
    ("called", "command"),
    [("/a b/bin/glassformer", "'/a b/bin/glassformer'"), ("/a/__main__.py", f"{sys.executable} -m glassformer")],
)
def test_what_to_try_next_can_be_typed(monkeypatch: pytest.MonkeyPatch, called: str, command: str) -> None:
    monkeypatch.setattr(sys, "argv", [called, "train"])
    monkeypatch.setenv("PATH", "")
    assert showing.program() == command


def test_evaluation_as_json_is_what_sacrebleu_says(trained: Translator, command: Command) -> None:
    answer = command("evaluate", "--run", trained.path, "--split", "valid", "--json")
    assert answer.code == 0
    facts = json.loads(answer.out)
    pairs = trained.examples("valid")
    outputs = [each.text for each in trained.translate([source for source, _ in pairs])]
    assert facts["bleu"] == pytest.approx(sacrebleu.corpus_bleu(outputs, [[target for _, target in pairs]]).score)
    assert facts["pairs"] == len(pairs)
    assert facts["exact"] > 0.9
    assert facts["bleu_signature"].endswith(f"version:{sacrebleu.__version__}")
    assert facts["loss"] == pytest.approx(trained.loss(pairs))
    assert facts.keys() == {
        "pairs", "sources", "references", "loss", "perplexity", "bleu", "chrf", "exact", "edits", "bleu_signature",
        "chrf_signature", "intervals"
    }  # fmt: skip
    assert (facts["sources"], facts["references"]) == (len(pairs), [1, 1])
    for name in ("loss", "perplexity", "bleu", "chrf", "exact", "edits"):
        low, high = facts["intervals"][name]
        assert low <= facts[name] <= high + 1e-9


def test_evaluation_on_a_file_of_ones_own(trained: Translator, command: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.tsv").write_text("a b\ta b\nc\tc\nd e\tx y\n", encoding="utf-8")
    run = shutil.copytree(trained.path or "", tmp_path / "run", ignore=shutil.ignore_patterns("*.png"))
    answer = command("evaluate", "--run", run, "--data", tmp_path / "mine.tsv", "--beam", "2")
    assert answer.code == 0
    assert not list(run.glob("*.png"))  # pictures in the folder are of the run's own examples
    assert answer.out.startswith("3 pairs\nexact match  66.67%  [0.00%, 100.00%]\nBLEU ")
    assert "nrefs:1|case:mixed|eff:yes|tok:13a|smooth:exp|version:" in answer.out  # no target has four words
    assert "perplexity " in answer.out


@pytest.mark.parametrize("shares", [{"valid": 0.0, "test": 0.2}, {"valid": 0.0, "test": 0.0}])
def test_data_without_held_out_pairs_has_samples_too(
    command: Command, tmp_path: Path, shares: dict[str, float]
) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"a b{i}\tb{i} a\n" for i in range(40)), encoding="utf-8")
    made = recipe({"source": {"kind": "tsv", "train": "pairs.tsv"}, "data": shares, "tokenizer": {"vocabulary": 99}})
    mine = write(tmp_path / "my.toml", made)
    mine.write_bytes(b"\xef\xbb\xbf" + mine.read_bytes())  # as some editors begin a file
    answer = command("data", mine, "--samples", "3")
    samples = [line for line in answer.out.splitlines() if " → " in line]
    assert len(samples) == 3
    assert all(re.fullmatch(r"  a (b\d+)  →  \1 a", line) for line in samples)
    assert "tokens per word: source 1.00, target 1.00" in answer.out


def test_data_is_described(command: Command, tmp_path: Path) -> None:
    rows = [f"{chr(97 + i % 8)} {chr(97 + i // 8)}\t{chr(97 + i % 8)}" for i in range(64)]
    rows[5] = "only one column"
    rows[9] = "\tno source"
    (tmp_path / "pairs.tsv").write_text("\n".join([*rows, rows[0]]) + "\n", encoding="utf-8")
    mine = write(
        tmp_path / "my.toml",
        recipe({"source": {"kind": "tsv", "train": "pairs.tsv"}, "data": {"valid": 0.2, "test": 0.2}}),
    )
    answer = command("data", mine, "--samples", "2")
    assert answer.code == 0
    assert "65 rows read\n2 bad rows: 1 wrong column count, 1 empty side\n" in answer.out
    assert f"  {tmp_path / 'pairs.tsv'}:6: 1 column, at least 2 expected\n" in answer.out
    assert f"  {tmp_path / 'pairs.tsv'}:10: the source is empty\n" in answer.out
    assert "1 dropped: 1 duplicates" in answer.out
    assert sum(" → " in line for line in answer.out.splitlines()) == 2
    facts = json.loads(command("data", mine, "--json").out)
    assert facts["report"]["read"] == 65
    kept = facts["report"]["kept"]
    assert sum(kept.values()) == 62
    assert {name: split["examples"] for name, split in facts["splits"].items()} == kept
    assert facts["splits"]["train"]["target"]["longest"] == 1
    assert facts["tokens_per_word"]["target"] == 1


def test_data_says_how_many_words_are_beyond_the_vocabulary(command: Command, tmp_path: Path) -> None:
    rows = [f"often rare{number}\toften often" for number in range(40)]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    files: dict[str, dict[str, Any]] = {"source": {"kind": "tsv", "train": "pairs.tsv", "valid": "pairs.tsv"}}
    known: dict[str, Any] = {"kind": "word", "vocabulary": 5, "joint": True}  # 4 special ones, and "often"
    mine = write(tmp_path / "my.toml", recipe(files, {"tokenizer": known, "data": {"duplicates": "keep"}}))
    answer = command("data", mine)
    assert "not in the vocabulary, train: source 50.00%, target 0.00% of the tokens\n" in answer.out
    assert "not in the vocabulary, valid: source 50.00%, target 0.00% of the tokens\n" in answer.out
    facts = json.loads(command("data", mine, "--json").out)
    assert facts["report"]["unknown"]["train"] == {"source": 0.5, "target": 0.0}
    by_parts = command("data", mine, "--set", "tokenizer.kind=bpe", "--set", "tokenizer.vocabulary=300")
    assert "not in the vocabulary" not in by_parts.out


def test_what_data_prepared_train_finds(command: Command, tmp_path: Path, cache: Path) -> None:
    mine = write(tmp_path / "my.toml", recipe(IDLE, {"source": {"kind": "tsv", "train": "pairs.tsv"}}))
    (tmp_path / "pairs.tsv").write_text("".join(f"a{i}\tb{i}\n" for i in range(100)), encoding="utf-8")
    assert command("data", mine).code == 0
    before = set(cache.iterdir())
    assert command("train", mine, "--out", tmp_path / "run").code == 0
    assert set(cache.iterdir()) == before


def test_recipes_are_listed_each_with_its_title(command: Command) -> None:
    lines = command("recipes").out.splitlines()
    assert [line.split()[0] for line in lines] == list(bundled())
    assert all(len(line.split()) > 3 for line in lines)


def test_a_recipe_is_shown_as_it_is_written(command: Command) -> None:
    assert command("recipes", "dates").out == bundled()["dates"].read_text(encoding="utf-8")


def test_a_full_recipe_is_a_recipe_that_trains(command: Command, tmp_path: Path) -> None:
    shown = command("recipes", "dates", "--full").out
    assert "# optimiser steps" in shown
    assert make_recipe(tomllib.loads(shown)) == make_recipe(tomllib.loads(command("recipes", "dates").out))
    (tmp_path / "my.toml").write_text(shown, encoding="utf-8")
    few = ["source.count=300", "train.steps=2", "model.width=16", "train.validate_sentences=2", "train.log_every=1"]
    changes = [word for change in few for word in ("--set", change)]
    answer = command("train", tmp_path / "my.toml", "--out", tmp_path / "run", *changes)
    assert answer.code == 0, answer.err
    assert gf.load(tmp_path / "run").recipe.train.steps == 2


NAMES = (
    "answer", "choose", "classify", "compare", "data", "embed", "evaluate", "experiment", "export", "fill", "generate",
    "import", "index", "recipes", "search", "tag", "train", "transform", "translate",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_help_says_what_a_command_does_with_an_example(command: Command, name: str) -> None:
    assert f"│ {name} " in command("--help").out
    answer = command(name, "--help")
    assert answer.code == 0
    usage, example, *_ = [line.strip() for line in answer.out.splitlines() if f"glassformer {name}" in line]
    assert usage.startswith("Usage:")
    assert example.startswith("•")


def test_the_version_is_told(command: Command) -> None:
    assert command("--version").out == f"glassformer {gf.__version__}\n"
