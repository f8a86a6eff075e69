"""Preparing: the right pairs on the right side, once, on disk, whatever stops it half-way."""

import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import models
from tokenizers.pre_tokenizers import WhitespaceSplit

from glassformer.data import Assets, cache, prepare, preparing, tokenising
from glassformer.data.encoding import encode, pieces
from glassformer.errors import DataError, RunError, TrainingError
from glassformer.locking import take
from glassformer.recipe import Tokenizer as Section
from glassformer.recipe import make_recipe
from glassformer.tasks.translation import TranslationTask
from glassformer.text import Tokenizer

from .helpers import BYTES, prepared, recipe, texts

SPLITS = ("train", "valid", "test")
TSV = {"kind": "tsv", "train": "t.tsv"}


def write(folder: Path, pairs: list[tuple[str, str]], name: str = "t.tsv") -> None:
    (folder / name).write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")


def sentences(count: int) -> list[tuple[str, str]]:
    return [(f"sentence {i}", f"Satz {i}") for i in range(count)]


def test_every_pair_is_on_one_side_and_its_text_beside_it(tmp_path: Path) -> None:
    write(tmp_path, sentences(300))
    made = prepared(TSV, tmp_path, valid=0.2, test=0.2)
    found = {split: texts(made, split) for split in SPLITS}
    assert sorted(pair for each in found.values() for pair in each) == sorted(sentences(300))
    assert made.report.kept == {split: len(pairs) for split, pairs in found.items()}
    assert all(len(pairs) > 20 for pairs in found.values())
    for split in ("valid", "test"):
        assert made.held_out(split) == found[split]
    with pytest.raises(RunError, match="cannot be read"):
        made.held_out("train")
    assert made.splits["train"].lengths.tolist()[0] == [len(side) for side in found["train"][0]]
    assert made.splits["train"].flat.dtype == np.uint16


words = st.lists(st.text("abcdeé ", min_size=1, max_size=4).filter(str.strip), min_size=1, max_size=25)


@settings(max_examples=15)
@given(first=words, more=words, seed=st.integers(0, 9))
def test_a_file_that_grows_is_shuffled_or_repeated_moves_nothing(first: list[str], more: list[str], seed: int) -> None:
    def sides(lines: list[str]) -> dict[str, str]:
        with tempfile.TemporaryDirectory() as name:
            write(Path(name), [("anchor", "x"), *((line, line.upper()) for line in lines)])
            try:
                made = prepared(TSV, Path(name), valid=0.3, test=0.3, seed=3)
            except DataError:  # none was left to train on
                return {}
            return {source: split for split in SPLITS for source, _ in texts(made, split)}

    before = sides(first)
    lines = first + more + first
    random.Random(seed).shuffle(lines)
    after = sides(lines)
    assert {source: after.get(source) for source in before} == before


def test_one_source_with_many_targets_is_on_one_side(tmp_path: Path) -> None:
    write(tmp_path, [(f"{'THE' if j else 'the'} cat {i}", f"{j}") for i in range(60) for j in range(3)])
    made = prepared(TSV, tmp_path, valid=0.3, test=0.3)
    sides = [{source.lower() for source, _ in texts(made, split)} for split in SPLITS]
    assert sum(map(len, sides)) == 60


def test_what_is_dropped_is_counted(tmp_path: Path) -> None:
    write(
        tmp_path,
        [("a", "b"), ("a", "b"), ("a ", "b"), ("a", "c"), ("a", "x" * 30), ("long " * 9, "y"), ("\u00a0", "z")],
    )
    made = prepared(TSV, tmp_path, valid=0, test=0, max_characters=40, max_ratio=20)
    assert texts(made, "train") == [("a", "b"), ("a", "c")]
    assert made.report.dropped == {"lengths too different": 1, "too many characters": 1, "duplicates": 2}
    assert made.report.bad == {"empty side": 1}
    assert made.report.read == 7
    kept = prepared(TSV, tmp_path, valid=0, test=0, duplicates="keep")
    assert len(kept.splits["train"]) == 6


