"""Code in C: compiled once, kept where nobody else can write, and done without where that does not work."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from glassformer import compiled
from glassformer.parts import cpu_kernels

pytestmark = pytest.mark.skipif(compiled.find_compiler() is None, reason="there is no C compiler")


def library() -> object:
    return compiled.library(cpu_kernels.SOURCE, torch.get_num_threads)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "glassformer" / "kernels"


@pytest.fixture
def damaged(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What stands in the place of the library, in a home of which nothing was loaded yet."""
    library()
    (kept,) = home.iterdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "other"))
    place = home / "other" / "glassformer" / "kernels" / kept.name
    place.parent.mkdir(parents=True, mode=0o700)
    place.write_bytes(b"\x7fELF, but not more")
    place.chmod(0o644)
    return place


def test_what_was_compiled_is_kept_and_taken_again(home: Path) -> None:
    assert library() is not None
    (kept,) = home.iterdir()
    before = kept.stat().st_mtime_ns
    assert library() is not None
    assert [each.stat().st_mtime_ns for each in home.iterdir()] == [before]


def test_a_damaged_library_is_compiled_again(damaged: Path) -> None:
    assert library() is not None
    assert damaged.stat().st_size > 1000


@pytest.mark.parametrize("damage", ["cut", "flipped", "of another kind", "a pipe", "a folder"])
def test_a_library_that_is_not_whole_is_never_loaded(damaged: Path, damage: str, loaded: list[str]) -> None:
    """One that lacks its end would end the process by SIGBUS."""
    data = bytearray(Path(cpu_kernels._found()._name).read_bytes())
    if damage == "cut":
        del data[len(data) // 2 :]
    elif damage == "flipped":
        data[len(data) // 2] ^= 1
    else:
        data[18] ^= 0xFF  # the architecture that it is for
    damaged.unlink()
    if damage == "a pipe":
        os.mkfifo(damaged)
    elif damage == "a folder":
        damaged.mkdir()
    else:
        damaged.write_bytes(data)
    assert library() is not None
    kept = [*damaged.parent.iterdir()]
    assert kept == [damaged]  # compiled again, and whole
    assert kept[0].stat().st_size == len(data) or damage == "cut"


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the libraries that are loaded from now on."""
    found: list[str] = []
    load = ctypes.CDLL

    def loading(name: str) -> ctypes.CDLL:
        found.append(name)
        return load(name)

    monkeypatch.setattr(ctypes, "CDLL", loading)
    return found


@pytest.mark.parametrize("writable", ["file", "folder", "folder above"])
def test_what_others_may_have_written_is_not_loaded(
    damaged: Path, writable: str, loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copyfile(cpu_kernels._found()._name, damaged)  # it is whole
    {"file": damaged, "folder": damaged.parent, "folder above": damaged.parent.parent}[writable].chmod(0o777)
    if writable == "file":
        monkeypatch.setattr(compiled, "replacing", lambda place: (_ for _ in ()).throw(OSError))
    before = damaged.stat().st_mtime_ns
    assert library() is not None
    assert loaded
    assert str(damaged) not in loaded
    assert writable == "file" or damaged.stat().st_mtime_ns == before  # nothing is kept there, or loaded


def test_what_is_whole_is_loaded(damaged: Path, loaded: list[str]) -> None:
    shutil.copyfile(cpu_kernels._found()._name, damaged)
    assert library() is not None
    assert loaded == [str(damaged)]


def test_a_folder_that_everybody_may_write_to_is_safe_if_it_is_sticky(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    for mode, safe in ((0o755, True), (0o777, False), (0o1777, True)):
        tmp_path.chmod(mode)
        assert compiled.is_ours(tmp_path / "own") == safe
    assert not compiled.is_ours(tmp_path / "none")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners")
def test_a_folder_of_another_user_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled.is_ours(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert not compiled.is_ours(tmp_path)


def test_a_home_that_cannot_be_written_to_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert library() is not None


def test_without_a_compiler_there_is_nothing_and_nobody_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "")
    assert library() is None
    assert not home.exists()


def test_a_compiler_that_fails_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.warns(UserWarning, match=r"cpu_kernels\.c was not compiled by .*false.*: it ended with code 1"):
        assert library() is None


def test_the_threads_are_those_of_pytorch() -> None:
    before = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            assert compiled.shares_threads(cpu_kernels._found(), torch.get_num_threads)
    finally:
        torch.set_num_threads(before)


def test_another_openmp_that_happens_to_have_as_many_threads_is_known() -> None:
    told: list[int] = []
    assert not compiled.shares_threads(SimpleNamespace(use_threads=told.append), lambda: 2)  # type: ignore[arg-type]
    assert told == [3, 2]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A compiler that is a script."""

    def make(lines: str) -> None:
        path = tmp_path / "my compiler"
        path.write_text(f"#!/bin/sh\n{lines}\n")
        path.chmod(0o755)
        monkeypatch.setenv("CC", f"'{path}'")

    return make


def test_a_compiler_without_openmp_makes_functions_for_one_thread(
    home: Path, script: Callable[[str], None], tmp_path: Path
) -> None:
    script(f'case " $* " in *" -fopenmp "*) exit 1;; esac; echo "$*" > {tmp_path}/asked; exec cc "$@"')
    found = library()
    assert found is not None
    assert not hasattr(found, "use_threads")
    assert "-fopenmp-simd" in (tmp_path / "asked").read_text()


def test_a_compiler_may_be_a_command_with_words(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "env LC_ALL=C cc -O1")
    assert library() is not None
    assert len([*home.iterdir()]) == 1
    for nothing in ("cc 'unbalanced", "/usr", "no-such-compiler -m32", " "):
        monkeypatch.setenv("CC", nothing)
        assert compiled.find_compiler() is None


def test_what_does_not_load_is_told(home: Path, script: Callable[[str], None]) -> None:
    script('for each in "$@"; do case $each in *.so) echo nonsense > "$each";; esac; done; true')
    with pytest.warns(UserWarning, match="or not loaded"):
        assert library() is None


def test_a_compiler_that_says_bytes_which_are_no_text_is_told(home: Path, script: Callable[[str], None]) -> None:
    script("printf 'wei\\337\\n nicht' >&2; false")
    with pytest.warns(UserWarning, match="wei. nicht$"):
        assert library() is None


def test_a_compiler_that_hangs_is_ended_with_all_that_it_called(
    home: Path, script: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = tmp_path / "calls"

    class Begun(subprocess.Popen[str]):
        """A compiler that is waited for from when it has begun, however busy the machine is."""

        def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:  # noqa: A002
            while not called.exists():
                time.sleep(0.01)
            return super().communicate(input, timeout)

    monkeypatch.setattr(subprocess, "Popen", Begun)
    monkeypatch.setattr(compiled, "PATIENCE", 0.5)
    script(f"echo once >> {called}; (sleep 4; touch {tmp_path}/late); true")
    with pytest.warns(UserWarning, match="took more than 0.5 seconds"):
        assert library() is None
    assert called.read_text() == "once\n"
    time.sleep(4)
    assert not (tmp_path / "late").exists()


def test_a_signal_leaves_nothing_of_a_compiler(home: Path, script: Callable[[str], None], tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    script(f"touch $TMPDIR/part; touch {tmp_path}/begun; sleep 60")
    code = """
from glassformer.compiled import library
from glassformer.parts.cpu_kernels import SOURCE
from glassformer.stopping import stoppable
with stoppable():
    library(SOURCE, lambda: 1)
"""
    process = subprocess.Popen(  # noqa: S603  # our own Python
        [sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(temporary)}
    )
    while not (tmp_path / "begun").exists():
        assert process.poll() is None
        time.sleep(0.05)
    assert [*temporary.glob("*/part")]
    process.send_signal(signal.SIGINT)
    before = time.monotonic()
    assert process.wait(30) == 130
    assert time.monotonic() - before < 2
    assert not [*temporary.iterdir()]
    assert not home.exists()


def test_what_a_killed_process_has_left_is_removed(
    home: Path, script: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    script(f"touch $TMPDIR/part; touch {tmp_path}/begun; exec sleep 5")
    code = "import glassformer.compiled as c; from glassformer.parts.cpu_kernels import SOURCE; c.library(SOURCE, id)"
    process = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(temporary)})  # noqa: S603
    while not (tmp_path / "begun").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    alive = temporary / f"glassformer-kernels-{os.getppid()}-x"
    alive.mkdir()
    assert len([*temporary.iterdir()]) == 2
    monkeypatch.setattr(compiled.tempfile, "tempdir", str(temporary))  # type: ignore[attr-defined]
    monkeypatch.delenv("CC")
    assert library() is not None
    assert [*temporary.iterdir()] == [alive]


def test_a_compiler_that_knows_no_openmp_and_does_not_say_so(home: Path, script: Callable[[str], None]) -> None:
    script('for each do shift; case $each in -fopenmp) ;; *) set -- "$@" "$each";; esac; done; exec cc "$@"')
    found = library()
    assert found is not None
    assert not hasattr(found, "use_threads")


def test_a_compiler_that_leaves_functions_out_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "cc -Dlikeliest=another")
    with pytest.warns(UserWarning, match=r"kernels in C are not used: .*likeliest"):
        assert cpu_kernels._kernels.__wrapped__() is None


def test_a_user_without_a_home_has_kernels(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(
        Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("Could not determine home directory."))
    )
    assert library() is not None


@pytest.mark.parametrize("refused", ["home", "temporary folder"])
def test_a_folder_of_which_nothing_may_be_run_is_no_hindrance(
    home: Path, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = ctypes.CDLL

    def refusing(name: str) -> ctypes.CDLL:
        if (home in Path(name).parents) == (refused == "home"):
            raise OSError(f"{name}: failed to map segment from shared object")
        return load(name)

    monkeypatch.setattr(ctypes, "CDLL", refusing)
    assert library() is not None


def test_a_processor_is_known_by_what_does_not_change(tmp_path: Path) -> None:
    told = tmp_path / "cpuinfo"
    for clock in ("998.1", "2450.123"):
        block = f"processor: 0\nmodel name: fast\ncpu MHz: {clock}\nflags: {'fpu ' * 500}\n\n"
        told.write_text(block * 12)
        assert compiled._processor(told)[1:] == ["model name: fast", f"flags: {'fpu ' * 500}"]
