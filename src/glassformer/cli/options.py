"""Options that several commands have, and the kinds of values that options take: paths, counts, seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer.errors import ConfigurationError

MOST = 2**31 - 1  # that can be asked for of anything that is counted
MOST_SEED = 2**63 - 1


def path_of(text: str) -> Path:
    """A path that was given: an empty one would be the current folder, which nobody asked for."""
    if not text:
        raise typer.BadParameter("it is empty: write . for the current folder")
    if "\0" in text:
        raise typer.BadParameter(f"{text!r} is not a path")
    return Path(text)


def new_path(text: str) -> Path:
    """A path to write to; files that mention it are UTF-8, and so must it be."""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise typer.BadParameter(f"{text!r} is not UTF-8")
    return path_of(text)


def check_new_file(file: Path, example: str) -> None:
    """Refuse a file that cannot be written, before any work is done for it."""
    if not file.parent.is_dir():
        raise ConfigurationError(f"{file} cannot be written: there is no folder {file.parent}")
    if file.exists() and not file.is_file():
        what = "a folder" if file.is_dir() else "no regular file"
        raise ConfigurationError(f"{file} cannot be written: it is {what}; name a file, such as {example}")


def lines_of(text: str) -> str:
    """A file to read lines from; - is standard input."""
    return text if text == "-" else str(path_of(text))


def path(*names: str, metavar: str, meaning: str) -> Any:
    """An option whose value is a path to read from."""
    return typer.Option(*names, metavar=metavar, parser=path_of, help=meaning)


def out(meaning: str, metavar: str = "DIR") -> Any:
    """The option --out."""
    return typer.Option("--out", metavar=metavar, parser=new_path, help=meaning)


def count(meaning: str, least: int = 1, most: int = MOST) -> Any:
    """An option whose value is a whole number; `most` is not shown in the help, since nobody comes near it."""

    def bounded(value: int | None) -> int | None:
        if value is not None and value > most:
            raise typer.BadParameter(f"it must be at most {most}")
        return value

    return typer.Option(metavar="N", min=least, callback=bounded, help=meaning)


RecipeName = Annotated[
    str, typer.Argument(metavar="RECIPE", help="a recipe file, or the name of a recipe that ships", show_default=False)
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="change a key: train.lr=3e-4; may be repeated"),
]
_ONE_RUN = (
    "the run folder, or a model that ships (glassformer models); if not given: the current folder, or the only run in "
    "./runs"
)
RunFolder = Annotated[list[Path] | None, path("--run", metavar="DIR", meaning=_ONE_RUN)]  # several are refused
RunFolders = Annotated[
    list[Path] | None,
    path("--run", metavar="DIR", meaning=f"{_ONE_RUN}; several: an ensemble, whose models write together"),
]
MeanName = Annotated[
    str | None,
    typer.Option(
        "--mean",
        metavar="NAME",
        help="of several runs: each token by the mean of their probabilities (if not given), or of log-probabilities",
    ),
]
Texts = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT", help="texts; none: the lines of --file, or of standard input"),
]
Images = Annotated[
    list[str] | None,
    typer.Argument(metavar="IMAGE", help="image files; none: the lines of --file, or of standard input, name them"),
]
Tables = Annotated[
    list[str] | None,
    typer.Argument(metavar="CSV", help="CSV files; none: the lines of --file, or of standard input, name them"),
]
TextFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        metavar="FILE",
        parser=lines_of,
        help="a file with a text a line; - is standard input; may be repeated",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", metavar="", help="print JSON")]
Envelopes = Annotated[
    bool, typer.Option("--json", metavar="", help="print an object for each text: input, output, error, details")
]
Device = Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda, cuda:1, mps")]
Adapter = Annotated[
    Path | None, path(metavar="DIR", meaning="a LoRA adapter that was trained for this run's model, ours or peft's")
]
Checkpoint = Annotated[
    str | None,
    typer.Option(metavar="STEP", help="a checkpoint of the run: a step, best or last; else what training ended with"),
]
Beam = Annotated[int | None, count("beam width; 1: greedy; the recipe's if not given")]
Seed = Annotated[int, count("seed of all random numbers", 0, MOST_SEED)]
Int8 = Annotated[
    bool, typer.Option("--int8", metavar="", help="large matrices in 8 bits: faster on a CPU, nearly as good")
]
Stream = Annotated[bool, typer.Option("--stream", metavar="", help="print each word as it is written")]
Force = Annotated[bool, typer.Option("--force", metavar="", help="write over what the folder holds")]