def test_strict_stops_at_a_bad_row_even_after_a_run_that_did_not(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("a\tb\nonly\n", encoding="utf-8")
    assert prepared(TSV, tmp_path, valid=0, test=0).report.bad == {"wrong column count": 1}
    with pytest.raises(DataError, match=r"t\.tsv:2: 1 column"):
        prepared(TSV, tmp_path, valid=0, test=0, strict=True)


def test_held_out_files_stay_whole_and_what_train_shares_with_them_is_counted(tmp_path: Path) -> None:
    write(tmp_path, sentences(50))
    held_out = [("sentence 3", "anders"), ("x", "y" * 50), ("x", "y" * 50), ("z" * 40, "w")]
    write(tmp_path, held_out, "test.tsv")
    source = {**TSV, "test": "test.tsv"}
    made = prepared(source, tmp_path, valid=0.2, max_characters=20, max_ratio=3, max_tokens=30, long="drop")
    store = made.splits["test"]
    assert made.held_out("test") == held_out
    assert store.lengths.tolist() == [[10, 6], [1, 30], [1, 30], [30, 1]]
    assert made.report.shared == {"test": 1}
    assert made.report.changed == {"truncated": 3}
    assert len(made.splits["train"]) + len(made.splits["valid"]) == 50


@pytest.mark.parametrize(
    ("long", "expected"),
    [
        ("drop", [("abc", "d")]),
        ("truncate", [("abc", "d"), ("ABCD", "xy"), ("q", "1234")]),
        ("split", [("abc", "d"), ("ABC", "x"), ("DEF", "y"), ("q", "789")]),
    ],
)
def test_long_pairs(long: str, expected: list[tuple[str, str]], tmp_path: Path) -> None:
    write(tmp_path, [("abc", "d"), ("ABCDEF", "xy"), ("q", "123456789")])
    made = prepared(TSV, tmp_path, valid=0, test=0, max_tokens=4, long=long)
    assert texts(made, "train") == expected
    report = made.report
    if long == "split":  # two of three pieces of the last have no source
        assert (report.changed, report.dropped) == ({"split": 2}, {"no tokens": 2})
    else:
        assert (report.changed or report.dropped).total() == 2


@given(
    lengths=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1),
    limit=st.integers(1, 12),
    long=st.sampled_from(["drop", "truncate", "split"]),
)
def test_pieces_are_within_the_limit_and_in_step(lengths: list[tuple[int, int]], limit: int, long: str) -> None:
    found = pieces(np.array(lengths, np.int64), limit, long).tolist()
    assert [piece[0] for piece in found] == sorted(piece[0] for piece in found)
    for row, pair in enumerate(lengths):
        mine = [piece[1:] for piece in found if piece[0] == row]
        assert all(0 <= b - a <= limit and 0 <= d - c <= limit for a, b, c, d in mine)
        if max(pair) <= limit:
            assert mine == [[0, pair[0], 0, pair[1]]]
        elif long == "drop":
            assert mine == []
        elif long == "truncate":
            assert mine == [[0, min(pair[0], limit), 0, min(pair[1], limit)]]
        else:
            ends = [[0, 0], *([b, d] for _, b, _, d in mine)]
            assert [[a, c] for a, _, c, _ in mine] == ends[:-1]
            assert ends[-1] == list(pair)


def test_joint_or_separate_vocabularies(tmp_path: Path) -> None:
    write(tmp_path, sentences(50))
    joint = prepared(TSV, tmp_path, kind="word", valid=0.1, test=0)
    assert joint.assets.tokenizers[0] is joint.assets.tokenizers[1]
    values = {"source": TSV, "tokenizer": {"kind": "word", "joint": False}, "model": {"tie_source": False}}
    apart = prepare(make_recipe(values), tmp_path, tmp_path / "cache")
    reader, writer = apart.assets.tokenizers
    assert writer.unknown in writer.encode("sentence")
    assert reader.unknown in reader.encode("Satz")
    assert texts(apart, "train")[0] == ("sentence 0", "Satz 0")


