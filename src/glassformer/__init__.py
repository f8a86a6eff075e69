"""Glassformer: Transformers you can see through."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.errors import ConfigurationError, GlassformerError, InputError

if TYPE_CHECKING:
    from glassformer import pretrained
    from glassformer.decoding import BeamTrees, Hypothesis, Limits, Sampler, beam_search, greedy, sample, stream
    from glassformer.looking import Trace, record
    from glassformer.models import EncoderDecoder, transformer, transformer_base, transformer_big, transformer_tiny
    from glassformer.parts import pack, pad, quantise
    from glassformer.recipe import Recipe

__version__: str
ROOMS = ("decoding", "looking", "models", "parts", "pretrained")
HOMES = {  # of what is offered here
    "decoding": ("BeamTrees", "Hypothesis", "Limits", "Sampler", "beam_search", "greedy", "sample", "stream"),
    "looking": ("Trace", "record"),
    "models": ("EncoderDecoder", "transformer", "transformer_base", "transformer_big", "transformer_tiny"),
    "parts": ("pack", "pad", "quantise"),
}


def __getattr__(name: str) -> Any:
    """Whatever takes time to import waits until it is first used: the command line answers without."""
    if name == "__version__":
        return globals().setdefault(name, _version())
    if name in ROOMS:
        return import_module(f"glassformer.{name}")
    for home, names in HOMES.items():
        if name in names:
            return globals().setdefault(name, getattr(import_module(f"glassformer.{home}"), name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("glassformer")
    except PackageNotFoundError:  # the source on a path, not installed
        return "0+source"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load(path: str | Path, device: str = "auto", adapter: str | Path | None = None) -> Any:
    """A trained run, ready for its task: `gf.load("runs/dates").translate(["5 May 2031"], beam=5)`.

    What it can do follows from what it was trained for: `translate`, `generate`, `classify`, `tag`, `answer`, `fill`.
    An `adapter` is a folder of what LoRA has learned over its model.
    """
    from glassformer.run import load as load_run

    return load_run(path, device, adapter)


def train(
    recipe: str | Path | dict[str, Any] | Recipe,
    out: str | Path | None = None,
    changes: list[str] | None = None,
    resume: bool = False,
) -> Any:
    """Train what a recipe says: a file, the name of a recipe that ships, or its contents.

    The run goes into the folder `out`; for a file that may be left out and is runs/NAME then, as on the command line.
    """
    from glassformer.recipes import base_of, find_recipe, make_recipe, read_recipe
    from glassformer.run import train as run_training

    if isinstance(recipe, str | Path):
        path = find_recipe(str(recipe))
        folder = Path("runs") / path.stem if out is None else Path(out)
        return run_training(read_recipe(path, changes), folder, base=base_of(path), resume=resume)
    if changes:
        raise ConfigurationError("changes are made to recipe files: change the recipe itself instead")
    if out is None:
        raise ConfigurationError("a recipe that is no file has no name: say in `out` which folder the run goes into")
    made = make_recipe(recipe) if isinstance(recipe, dict) else recipe
    return run_training(made, Path(out), resume=resume)


__all__ = [
    "BeamTrees",
    "ConfigurationError",
    "EncoderDecoder",
    "GlassformerError",
    "Hypothesis",
    "InputError",
    "Limits",
    "Sampler",
    "Trace",
    "beam_search",
    "greedy",
    "load",
    "pack",
    "pad",
    "pretrained",
    "quantise",
    "record",
    "sample",
    "stream",
    "train",
    "transformer",
    "transformer_base",
    "transformer_big",
    "transformer_tiny",
]
