"""What is wrong with the user's input is told in one sentence, and nothing is left half-written."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from glassformer.runs import train
from glassformer.tasks.translation import Translator
from tiny import IDLE, recipe

from .helpers import Command, complains, end, start, write

TSV: dict[str, Any] = {"kind": "tsv", "train": "pairs.tsv"}
WRONG_WIDTH = (
    '{"format": 3, "model": {"family": "transformer", "arguments": {"vocabulary": 9, "width": "x"}}, "labels": []}'
)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A recipe that can be trained."""
    return write(tmp_path / "my.toml", recipe(IDLE))


@pytest.fixture
def copied(trained: Translator, tmp_path: Path) -> Path:
    """A run to be damaged."""
    assert trained.path is not None
    return shutil.copytree(trained.path, tmp_path / "run")


def refuses(command: Command, mine: Path, code: int, *words: str, more: tuple[str, ...] = ()) -> None:
    """Training is refused with these words, and leaves nothing."""
    out = mine.parent / "out"
    complains(command("train", mine, "--out", out, *more), code, *words)
    assert not out.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[source]\nkind = "copy"\n[train]\nstepz = 5\n', ("train.stepz is not a key", "did you mean steps?")),
        ('[source]\nkind = "copy"\n[train]\nsteps = "x"\n', ("train.steps is 'x'", "valid integer")),
        ('[source]\nkind = "tsv"\ntrain = "x"\ncolumns = [-1, 0]\n', ("source.columns.0 is -1",)),
        ('[source]\nkind = "copi"\n', ("source.kind is 'copi'", "did you mean copy?")),
        ("steps 5", ("is not TOML", "line 1")),
        ("", ("source is missing", "source.kind is one of")),
    ],
)
@pytest.mark.parametrize("name", ["train", "data"])
def test_a_wrong_recipe(command: Command, mine: Path, text: str, words: tuple[str, ...], name: str) -> None:
    mine.write_text(text, encoding="utf-8")
    complains(command(name, mine), 2, str(mine), *words)
    assert [path.name for path in mine.parent.iterdir()] == ["my.toml"]


def test_a_recipe_that_is_not_there(command: Command) -> None:
    complains(command("train", "daets"), 2, "daets: there is no such file", "did you mean dates?")
    complains(command("recipes", "nothing.toml"), 2, "nothing.toml: there is no such file", "dates")


