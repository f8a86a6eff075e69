"""Traced files: every file operation of a process is counted, and any one of them can be made to fail.

Only operations that change something on the disk count. Python's own functions are replaced in the process under
attack, so neither root nor a special file system is needed; the libraries that write by themselves (safetensors) are
made to write through Python.
"""

from __future__ import annotations

import builtins
import errno
import io
import mmap
import os
import shutil
import signal
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
from safetensors import SafetensorError

CHANGING = ("mkdir", "rename", "replace", "unlink", "remove", "rmdir", "chmod", "link", "symlink", "truncate", "fsync")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
COUNTERS = struct.Struct("qq")  # operations, bytes
EVENTS = "tfevents"
STREAMS = 2  # the last of the descriptors that are standard streams


@dataclass(frozen=True)
class Fault:
    """What goes wrong: at the operation with this number, or when so many bytes have been written.

    kill   the process is killed (SIGKILL) just before the operation
    tear   half of the operation's bytes are written, then the process is killed
    full   the disk is full: from this operation on, or beyond so many bytes, nothing more can be written
    """

    kind: Literal["kill", "tear", "full"]
    operation: int = -1
    capacity: int = -1


class Tracer:
    """Counts the file operations of a process and of those that it forks, and makes one of them fail."""

    def __init__(self) -> None:
        self._counters = mmap.mmap(-1, COUNTERS.size)  # shared with forked processes
        self._log: int | None = None
        self.fault: Fault | None = None

    @property
    def operations(self) -> int:
        """How many operations there were."""
        return int(COUNTERS.unpack(self._counters[:])[0])

    @property
    def bytes(self) -> int:
        """How many bytes were written."""
        return int(COUNTERS.unpack(self._counters[:])[1])

    def install(self, log: Path, fault: Fault | None) -> None:
        """Trace this process from now on; `log` gets a line for each operation."""
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.fault = fault
        self._write = os.write
        for name in CHANGING:
            setattr(os, name, self._traced(name, getattr(os, name)))
        os.open = self._traced_descriptor(os.open)
        os.write = self._traced_write(os.write)
        builtins.open = io.open = self._traced_open(io.open)
        shutil._USE_CP_SENDFILE = False  # type: ignore[attr-defined]  # copies go through open files, too

    def change(self, name: str, path: object) -> None:
        """Count an operation, and fail if it is its turn. TensorBoard's thread is not counted: its order is chance."""
        number = -1
        if not (EVENTS in str(path) and threading.current_thread() is not threading.main_thread()):
            number = self._add(1, 0)
            if self._log is not None:
                self._write(self._log, f"{name} {path}\n".encode(errors="replace"))
        fault = self.fault
        if fault is None or fault.operation < 0:
            return
        if fault.kind == "kill" and number == fault.operation:
            os.kill(os.getpid(), signal.SIGKILL)
        if fault.kind == "full" and self.operations > fault.operation and name in ("mkdir", "open", "write", "fsync"):
            if name in ("mkdir", "open") and os.path.lexists(str(path)):
                return  # what is there already needs no room
            raise no_space(path)

    def room(self, path: object, size: int) -> int:
        """How many of so many bytes can be written now."""
        fault = self.fault
        if fault is not None and fault.kind == "tear" and self.operations == fault.operation + 1:
            return size // 2
        if fault is not None and fault.capacity >= 0:
            left = fault.capacity - self.bytes
            if left <= 0 < size:
                raise no_space(path)
            size = min(left, size)
        self._add(0, size)
        return size

    def torn(self) -> None:
        """Half of the bytes are written: end, if that was the fault."""
        fault = self.fault
        if fault is not None and fault.kind == "tear" and self.operations == fault.operation + 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def _add(self, operations: int, size: int) -> int:
        before = COUNTERS.unpack(self._counters[:])
        self._counters[:] = COUNTERS.pack(before[0] + operations, before[1] + size)
        return int(before[0])

    def _traced(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def traced(path: Any, *args: Any, **options: Any) -> Any:
            self.change(name, path)
            return function(path, *args, **options)

        return traced

    def _traced_descriptor(self, function: Callable[..., int]) -> Callable[..., int]:
        def traced(path: Any, flags: int, *args: Any, **options: Any) -> int:
            if flags & WRITING:
                self.change("open", path)
            return function(path, flags, *args, **options)

        return traced

    def _traced_write(self, function: Callable[[int, Any], int]) -> Callable[[int, Any], int]:
        def traced(descriptor: int, data: Any) -> int:
            if descriptor <= STREAMS:
                return function(descriptor, data)
            self.change("write", descriptor)
            written = function(descriptor, bytes(data)[: self.room(descriptor, len(data))])
            self.torn()
            return written

        return traced

    def _traced_open(self, function: Callable[..., Any]) -> Callable[..., Any]:
        tracer = self

        class File(io.FileIO):
            """A file whose writes are traced."""

            def write(self, data: Any, /) -> int:
                tracer.change("write", self.name)
                block = memoryview(data).cast("B")
                written = super().write(block[: tracer.room(self.name, len(block))])
                tracer.torn()
                return written

        def traced(
            file: Any,
            mode: str = "r",
            buffering: int = -1,
            encoding: str | None = None,
            errors: str | None = None,
            newline: str | None = None,
            closefd: bool = True,
            opener: Any = None,
        ) -> Any:
            reads = not set("wax+") & set(mode)
            if reads or (isinstance(file, int) and file <= STREAMS) or file == os.devnull:
                return function(file, mode, buffering, encoding, errors, newline, closefd, opener)
            self.change("open", file)
            raw = File(file, mode.replace("b", "").replace("t", ""), closefd, opener)
            if buffering == 0:
                return raw
            size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
            buffered = io.BufferedRandom(raw, size) if "+" in mode else io.BufferedWriter(raw, size)
            if "b" in mode:
                return buffered
            return io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)

        return traced


def no_space(path: object) -> OSError:
    """The error of a full disk."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def write_through_python() -> None:
    """Let safetensors write through Python, the same bytes; to be called before Glassformer is imported."""

    def save_file(tensors: Any, filename: Any, metadata: dict[str, str] | None = None) -> None:
        try:
            with open(filename, "wb") as file:  # noqa: PTH123  # the function that is traced
                file.write(safetensors.torch.save(tensors, metadata))
        except OSError as error:
            what = f"Error while serializing: I/O error: {error.strerror} (os error {error.errno})"
            raise SafetensorError(what) from None

    safetensors.torch.save_file = save_file
