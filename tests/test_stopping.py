"""A signal ends whatever a command does within two seconds, and nothing half-made stays."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DEAF = """
import ctypes, sys
from pathlib import Path
from glassformer.stopping import stoppable
from glassformer.writing import replacing

with stoppable(), replacing(Path(sys.argv[1]) / "file") as new:
    new.write_text("half")
    print(flush=True)
    mutex = ctypes.create_string_buffer(64)
    libc = ctypes.CDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)  # a library that never comes back, and does not hear signals
"""
SWALLOWED = """
import sys, time
from glassformer.stopping import stoppable
from glassformer import stopping
stopping.SLOW = 1.2

with stoppable():
    print(flush=True)
    while True:
        try:
            time.sleep(100)
        except BaseException:
            pass  # a library that swallows everything
"""
TRAINED = """
import ctypes, sys, threading
from pathlib import Path
from glassformer.stopping import SignalListener, stoppable

def save(number):
    (Path(sys.argv[1]) / "saved").write_text(str(number))
    return "saved"

with stoppable(), SignalListener() as signals, signals.interrupting(save):
    threading.Timer(0.3, lambda: print(flush=True)).start()  # when this thread is deaf
    mutex = ctypes.create_string_buffer(64)
    libc = ctypes.CDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)
"""
HEARD = """
import sys, time
from glassformer.stopping import Interrupted, SignalListener, stoppable

with stoppable():
    with SignalListener() as signals:
        print(flush=True)
        while not signals.received:
            time.sleep(0.01)
        time.sleep(1.5)  # it is saved, which may take longer than a library may be deaf
        try:
            with signals.interrupting():
                pass
        except Interrupted:
            sys.exit(5)
"""
UNDIVIDED = """
import sys, time
from pathlib import Path
from glassformer.stopping import stoppable, undivided

with stoppable(), undivided():
    print(flush=True)
    time.sleep(0.5)
    (Path(sys.argv[1]) / "both").write_text("done")
"""
IMPORTING = """
import sys
from pathlib import Path
from glassformer.stopping import stoppable
from glassformer.writing import replacing

folder = Path(sys.argv[1])
(folder / "slow.py").write_text("import time; print(flush=True); time.sleep(100)")
sys.path.append(str(folder))
with stoppable(), replacing(folder / "file") as new:
    new.write_text("half")
    import slow
"""
FORKED = """
import os, signal, sys, time
from glassformer.stopping import stoppable

with stoppable():
    child = os.fork()
    if not child:
        time.sleep(100)
    time.sleep(0.1)
    os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)
    time.sleep(1.3)  # the signal was the child's
    print("still here")
"""


def ended(code: str, folder: Path, number: int) -> tuple[int, float]:
    """Start a program, send it a signal when it has begun, and see how it ends and after how many seconds."""
    process = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE)  # noqa: S603
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        begun = time.monotonic()
        process.send_signal(number)
        try:
            return process.wait(30), time.monotonic() - begun
        finally:
            process.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_library_that_does_not_hear_signals_is_ended_all_the_same(tmp_path: Path, number: int, code: int) -> None:
    found, seconds = ended(DEAF, tmp_path, number)
    assert found == code
    assert seconds < 5  # 1 on an idle machine
    assert list(tmp_path.iterdir()) == []


def test_what_a_deaf_library_computes_for_is_saved(tmp_path: Path) -> None:
    found, seconds = ended(TRAINED, tmp_path, signal.SIGTERM)
    assert found == 143
    assert seconds < 5
    assert (tmp_path / "saved").read_text() == "15"


def test_who_has_heard_a_signal_may_take_its_time(tmp_path: Path) -> None:
    assert ended(HEARD, tmp_path, signal.SIGINT)[0] == 5


def test_what_was_begun_is_cleaned_up_while_a_library_is_loaded(tmp_path: Path) -> None:
    assert ended(IMPORTING, tmp_path, signal.SIGTERM)[0] == 143
    assert {path.name for path in tmp_path.iterdir()} <= {"slow.py", "__pycache__"}


def test_operations_that_belong_together_are_done_together(tmp_path: Path) -> None:
    assert ended(UNDIVIDED, tmp_path, signal.SIGTERM)[0] == 143
    assert (tmp_path / "both").exists()


def test_a_library_that_swallows_every_exception_is_ended_too(tmp_path: Path) -> None:
    assert ended(SWALLOWED, tmp_path, signal.SIGTERM)[0] == 143


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_the_signal_of_a_child_is_not_ours() -> None:
    answer = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=False)  # noqa: S603
    assert answer.stdout == "still here\n"
