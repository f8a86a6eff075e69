"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RecipeName = Annotated[
    str, typer.Argument(metavar="RECIPE", help="a recipe file, or the name of a recipe that ships", show_default=False)
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="change a key: train.lr=3e-4; may be repeated"),
]
RunFolder = Annotated[
    Path | None,
    typer.Option(
        "--run",
        metavar="DIR",
        help="the run folder; if not given: the current folder, or the only run in ./runs",
        show_default=False,
    ),
]
Texts = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT", help="texts; none: the lines of --file, or of standard input"),
]
TextFiles = Annotated[
    list[str] | None,
    typer.Option("--file", metavar="FILE", help="a file with a text a line; - is standard input; may be repeated"),
]
AsJson = Annotated[bool, typer.Option("--json", metavar="", help="print JSON")]
Envelopes = Annotated[
    bool, typer.Option("--json", metavar="", help="print an object for each text: input, output, error, details")
]
Device = Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda, cuda:1, mps")]
Adapter = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="a LoRA adapter that was trained for this run's model, ours or peft's"),
]
Beam = Annotated[int | None, typer.Option(metavar="N", min=1, help="beam width; 1: greedy; the recipe's if not given")]
Int8 = Annotated[
    bool, typer.Option("--int8", metavar="", help="large matrices in 8 bits: faster on a CPU, nearly as good")
]
Stream = Annotated[bool, typer.Option("--stream", metavar="", help="print each word as it is written")]
Force = Annotated[bool, typer.Option("--force", metavar="", help="write over what the folder holds")]
