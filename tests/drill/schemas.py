"""Values from schemas: what a key of a recipe or an option of a command may be, almost may be, and must not be.

Nothing is listed by name: a key or an option that is added tomorrow is drawn for tomorrow.
"""

from __future__ import annotations

import json
import math
from random import Random
from typing import Any

from pydantic import BaseModel

from drill.world import Table

LARGE = (2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 10**23, 10**400)
WHOLE = (-(2**63), -(10**23), -1, 0, 1, 2, 3, 5, 8, 64, 1000, 10**6, *LARGE)
NUMBERS = (
    -math.inf,
    -1e308,
    -1.0,
    -1e-9,
    -0.0,
    0.0,
    1e-308,
    1e-12,
    0.5,
    0.999999,
    1.0,
    1.5,
    1e6,
    1e308,
    math.inf,
    math.nan,
)
STRINGS = (
    "",
    " ",
    "a",
    "a b c",
    "\t",
    "a\nb",
    "a\r\nb",
    "\x00",
    "\x1b[31m",
    "\x7f",
    "é",
    "e\u0301",
    "日本語",
    "🦊" * 3,
    "\u202eabc",
    "\ufeff",
    "\ufffd",
    "-",
    "--",
    "-x",
    "--help",
    "'; rm -rf /",
    "%s %n {0} {x}",
    "$HOME",
    "~",
    ".",
    "..",
    "../..",
    "/",
    "/dev/null",
    "/proc/self/mem",
    "null",
    "true",
    "1e999",
    "NaN",
    "cuda",
    "cuda:99",
    "meta",
    "a" * 300,
    "a/" * 200,
    "x" * 1_000,
)
WRONG: tuple[Any, ...] = (True, False, 0, 1, -1, 1.5, "", "x", [], [1], [[]], {}, {"a": 1}, [None], "1", [1, "a"])
OTHERS = 0.25  # of the values that are drawn are at a border, or of a wrong kind


def ordinary(schema: Table, rng: Random, definitions: Table | None = None) -> Any:
    """A value that a schema allows, of moderate size."""
    kind, schema = _kind(schema, rng, definitions or {})
    low, high = _bounds(schema, kind == "integer")
    match kind:
        case "enum":
            return rng.choice(schema["enum"])
        case "boolean":
            return rng.random() < 0.5
        case "integer":
            whole = [each for each in (low, low + 1, 2, 3, 4, 8, 16, schema.get("default")) if isinstance(each, int)]
            return rng.choice([each for each in whole if low <= each <= high])
        case "number":
            some = [low + 1e-6, 0.1, 0.5, 0.9, 1.0, 2.0, 10.0]
            return rng.choice([each for each in some if low <= each <= high] or [low])
        case "array":
            return [ordinary(each, rng, definitions) for each in _items(schema, rng)]
        case "null":
            return None
        case _:
            return schema.get("default") or rng.choice(STRINGS)


def strange(schema: Table, rng: Random, definitions: Table | None = None) -> Any:
    """A value at or beyond a border of what a schema allows, or of a wrong kind."""
    if rng.random() < 0.3:
        return rng.choice(WRONG)
    kind, schema = _kind(schema, rng, definitions or {})
    low, high = _bounds(schema, kind == "integer")
    match kind:
        case "enum":
            return rng.choice((str(rng.choice(schema["enum"])) + "x", *STRINGS[:20]))
        case "integer":
            return rng.choice((low, low - 1, high, high + 1, *WHOLE) if high < math.inf else (low, low - 1, *WHOLE))
        case "number":
            return rng.choice((low, high, *NUMBERS))
        case "array":
            some = [strange(each, rng, definitions) for each in _items(schema, rng)]
            return some * rng.choice((0, 1, 1, 3))
        case _:
            return rng.choice(STRINGS)


def drawn(schema: Table, rng: Random, definitions: Table | None = None) -> Any:
    """Either of them."""
    return (strange if rng.random() < OTHERS else ordinary)(schema, rng, definitions)


def keys(section: type[BaseModel]) -> dict[str, tuple[Table, Table]]:
    """The keys of a section, each with its schema and the definitions that this refers to."""
    schema = section.model_json_schema()
    definitions = schema.get("$defs", {})
    return {name: (each, definitions) for name, each in schema.get("properties", {}).items()}


def _kind(schema: Table, rng: Random, definitions: Table) -> tuple[str, Table]:
    """What kind of value a schema describes, one of them where there are several."""
    if "$ref" in schema:
        return _kind(definitions[schema["$ref"].split("/")[-1]], rng, definitions)
    if "anyOf" in schema:
        return _kind(rng.choice(schema["anyOf"]), rng, definitions)
    if "const" in schema:
        return "enum", {"enum": [schema["const"]]}
    if "enum" in schema:
        return "enum", schema
    return str(schema.get("type", "string")), schema


def _bounds(schema: Table, whole: bool) -> tuple[Any, Any]:
    step: Any = 1 if whole else 1e-9
    low = schema.get("minimum", schema["exclusiveMinimum"] + step if "exclusiveMinimum" in schema else 0)
    high = schema.get("maximum", schema["exclusiveMaximum"] - step if "exclusiveMaximum" in schema else math.inf)
    return low, high


def _items(schema: Table, rng: Random) -> list[Table]:
    if "prefixItems" in schema:
        return list(schema["prefixItems"])
    least = int(schema.get("minItems", 0))
    return [schema.get("items", {})] * rng.randint(least, least + 2)


def toml(table: Table) -> str:
    """A table as TOML, whatever its values are; None is left out."""
    lines = [f"{_key(name)} = {_value(value)}" for name, value in table.items() if not isinstance(value, dict | None)]
    for name, value in table.items():
        if isinstance(value, dict):
            lines += ["", f"[{_key(name)}]"]
            lines += [f"{_key(key)} = {_value(each)}" for key, each in value.items() if each is not None]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(each) for each in value if each is not None) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)  # inf and nan are TOML's words, too
    if isinstance(value, int):
        return str(value)
    return json.dumps(value, ensure_ascii=True).replace("\x7f", "\\u007f")
