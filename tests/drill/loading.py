"""Loading: everything that a command may need is imported once, before the drill forks a process for each command."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
from importlib import import_module, metadata
from pkgutil import walk_packages

SETTINGS = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg"}
LIBRARIES = ("sacrebleu", "matplotlib.pyplot", "torch.utils.tensorboard", "sklearn.metrics", "rouge_score.rouge_scorer")
NOT_IMPORTED = ("__main__", "_kernels")  # the second needs a GPU


def load() -> None:
    """Import Glassformer and its libraries without starting a thread, since a process with threads cannot be forked."""
    os.environ.update(SETTINGS)
    import torch
    import typer.main

    from drill.files import write_through_python
    from glassformer.parts.cpu_kernels import compiled

    torch.set_num_threads(1)
    compiled()  # with one thread, so that none is started; the forked processes start no compiler
    write_through_python()
    # Neither what is installed nor the commands change in the meantime.
    metadata.entry_points = functools.cache(metadata.entry_points)  # type: ignore[assignment]
    typer.main.get_command = functools.cache(typer.main.get_command)
    import glassformer

    for module in walk_packages(glassformer.__path__, "glassformer."):
        if not module.name.endswith(NOT_IMPORTED):
            import_module(module.name)
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            import_module(name)
    from glassformer.cli import app

    app._register_commands()
    typer.main.get_command(app.app)
    gc.collect()
    gc.freeze()  # so that the collector does not touch, and the system not copy, what all forked processes share
