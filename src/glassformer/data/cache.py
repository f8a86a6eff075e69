"""The cache: a prepared corpus is a folder, named by what it was made of, with a list of its files and checksums."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

import tokenizers

from glassformer.data.assets import Assets
from glassformer.data.cleaning import content_hash
from glassformer.errors import DataError
from glassformer.files import check_file
from glassformer.locking import take
from glassformer.recipe import Recipe
from glassformer.stopping import at_the_end
from glassformer.writing import is_alive, write_json

FORMAT = 8  # changes whenever the same recipe and files would give another corpus
CONTENTS = "contents.json"
MAKING = ".making-"
LOCK = "lock"  # in an unfinished folder, held by who makes it
DIGESTS = "digests.json"
LARGE = 1 << 26  # bytes above which a file's digest is remembered by its time and size
OLD = 86_400  # seconds after which an unfinished folder without a lock is taken to be abandoned


def cache_folder() -> Path:
    """Where prepared data is kept: $GLASSFORMER_CACHE, or the user's cache folder."""
    chosen = os.environ.get("GLASSFORMER_CACHE")
    return Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glassformer"


def fingerprint(recipe: Recipe, base: Path, cache: Path, given: Assets | None = None) -> str:
    """The name of the corpus that this recipe makes of the files as they are now; `given` comes with a checkpoint."""
    paths = recipe.source.files(base)
    if recipe.tokenizer.path is not None:
        paths.append(base / recipe.tokenizer.path)
    special = None if given is None else given.special_tokens
    made_of = {
        "task": recipe.task.model_dump(mode="json", exclude=recipe.task.drawn),
        "source": recipe.source.model_dump(mode="json"),
        "data": recipe.data.model_dump(mode="json", exclude={"workers"}),
        "tokenizer": recipe.tokenizer.model_dump(mode="json"),
        "files": [_digest(path, cache) for path in paths],
        "names": [f"{path.parent.name}/{path.name}" for path in paths],
        "given": [content_hash(each.to_json().encode()) for each in (given.tokenizers if given else ())],
        "special_tokens": None if special is None else asdict(special),
        "versions": {"format": FORMAT, "tokenizers": tokenizers.__version__, **recipe.source.versions(base)},
    }
    text = json.dumps(made_of, sort_keys=True)
    return f"{recipe.source.kind}-{blake2b(text.encode(), digest_size=12).hexdigest()}"


def _digest(path: Path, cache: Path) -> str:
    """The digest of a file's bytes; a large file that has not been touched since is not read again."""
    facts = check_file(path)
    try:
        stamp = [facts.st_size, facts.st_mtime_ns]
        known = _digests(cache) if facts.st_size > LARGE else {}
        if known.get(str(path.resolve()), [None])[0] == stamp:
            return str(known[str(path.resolve())][1])
        digest = blake2b(digest_size=16)
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    if facts.st_size > LARGE:
        known[str(path.resolve())] = [stamp, digest.hexdigest()]
        cache.mkdir(parents=True, exist_ok=True)
        write_json(cache / DIGESTS, known)
    return digest.hexdigest()


def _digests(cache: Path) -> dict[str, Any]:
    try:
        known = json.loads((cache / DIGESTS).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def seal(folder: Path, values: dict[str, Any]) -> None:
    """Write the list of a folder's files, with sizes, checksums and some values of one's own."""
    files = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            os.fsync(file.fileno())
        files[path.name] = [path.stat().st_size, _checksum(path)]
    write_json(folder / CONTENTS, {**values, "files": files})


def check(folder: Path, sealed: bool = False) -> dict[str, Any] | None:
    """The values that a folder was sealed with; None if it is not there, or a file of it is missing or damaged.

    One that this process has just `sealed` is not read again: only the sizes of its files are compared.
    """
    try:
        contents = json.loads((folder / CONTENTS).read_text(encoding="utf-8"))
        for name, (size, checksum) in contents["files"].items():
            if (folder / name).stat().st_size != size or not (sealed or _checksum(folder / name) == checksum):
                return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return dict(contents)


def fill(cache: Path, folder: Path, make: Callable[[Path], None]) -> None:
    """Have a corpus made in a new folder, which gets its name when everything is written."""
    cache.mkdir(parents=True, exist_ok=True)
    with unfinished(cache) as place:
        making = place / "corpus"
        making.mkdir()
        make(making)
        publish(making, folder)


def publish(making: Path, folder: Path) -> None:
    """Give a finished folder its name. A damaged one of that name goes; one that another process finished stays."""
    if folder.exists():
        if check(folder) is not None:
            return
        folder.rename(making.parent / "damaged")
    try:
        making.rename(folder)
    except OSError:
        if check(folder) is None:
            raise


@contextmanager
def unfinished(cache: Path) -> Iterator[Path]:
    """A new folder to make a corpus in, locked; it is removed in the end, or by `remove_abandoned` after a kill."""
    folder, lock = _new(cache)

    def discard() -> None:
        if lock is not None:
            os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)

    with at_the_end(discard):
        yield folder


def _new(cache: Path) -> tuple[Path, int | None]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{MAKING}{os.getpid()}-", dir=cache))
        try:
            return folder, take(folder / LOCK)
        except (BlockingIOError, FileNotFoundError):
            continue  # somebody swept it away before it was locked
        except OSError:
            return folder, None  # where nothing can be locked, only its age tells


def remove_abandoned(cache: Path) -> None:
    """Remove what killed processes left unfinished."""
    for folder in cache.glob(f"{MAKING}*"):
        with suppress(OSError), ExitStack() as held:  # it is gone, or somebody is at work in it
            if (folder / LOCK).exists():
                held.callback(os.close, take(folder / LOCK))  # kept, so that who has just made the folder makes another
            elif _may_be_alive(folder):
                continue
            shutil.rmtree(folder, ignore_errors=True)


def _may_be_alive(folder: Path) -> bool:
    """Whether somebody may be at work in a folder without a lock: its name says which process, or it is new."""
    process = folder.name.removeprefix(MAKING).split("-")[0]
    return is_alive(int(process)) if process.isdecimal() else time.time() - folder.stat().st_mtime < OLD


def _checksum(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            value = zlib.crc32(block, value)
    return value
