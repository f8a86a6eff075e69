"""The engine: a command in a forked process, under limits of time and memory, and what it must not do.

The process that forks has imported everything once and runs no threads, so that a command costs what it computes and
not the seconds that it takes to load torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import re
import resource
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np

from drill.files import Fault, Tracer

LIMIT = 60.0  # seconds of the processor that a command may take
HEARD = 2.0  # the same, in which it ends after SIGTERM
LARGE, UPDATED = 5e8, 2e8  # bytes of memory beyond which a model takes longer: so many are updated and saved a second
SLOW = 3.0  # the clock may show so many times more, while other processes have the cores
LATE = 20.0  # seconds on the clock in which what a command leaves running ends
MEMORY = 2 << 30  # bytes that a command may use
LOADED = 1 << 29  # bytes that torch and the rest take before a command begins, beyond which the system's limit counts
KILLED = -signal.SIGKILL
STOPPED = 128 + signal.SIGTERM
SENTENCE = 4_000  # characters of a message at most
NO_MEMORY = "there is not enough memory"
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(1000)  # in place of one that is drawn
INTERNAL = ("Traceback (most recent call last)", "site-packages", "object at 0x", "<class '", "Warning: ")
TORCH_CACHE = "torchinductor_"  # which torch makes and keeps
SUBREAPER = 36  # prctl: orphans become children of this process


class Broken(Exception):  # noqa: N818  # a finding, not an error of the drill
    """Something that must not happen has happened; `key` is the same for the same defect."""

    def __init__(self, what: str, key: str | None = None) -> None:
        super().__init__(what)
        self.key = key or what


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    arguments: tuple[str, ...]
    code: int  # negative: the signal that killed it
    out: str
    err: str
    seconds: float  # of the processor
    memory: int  # bytes, at most
    stopped: bool = False  # whether it was sent SIGTERM
    operations: tuple[str, ...] = ()  # that changed files
    bytes: int = 0  # written to files

    @property
    def command(self) -> str:
        """What a user would type."""
        return f"glassformer {shlex.join(self.arguments)}"

    @property
    def last(self) -> str:
        """The last line on stderr."""
        lines = self.err.strip().splitlines()
        return lines[-1] if lines else ""


@dataclass(frozen=True)
class Case:
    """One attack: what it is called, and what is done."""

    name: str  # attack/scenario/number
    act: Callable[[Bench], None]

    @property
    def attack(self) -> str:
        """The kind of attack."""
        return self.name.split("/")[0]


@dataclass
class Bench:
    """A place to attack in: an empty current folder, home and cache of its own, and commands to run there."""

    root: Path
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        for folder in (self.work, self.cache, self.home, self.temporary):
            folder.mkdir(parents=True)

    @property
    def work(self) -> Path:
        """The current folder of commands."""
        return self.root / "work"

    @property
    def cache(self) -> Path:
        """Where prepared data is kept."""
        return self.root / "cache"

    @property
    def home(self) -> Path:
        """The user's home."""
        return self.root / "home"

    @property
    def temporary(self) -> Path:
        """Where temporary files go."""
        return self.root / "temporary"

    def run(
        self,
        *arguments: str | Path,
        stdin: bytes = b"",
        fault: Fault | None = None,
        patience: float | None = None,
        environment: Mapping[str, str] | None = None,
        before: Callable[[], None] | None = None,
        may_need_memory: bool = False,
        judged: bool = True,
    ) -> Outcome:
        """Run a command and judge how it ended.

        After `patience` seconds it is sent SIGTERM, which it must hear. `before` is called in the process first.
        """
        words = tuple(map(str, arguments))
        outcome = _fork(self, words, stdin, fault, patience, environment or {}, before)
        self.outcomes.append(outcome)
        if judged and not (fault is not None and fault.kind != "full" and outcome.code == KILLED):
            judge(outcome, may_need_memory)
        return outcome

    def leftovers(self) -> list[str]:
        """Temporary files and folders, which no command may leave behind."""
        found = [*self.work.rglob(".*"), *self.cache.rglob(".*"), *self.temporary.iterdir()]
        return sorted(str(path.relative_to(self.root)) for path in found if not path.name.startswith(TORCH_CACHE))

    def check_clean(self) -> None:
        """Nothing temporary is left."""
        found = self.leftovers()
        if found:
            kinds = sorted({re.sub(r"\.\d+\b|-\w+$", ".PID", Path(each).name) for each in found})
            raise Broken(f"left behind: {', '.join(found[:5])}", f"left behind: {', '.join(kinds[:2])}")