def test_an_existing_tokenizer_is_used(tmp_path: Path) -> None:
    write(tmp_path, sentences(30))
    BYTES.save(tmp_path / "mine.json")
    made = prepared(TSV, tmp_path, kind="bpe", tokenizer={"path": "mine.json"}, valid=0, test=0)
    assert made.assets.tokenizers[0].size == 260
    assert texts(made, "train") == sentences(30)


def test_the_tokenizer_learns_from_an_even_sample_of_training_only(tmp_path: Path) -> None:
    write(tmp_path, sentences(200))
    train = {source for source, _ in texts(prepared(TSV, tmp_path, valid=0.3, test=0), "train")}
    made = prepared(TSV, tmp_path, kind="word", tokenizer={"sample": 20, "vocabulary": 500}, valid=0.3, test=0)
    tokenizer = made.assets.tokenizers[0]
    known = [source for source, _ in sentences(200) if tokenizer.unknown not in tokenizer.encode(source)]
    assert set(known) < train
    assert 10 <= len(known) <= 20
    assert int(known[-1].split()[1]) > 150


def test_workers_give_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, [(f"sentence {i} " * (i % 7 + 1), f"Satz {i}") for i in range(300)])
    monkeypatch.setattr(TranslationTask, "block", 32)
    monkeypatch.setattr(preparing, "WORTHWHILE", 10)
    made = [
        prepare(recipe(TSV, workers=workers, max_tokens=60, long="split"), tmp_path, tmp_path / f"cache{workers}")
        for workers in (1, 2)
    ]
    for name in ("tokens", "lengths", "starts"):
        files = [next(tmp_path.glob(f"cache{workers}/*/train.{name}")).read_bytes() for workers in (1, 2)]
        assert files[0] == files[1]
    assert made[0].report == made[1].report
    names = [{path.name for path in tmp_path.glob(f"cache{workers}/*/*")} for workers in (1, 2)]
    assert names[0] == names[1]


def test_a_worker_that_dies_is_reported_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, sentences(100))
    monkeypatch.setattr(TranslationTask, "block", 32)
    monkeypatch.setattr(preparing, "WORTHWHILE", 10)
    monkeypatch.setattr(tokenising, "__name__", "no_such_module")
    with pytest.raises(TrainingError, match="a process that tokenised train ended with code 1"):
        prepared(TSV, tmp_path, workers=2)
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_second_time_nothing_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, sentences(40))
    first = prepared(TSV, tmp_path)

    def never(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(preparing, "read_all", never)
    again = prepared(TSV, tmp_path, workers=3)  # how many do it is no matter
    assert texts(again, "train") == texts(first, "train")
    assert again.report == first.report


def changes() -> dict[str, Callable[[Path], dict[str, Any]]]:
    def another_file(folder: Path) -> dict[str, Any]:
        write(folder, sentences(41))
        return {}

    return {
        "file": another_file,
        "data": lambda _: {"seed": 1},
        "tokenizer": lambda _: {"kind": "character"},
    }


@pytest.mark.parametrize("what", changes())
def test_whatever_changes_makes_it_anew(what: str, tmp_path: Path) -> None:
    write(tmp_path, sentences(40))
    prepared(TSV, tmp_path)
    prepared(TSV, tmp_path, **changes()[what](tmp_path))
    assert len(list((tmp_path / "cache").glob("tsv-*"))) == 2


def test_a_large_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, sentences(40))
    monkeypatch.setattr(cache, "LARGE", 10)
    names = [cache.fingerprint(recipe(TSV), tmp_path, tmp_path / "cache") for _ in range(2)]
    known = json.loads((tmp_path / "cache" / cache.DIGESTS).read_text())
    assert list(known) == [str((tmp_path / "t.tsv").resolve())]
    write(tmp_path, sentences(41))
    names.append(cache.fingerprint(recipe(TSV), tmp_path, tmp_path / "cache"))
    assert names[0] == names[1] != names[2]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["train.tokens", "train.lengths", "source.json", "test.jsonl", "contents.json"])
