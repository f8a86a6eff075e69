"""The recipes that ship, and how any recipe is read."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from glassformer.errors import RecipeError
from glassformer.recipe import Recipe, Source, Task

PATHS = {"train", "valid", "test", "path", "pretrained", "embeddings"}  # the keys that name files
COUNTED = ("one-hot", "tf-idf")  # embeddings that are no file
KINDS = {"source": Source, "task": Task}  # the sections that come in several kinds
# What pydantic calls by Python's names, in TOML's.
FORMS = {
    "model_type": "it should be a table of keys",
    "model_attributes_type": "it should be a table of keys",
    "tuple_type": "it should be a list in brackets",
    "too_short": "it should have two or three entries",
    "too_long": "it should have two or three entries",
}


def read_recipe(path: Path, changes: list[str] | None = None) -> Recipe:
    """The recipe in a TOML file, with changes such as `train.lr=3e-4` made to it."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # with or without a byte order mark
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{path}: is not TOML: {error}") from None
    for change in changes or ():
        _change(table, change)
    return make_recipe(table, str(path))


def make_recipe(table: dict[str, Any], name: str = "recipe") -> Recipe:
    """A recipe from nested dictionaries; `name` is what complaints call it."""
    try:
        return Recipe.model_validate(table)
    except ValidationError as error:
        raise RecipeError("\n".join(f"{name}: {_sentence(each)}" for each in _first_hand(error.errors()))) from None


def _first_hand(errors: Sequence[Any]) -> list[Any]:
    """Complaints but for those about a list whose entries are complained about already."""
    places = [error["loc"] for error in errors]
    return [error for error in errors if not any(place and place[:-1] == error["loc"] for place in places)]


def _change(table: dict[str, Any], change: str) -> None:
    """Set one key of a table: `train.lr=3e-4`; the value is TOML, or else a string."""
    key, equals, text = change.partition("=")
    if not equals or not all(key.split(".")):
        raise RecipeError(f"{change!r} is not of the form section.key=value, such as train.lr=3e-4")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *sections, last = key.strip().split(".")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise RecipeError(f"{key}: {section} is a value, not a section")
    table[last] = value


def _sentence(error: Any) -> str:
    """One of pydantic's complaints, as a sentence that names the key, what was expected and the nearest right key."""
    place = [str(part) for part in error["loc"]]
    section = _section(place)
    if len(place) > 1 and place[1] in _kinds(place[0]):
        del place[1]  # pydantic names the kind; the file does not
    key = ".".join(place) or "recipe"
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(place[-1], section.model_fields, n=1)
        known = f"did you mean {near[0]}?" if near else f"the keys here are {', '.join(section.model_fields)}"
        return f"{key} is not a key: {known}"
    if error["type"] == "missing":
        field = section.model_fields.get(place[-1])
        return f"{key} is missing" + (f": {field.description}" if field else "")
    if error["type"] in ("union_tag_invalid", "union_tag_not_found"):
        found = error["input"].get("kind") if isinstance(error["input"], dict) else None
        kinds = _kinds(place[0])
        near = difflib.get_close_matches(str(found), kinds, n=1)
        known = f"did you mean {near[0]}?" if near else f"it is one of {', '.join(kinds)}"
        return f"{place[0]}.kind is {'missing' if found is None else repr(found)}: {known}"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    expected = FORMS.get(error["type"], f"{error['msg'][0].lower()}{error['msg'][1:]}")
    return f"{key} is {error['input']!r}: {expected}"


def _section(place: list[str]) -> type[BaseModel]:
    """The class of the table in which a key stands."""
    if len(place) < 2 or place[0] not in Recipe.model_fields:
        return Recipe
    if place[0] in KINDS:
        return kinds_of(place[0]).get(place[1], Recipe)
    annotation = Recipe.model_fields[place[0]].annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else Recipe


def kinds_of(section: str) -> dict[str, type[BaseModel]]:
    """The classes of a section that comes in several kinds, by kind."""
    classes = get_args(get_args(KINDS[section])[0])
    return {kind: each for each in classes for kind in get_args(each.model_fields["kind"].annotation)}


def _kinds(section: str) -> list[str]:
    return list(kinds_of(section)) if section in KINDS else []


def bundled() -> dict[str, Path]:
    """The recipes that ship with Glassformer, by name."""
    return {path.stem: path for path in sorted(Path(__file__).parent.glob("*.toml"))}


def find_recipe(name: str) -> Path:
    """The file of a recipe: a path, or the name of one that ships."""
    path, known = Path(name), bundled()
    if path.is_file():
        return path
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"those that ship are {', '.join(known)}"
    raise RecipeError(f"{name}: there is no such file, and no recipe of this name ships: {hint}")


def base_of(path: Path) -> Path:
    """Where the paths in a recipe start from: its folder; for a recipe that ships, wherever the user is."""
    return Path.cwd() if path in bundled().values() else path.parent


def anchored(recipe: Recipe, base: Path) -> Recipe:
    """The recipe with its paths made absolute, so that it can be read from anywhere on this machine."""

    def absolute(path: Any) -> Any:
        if isinstance(path, tuple):
            return tuple(absolute(each) for each in path)
        return None if path is None else str((base / path).resolve())

    keys = PATHS & type(recipe.source).model_fields.keys()
    source = recipe.source.model_copy(update={key: absolute(getattr(recipe.source, key)) for key in keys})
    tokenizer = recipe.tokenizer.model_copy(update={"path": absolute(recipe.tokenizer.path)})
    begun = recipe.model.pretrained
    if begun is not None and (base / begun).is_dir():  # otherwise it is a name on the hub
        begun = absolute(begun)
    vectors = recipe.model.embeddings
    if vectors not in COUNTED:
        vectors = absolute(vectors)
    model = recipe.model.model_copy(update={"pretrained": begun, "embeddings": vectors})
    return recipe.model_copy(update={"source": source, "tokenizer": tokenizer, "model": model})


def same(one: BaseModel, other: BaseModel) -> bool:
    """Whether two sections say the same, wherever their files lie."""
    return type(one) is type(other) and one.model_dump(exclude=PATHS) == other.model_dump(exclude=PATHS)


def to_toml(recipe: Recipe, comments: bool = False) -> str:
    """A recipe as TOML, all its keys spelled out; with comments, each with its meaning."""
    lines = [f"title = {toml_value(recipe.title)}"] if recipe.title or comments else []
    for name in Recipe.model_fields:
        if name != "title":
            lines += ["", *_table(name, getattr(recipe, name), comments)]
    return "\n".join(lines).lstrip("\n") + "\n"


def _table(name: str, section: BaseModel, comments: bool) -> list[str]:
    """A section as lines of TOML."""
    lines = [f"# {(type(section).__doc__ or '').strip()}"] if comments else []
    lines.append(f"[{name}]")
    for key, field in type(section).model_fields.items():
        value = getattr(section, key)
        note = f"  # {field.description}" if comments and field.description else ""
        if value is not None:
            lines.append(f"{key} = {toml_value(value)}{note}")
        elif comments:
            lines.append(f"# {key} ={note}")
    return lines


def toml_value(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(toml_value(each) for each in value)}]"
    text = json.dumps(value, ensure_ascii=False)  # strings, numbers and booleans are written alike
    return text.replace("\x7f", "\\u007f")  # but for one character
