"""Code in C, compiled when it is first used: by the machine's own compiler, for the processor that it has.

What was compiled is kept in the user's cache folder, under a name that says of what source, by which compiler and for
which processor. A machine without a compiler does without it: whoever asks has another way to the same numbers.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from glassformer.stopping import at_the_end, undivided
from glassformer.writing import replacing

FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared", "-w")
SHARED = "-fopenmp"  # work is shared among threads
PATIENCE = 60.0  # seconds for a compiler
PROCESSOR_FACTS = ("model name", "flags", "Features", "CPU implementer", "CPU part")
_one_at_a_time = threading.Lock()


def library(source: Path, threads: Callable[[], int]) -> ctypes.CDLL | None:
    """The functions of a file in C, with the OpenMP of this process, whose `threads` are told; None: there are none."""
    compiler = find_compiler()
    if compiler is None:
        return None
    why = ""
    for option in (SHARED, "-fopenmp-simd"):  # or for one thread
        try:
            with _one_at_a_time:
                found = _load(source, [*compiler, *FLAGS, *_for_this_processor(), option])
        except subprocess.TimeoutExpired:
            why = f"it took more than {PATIENCE:g} seconds"
            break
        except subprocess.CalledProcessError as error:
            why = error.stderr or f"it ended with code {error.returncode}"
            continue
        except OSError as error:
            why = str(error)
            continue
        if option != SHARED or shares_threads(found, threads):
            return found
    said = f"{source.name} was not compiled by {shlex.join(compiler)}, or not loaded: {why.strip()[:300]}"
    warnings.warn(f"kernels in C are not used: {said}", stacklevel=2)
    return None


def find_compiler() -> list[str] | None:
    """The command of a C compiler: that of the environment variable CC (none if it is empty), or a usual name."""
    if os.name == "nt":
        return None  # where GCC aligns the stack to 16 bytes, and reads vectors of 64 from it as if they were aligned
    with suppress(ValueError):  # a quotation mark too few
        commands = [shlex.split(os.environ["CC"])] if "CC" in os.environ else [["cc"], ["gcc"], ["clang"]]
        return next(([path, *words[1:]] for words in commands if words and (path := shutil.which(words[0]))), None)
    return None


def kernel_folder() -> Path | None:
    """Where compiled code is kept: with the user's other caches, wherever prepared data is; None: nobody knows."""
    with suppress(RuntimeError):
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glassformer" / "kernels"
    return None


def _load(source: Path, command: list[str]) -> ctypes.CDLL:
    """The library from the cache folder, or compiled now, and kept there if that is possible."""
    cache, name = kernel_folder(), f"{source.stem}-{_digest(source, command)}.so"
    place = cache and cache / name
    if place is not None and _is_ours(place):
        with suppress(OSError):  # a damaged file: compile it again
            return ctypes.CDLL(str(place))
    folder = Path(tempfile.mkdtemp(prefix="glassformer-"))
    with at_the_end(lambda: shutil.rmtree(folder, ignore_errors=True)):
        made = folder / name
        _compile([*command, str(source), "-o", str(made), "-lm"], folder)
        if place is not None:
            with suppress(OSError):  # a home that cannot be written to, or of which nothing may be run
                place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with replacing(place) as new:
                    shutil.copyfile(made, new)
                return ctypes.CDLL(str(place))
        return ctypes.CDLL(str(made))


def _compile(command: list[str], folder: Path) -> None:
    """Run a compiler, whose temporary files go to a folder too; when this ends, so have the programs that it called."""
    tools: list[subprocess.Popen[str]] = []

    def end() -> None:
        for tool in tools:
            if tool.poll() is None:
                os.killpg(tool.pid, signal.SIGKILL)
            with tool:  # wait, and close the pipe
                pass

    with at_the_end(end):
        with undivided():  # a signal would leave a compiler behind that nobody knows of
            tools.append(
                subprocess.Popen(  # noqa: S603  # our source, by the user's compiler
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                    env=os.environ | {"TMPDIR": str(folder)},
                    process_group=0,
                )
            )
        _, said = tools[0].communicate(timeout=PATIENCE)
    if tools[0].returncode:
        raise subprocess.CalledProcessError(tools[0].returncode, command, stderr=said)


def _is_ours(path: Path) -> bool:
    """Whether a compiled file is there, and nobody but this user can have written it."""
    try:
        facts = [path.stat(), path.parent.stat()]
    except OSError:
        return False
    if not hasattr(os, "geteuid"):
        return True
    return all(each.st_uid == os.geteuid() and not each.st_mode & 0o022 for each in facts)


def _digest(source: Path, command: list[str]) -> str:
    """A name for what is compiled, by what and for what: homes are shared by machines that are not alike."""
    tool = Path(command[0]).resolve()
    facts = tool.stat()
    made_of = [source.read_text(encoding="utf-8"), str(tool), str(facts.st_size), str(facts.st_mtime_ns), *command[1:]]
    return blake2b("\0".join([*made_of, *_processor()]).encode(errors="replace"), digest_size=12).hexdigest()


def _processor(told: Path = Path("/proc/cpuinfo")) -> list[str]:
    """What this processor is and can do, by what is told of the first."""
    with suppress(OSError):
        with told.open(encoding="utf-8", errors="replace") as file:
            first = file.read(1 << 14).lstrip().partition("\n\n")[0]
        return [platform.machine(), *(line for line in first.splitlines() if line.startswith(PROCESSOR_FACTS))]
    return [platform.machine(), platform.processor()]


def _for_this_processor() -> tuple[str, ...]:
    if platform.machine().lower() in ("x86_64", "amd64"):
        return "-march=native", "-mprefer-vector-width=512"
    return ("-mcpu=native",)


def shares_threads(found: ctypes.CDLL, threads: Callable[[], int]) -> bool:
    """Whether a library's OpenMP is the one that is in this process already: who tells it, tells both.

    Two of them would wait for each other's work on all cores.
    """
    before = threads()
    found.use_threads(before + 1)
    same = threads() == before + 1
    found.use_threads(before)
    return same