def test_a_wrong_change(command: Command, mine: Path) -> None:
    refuses(command, mine, 2, "train.stesp is not a key: did you mean steps?", more=("--set", "train.stesp=5"))
    refuses(command, mine, 2, "'steps' is not of the form section.key=value", more=("--set", "steps"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there(command: Command, mine: Path, trained: Translator) -> None:
    words = ('device "cuda" does not exist', '"auto"')
    refuses(command, mine, 2, *words, more=("--set", "train.device=cuda"))
    complains(command("translate", "--run", trained.path, "--device", "cuda"), 2, *words)
    complains(command("evaluate", "--run", trained.path, "--device", "gpu"), 2, '"gpu" is not a device', "cuda:1")


def test_data_that_is_not_there(command: Command, mine: Path) -> None:
    write(mine, recipe(IDLE, {"source": TSV}))
    refuses(command, mine, 2, str(mine.parent / "pairs.tsv"), "No such file")
    write(mine, recipe(IDLE, {"source": {"kind": "aligned", "train": ["a.en", "a.de"]}}))
    refuses(command, mine, 2, str(mine.parent / "a.en"), "No such file")


def test_bad_rows_are_told_and_fatal_if_strict(command: Command, mine: Path) -> None:
    data = mine.parent / "pairs.tsv"
    rows = [b"a%d\tb%d" % (i, i) for i in range(100)]
    rows[6], rows[8], rows[11] = b"one column", b"caf\xe9\tcoffee", b"empty\t"
    data.write_bytes(b"\n".join(rows))
    write(mine, recipe(IDLE, {"source": TSV}))
    strict = ("--set", "data.strict=true")
    refuses(command, mine, 2, f"{data}:7: 1 column, at least 2 expected", "data.strict", more=strict)
    answer = command("train", mine, "--out", mine.parent / "out")
    assert answer.code == 0
    assert "3 bad rows: 1 wrong column count, 1 invalid UTF-8, 1 empty side\n" in answer.err
    for what in ("7: 1 column, at least 2 expected", "9: byte 4 (0xe9) is not UTF-8", "12: the target is empty"):
        assert f"  {data}:{what}\n" in answer.err
    report = json.loads((mine.parent / "out" / "data.json").read_text(encoding="utf-8"))
    assert report["bad"] == {"wrong column count": 1, "invalid UTF-8": 1, "empty side": 1}


def test_data_of_another_kind_is_told_in_a_sentence(command: Command, mine: Path) -> None:
    (mine.parent / "pairs.tsv").write_text("a\tb\n" * 50, encoding="utf-8")
    write(mine, recipe(IDLE, {"source": {"kind": "po", "train": "pairs.tsv"}}))
    refuses(command, mine, 2, "no example to train on", "50 not gettext", "pairs.tsv:1: is neither a message")


def test_data_of_which_nothing_is_left(command: Command, mine: Path) -> None:
    (mine.parent / "pairs.tsv").write_text("a\tb\n" * 5, encoding="utf-8")
    write(
        mine, recipe(IDLE, {"source": TSV, "data": {"max_characters": 1, "max_ratio": 1.5, "valid": 0.99, "test": 0}})
    )
    refuses(command, mine, 2, "no example to train on")


def test_a_folder_that_is_in_use(command: Command, mine: Path, copied: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in copied.rglob("*")}
    complains(command("train", mine, "--out", copied), 2, f"{copied} already holds a run", "--resume", "--out")
    assert {path: path.stat().st_mtime_ns for path in copied.rglob("*")} == before


def test_a_beam_above_the_vocabulary(command: Command, mine: Path) -> None:
    answer = command("train", mine, "--out", mine.parent / "out", "--set", "decode.beam=1000")
    assert answer.code == 2
    assert answer.err.splitlines()[-1].startswith("glassformer: decode.beam is 1000, but the vocabulary has ")
    assert not (mine.parent / "out").exists()


def test_a_step_of_too_many_batches(command: Command, mine: Path) -> None:
    refuses(command, mine, 2, "train.accumulate", "65536", more=("--set", "train.accumulate=2147483647"))


def test_a_machine_that_cannot_compile(command: Command, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")  # of what other processes have compiled
    write(mine, recipe(IDLE, {"train": {"compile": True}}))
    out = mine.parent / "out"
    answer = end(start("train", mine, "--out", out))
    last = answer.err.splitlines()[-1]  # before it PyTorch warns of itself
    assert (answer.code, "Traceback" in answer.err) == (1, False)
    assert last.startswith("glassformer: PyTorch cannot compile the model (")
    assert last.endswith("): set train.compile = false, and go on with --resume")
    again = command("train", mine, "--out", out, "--resume", "--set", "train.compile=false")
    assert again.code == 0
    assert (out / "model.safetensors").exists()


def test_nothing_to_resume(command: Command, mine: Path) -> None:
    refuses(command, mine, 2, "there is nothing to resume", more=("--resume",))
    (mine.parent / "empty").mkdir()
    complains(command("train", mine, "--out", mine.parent / "empty", "--resume"), 2, "there is nothing to resume")
    assert list((mine.parent / "empty").iterdir()) == []


@pytest.mark.parametrize(
    ("change", "word"), [("model.width=48", "[model]"), ("source.seed=1", "[source]"), ("data.max_tokens=60", "[data]")]
)
def test_resuming_with_another_recipe(command: Command, copied: Path, change: str, word: str) -> None:
    before = (copied / "recipe.toml").read_bytes()
    answer = command("train", copied / "recipe.toml", "--out", copied, "--resume", "--set", change)
    complains(answer, 2, "was trained with another", word, str(copied / "recipe.toml"))
    assert (copied / "recipe.toml").read_bytes() == before


@pytest.mark.parametrize("changed", [[f"a{i}\tb{i}" for i in range(99)], [f"c{i}\td{i}" for i in range(100)]])
def test_resuming_with_other_data(command: Command, mine: Path, changed: list[str]) -> None:
    data, out = mine.parent / "pairs.tsv", mine.parent / "out"
    data.write_text("".join(f"a{i}\tb{i}\n" for i in range(100)), encoding="utf-8")
    made = recipe(IDLE, {"source": {**TSV, "train": str(data)}, "data": {"valid": 0.0, "test": 0.0}})
    train(made, out)
    data.write_text("\n".join(changed), encoding="utf-8")
    answer = command("train", write(mine, made), "--out", out, "--resume")
    assert answer.code == 2
    assert answer.err.splitlines()[-1] == (
        f"glassformer: the data has changed since {out} was begun: to resume, it must be the same"
    )


def test_resuming_with_another_optimiser(command: Command, copied: Path) -> None:
    before = (copied / "recipe.toml").read_bytes()
    changes = [word for key in ("optimiser=adam", "muon_lr=", "weight_decay=") for word in ("--set", f"train.{key}")]
    answer = command("train", copied / "recipe.toml", "--out", copied, "--resume", *changes)
    complains(answer, 2, "was trained with another train.optimiser, muon")
    assert (copied / "recipe.toml").read_bytes() == before


def test_a_recipe_of_ones_own_is_not_written_over(command: Command, mine: Path) -> None:
    own = mine.rename(mine.with_name("recipe.toml"))
    before = own.read_bytes()
    complains(command("train", own, "--out", own.parent), 2, "holds a recipe.toml but no run", "--out")
    assert own.read_bytes() == before


def test_a_cache_that_cannot_be_written_to(command: Command, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSFORMER_CACHE", "/proc/glassformer")
    write(mine, recipe(IDLE, {"source": {"seed": 77}}))
    refuses(command, mine, 1, "/proc/glassformer: the prepared data cannot be written", "; set GLASSFORMER_CACHE to")


def test_a_folder_that_cannot_be_written_to(command: Command, mine: Path) -> None:
    complains(command("train", mine, "--out", mine), 2, "cannot be a run folder", f"{mine} is a file")
    complains(command("train", mine, "--out", mine / "sub"), 2, "cannot be a run folder", f"{mine} is a file")
    answer = command("train", mine, "--out", "/proc/glassformer")  # where not even root can
    assert answer.code == 1
    assert answer.err.splitlines()[-1].startswith("glassformer: /proc/glassformer cannot be written to: ")


@pytest.mark.parametrize("name", ["translate", "evaluate"])
def test_a_run_that_is_not_there(command: Command, tmp_path: Path, name: str) -> None:
    complains(command(name, "--run", tmp_path / "no"), 2, "there is no such run folder")
    complains(command(name, "--run", tmp_path), 2, "is not a run folder", "config.json")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-200] ^= 1
    path.write_bytes(data)


def other_weights(path: Path) -> None:
    save_file({"head": torch.zeros(2)}, path)


def not_numbers(path: Path) -> None:
    tensors = load_file(path)
    next(iter(tensors.values())).view(-1)[0] = float("nan")
    save_file(tensors, path)


def set_key(key: str, value: Any) -> Callable[[Path], object]:
    """What changes a key of config.json."""
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))


def set_argument(key: str, value: Any) -> Callable[[Path], object]:
    """What changes an argument of the model in config.json."""

    def change(path: Path) -> None:
        config = json.loads(path.read_text())
        config["model"]["arguments"][key] = value
        path.write_text(json.dumps(config))

    return change


def of_another_task(path: Path) -> None:
    text = '[task]\nkind = "language-modelling"\n[source]\nkind = "text"\ntrain = "a.txt"\n[model]\nfamily = "gpt2"\n'
    path.write_text(text)


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("model.safetensors", cut, ("is damaged",)),
        ("model.safetensors", other_weights, ("model.safetensors does not match its checksum",)),
        ("model.safetensors", flip, ("model.safetensors does not match its checksum",)),
        ("tokenizer.json", flip, ("tokenizer.json does not match its checksum",)),
        ("checksums.json", lambda path: path.write_text("[]"), ("checksums.json is damaged",)),
        ("model.safetensors", lambda path: path.write_bytes(b""), ("is damaged",)),
        ("model.safetensors", Path.unlink, ("is damaged", "model.safetensors is missing")),
        ("config.json", Path.unlink, ("is not a run folder",)),
        ("config.json", cut, ("is damaged",)),
        ("config.json", lambda path: path.write_text("[]"), ("is damaged",)),
        ("config.json", lambda path: path.write_text('{"model": {}}'), ("config.json is damaged", "format")),
        ("tokenizer.json", Path.unlink, ("tokenizer.json is missing",)),
        ("tokenizer.json", cut, ("tokenizer.json",)),
        ("recipe.toml", Path.unlink, ("has no recipe.toml", "its training has not begun")),
        ("recipe.toml", lambda path: path.write_text("x"), ("recipe.toml", "is not TOML")),
    ],
)
def test_a_damaged_run(command: Command, copied: Path, name: str, damage: Any, words: tuple[str, ...]) -> None:
    damage(copied / name)
    complains(command("translate", "--run", copied, stdin=b"a\n"), 2, str(copied), *words)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("config.json", lambda path: path.write_text(WRONG_WIDTH), ("config.json is damaged", "width")),
        ("config.json", set_argument("residual", None), ("config.json is damaged", "residual is None")),
        ("config.json", set_argument("tie_output", 0), ("config.json is damaged", "tie_output is 0", "boolean")),
        ("config.json", set_argument("nothing", 1), ("config.json is damaged", "transformer has no argument nothing")),
        ("config.json", set_key("labels", {}), ("config.json is damaged", "labels")),
        ("config.json", set_key("format", "3"), ("config.json is damaged", "format")),
        ("model.safetensors", other_weights, ("does not belong to", "config.json")),
        ("model.safetensors", not_numbers, ("its weights are damaged", "not finite")),
        ("recipe.toml", of_another_task, ("recipe.toml is a recipe for language-modelling", "another task")),
    ],
)
def test_a_damaged_run_without_checksums(
    command: Command, copied: Path, name: str, change: Any, words: tuple[str, ...]
) -> None:
    (copied / "checksums.json").unlink()  # as in a run of 0.1
    change(copied / name)
    complains(command("translate", "--run", copied, stdin=b"a\n"), 2, str(copied), *words)


