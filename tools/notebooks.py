"""Run the notebooks of the documents anew and keep their outputs: `.venv/bin/python tools/notebooks.py [NAME…]`.

What is kept is what a reader of the saved file can see: texts and pictures. Widgets, whose kernel is gone, the numbers
of executions and all that says something of this machine are left out.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent.parent / "docs" / "notebooks"
TIMEOUT = 300  # seconds of a cell
SHOWN = ("text/plain", "image/png")
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def execute(path: Path) -> Any:
    """Run a notebook in a kernel of its own; a cell that fails is an error."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    NotebookClient(notebook, timeout=TIMEOUT, kernel_name="python3").execute()
    return notebook


def cleaned(notebook: Any) -> Any:
    """The notebook as it is kept."""
    notebook.metadata = METADATA
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [each for each in map(_kept, cell.outputs) if each is not None]
    return notebook


def _kept(output: Any) -> Any:
    if output.output_type == "stream":
        return output if output.name == "stdout" else None
    output.metadata = {}
    if output.output_type == "execute_result":
        output.execution_count = None
    output.data = {kind: value for kind, value in output.data.items() if kind in SHOWN}
    if "image/png" in output.data:
        output.data.pop("text/plain", None)
    return output


def main() -> int:
    """Run all notebooks, or those that are named."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if sys.argv[1:] and path.stem not in sys.argv[1:]:
            continue
        begun = time.perf_counter()
        nbformat.write(cleaned(execute(path)), path)  # type: ignore[no-untyped-call]
        print(f"{path.name}: {time.perf_counter() - begun:.1f} s, {path.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
