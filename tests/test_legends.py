"""Every letter in a shape is named in the legend that ends its file's first docstring."""

import ast
import re
from pathlib import Path

import pytest

import glassformer

ROOT = Path(glassformer.__file__).parent
FILES = sorted(path for room in ("parts", "decoding", "looking") for path in (ROOT / room).glob("*.py"))
LENGTH = r"(?:[A-Zkt]'?(?:/2)?(?: or 1)?|\d|…)"  # B, k', K/2, B or 1, 3, …
SHAPE = re.compile(rf"\({LENGTH}(?:, {LENGTH})+\)")


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_legend_names_every_letter(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    legend = (ast.get_docstring(ast.parse(text)) or "").rsplit("\n", 1)[-1]
    named = set(re.findall(r"(?:^|[,;] )([A-Za-z]) ", legend))
    body = text.split('"""', 2)[2]
    used = {letter for shape in SHAPE.findall(body) for letter in re.findall(r"[A-Zkt]", shape)}
    assert used <= named
