"""Recipes from TOML and back: each error is a sentence that names the key."""

from __future__ import annotations

import difflib
import json
import tomllib
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from glassformer.errors import ConfigurationError, RecipeError
from glassformer.files import SETTINGS, regular
from glassformer.recipe.effects import reset_idle_keys, without_effect
from glassformer.recipe.model import Fresh, FreshReader, Pretrained, families_with, section_of
from glassformer.recipe.recipe import Recipe
from glassformer.registry import SOURCES, TASKS, Registry

PATHS = {"train", "valid", "test", "path", "pretrained", "embeddings"}  # the keys that name files
DEFAULT_TASK = "translation"  # of a recipe that names none
NO_FILE = ("one-hot", "tf-idf")  # values of model.embeddings that name no file
BACKSLASHES = "write a path with / or in single quotes, such as 'data\\pairs.tsv'"
ESCAPED = {*"\b\t\n\f\r\x1b"}  # what TOML reads for \b, \t, …
QUOTED = 100  # characters of a value in a message
FORMS = {  # pydantic's errors in the terms of TOML
    "model_type": "it should be a table of keys",
    "model_attributes_type": "it should be a table of keys",
    "tuple_type": "it should be a list in brackets",
    "too_short": "it should have at least {min_length} entries",
    "too_long": "it should have at most {max_length} entries",
}


class RecipeWarning(UserWarning):
    """A key of a recipe has no effect."""


def read_recipe(path: Path, changes: list[str] | None = None) -> Recipe:
    """The recipe in a TOML file, with changes such as `train.lr=3e-4`; `train.lr=` removes the key."""
    table = read_table(path)
    if wrong := [each for key, values in table.items() for each in _control_characters(key, values)]:
        raise RecipeError("\n".join(f"{path}: {each}" for each in wrong))
    for change in changes or ():
        _change(table, change)
    return make_recipe(table, str(path))


def read_table(path: Path) -> dict[str, Any]:
    """The contents of a TOML file."""
    try:
        return tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:  # also a number of 5,000 digits, and 5,000 brackets
        hint = f": {BACKSLASHES}" if str(error).startswith(("Unescaped", "Invalid hex value")) else ""
        raise RecipeError(f"{path}: is not TOML: {error}{hint}") from None


def read_text(path: Path) -> str:
    """The text of a recipe file, with or without a byte order mark."""
    try:
        return regular(path, SETTINGS).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: is not UTF-8 text (byte {error.start})") from None


def make_recipe(table: dict[str, Any], name: str = "recipe") -> Recipe:
    """A recipe from nested dictionaries; `name` is what error messages call it. Keys without effect give a warning."""
    problems: list[str] = []

    def section(key: str, kind: type[BaseModel], values: Any) -> Any:
        try:
            return kind.model_validate(values)
        except ValidationError as error:
            problems.extend(_sentence(each, key, kind) for each in _most_specific(error.errors()))
            return None

    unknown = [key for key in table if key not in Recipe.model_fields]
    problems += [_unknown("", key, list(Recipe.model_fields)) for key in unknown]
    try:
        task_kind = _kind("task", table.get("task", {"kind": DEFAULT_TASK}), TASKS)
        source_kind = _kind("source", table.get("source", {}), SOURCES)
        defaults = task_kind.defaults
        merged = {
            key: {**defaults.get(key, {}), **_table(key, table.get(key, {}))}
            for key in Recipe.model_fields
            if key != "title"
        }
        merged["task"].setdefault("kind", DEFAULT_TASK)
        model_kind = _model_kind(merged["model"], task_kind, _table("model", table.get("model", {})))
        kinds = {"task": task_kind, "source": source_kind, "model": model_kind}
    except ConfigurationError as error:
        raise RecipeError("\n".join(f"{name}: {each}" for each in [*problems, str(error)])) from None
    if model_kind is Pretrained:  # the defaults of the task are for new models
        merged["model"] = _of_checkpoint(table["model"], name)
    made = {
        key: section(key, kinds.get(key) or Recipe.model_fields[key].annotation, values)  # type: ignore[arg-type]
        for key, values in merged.items()
    }
    recipe = None
    if not problems:
        try:
            recipe = Recipe(title=table.get("title", ""), **made)
            recipe.task.check_model(recipe)
        except ValidationError as error:
            problems += [_sentence(each, "", Recipe) for each in error.errors()]
        except ConfigurationError as error:
            problems.append(f"model: {error}")
    if recipe is None or problems:
        raise RecipeError("\n".join(f"{name}: {each}" for each in problems))
    for key, why in without_effect(recipe).items():
        first, last = key.split(".")
        if last in table.get(first, {}):
            warnings.warn(f"{name}: {key} has no effect: {why}", RecipeWarning, stacklevel=2)
    return reset_idle_keys(recipe)


