"""Code in C, compiled when it is first used: by the machine's own compiler, for the processor that it has.

What was compiled is kept in the user's cache folder, under a name that says of what source, by which compiler, for
which processor, and by its digest what it is, so that damage is noticed. A machine without a compiler does without it:
whoever asks has another way to the same numbers.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from glassformer.files import SETTINGS, regular
from glassformer.stopping import at_the_end, undivided
from glassformer.writing import is_alive, remove, replacing

FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared", "-w")
SHARED = "-fopenmp"  # work is shared among threads
PATIENCE = 60.0  # seconds for a compiler
TEMPORARY = "glassformer-kernels"  # folders where compilers work
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
        if option != SHARED or not hasattr(found, "use_threads") or shares_threads(found, threads):
            return found
    said = f"{source.name} was not compiled by {shlex.join(compiler)}, or not loaded: {' '.join(why.split())[:300]}"
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
    cache, name = kernel_folder(), f"{source.stem}-{_digest(source, command)}"
    if cache is not None and (kept := _kept(cache, name)) is not None:
        return kept
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}-{os.getpid()}-"))
    with at_the_end(lambda: shutil.rmtree(folder, ignore_errors=True)):
        made = folder / f"{name}.so"
        _compile([*command, str(source), "-o", str(made), "-lm"], folder)
        if cache is not None:
            with suppress(OSError):  # a home that cannot be written to, or of which nothing may be run
                return ctypes.CDLL(str(_keep(made, cache, name)))
        return ctypes.CDLL(str(made))


def _kept(cache: Path, name: str) -> ctypes.CDLL | None:
    """The library that was kept under a name, if it is whole: a damaged one could end the process."""
    if not is_ours(cache):
        return None
    for path in sorted(cache.glob(f"{name}-*.so")):
        with suppress(OSError):  # another may be whole
            if _only_we_write(path.stat()) and path.name == _whole_name(path, name):
                return ctypes.CDLL(str(path))
    return None


def _keep(made: Path, cache: Path, name: str) -> Path:
    """Copy a library to the cache folder, in place of damaged ones; OSError if that cannot be, or is nobody's own."""
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not is_ours(cache):
        raise PermissionError(f"{cache}: others may write there")
    place = cache / _whole_name(made, name)
    for old in cache.glob(f"{name}-*.so"):
        remove(old)
    with replacing(place) as new:
        shutil.copyfile(made, new)
    return place


def _whole_name(path: Path, name: str) -> str:
    """What a library is called, by what is in it."""
    return f"{name}-{blake2b(regular(path, SETTINGS).read_bytes(), digest_size=12).hexdigest()}.so"


def _sweep() -> None:
    """Remove what killed processes of this user have left of their compiling."""
    with suppress(OSError):
        for left in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}-*-*"):
            process = left.name.split("-")[2]
            if process.isdecimal() and not is_alive(int(process)) and _only_we_write(left.lstat()):
                remove(left)


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


def is_ours(folder: Path) -> bool:
    """Whether nobody but this user, and root, can put something into a folder, or into its place."""
    try:
        whole = folder.resolve()
        own, *above = (each.stat() for each in (whole, *whole.parents))
    except OSError:
        return False
    if not hasattr(os, "geteuid"):
        return True
    safe = [facts.st_uid in (0, os.geteuid()) and facts.st_mode & (0o002 | stat.S_ISVTX) != 0o002 for facts in above]
    return _only_we_write(own) and all(safe)


def _only_we_write(facts: os.stat_result) -> bool:
    """Whether a file or folder is this user's, and nobody else may write to it."""
    return not hasattr(os, "geteuid") or (facts.st_uid == os.geteuid() and not facts.st_mode & 0o022)


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
    return [platform.machine(), platform.processor(), platform.node()]


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
