"""A lock is one process's, and ends with it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from glassformer.locking import take

HOLD = "import sys, time; from pathlib import Path; from glassformer.locking import take; take(Path(sys.argv[1])); "


def test_a_lock_is_had_by_one_and_then_by_the_next(tmp_path: Path) -> None:
    first = take(tmp_path / "lock")
    with pytest.raises(BlockingIOError):
        take(tmp_path / "lock")
    os.close(first)
    os.close(take(tmp_path / "lock"))


def test_a_lock_that_was_removed_is_made_anew(tmp_path: Path) -> None:
    first = take(tmp_path / "lock")
    (tmp_path / "lock").unlink()
    second = take(tmp_path / "lock")
    assert not os.path.samestat(os.fstat(first), os.fstat(second))
    os.close(first)
    os.close(second)


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    code = HOLD + "print(flush=True); time.sleep(100)"
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "lock")], stdout=subprocess.PIPE)  # noqa: S603
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(BlockingIOError):
            take(tmp_path / "lock")
        process.kill()
    os.close(take(tmp_path / "lock"))


def test_where_nothing_can_be_written_nothing_is_locked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        take(tmp_path / "nowhere" / "lock")