def _table(key: str, values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise RecipeError(f"{key} is {values!r}: {FORMS['model_type']}")
    return values


def _kind(section: str, values: Any, registry: Registry[Any]) -> Any:
    """The class of a task or source by its kind."""
    found = _table(section, values).get("kind")
    if section == "task" and found is None:
        found = DEFAULT_TASK
    if not values and section == "source":
        kinds = ", ".join(registry.names())
        raise RecipeError(f"source is missing: where the examples come from; source.kind is one of {kinds}")
    if isinstance(found, str) and found in registry:
        return registry[found]
    near = difflib.get_close_matches(str(found), registry.names(), n=1)
    known = f"did you mean {near[0]}?" if near else f"it is one of {', '.join(registry.names())}"
    raise RecipeError(f"{section}.kind is {'missing' if found is None else repr(found)}: {known}")


def _model_kind(values: dict[str, Any], task: Any, given: dict[str, Any]) -> type[BaseModel]:
    """The class of [model]: a checkpoint's, or the family's."""
    if given.get("pretrained") is not None:
        return Pretrained
    values.pop("pretrained", None)
    family = values.get("family")
    if not isinstance(family, str):
        raise RecipeError(f"model.family is {family!r}: it is the name of a family")
    return section_of(family, task.answer)


def _of_checkpoint(values: dict[str, Any], name: str) -> dict[str, Any]:
    """What [model] says of a checkpoint; keys of new models have no effect beside it."""
    idle = [
        key
        for key in values
        if key not in Pretrained.model_fields and (key in FreshReader.model_fields or families_with(key))
    ]
    for key in idle:
        warnings.warn(f"{name}: model.{key} has no effect: model.pretrained decides it", RecipeWarning, stacklevel=4)
    return {key: value for key, value in values.items() if key not in idle}


def _most_specific(errors: Sequence[Any]) -> list[Any]:
    """The errors without those of a list whose entries have errors of their own."""
    places = [error["loc"] for error in errors]
    return [error for error in errors if not any(place and place[:-1] == error["loc"] for place in places)]


def _change(table: dict[str, Any], change: str) -> None:
    """Set one key of a table: `train.lr=3e-4`; the value is TOML, or else a string; without a value the key goes."""
    key, equals, text = change.partition("=")
    if not equals or not all(part.strip() for part in key.split(".")):
        raise RecipeError(f"{change!r} is not of the form section.key=value, such as train.lr=3e-4")
    if any("\ud800" <= letter <= "\udfff" for letter in change):
        raise RecipeError(f"{change!r} is not UTF-8 text")
    *sections, last = key.strip().split(".")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise RecipeError(f"{key}: {section} is a value, not a section")
    if not text:
        table.pop(last, None)
        return
    try:
        read = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        read = {"value": text}
    if len(read) > 1:
        raise RecipeError(f"{change!r} sets several keys: write --set once for each")
    table[last] = read["value"]


def _control_characters(section: str, values: Any) -> list[str]:
    """What is wrong with paths in which a backslash was read as part of a tab or a line's end.

    A path from / has none: a run's own recipe may name a folder with such letters.
    """
    named = {key: _listed(values[key]) for key in PATHS & values.keys()} if isinstance(values, dict) else {}
    paths = [(key, path) for key, some in named.items() for path in some if isinstance(path, str)]
    wrong = [(key, path) for key, path in paths if ESCAPED & {*path} and not path.startswith("/")]
    return [f"{section}.{key} is {path!r}: {BACKSLASHES}" for key, path in wrong]


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _sentence(error: Any, section: str, kind: type[BaseModel]) -> str:
    """One of pydantic's errors as a sentence that names the key, what was expected and the nearest right key."""
    place = [str(part) for part in error["loc"]]
    key = ".".join([*([section] if section else []), *place]) or "recipe"
    if error["type"] == "extra_forbidden":
        return _unknown(section, place[-1], list(kind.model_fields), kind)
    if error["type"] == "missing":
        field = kind.model_fields.get(place[-1])
        return f"{key} is missing" + (f": {field.description}" if field and field.description else "")
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    if issubclass(kind, Fresh) and (why := kind.refusal(place[-1], error["input"])):
        return f"{key} is {error['input']!r}: {why}"
    form = FORMS.get(error["type"])
    expected = form.format(**error.get("ctx", {})) if form else f"{error['msg'][0].lower()}{error['msg'][1:]}"
    value = repr(error["input"])
    return f"{key} is {value if len(value) <= QUOTED else f'{value[:QUOTED]}…'}: {expected}"


RENAMED = {  # keys of Glassformer 0.1
    "task.share": "task.mask_ratio",
    "task.mean": "task.mean_span",
    "train.truncate": "model.truncate",
}


def _unknown(section: str, key: str, known: list[str], kind: type[BaseModel] | None = None) -> str:
    """The message for a key that a section does not have."""
    shown = f"{section}.{key}" if section else key
    if shown in RENAMED:
        return f"{shown} is not a key: it is called {RENAMED[shown]} since Glassformer 0.2"
    if kind is not None and issubclass(kind, Fresh):
        family = kind.model_fields["family"].default
        others = families_with(key)
        if family in others:
            return f"{shown} has no effect in a {family} for this task: remove it, or --set {shown}="
        if others:
            names = ", ".join(others)
            return f"{shown} is not a key of the family {family}, only of {names}: remove it, or --set {shown}="
    near = difflib.get_close_matches(key, known, n=1)
    return f"{shown} is not a key: " + (f"did you mean {near[0]}?" if near else f"its keys are {', '.join(known)}")


def bundled() -> dict[str, Path]:
    """The recipes that ship, by name: ours, and those of packages with an entry point in `glassformer.recipes`."""
    found = {path.stem: path for path in sorted((Path(__file__).parent / "shipped").glob("*.toml"))}
    for point in entry_points(group="glassformer.recipes"):
        spec = find_spec(point.value.partition(":")[0])  # the package is found, not imported
        folders = (spec.submodule_search_locations or [str(Path(spec.origin or "").parent)]) if spec else []
        found |= {path.stem: path for folder in folders for path in sorted(Path(folder).glob("*.toml"))}
    return found


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
    """Where the paths in a recipe start from: its folder; for a recipe that ships, the current folder."""
    return Path.cwd() if path in bundled().values() else path.parent


def with_absolute_paths(recipe: Recipe, base: Path) -> Recipe:
    """The recipe with its paths made absolute, so that it can be read from anywhere on this machine."""

    def absolute(path: str) -> str:
        try:
            return str((base / path).resolve())
        except (OSError, RuntimeError, ValueError):  # links in a circle, a NUL: reading it says what is wrong
            return str((base / path).absolute())

    on_hub = recipe.pretrained is not None and not (base / recipe.pretrained).is_dir()
    return with_paths(recipe, absolute, pretrained=not on_hub)


def with_paths(recipe: Recipe, change: Callable[[str], str], pretrained: bool = True) -> Recipe:
    """The recipe with each of its paths changed; without `pretrained` not that of the model, a name on a hub."""

    def changed(path: Any) -> Any:
        if isinstance(path, tuple):
            return tuple(changed(each) for each in path)
        return None if path is None else change(path)

    keys = PATHS & type(recipe.source).model_fields.keys()
    source = recipe.source.model_copy(update={key: changed(getattr(recipe.source, key)) for key in keys})
    tokenizer = recipe.tokenizer.model_copy(update={"path": changed(recipe.tokenizer.path)})
    model = recipe.model
    if recipe.pretrained is not None:
        if pretrained:
            model = model.model_copy(update={"pretrained": changed(recipe.pretrained)})
    elif getattr(model, "embeddings", None) not in (None, *NO_FILE):
        model = model.model_copy(update={"embeddings": changed(model.embeddings)})
    return recipe.model_copy(update={"source": source, "tokenizer": tokenizer, "model": model})


def same(one: BaseModel, other: BaseModel) -> bool:
    """Whether two sections say the same, wherever their files lie."""
    return type(one) is type(other) and one.model_dump(exclude=PATHS) == other.model_dump(exclude=PATHS)


def to_toml(recipe: Recipe, comments: bool = False) -> str:
    """A recipe as TOML, all its keys but those without effect; with comments, each with its meaning."""
    lines = [f"title = {toml_value(recipe.title)}"] if recipe.title or comments else []
    idle = without_effect(recipe)
    for name in Recipe.model_fields:
        if name != "title":
            section = getattr(recipe, name)
            keys = [key for key in type(section).model_fields if f"{name}.{key}" not in idle]
            lines += ["", *_written(name, section, keys, comments)] if keys else []
    return "\n".join(lines).lstrip("\n") + "\n"


def _written(name: str, section: BaseModel, keys: list[str], comments: bool) -> list[str]:
    """A section as lines of TOML."""
    meaning = (type(section).__doc__ or "").strip().split("\n")[0]
    lines = [f"# {meaning}"] if comments else []
    lines.append(f"[{name}]")
    for key in sorted(keys, key=lambda key: key not in ("kind", "family")):
        value, description = getattr(section, key), type(section).model_fields[key].description
        note = f"  # {description}" if comments and description else ""
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