@pytest.mark.parametrize("text", [b"\xff\xfe{", b"", b"[]", b"null", b'{"checksums": 3}', b'{"checksums": {"a": "b"}}'])
def test_a_damaged_report_of_the_data_is_told_when_the_run_is_resumed(
    command: Command, copied: Path, text: bytes
) -> None:
    (copied / "data.json").write_bytes(text)
    answer = command("train", copied / "recipe.toml", "--out", copied, "--resume")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.splitlines()[-1].startswith(f"glassformer: {copied / 'data.json'} is damaged: ")
    assert "Traceback" not in answer.err


def test_damaged_or_missing_pairs(command: Command, copied: Path) -> None:
    (copied / "test.jsonl").write_text('{"source": "a"}\n', encoding="utf-8")
    complains(command("evaluate", "--run", copied), 2, "test.jsonl does not match its checksum")
    (copied / "checksums.json").unlink()
    complains(command("evaluate", "--run", copied), 2, "test.jsonl is damaged")
    (copied / "test.jsonl").write_text("[" * 100_000, encoding="utf-8")
    complains(command("evaluate", "--run", copied), 2, "test.jsonl is damaged")
    (copied / "test.jsonl").write_text("", encoding="utf-8")
    complains(command("evaluate", "--run", copied), 2, "has no test examples")
    complains(command("evaluate", "--run", copied, "--split", "train"), 2, "valid and test examples, not 'train'")


