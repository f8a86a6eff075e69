"""The house rules that a machine can check: who imports whom, how long, how safe, how quick."""

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import glassformer

SOURCE = Path(glassformer.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
NAMES = [str(path.relative_to(SOURCE)) for path in MODULES]

# Which rooms each room may import; every room may import itself and the modules at the root that know no room.
# A new room needs a line here.
ROOT = {"compiled", "errors", "files", "writing", "locking", "registry", "scripts", "stopping"}
MODEL_SIDE = {"parts", "models"}
BESIDE_TASKS = {"recipe", "text", "data", "evaluation"}  # they feed tasks, and never import them
TASK_SIDE = MODEL_SIDE | BESIDE_TASKS | {"decoding", "looking", "interop", "static", "tasks"}
RUN_SIDE = TASK_SIDE | {"training", "runs"}
MAY_IMPORT: dict[str, set[str]] = {
    **{room: {"errors"} for room in ROOT},
    "parts": set(),
    "models": {"parts"},
    "recipe": set(),
    "text": {"recipe"},
    "data": {"text", "recipe"},
    "evaluation": {"text"},
    "static": {"parts", "text"},
    "decoding": MODEL_SIDE,
    "looking": MODEL_SIDE | {"decoding"},  # traces hold the trees of beam searches
    "interop": MODEL_SIDE | {"text"},
    "tasks": TASK_SIDE - {"static"},
    "training": TASK_SIDE - {"static"},
    "runs": TASK_SIDE | {"training"},
    "compare": RUN_SIDE,
    "studio": RUN_SIDE,
    "suggest": RUN_SIDE,
    "search": RUN_SIDE,
    "experiments": RUN_SIDE,
    "cli": RUN_SIDE | {"__version__", "compare", "experiments", "search", "studio", "suggest"},
    "__init__": RUN_SIDE,
    "__main__": {"cli"},
}


def room_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def imports(code: str, package: str) -> Iterator[str]:
    """The full names of all modules that code of a package imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            if module == "glassformer":  # from glassformer import parts
                yield from (f"glassformer.{alias.name}" for alias in node.names)
            else:
                yield module


def package_of(path: Path) -> str:
    return ".".join(["glassformer", *path.relative_to(SOURCE).parent.parts])


def wrong_imports(code: str, package: str, room: str) -> list[str]:
    """What this code imports of Glassformer and must not."""
    allowed = MAY_IMPORT[room] | ROOT | {room}
    ours = [name.split(".") for name in imports(code, package) if name.split(".")[0] == "glassformer"]
    return [".".join(name) for name in ours if len(name) < 2 or name[1] not in allowed]


@pytest.mark.parametrize("path", MODULES, ids=NAMES)
def test_imports_point_one_way(path: Path) -> None:
    room = room_of(path)
    assert room in MAY_IMPORT, f"{room} is a new room: say in MAY_IMPORT what it may import"
    assert wrong_imports(path.read_text(encoding="utf-8"), package_of(path), room) == []


@pytest.mark.parametrize(
    ("code", "room"),
    [
        ("from glassformer.models import transformer", "parts"),
        ("import glassformer.training.loop", "models"),
        ("def late():\n    from glassformer.decoding import greedy", "models"),
        ("from ..training import loop", "decoding"),
        ("from .. import training", "looking"),
        ("from glassformer import transformer", "decoding"),
        ("import glassformer", "parts"),
    ],
)
def test_an_import_the_wrong_way_would_be_found(code: str, room: str) -> None:
    assert wrong_imports(code, f"glassformer.{room}", room) != []


def test_the_table_of_rooms_has_no_circle() -> None:
    left = {room: needs - {room} for room, needs in MAY_IMPORT.items()}
    while ready := [room for room, needs in left.items() if not needs & left.keys()]:
        for room in ready:
            del left[room]
    assert left == {}


@pytest.mark.parametrize(
    "path", [p for p in MODULES if room_of(p) in MODEL_SIDE], ids=[n for n in NAMES if n.split("/")[0] in MODEL_SIDE]
)
def test_parts_and_models_need_nothing_but_torch(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports(path.read_text(encoding="utf-8"), package_of(path))}
    allowed = {"torch", "glassformer"} | (
        {"triton"} if path.name.endswith("_kernels.py") else set()
    )  # part of torch, on GPUs
    assert roots - set(sys.stdlib_module_names) <= allowed


@pytest.mark.parametrize("path", MODULES, ids=NAMES)
def test_no_file_is_over_500_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 500


def undocumented(module: ModuleType) -> Iterator[str]:
    """Public names of a module without a docstring; a method that overrides a documented one has that one's."""
    if not module.__doc__:
        yield module.__name__
    for name, thing in vars(module).items():
        if name.startswith("_") or getattr(thing, "__module__", None) != module.__name__:
            continue
        if (inspect.isclass(thing) or inspect.isfunction(thing)) and not inspect.getdoc(thing):
            yield name
        for member in vars(thing) if inspect.isclass(thing) else ():
            found = inspect.getattr_static(thing, member)
            method = getattr(found, "fget", None) or getattr(found, "__func__", found)
            named = inspect.isfunction(method) and method.__name__ != "<lambda>"
            if named and not member.startswith("_") and not inspect.getdoc(getattr(thing, member)):
                yield f"{name}.{member}"


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NO_GPU = "_kernels"  # imports Triton
DOCUMENTED = [each for each in map(module_of, MODULES) if not each.endswith((NO_GPU, "__main__"))]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert list(undocumented(import_module(name))) == []


def test_a_missing_docstring_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("m", "m")
    monkeypatch.setitem(sys.modules, "m", module)
    code = """class A:
    "a"
    def b(self): ...
    def c(self): "c"
    def _d(self): ...
class E(A):
    "e"
    def c(self): ...
def f(): ..."""
    exec(code, vars(module))  # noqa: S102
    assert list(undocumented(module)) == ["A.b", "f"]


SHAPED = [path for path in MODULES if room_of(path) in MODEL_SIDE and "(B, " in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", SHAPED, ids=[path.name for path in SHAPED])
def test_a_file_with_shapes_opens_with_their_legend(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = (ast.get_docstring(ast.parse(text)) or "").splitlines()
    legend = next((line for line in reversed(lines) if re.match(r"^[A-Za-z] \w+.*, [A-Za-z] \w+", line)), None)
    assert legend is not None
    explained = set(re.findall(r"(?:^|, )([A-Za-z]) ", legend))
    shapes = re.findall(r"\(B(?:, [A-Za-z])+\)", text)
    assert {letter for shape in shapes for letter in re.findall(r"[A-Za-z]", shape)} <= explained


UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}


def unsafe(code: str) -> list[str]:
    """Where this code could run what a file tells it to."""
    found = [name for name in imports(code, "glassformer") if name.split(".")[0] in UNSAFE_MODULES]
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        name, words = ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords}
        if name == "torch.load" and words.get("weights_only") != "True":
            found.append(f"line {node.lineno}: torch.load without weights_only=True")
        if words.get("allow_pickle", "False") != "False":
            found.append(f"line {node.lineno}: allow_pickle")
    return found


@pytest.mark.parametrize("path", MODULES, ids=NAMES)
def test_nothing_is_unpickled(path: Path) -> None:
    assert unsafe(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import load",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "numpy.load(path, allow_pickle=True)",
    ],
)
def test_unpickling_would_be_found(code: str) -> None:
    assert unsafe(code) != []