@pytest.mark.parametrize("damage", [Path.unlink, cut, flip])
def test_a_damaged_cache_is_made_anew(name: str, damage: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path, sentences(80))
    first = prepared(TSV, tmp_path, test=0.3)
    (folder,) = (tmp_path / "cache").iterdir()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / name).chmod(0o644)
    damage(folder / name)
    again = prepared(TSV, tmp_path, test=0.3)
    assert texts(again, "test") == texts(first, "test")
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    if name != "contents.json":  # a flipped letter in a report is no damage to the tokens
        assert after == before
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [folder.name]


def test_being_stopped_leaves_nothing_and_does_not_hurt_the_next(tmp_path: Path) -> None:
    write(tmp_path, sentences(40))

    def stop(stage: str, done: int, total: int | None) -> None:
        if stage == "encoding train":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(recipe(TSV), tmp_path, tmp_path / "cache", stop)
    assert list((tmp_path / "cache").iterdir()) == []
    assert prepared(TSV, tmp_path).report.read == 40


def test_progress_is_told(tmp_path: Path) -> None:
    write(tmp_path, sentences(40))
    heard: list[tuple[str, int, int | None]] = []
    prepare(recipe(TSV, valid=0, test=0), tmp_path, tmp_path / "cache", lambda *each: heard.append(each))
    assert heard[0] == ("reading", 40, None)
    assert ("encoding train", 40, 40) in heard


def test_what_killed_processes_left_is_swept_away_in_time(tmp_path: Path) -> None:
    old, new = (tmp_path / "cache" / f"{cache.MAKING}{name}" for name in ("old", "new"))
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (1, 1))
    write(tmp_path, sentences(10))
    prepared(TSV, tmp_path)
    assert not old.exists()
    assert new.exists()


def test_what_a_killed_process_left_is_swept_away_and_what_another_makes_is_not(tmp_path: Path) -> None:
    write(tmp_path, sentences(10))
    dead = tmp_path / "cache" / f"{cache.MAKING}dead"
    dead.mkdir(parents=True)
    (dead / cache.LOCK).touch()
    with cache.unfinished(tmp_path / "cache") as alive:
        prepared(TSV, tmp_path)
        assert alive.exists()
    assert not dead.exists()
    assert not alive.exists()