@contextlib.contextmanager
def bench(home: Path) -> Any:
    """A bench that is taken away in the end."""
    root = Path(tempfile.mkdtemp(prefix="case-", dir=home))
    try:
        yield Bench(root / "b")
    finally:
        for path in root.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(root, ignore_errors=True)


def judge(outcome: Outcome, may_need_memory: bool = False) -> None:
    """Raise Broken unless a command ended as a command may: in time, with an answer or with a sentence."""
    code, err = outcome.code, outcome.err
    if "Traceback (most recent call last)" in err:
        raise Broken(f"a traceback: {outcome.last}", _signature(err))
    for word in INTERNAL:
        if word in err:
            line = next(line for line in err.splitlines() if word in line)
            raise Broken(f"a line that is not for users: {line}", f"not for users: {line[:100]}")
    if code == KILLED:
        raise Broken(f"no end after {outcome.seconds:.0f} s of work", f"no end: {outcome.arguments[0]}")
    if code < 0:
        raise Broken(f"killed by {signal.Signals(-code).name}: {outcome.last[:200]}")
    if outcome.memory > MEMORY + (LOADED if may_need_memory else 0) or (NO_MEMORY in err and not may_need_memory):
        raise Broken(f"{outcome.memory / 2**20:.0f} MB of memory", f"memory: {outcome.arguments[0]}")
    if code == STOPPED and outcome.stopped:
        return
    if code not in (0, 1, 2):
        raise Broken(f"exit code {code}: {outcome.last[:200]}", f"exit code {code}")
    if code:
        last = outcome.last
        if not last.startswith("glassformer: ") or len(last) < len("glassformer: a: b"):
            raise Broken(f"exit code {code} without a sentence: {last[:200]!r}", f"exit code {code}, no sentence")
        if len(last) > SENTENCE:
            raise Broken(f"a sentence of {len(last)} characters: {last[:100]}…", f"long sentence: {last[:60]}")


def _signature(err: str) -> str:
    """The exception and the last line of ours in a traceback."""
    lines = err.strip().splitlines()
    ours = [line.strip() for line in lines if "/glassformer/" in line and line.strip().startswith("File ")]
    where = ours[-1].split("/glassformer/")[-1].replace('", line ', ":").split(",")[0] if ours else "?"
    wrong = next((line for line in reversed(lines) if line[:1].isalpha() and ("Error" in line or ":" in line)), "?")
    return f"traceback: {wrong.split(':')[0]} in {where}"


def _fork(
    at: Bench,
    arguments: tuple[str, ...],
    stdin: bytes,
    fault: Fault | None,
    patience: float | None,
    environment: Mapping[str, str],
    before: Callable[[], None] | None,
) -> Outcome:
    """Run a command in a forked process; wait for it and for what it leaves running."""
    streams = at.root / "streams"
    streams.mkdir(exist_ok=True)
    (streams / "in").write_bytes(stdin)
    log = streams / "operations"
    log.unlink(missing_ok=True)
    tracer = Tracer()
    child = os.fork()
    if child == 0:
        _become(at, arguments, streams, tracer, fault, environment, before)
    stopped = False
    try:
        if patience is not None and not _ended(child, patience):
            stopped = True
            os.kill(child, signal.SIGTERM)
        if not _ends_in(child, HEARD if stopped else LIMIT):
            os.kill(child, signal.SIGKILL)
    finally:
        _, status, usage = os.wait4(child, 0)
        _end_orphans(child)
    return Outcome(
        arguments,
        os.waitstatus_to_exitcode(status),
        (streams / "out").read_bytes().decode(errors="replace"),
        (streams / "err").read_bytes().decode(errors="replace"),
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss * 1024,
        stopped,
        tuple(log.read_text(errors="replace").splitlines()) if log.exists() else (),
        tracer.bytes,
    )


def _ended(child: int, seconds: float) -> bool:
    """Whether a process has ended, waiting some seconds for it."""
    descriptor = os.pidfd_open(child)
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def _ends_in(child: int, seconds: float) -> bool:
    """Whether a process ends within so many seconds of the processor; one with a large model may take longer."""
    used, started = _seconds(child), time.monotonic()
    while not _ended(child, 0.25):
        granted = seconds + max(0.0, _memory(child) - LARGE) / UPDATED
        if _seconds(child) - used > granted or time.monotonic() - started > granted * SLOW + LATE:
            return False
    return True


