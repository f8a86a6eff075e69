"""Files of ours: written at once, and checked when they are read.

A reader finds the old file or the new one, never a part of it. What a killed process leaves behind is called
`.NAME.PID.new`, and `sweep` removes it. A folder may hold checksums.json: the SHA-256 of some of its files.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from glassformer.errors import InputError, RunError, TrainingError
from glassformer.files import SETTINGS, regular
from glassformer.stopping import at_the_end

RUN_FILES = ("recipe.toml", "config.json")  # a folder that holds both is a run that was trained
IMPORT = "import.json"  # a folder that holds it is a run that was imported
CHECKSUMS = "checksums.json"
FULL = (errno.ENOSPC, errno.EDQUOT)  # errors of a disk without room, which is not the user's input
UNFINISHED = re.compile(r"\..+\.\d+\.new")
Kind = TypeVar("Kind")


def unfinished(path: Path) -> Path:
    """The name of a file or folder while this process writes it."""
    whole = path.absolute()  # "." has no name of its own
    return whole.parent / f".{whole.name}.{os.getpid()}.new"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path; without an error, that file is flushed and renamed to `path`, else it is removed."""
    if path.exists() and not path.is_file():  # a rename would put a file in the place of a device
        raise FileExistsError(errno.EEXIST, "it is no regular file", str(path))
    new = unfinished(path)
    _remove_left(path, new.parent)
    with at_the_end(lambda: remove(new)):
        yield new
        new.chmod(0o644)
        flush(new)
        new.replace(path)


@contextmanager
def filling(folder: Path, last: str, stale: Iterable[str] = ()) -> Iterator[Path]:
    """Yield a new folder to write files into; without an error, they get their place in `folder`, else all is removed.

    A folder that does not exist appears at once. In one that does, each file is replaced, and those of the names in
    `stale` that are not written again are removed; the file `last`, without which the others mean nothing, goes first
    and comes last.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    place = folder if folder.is_dir() else folder.parent  # on the same disk, whatever is mounted where
    new = place / unfinished(folder).name
    _remove_left(folder, place)
    with at_the_end(lambda: remove(new)):
        new.mkdir()
        yield new
        if place is not folder:
            new.rename(folder)
            return
        for name in (last, *stale):
            (folder / name).unlink(missing_ok=True)
        for each in sorted(new.iterdir(), key=lambda each: each.name == last):
            if each.is_dir():
                remove(folder / each.name)  # a folder takes the place of an empty one only
            each.replace(folder / each.name)


def _remove_left(path: Path, place: Path) -> None:
    """Remove what killed processes left of a file or folder that they were writing in some place."""
    for left in place.glob(f".{glob.escape(path.absolute().name)}.*.new"):
        if UNFINISHED.fullmatch(left.name) and not is_alive(int(left.name.split(".")[-2])):
            remove(left)


def is_alive(process: int) -> bool:
    """Whether another process of this number is at work."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return process != os.getpid()


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there and can be removed."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def sweep(folder: Path) -> None:
    """Remove what killed processes have left unfinished in a folder; nobody else may be writing there."""
    if folder.is_dir():
        for path in folder.iterdir():
            if UNFINISHED.fullmatch(path.name):
                remove(path)


def flush(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def write_text(path: Path, text: str) -> None:
    """Write a file at once: under a temporary name, flushed, then renamed."""
    with replacing(path) as new:
        new.write_text(text, encoding="utf-8", newline="")


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write an object as a JSON file, at once."""
    write_text(path, to_json(values))


def to_json(values: Mapping[str, Any]) -> str:
    """An object as the text of a JSON file."""
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def read_json(path: Path, kind: type[Kind]) -> Kind:
    """The contents of a JSON file, which must be of a type; else a sentence says what is wrong with them."""
    try:
        return TypeAdapter(kind).validate_json(regular(path, SETTINGS).read_bytes(), strict=True)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        raise RunError(f"{path} is damaged: {sentence(error)}") from None


def sentence(error: ValidationError) -> str:
    """What is wrong with some values, and where: the first thing."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(each) for each in first["loc"])
    message = f"{first['msg'][:1].lower()}{first['msg'][1:]}"
    return f"{place}: {message}" if place else message


def checksum(path: Path) -> str:
    """The SHA-256 of a file."""
    with regular(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_checksums(folder: Path, names: Iterable[str]) -> None:
    """Write the checksums of some files of a folder."""
    write_json(folder / CHECKSUMS, {name: checksum(folder / name) for name in names})


def damage(folder: Path, wanted: Callable[[str], bool] = lambda name: True) -> str | None:
    """What is wrong with the wanted files of a folder by its checksums.json; None: nothing, or it has no such file."""
    if not (folder / CHECKSUMS).exists():
        return None
    try:
        for name, expected in read_json(folder / CHECKSUMS, dict[str, str]).items():
            if wanted(name) and checksum(folder / Path(name).name) != expected:
                return f"{name} does not match its checksum in {CHECKSUMS}"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except OSError as error:
        return f"{Path(error.filename).name} cannot be read: {error.strerror}"
    except RunError:
        return f"{CHECKSUMS} is damaged"
    return None


def is_trained(folder: Path) -> bool:
    """Whether a folder holds a run that was trained here, finished or not."""
    return all((folder / name).is_file() for name in RUN_FILES)


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run to use: one that was trained, or imported."""
    return is_trained(folder) or (folder / IMPORT).is_file()


def make_folder(folder: Path) -> None:
    """Make a folder and check that it can be written to: called before any work is done that could be lost."""
    check_folder_path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        kind = TrainingError if error.errno in FULL else InputError
        raise kind(f"{folder} cannot be written to: {error.strerror or error}") from None


def check_folder_path(folder: Path) -> None:
    """Refuse a path where a folder cannot be: it, or what it should lie in, is something else."""
    if folder.is_symlink() and not folder.exists():
        raise RunError(f"{folder} is a link that leads nowhere: choose another folder")
    found = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not found.is_dir():
        raise RunError(f"{found} is a file: choose a folder")


def check_free(folder: Path, force: bool) -> None:
    """Refuse to write into a folder that holds something, unless forced; a trained run is never written over."""
    check_folder_path(folder)
    if is_trained(folder):
        raise RunError(f"{folder} holds a run that was trained: choose another folder")
    if not force and folder.exists() and any(not UNFINISHED.fullmatch(each.name) for each in folder.iterdir()):
        raise RunError(f"{folder} is not empty: choose another folder, or write over what it holds with --force")