def test_a_lock_is_kept_until_all_is_swept_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else who has just made the folder, and is about to lock it, would have it until it is gone a moment later."""
    left, swept = tmp_path / f"{cache.MAKING}left", list[Path]()
    left.mkdir()
    (left / cache.LOCK).touch()

    def removing(folder: Path, **how: Any) -> None:
        swept.append(folder)
        with pytest.raises(BlockingIOError):
            take(folder / cache.LOCK)

    monkeypatch.setattr(shutil, "rmtree", removing)
    cache.remove_abandoned(tmp_path)
    assert swept == [left]


def test_nothing_to_train_on_is_a_sentence(tmp_path: Path) -> None:
    write(tmp_path, [])
    with pytest.raises(DataError, match="the source leaves no example to train on: 0 rows read"):
        prepared(TSV, tmp_path)
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_unwritable_cache_is_a_sentence(tmp_path: Path) -> None:
    write(tmp_path, sentences(10))
    (tmp_path / "cache").write_text("a file, not a folder")
    with pytest.raises(TrainingError, match="cache: the prepared data cannot be written"):
        prepared(TSV, tmp_path)


def test_held_out_texts_without_tokens_keep_their_place() -> None:
    ids, sizes = encode(BYTES, ["ab", "", "c", ""], keep_all=True)
    assert (ids.tolist(), sizes.tolist()) == ([101, 102, BYTES.unknown, 103, BYTES.unknown], [2, 1, 1, 1])
    assert encode(BYTES, ["ab", ""], keep_all=False)[1].tolist() == [2, 0]


def test_large_vocabularies_have_room(tmp_path: Path) -> None:
    write(tmp_path, [("cat", "dog")])
    engine = Engine(models.WordLevel({"<unk>": 0, "cat": 70_000, "dog": 7}, "<unk>"))
    engine.save(str(tmp_path / "large.json"))
    made = prepared(TSV, tmp_path, tokenizer={"path": "large.json"}, valid=0, test=0)
    assert (made.splits["train"].source(0).tolist(), made.splits["train"].target(0).tolist()) == ([70_000], [7])


def test_dates_are_prepared_as_drawn(tmp_path: Path) -> None:
    made = prepared({"kind": "dates", "count": 500}, tmp_path, kind="bpe", tokenizer={"vocabulary": 300})
    assert made.report.kept == {"train": 500, "valid": 1000, "test": 1000}
    assert not {t for _, t in texts(made, "train")} & {t for s in ("valid", "test") for _, t in texts(made, s)}


def test_views_hold_each_training_pair_several_times_segmented_anew(tmp_path: Path) -> None:
    write(tmp_path, sentences(200))
    section = {"vocabulary": 290, "dropout": 0.5}
    once, varied = (
        prepared(TSV, tmp_path, kind="bpe", tokenizer=section, valid=0.2, test=0.2, views=views) for views in (1, 3)
    )
    assert once.report.kept == varied.report.kept
    assert len(varied.splits["train"]) == 3 * len(once.splits["train"])
    assert sorted(texts(varied, "train")) == sorted(texts(once, "train") * 3)
    for split in ("valid", "test"):
        assert texts(varied, split) == texts(once, split)
        plain = varied.assets.tokenizers[0].encode_batch([pair.source for pair in varied.held_out(split)])
        assert [varied.splits[split].source(i).tolist() for i in range(len(plain))] == plain
    by_text: dict[str, set[tuple[int, ...]]] = {}
    for row, (source, _) in enumerate(texts(varied, "train")):
        by_text.setdefault(source, set()).add(tuple(varied.splits["train"].source(row).tolist()))
    assert sum(len(each) > 1 for each in by_text.values()) > len(by_text) / 2


def test_targets_that_a_checkpoint_does_not_know_are_refused_and_some_are_counted(tmp_path: Path) -> None:
    """A run's word tokenizer without the words of new targets made them all <unk>, and training learned that."""
    known = Tokenizer.train([f"sentence {i}" for i in range(300)], Section(kind="word", vocabulary=400))
    write(tmp_path, [(source, f"Ein {target}") for source, target in sentences(300)])
    with pytest.raises(DataError, match=r"66\.7% of the target tokens in training .* tokenizer of model.pretrained"):
        prepare(recipe(TSV), tmp_path, tmp_path / "cache", given=Assets((known, known)))
    write(tmp_path, [(source, f"sentence {i} Satz") for i, (source, _) in enumerate(sentences(300))])
    made = prepare(recipe(TSV), tmp_path, tmp_path / "cache", given=Assets((known, known)))
    assert made.report.unknown["train"] == pytest.approx({"source": 0.0, "target": 1 / 3})
    assert "not in the vocabulary, train: source 0.00%, target 33.33% of the tokens" in made.report.lines()
    again = prepare(recipe(TSV), tmp_path, tmp_path / "cache", given=Assets((known, known)))
    assert again.report.unknown == made.report.unknown


def test_a_tokenizer_without_an_unknown_token_has_no_unknown_tokens(tmp_path: Path) -> None:
    """Its id for the unknown is 0, which is another token's: of GPT-2, the exclamation mark's."""
    engine = Engine(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))  # noqa: S106
    engine.pre_tokenizer = WhitespaceSplit()
    write(tmp_path, [("a a", "b")] * 9)
    bare = Tokenizer(engine, complete=False)
    made = prepare(recipe(TSV, duplicates="keep"), tmp_path, tmp_path / "cache", given=Assets((bare, bare)))
    assert made.report.unknown["train"] == {"source": 0.0, "target": 0.0}