def _seconds(process: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(process: int) -> int:
    """The memory that a process uses, in bytes."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()


def adopt_orphans() -> None:
    """Become the parent of the processes that dead children leave, so that they can be waited for."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def _end_orphans(group: int) -> None:
    """Wait for what a dead command has started; end it if it goes on for long."""
    started = time.monotonic()
    while True:
        try:
            found, _ = os.waitpid(-group, os.WNOHANG)
        except ChildProcessError:
            return
        if found == 0:
            if time.monotonic() - started > LATE:
                os.killpg(group, signal.SIGKILL)
            time.sleep(0.01)


def _become(
    at: Bench,
    arguments: Sequence[str],
    streams: Path,
    tracer: Tracer,
    fault: Fault | None,
    environment: Mapping[str, str],
    before: Callable[[], None] | None,
) -> None:
    """In the forked process: become the command."""
    code: Any = 70
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for number, (name, flags) in enumerate((("in", os.O_RDONLY), ("out", os.O_WRONLY), ("err", os.O_WRONLY))):
            made = os.open(streams / name, flags | (os.O_CREAT | os.O_TRUNC if number else 0))
            os.dup2(made, number)
            os.close(made)
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)), encoding="utf-8")
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), encoding="utf-8")
        sys.stderr = io.TextIOWrapper(
            io.FileIO(2, "w", closefd=False), encoding="utf-8", errors="backslashreplace", write_through=True
        )
        os.chdir(at.work)
        tempfile.tempdir = str(at.temporary)
        places = {"GLASSFORMER_CACHE": at.cache, "HOME": at.home, "TMPDIR": at.temporary}
        os.environ.update(
            {name: str(path) for name, path in places.items()} | {"HF_HUB_OFFLINE": "1"} | {**environment}
        )
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        subprocess.Popen = Forked  # type: ignore[assignment, misc]
        _draw_nothing()
        if before is not None:
            before()
        tracer.install(streams / "operations", fault)
        code = _call(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
        os._exit(code if isinstance(code, int) else 1)


def _call(arguments: Sequence[str]) -> int:
    """What a command ends with; an exception that escapes is shown as Python shows it."""
    from glassformer.cli import main

    try:
        main(list(arguments))
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
            return 1
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _draw_nothing() -> None:
    """Draw on nothing and save a small fixed file: pictures take four fifths of the time of a small training."""
    from matplotlib.figure import Figure, FigureBase

    def subplots(figure: Any, rows: int = 1, columns: int = 1, *, squeeze: bool = True, **options: Any) -> Any:
        axes = np.empty((rows, columns), dtype=object)
        for place in np.ndindex(rows, columns):
            axes[place] = MagicMock()
        return axes if not squeeze else axes.squeeze() if axes.size > 1 else axes[0, 0]

    def save(figure: Any, file: Any, *args: Any, **options: Any) -> None:
        if hasattr(file, "write"):
            file.write("<svg/>" if isinstance(file, io.TextIOBase) else PICTURE)
        else:
            Path(file).write_bytes(PICTURE)

    Figure.savefig = save  # type: ignore[assignment, method-assign]
    FigureBase.subplots, FigureBase.colorbar = subplots, MagicMock()  # type: ignore[assignment, method-assign]


class Forked:
    """Takes the place of `subprocess.Popen` for workers, which are Python code: it is run in a forked process."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        if list(command[:2]) != [sys.executable, "-c"]:
            raise OSError(2, f"the drill starts no other programs: {command[0]}")
        reads, self_writes = os.pipe()
        self_reads, writes = os.pipe()
        sys.stdout.flush()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            for descriptor in (self_writes, self_reads):
                os.close(descriptor)
            os.dup2(reads, 0)
            os.dup2(writes, 1)
            self._work(command[2])
        os.close(reads)
        os.close(writes)
        self.stdin = io.TextIOWrapper(io.FileIO(self_writes, "w"), encoding="utf-8", write_through=True)
        self.stdout = io.TextIOWrapper(io.BufferedReader(io.FileIO(self_reads)), encoding="utf-8")
        if options.get("stdin") == subprocess.DEVNULL:
            self.stdin.close()

    def _work(self, code: str) -> None:
        status: Any = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
            sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding="utf-8", write_through=True)
            exec(code, {})  # noqa: S102  # what the command would have given to Python
            status = 0
        except SystemExit as end:
            status = end.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status if isinstance(status, int) else 1)

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        if self.returncode is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if found else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, when it ends."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)