def test_input_that_is_not_text(command: Command, trained: Translator, tmp_path: Path) -> None:
    answer = command("translate", "--run", trained.path, stdin=b"a\nb\ncaf\xe9\n")
    assert (answer.code, len(answer.out.splitlines())) == (2, 3)
    assert answer.err.splitlines()[0] == "glassformer: standard input:3: is not UTF-8 text"
    complains(command("translate", "--run", trained.path, stdin=b"caf\xe9\na\n"), 2, "standard input:1: is not UTF-8")
    (tmp_path / "in.txt").write_bytes(b"\xff")
    complains(command("translate", "--run", trained.path, "--file", tmp_path / "in.txt"), 2, "in.txt:1: is not UTF-8")
    none = command("translate", "--run", trained.path, "--file", tmp_path / "none")
    complains(none, 2, "none: cannot be read: No such file")
    complains(command("translate", "--run", trained.path, "--file", tmp_path), 2, "is a folder: name a file")


def test_evaluation_data_that_cannot_be_used(command: Command, trained: Translator, tmp_path: Path) -> None:
    data = tmp_path / "mine.tsv"
    complains(command("evaluate", "--run", trained.path, "--data", data), 2, "mine.tsv: cannot be read")
    data.write_text("a\ta\nb\n", encoding="utf-8")
    complains(
        command("evaluate", "--run", trained.path, "--data", data), 2, "mine.tsv:2: 1 column, at least 2 expected"
    )
    data.write_text("", encoding="utf-8")
    complains(command("evaluate", "--run", trained.path, "--data", data), 2, "mine.tsv: holds no example")


def test_options_that_do_not_go_together(command: Command, trained: Translator) -> None:
    complains(command("translate", "--run", trained.path, "--stream", "--nbest", "2"), 2, "--stream", "--nbest")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train", "missing argument 'RECIPE': see glassformer train --help"),
        ("trian dates", "no such command 'trian'. Did you mean 'train'?"),
        ("train dates --ot x", "no such option: --ot: did you mean --out?"),
        ("train dates --out", "option '--out' requires an argument"),
        ("train dates more", "got unexpected extra argument"),
        ("translate --run x --beam 0", "invalid value for '--beam'"),
    ],
)
def test_words_that_are_no_command(command: Command, words: str, said: str) -> None:
    complains(command(*words.split()), 2, f"glassformer: {said}")


def test_what_no_memory_can_hold(command: Command, mine: Path) -> None:
    answer = command("train", mine, "--out", mine.parent / "out", "--set", "model.hidden=2147483647")
    complains(answer, 1, "there is not enough memory", "model.width")
    refuses(command, mine, 2, "model.width is 99999999999", more=("--set", "model.width=99999999999"))
