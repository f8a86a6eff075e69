"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunFolder = Annotated[Path, typer.Option("--run", metavar="DIR", help="a folder that train made", show_default=False)]
Beam = Annotated[int | None, typer.Option(metavar="N", min=1, help="beam width; 1: greedy; the recipe's if not given")]
Device = Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda, cuda:1, mps")]
Int8 = Annotated[
    bool, typer.Option("--int8", metavar="", help="large matrices in 8 bits: faster on a CPU, nearly as good")
]
TextFile = Annotated[str, typer.Option("--file", metavar="FILE", help="a text a line; - for standard input")]
AsJson = Annotated[bool, typer.Option("--json", metavar="", help="print JSON")]
Force = Annotated[bool, typer.Option("--force", metavar="", help="write over what the folder holds")]
Adapter = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="what LoRA learned over this run's model, ours or peft's"),
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="change a key: train.lr=3e-4; may be repeated"),
]
