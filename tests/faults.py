"""Faults: real commands that are killed, or find the disk full, at a chosen file operation.

    with Commands() as commands:                                # a process that has imported the libraries, once
        whole = commands.run("train", "copy", "--out", out)     # a command, in a fork of that process
        counted = commands.run("train", "copy", "--out", out, under=[out]).operations
        commands.run("train", "copy", "--out", out, under=[out], kill=17)
        commands.run("train", "copy", "--out", out, under=[out], full=17)

File operations are those that change a disk, below the folders `under`: create, write, fsync, rename, remove, mkdir,
rmdir, chmod, truncate, counted from 1 in the order in which the command does them. `kill` ends the command as kill -9
does, in place of that operation; of a write, the first half is done. `full` lets everything that needs space fail from
that operation on, as a full disk does; with `space`, after so many bytes more. `environment` adds variables, `cwd` is
the working folder, `stdin` a text, `limits` maps limits of `resource` ("RLIMIT_AS") to numbers.

An `Ending` has the exit code (negative: the signal; None: not done after `timeout` seconds, and killed), what was
written to stdout and stderr, and the operations as "write recipe.toml", relative to the folder.
"""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

TIMEOUT = 60.0
AUDITED = {"os.rename": "rename", "os.remove": "remove", "os.rmdir": "rmdir", "os.mkdir": "mkdir", "os.chmod": "chmod"}
TENSORBOARD = "tensorboard"  # whose thread writes when it likes: its operations have no number
SPACIOUS = ("create", "write", "mkdir")  # operations that need space on the disk


@dataclass(frozen=True)
class Ending:
    """How a command ended."""

    code: int | None
    out: str
    err: str
    operations: list[str]


class Commands:
    """Runs commands, each in a fork of a process that has imported all libraries and done nothing else."""

    def __enter__(self) -> Commands:
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def run(
        self,
        *arguments: str | Path,
        under: Sequence[Path] = (),
        kill: int | None = None,
        full: int | None = None,
        space: int = 0,
        cwd: Path | None = None,
        environment: dict[str, str] | None = None,
        stdin: str = "",
        limits: dict[str, int] | None = None,
        timeout: float = TIMEOUT,
    ) -> Ending:
        """Run one command to its end."""
        job = {
            "arguments": [str(each) for each in arguments],
            "under": [str(Path(each).absolute()) for each in under],
            "kill": kill,
            "full": full,
            "space": space,
            "cwd": str(cwd or Path.cwd()),
            "environment": environment or {},
            "stdin": stdin,
            "limits": limits or {},
            "timeout": timeout,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return Ending(**json.loads(self._process.stdout.readline()))


class Faults:
    """Counts the file operations of this process below some folders, and lets one of them go wrong."""

    def __init__(self, under: Sequence[str], kill: int | None, full: int | None, space: int, journal: int) -> None:
        self.under, self.kill, self.full, self.space, self.journal = tuple(under), kill, full, space, journal
        self.count, self.busy = 0, False

    def install(self) -> None:
        """Watch everything that Python, and safetensors, write."""
        import builtins

        import safetensors.torch
        from safetensors import SafetensorError, serialize

        fsync, faults = os.fsync, self

        def flushed(file: Any) -> None:
            faults.step("fsync", file if isinstance(file, int) else file.fileno())
            fsync(file)

        def saved(tensors: Any, path: Any, metadata: Any = None) -> None:
            try:
                with faulty_open(path, "wb") as file:
                    file.write(serialize(tensors, metadata))
            except OSError as error:
                raise SafetensorError(f"I/O error: {error.strerror} (os error {error.errno})") from None

        class Raw(io.FileIO):
            def write(self, data: Any) -> int:
                wanted = memoryview(data).cast("B")
                half = faults.step("write", self.fileno(), len(wanted))
                if half is None:
                    return super().write(data)
                super().write(wanted[:half])
                return faults.fail("write", self.fileno())

        real = io.open

        def faulty_open(
            file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, errors: Any = None,
            newline: Any = None, closefd: bool = True, opener: Any = None,
        ) -> Any:  # fmt: skip
            if isinstance(file, int) or not set(mode) & set("wax+"):
                return real(file, mode, buffering, encoding, errors, newline, closefd, opener)
            raw = Raw(file, mode.replace("b", "").replace("t", ""), closefd, opener)
            if buffering == 0:
                return raw
            buffer = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            return buffer if "b" in mode else io.TextIOWrapper(buffer, encoding, errors, newline, buffering == 1)

        os.fsync = flushed  # type: ignore[assignment]
        io.open = builtins.open = faulty_open
        setattr(safetensors.torch, "serialize_file", saved)  # noqa: B010  # it is not exported
        sys.addaudithook(self.hear)

    def hear(self, event: str, values: tuple[Any, ...]) -> None:
        """An event of Python's own: before something is done."""
        if self.busy:
            return
        if event == "open":
            path, _, flags = values
            if isinstance(flags, int) and flags & os.O_CREAT and isinstance(path, str | bytes | os.PathLike):
                self.step("create" if not os.path.lexists(path) else "open", path)
        elif event in AUDITED:
            folder = values[-1] if isinstance(values[-1], int) and event not in ("os.mkdir", "os.chmod") else -1
            path = values[1] if event == "os.rename" else values[0]
            self.step(AUDITED[event], path, folder=-1 if event == "os.rename" else folder)

    def step(self, name: str, path: Any, size: int = 0, folder: int = -1) -> int | None:
        """One operation. It is done if this returns None; else only so many bytes of it, and then `fail`."""
        self.busy = True
        try:
            place = self._place(path, folder)
            if place is None:
                return None
            counted = not place.startswith(TENSORBOARD)
            if counted:
                self.count += 1
                os.write(self.journal, (json.dumps(f"{name} {place}") + "\n").encode())
            if counted and self.count == self.kill:
                if name == "write":
                    return size // 2
                os.kill(os.getpid(), signal.SIGKILL)
            if self.full is not None and self.count >= self.full and name in SPACIOUS:
                if name == "write" and size <= self.space:
                    self.space -= size
                    return None
                if name == "write":
                    return self.space
                if not self.space:
                    self.fail(name, path)
            return None
        finally:
            self.busy = False

    def fail(self, name: str, path: Any) -> int:
        """End a write that was done in part: by death, or by an error."""
        if self.count == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        self.space = 0
        where = None if isinstance(path, int) else os.fsdecode(path)  # Python knows no name where a write fails
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), where)

    def _place(self, path: Any, folder: int) -> str | None:
        """The path of what is changed, below one of the folders; None: it is elsewhere."""
        try:
            start = os.readlink(f"/proc/self/fd/{folder}") if folder >= 0 else os.getcwd()  # noqa: PTH109, PTH115
            whole = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.fsdecode(path)  # noqa: PTH115
        except OSError:
            return None
        whole = os.path.normpath(os.path.join(start, whole))  # noqa: PTH118
        top = next((each for each in self.under if whole == each or whole.startswith(f"{each}{os.sep}")), None)
        return None if top is None else os.path.relpath(whole, top)


