"""From a text file to answers, by the commands that a user types."""

import json
from pathlib import Path

import pytest

from glassformer.recipe import make_recipe
from stories import recipe, stories

from .helpers import Command, complains, envelopes, write


@pytest.mark.parametrize(
    ("task", "verb", "prompt"),
    [
        ("language-modelling", "generate", "the big cow"),
        ("masked-language-modelling", "fill", "the big [MASK] says moo"),
        ("span-corruption", "fill", "the big <extra_id_0> moo"),
    ],
)
def test_from_a_text_to_answers(command: Command, tmp_path: Path, task: str, verb: str, prompt: str) -> None:
    asked = recipe(stories(tmp_path / "t.txt"), task, train={"steps": 4, "validate_every": 2})
    run = tmp_path / "run"
    trained = command("train", write(tmp_path / "r.toml", make_recipe(asked)), "--out", run)
    assert trained.code == 0, trained.err
    assert f"{verb} --run" in trained.out
    lines = f"{prompt}\n{prompt} again\n"
    answered = command(verb, "--run", run, stdin=lines.encode())
    assert answered.code == 0, answered.err
    if verb == "fill":
        assert len(answered.out.splitlines()) == 2
        rows = envelopes(command(verb, "--run", run, "--json", prompt, prompt))
        assert rows[0] == rows[1]
        assert rows[0].keys() == {"input", "output", "error", "gaps"}
        assert (rows[0]["input"], rows[0]["error"]) == (prompt, None)
        assert "MASK" not in rows[0]["output"]
        assert "extra_id" not in rows[0]["output"]
    else:
        assert answered.out.startswith(prompt)
        (tmp_path / "p.txt").write_text(lines, encoding="utf-8")
        rows = envelopes(command(verb, "--run", run, "--json", "--file", tmp_path / "p.txt"))
        assert [row["input"] for row in rows] == lines.splitlines()
        assert "".join(row["output"] + "\n" for row in rows) == answered.out
        assert all(row.keys() == {"input", "output", "error", "finished"} for row in rows)
        complains(command(verb, "--run", run, "--json", "--stream", prompt), 2, "leave out --json")
    mixed = command(verb, "--run", run, "--json", prompt, "the cow " * 40, prompt)
    rows = envelopes(mixed)
    assert [row["error"] is not None for row in rows] == [False, True, False]
    assert rows[1]["error"].startswith("argument 2: ")
    assert rows[0] == rows[2]
    assert mixed.code == 2
    assert len(mixed.err.splitlines()) == 2
    facts = json.loads(command("evaluate", "--run", run, "--json").out)
    own = json.loads(command("evaluate", "--run", run, "--data", tmp_path / "t.txt", "--json").out)
    assert own["texts"] > facts["texts"] > 0
    assert facts["perplexity"] > 1
    described = command("data", tmp_path / "r.toml")
    assert "tokens per word: source" in described.out
    complains(command("translate", "--run", run, stdin=b"a\n"), 2, "does not translate", task)
    complains(command("evaluate", "--run", run, "--int8"), 2, "--beam, --int8 and --rouge")


def test_texts_without_a_gap_get_a_sentence(command: Command, tmp_path: Path) -> None:
    asked = recipe(stories(tmp_path / "t.txt"), "masked-language-modelling", train={"steps": 1})
    command("train", write(tmp_path / "r.toml", make_recipe(asked)), "--out", tmp_path / "run")
    complains(command("fill", "--run", tmp_path / "run", "the cow"), 2, "there is no gap in 'the cow'")
    complains(command("fill", "--run", tmp_path / "run", "[MASK]", "--file", "x"), 2, "not both")


def test_a_word_that_is_the_end_of_a_line_ends_none(command: Command, tmp_path: Path) -> None:
    asked = recipe(stories(tmp_path / "t.txt"), "masked-language-modelling", train={"steps": 1})
    command("train", write(tmp_path / "r.toml", make_recipe(asked)), "--out", tmp_path / "run")
    told = command("fill", "--run", tmp_path / "run", "--top", "99", "the [MASK]", "the cow [MASK]").out
    assert len(told.splitlines()) == 2
    assert "⏎" in told


def test_a_prompt_that_is_no_text_is_none(command: Command, tmp_path: Path) -> None:
    asked = recipe(stories(tmp_path / "t.txt"), "language-modelling", train={"steps": 1})
    command("train", write(tmp_path / "r.toml", make_recipe(asked)), "--out", tmp_path / "run")
    told = command("generate", "--run", tmp_path / "run", "--json", "--length", "2", stdin=b"the\n\xff\n")
    assert [row["input"] for row in envelopes(told)] == ["the", None]


def test_a_beam_above_the_vocabulary_is_refused_before_there_is_a_folder(command: Command, tmp_path: Path) -> None:
    asked = recipe(stories(tmp_path / "t.txt"), "span-corruption", train={"steps": 1}, decode={"beam": 10_000})
    answer = command("train", write(tmp_path / "my.toml", make_recipe(asked)), "--out", tmp_path / "out")
    complains(answer, 2, "decode.beam is 10000, but the vocabulary has")
    assert not (tmp_path / "out").exists()
