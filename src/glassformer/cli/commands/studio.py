"""The page on which a run reads and writes: `studio`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glassformer.cli.app import STUDY, app
from glassformer.cli.options import Device, count, path
from glassformer.errors import ConfigurationError

MOST = 2**16 - 1


@app.command(rich_help_panel=STUDY)
def studio(
    run: Annotated[
        list[Path] | None,
        path("--run", metavar="DIR", meaning="a run folder, or a model that ships; may be repeated; none: en-de"),
    ] = None,
    port: Annotated[int | None, count("the port; if not given: 8417, or one that is free", 1, MOST)] = None,
    host: Annotated[
        str, typer.Option(metavar="NAME", help="where to listen; beyond this machine, a token is needed to open it")
    ] = "127.0.0.1",
    no_open: Annotated[bool, typer.Option("--no-open", metavar="", help="open no browser")] = False,
    device: Device = "auto",
) -> None:
    """Open a page on which you type a text and watch your own model read it and write, number by number.

    Without a run, the translator that ships is used. Nothing leaves this machine, and only the runs that are named can
    be read.

    - `glassformer studio`
    - `glassformer studio --run runs/demo`
    - `glassformer studio --run runs/small --run runs/large --no-open`
    """
    from glassformer.cli.showing import say
    from glassformer.scripts import NO_SCRIPTS, script

    if script("studio") is None:
        raise ConfigurationError(f"the Studio cannot be shown: {NO_SCRIPTS}")
    try:
        from glassformer.studio.starting import serve
    except ImportError as error:
        if error.name not in ("fastapi", "starlette", "uvicorn"):
            raise
        raise ConfigurationError(
            f'the Studio needs {error.name}, which is not installed: pip install "glassformer[studio]"'
        ) from None
    from glassformer.studio.run_pool import RunPool

    serve(RunPool(run or [], device), host, port, not no_open, say)