IMPORT = """
import sys, time, torch
start = time.process_time()  # which others who are at work do not lengthen
import glassformer
seconds = time.process_time() - start
heavy = {"transformers", "matplotlib", "fastapi", "uvicorn", "ctranslate2", "gensim", "sklearn"}
print(seconds, *sorted(heavy & set(sys.modules)))
"""


def test_importing_glassformer_is_quick_and_light() -> None:
    best = float("inf")
    for _ in range(3):
        run = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)  # noqa: S603
        seconds, *heavy = run.stdout.split()
        assert heavy == []
        best = min(best, float(seconds))
        if best < 0.3:
            break
    assert best < 0.3


def test_the_command_line_answers_without_torch() -> None:
    code = (
        "import sys, atexit, glassformer.cli as cli; atexit.register(lambda: print('torch' in sys.modules)); cli.main()"
    )
    for arguments in (["recipes"], ["--version"], ["train", "--help"], ["experiment", "--list"]):
        run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)  # noqa: S603
        assert run.stdout.splitlines()[-1] == "False"


def test_what_is_offered_is_there_and_of_its_own_name() -> None:
    for name in glassformer.__all__:
        assert getattr(glassformer, name).__name__.split(".")[-1] == name
    assert set(glassformer.__all__) <= set(dir(glassformer))
    assert not hasattr(glassformer, "nothing")


GENERIC = {
    "cli",
    "compare",
    "decoding",
    "evaluation",
    "looking",
    "recipe",
    "runs",
    "studio",
    "training",
}  # rooms for all kinds
EXCEPTIONS = {
    ("recipe", "translation"),  # the task of a recipe that names none
    ("legacy", "masked-language-modelling"),  # what keys of Glassformer 0.1 are called today
    ("legacy", "span-corruption"),
    ("label", "answering"),  # words on progress bars
    ("forecast", "forecasting"),
    ("label", "images"),
    ("label", "tagging"),
    ("exchange", "huggingface"),  # a format
    ("looking", "embedding"),  # a point of every model
    ("studio", "embedding"),
    ("search", "embedding"),  # words on progress bars
}


def named(code: str) -> set[str]:
    """The names of families, tasks and sources that stand as strings in some code, but for docstrings."""
    from glassformer.registry import FAMILIES, SOURCES, TASKS

    known = {*FAMILIES.names(), *TASKS.names(), *SOURCES.names()} - ORDINARY
    return known & {node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)}


ORDINARY = {"text", "files", "copy", "python", "folder", "sort"}  # words that mean other things, too


@pytest.mark.parametrize("path", [each for each in MODULES if room_of(each) in GENERIC], ids=str)
def test_a_family_a_task_or_a_source_is_named_in_one_place(path: Path) -> None:
    found = {(each, name) for name in named(path.read_text(encoding="utf-8")) for each in (room_of(path), path.stem)}
    wrong = {name for _, name in found if not {(room_of(path), name), (path.stem, name)} & EXCEPTIONS}
    assert wrong == set()


def test_a_name_in_another_place_would_be_found() -> None:
    assert named('if recipe.task.kind == "tagging" or family in ("bert",): pass') == {"tagging", "bert"}
