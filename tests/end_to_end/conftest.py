"""Commands without the seconds that a new process takes to import torch: as `main` gets them."""

import io
import sys
import threading
import warnings
from pathlib import Path

import pytest

from glassformer.cli import main

from .helpers import Answer, Command


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command in this process."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which main changes
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)

    def run(*arguments: str | Path, stdin: bytes = b"") -> Answer:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(each) for each in arguments])
        said = capsys.readouterr()
        code = ended.value.code
        return Answer(code if isinstance(code, int) else 0, said.out, said.err)

    return run
