"""The house rules that a machine can check: who imports whom, how long, how safe, how quick."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import glassformer

SOURCE = Path(glassformer.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
NAMES = [str(path.relative_to(SOURCE)) for path in MODULES]

# Which rooms each room may import; every room may import itself, the errors, the writing and locking of files.
# A new room needs a line here.
MODEL_SIDE = {"parts", "models"}
USE_SIDE = MODEL_SIDE | {"text", "static", "data", "evaluation", "pretrained", "decoding", "tasks"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "writing": set(),
    "locking": set(),
    "parts": set(),
    "models": {"parts"},
    "usual": set(),
    "recipe": {"usual"},
    "recipes": {"recipe"},
    "text": {"recipe"},
    "data": {"text", "recipe", "usual"},
    "evaluation": {"text"},
    "static": {"parts", "text"},
    "pretrained": MODEL_SIDE | {"text"},
    "decoding": MODEL_SIDE | {"text"},
    "tasks": MODEL_SIDE | {"text", "data", "evaluation"},
    "looking": MODEL_SIDE | {"decoding"},
    "training": USE_SIDE | {"recipe"},
    "run": USE_SIDE | {"training", "looking", "recipe", "recipes", "usual"},
    "experiments": USE_SIDE | {"recipe", "looking", "training", "run"},
    "cli": USE_SIDE
    | {"__version__", "recipe", "looking", "training", "run", "recipes", "studio", "serving", "usual", "experiments"},
    "studio": USE_SIDE | {"looking", "run"},
    "serving": USE_SIDE | {"looking", "run"},
    "__init__": USE_SIDE | {"recipe", "recipes", "looking", "training", "run"},
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
    allowed = MAY_IMPORT[room] | {room, "errors", "writing", "locking"}
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
    left = dict(MAY_IMPORT)
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
        {"triton"} if path.name == "short_kernels.py" else set()
    )  # part of torch, on GPUs
    assert roots - set(sys.stdlib_module_names) <= allowed


@pytest.mark.parametrize("path", MODULES, ids=NAMES)
def test_no_file_is_over_500_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 500


def undocumented(node: ast.AST, name: str) -> Iterator[str]:
    """Public names without a docstring, in a module or class."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        if not ast.get_docstring(node):
            yield name
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for child in node.body:
                if not getattr(child, "name", "_").startswith("_"):
                    yield from undocumented(child, f"{name}.{getattr(child, 'name', '')}")


@pytest.mark.parametrize("path", MODULES, ids=NAMES)
def test_every_public_name_has_a_docstring(path: Path) -> None:
    assert list(undocumented(ast.parse(path.read_text(encoding="utf-8")), path.stem)) == []


def test_a_missing_docstring_would_be_found() -> None:
    code = '"""m"""\nclass A:\n    """a"""\n    def b(self): ...\n    def _c(self): ...\ndef d(): ...'
    assert list(undocumented(ast.parse(code), "m")) == ["m.A.b", "m.d"]


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
start = time.perf_counter()
import glassformer
seconds = time.perf_counter() - start
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