def _fork(job: dict[str, Any]) -> dict[str, Any]:
    """Run a job in a fork, and say how it ended."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as journal:
        child = os.fork()
        if not child:
            code = 1
            try:
                with tempfile.TemporaryFile() as stdin:
                    stdin.write(job["stdin"].encode("utf-8", "surrogateescape"))
                    stdin.seek(0)
                    for number, file in enumerate((stdin, out, err)):
                        os.dup2(file.fileno(), number)
                code = _command(job, journal.fileno())
            except BaseException:  # as Python itself would
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        status = _wait(child, job["timeout"])
        texts = []
        for file in (out, err, journal):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
    operations = [json.loads(line) for line in texts[2].splitlines()]
    return {"code": status, "out": texts[0], "err": texts[1], "operations": operations}


def _wait(child: int, timeout: float) -> int | None:
    late = time.monotonic() + timeout
    while time.monotonic() < late:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _command(job: dict[str, Any], journal: int) -> int:
    import resource

    os.chdir(job["cwd"])
    os.environ.update(job["environment"])
    for name, value in job["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    sys.argv = ["glassformer", *job["arguments"]]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
    if job["under"]:
        Faults(job["under"], job["kill"], job["full"], job["space"], journal).install()
    from glassformer.cli import main

    try:
        main(job["arguments"])
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
            return 1
        return end.code or 0
    return 0


def _serve() -> None:
    """Import everything that commands import, then run jobs, one per line."""
    import torch

    from glassformer import registry, runs
    from glassformer.cli import app, finishing, progress

    del runs, finishing, progress
    torch.set_num_threads(1)
    app._register_commands()
    for each in (registry.FAMILIES, registry.TASKS, registry.SOURCES, registry.TOKENIZERS):
        each.names()
    for line in sys.stdin:
        answer = _fork(json.loads(line))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
