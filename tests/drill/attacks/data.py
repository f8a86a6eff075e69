"""Data files: those of every source, in other encodings, damaged, packed, huge, or nothing of the kind."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from drill.engine import Bench, Broken, Case
from drill.schemas import STRINGS, toml
from drill.world import Table, World, tiny
from glassformer.registry import SOURCES, TASKS

Change = Callable[[bytes, Random], bytes]
BOMB = 300 << 20  # bytes, when it is unpacked
LONG = 1 << 20
TEXTS = ("tsv", "jsonl", "text", "aligned", "po")


def cases(world: World, seed: int, count: int) -> list[Case]:
    """As many as asked for; each source in its turn."""
    kinds = [kind for kind, section in world.sources().items() if "count" not in section]
    return [_case(world, seed, number, kinds[number % len(kinds)]) for number in range(count)]


def _case(world: World, seed: int, number: int, kind: str) -> Case:
    name = f"data/{kind}/{number}"

    def act(bench: Bench) -> None:
        rng = Random(f"{seed}/{name}")
        tasks = [task for task in TASKS.names() if issubclass(SOURCES[kind].gives, TASKS[task].reads)]
        table = tiny(world, rng.choice(tasks), source=kind)
        table["source"] = _copied(bench, table["source"])
        files = [path for path in bench.work.rglob("*") if path.is_file()]
        what = _attack(rng.choice(files), rng)
        table["tokenizer"] = {"kind": rng.choice(("word", "character", "bpe")), "vocabulary": 300}
        if table["task"]["kind"] == "images":
            table.pop("tokenizer")
        if "documents" in table["source"]:
            table["source"]["documents"] = rng.choice(("paragraph", "line", "stretch", "file"))
        if rng.random() < 0.2:
            table["data"] = {**table["data"], "strict": True}
        (bench.work / "my.toml").write_text(toml(table), encoding="utf-8")
        command = ("data", "my.toml") if rng.random() < 0.6 else ("train", "my.toml", "--out", "out")
        outcome = bench.run(*command)
        bench.check_clean()
        if outcome.code == 2 and (bench.work / "out").exists():
            raise Broken(f"{what}: refused, but made a folder: {outcome.last}")
        said = any(encoding in outcome.out + outcome.err for encoding in ("UTF-16", "UTF-32"))
        if outcome.code == 0 and what in ("utf16", "utf32") and kind in TEXTS and not said:
            raise Broken(f"{kind}: {what} is read as something else: {outcome.err[:200]}", f"{what} is not recognised")

    return Case(name, act)


def _copied(bench: Bench, section: Table) -> Table:
    """The section with its files copied into the current folder."""

    def copy(value: object) -> object:
        if isinstance(value, list):
            return [copy(each) for each in value]
        path = Path(value) if isinstance(value, str) and value.startswith("/") else None
        if path is None or not path.exists():
            return value
        target = bench.work / path.name
        if not target.exists():
            shutil.copytree(path, target) if path.is_dir() else shutil.copy(path, target)
        return path.name

    return {key: copy(value) for key, value in section.items()}


def _attack(path: Path, rng: Random) -> str:
    """Change a file; what was done."""
    if rng.random() < 0.12:
        return _replace(path, rng)
    kind = rng.choice([*CHANGES])
    data = CHANGES[kind](path.read_bytes(), rng)
    path.write_bytes(data)
    return kind


def _replace(path: Path, rng: Random) -> str:
    """Something else of the same name."""
    kind = rng.choice(("folder", "loop", "gone", "device", "unreadable"))
    if kind == "unreadable":
        path.chmod(0)
        return kind
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "device":
        path.symlink_to(os.devnull)
    return kind


def _noise(data: bytes, rng: Random) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + rng.randbytes(rng.choice((1, 5, 100))) + data[place + rng.choice((0, 1, 50)) :]


def _strange_lines(data: bytes, rng: Random) -> bytes:
    lines = data.split(b"\n")
    for _ in range(5):
        text = rng.choice(STRINGS).encode()
        lines.insert(rng.randrange(len(lines)), text + rng.choice((b"", b"\t", b"\t" + text, b"\t\t\t")))
    return b"\n".join(lines)


def _long_word(data: bytes, rng: Random) -> bytes:
    word = rng.choice((b"x", b"ab", "é".encode(), b"1")) * LONG
    return data + b"\n" + word + b"\t" + word[:100] + b"\n"


def _packed(data: bytes, rng: Random) -> bytes:
    """Packed, though its name does not say so; sometimes cut off or damaged."""
    packed = rng.choice((gzip.compress, lzma.compress))(data)
    return rng.choice((packed, packed[:-5], packed[:20], packed + b"x", _noise(packed, rng)))


def _bomb(data: bytes, rng: Random) -> bytes:
    block = rng.choice((b"\x00", b"a", b"\n", b"a\tb\n")) * (1 << 20)
    return gzip.compress(block, 9) * (BOMB >> 20)


def _nested(data: bytes, rng: Random) -> bytes:
    depth = rng.choice((100, 1_000, 100_000))
    return rng.choice((b"[" * depth, b'{"a":' * depth, b"<a>" * depth, b'[{"source":' + b"[" * depth))


def _entities(data: bytes, rng: Random) -> bytes:
    levels = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 12))
    entities = f'<!DOCTYPE tmx [<!ENTITY l0 "ha">{levels}<!ENTITY f SYSTEM "file:///etc/passwd">]>'
    return entities.encode() + data.replace(b"<seg>", b"<seg>&l11;&f;", 1)


def _json_value(data: bytes, rng: Random) -> bytes:
    other: object = rng.choice((None, 1, [], {}, "x", [1], 1e400, True, "\ud800"))
    row = rng.choice(({"source": other, "target": "a"}, {"source": "a"}, other, {"data": other}, {"data": [other]}))
    return json.dumps(row).encode() + b"\n" + (data if rng.random() < 0.5 else b"")


CHANGES: dict[str, Change] = {
    "empty": lambda data, rng: b"",
    "half": lambda data, rng: data[: len(data) // 2],
    "noise": _noise,
    "random": lambda data, rng: rng.randbytes(2_000),
    "utf16": lambda data, rng: data.decode(errors="replace").encode(rng.choice(("utf-16", "utf-16-le", "utf-16-be"))),
    "utf32": lambda data, rng: data.decode(errors="replace").encode("utf-32"),
    "latin1": lambda data, rng: data.replace(b"a", b"\xe9"),
    "mark": lambda data, rng: b"\xef\xbb\xbf" + data,
    "crlf": lambda data, rng: data.replace(b"\n", b"\r\n"),
    "cr": lambda data, rng: data.replace(b"\n", b"\r"),
    "separators": lambda data, rng: data.replace(b" ", "\u2028".encode()),
    "no-end": lambda data, rng: data.rstrip(b"\n"),
    "nuls": lambda data, rng: bytes(5_000),
    "controls": lambda data, rng: data.replace(b" ", bytes([rng.randrange(1, 32)])),
    "strange": _strange_lines,
    "long-word": _long_word,
    "blank": lambda data, rng: b"\n" * 100_000 + data,
    "spaces": lambda data, rng: b" " * LONG + data,
    "tabs": lambda data, rng: b"\t" * 100_000 + b"\n" + data,
    "packed": _packed,
    "nested": _nested,
    "entities": _entities,
    "json": _json_value,
    "same": lambda data, rng: (data.split(b"\n")[0] + b"\n") * 1_000,
    "one": lambda data, rng: data.split(b"\n")[0],
    "bomb": lambda data, rng: _bomb(data, rng) if rng.random() < 0.05 else _long_word(data, rng),
}
