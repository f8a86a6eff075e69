"""Glassformer: Transformers you can see through."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassformer.errors import ConfigurationError, GlassformerError, InputError

if TYPE_CHECKING:
    from glassformer import interop as interop
    from glassformer.decoding import BeamTrees as BeamTrees
    from glassformer.decoding import Ensemble as Ensemble
    from glassformer.decoding import Hypothesis as Hypothesis
    from glassformer.decoding import Limits as Limits
    from glassformer.decoding import Mean
    from glassformer.decoding import Sampler as Sampler
    from glassformer.decoding import beam_search as beam_search
    from glassformer.decoding import greedy as greedy
    from glassformer.decoding import sample as sample
    from glassformer.decoding import stream as stream
    from glassformer.looking import Trace as Trace
    from glassformer.looking import analyses as analyses
    from glassformer.looking import intervene as intervene
    from glassformer.looking import load_trace as load_trace
    from glassformer.looking import patching as patching
    from glassformer.looking import points as points
    from glassformer.looking import record as record
    from glassformer.looking import stages as stages
    from glassformer.looking import sum_of as sum_of
    from glassformer.looking import unfold as unfold
    from glassformer.models import EncoderDecoder as EncoderDecoder
    from glassformer.models import transformer as transformer
    from glassformer.models import transformer_base as transformer_base
    from glassformer.models import transformer_big as transformer_big
    from glassformer.models import transformer_tiny as transformer_tiny
    from glassformer.parts import pack as pack
    from glassformer.parts import pad as pad
    from glassformer.parts import quantise as quantise
    from glassformer.recipe import Recipe
    from glassformer.tasks.run import Run

__version__: str
HOMES = {  # of what is offered here
    "decoding": (
        *("BeamTrees", "Ensemble", "Hypothesis", "Limits", "Sampler"),
        *("beam_search", "greedy", "sample", "stream"),
    ),
    "looking": (
        *("Trace", "analyses", "intervene", "load_trace", "patching", "points", "record"),
        *("stages", "sum_of", "unfold"),
    ),
    "models": ("EncoderDecoder", "transformer", "transformer_base", "transformer_big", "transformer_tiny"),
    "parts": ("pack", "pad", "quantise"),
}
HOME_OF = {name: home for home, names in HOMES.items() for name in names}
__all__ = ["ConfigurationError", "GlassformerError", "InputError", "ensemble", "interop", "load", "train", *HOME_OF]


def __getattr__(name: str) -> Any:
    """Whatever takes time to import waits until it is first used: the command line answers without."""
    if name in HOME_OF:
        return globals().setdefault(name, getattr(import_module(f"glassformer.{HOME_OF[name]}"), name))
    if name in {"interop", *HOMES}:
        return import_module(f"glassformer.{name}")
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return globals().setdefault(name, version("glassformer"))
        except PackageNotFoundError:  # the source on a path, not installed
            return "0+source"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load(
    path: str | Path | Sequence[str | Path],
    device: str = "auto",
    adapter: str | Path | None = None,
    checkpoint: str | int | None = None,
    mean: Mean | None = None,
) -> Run:
    """A trained run, ready for its task: `gf.load("runs/dates").translate(["5 May 2031"], beam=5)`.

    What it can do follows from what it was trained for: `translate`, `generate`, `classify`, `tag`, `answer`, `fill`.
    An `adapter` is a folder of LoRA weights for its model. A `checkpoint` is a step, "best" or "last"; without it, a
    run that is not finished yet has the weights that its training would end with now, and a warning says which.

    Several folders are an ensemble, whose models write together: each token by the `mean` of their "probabilities", or
    of their "log-probabilities". `gf.ensemble` makes one of runs that are loaded already.
    """
    from glassformer.runs import load as load_run

    return load_run(path, device, adapter, checkpoint, mean)


def ensemble(runs: Sequence[Run], mean: Mean = "probabilities") -> Run:
    """Several runs as one that writes: `gf.ensemble([gf.load("runs/a", checkpoint=9000), gf.load("runs/b")])`.

    They may differ in size, family and seed, but must have the same task and tokenizer, and read texts alike.
    """
    from glassformer.runs import ensemble as ensemble_of

    return ensemble_of(runs, mean)


def train(
    recipe: str | Path | dict[str, Any] | Recipe,
    out: str | Path | None = None,
    changes: list[str] | None = None,
    resume: bool = False,
) -> Run:
    """Train what a recipe says: a file, the name of a recipe that ships, or its contents.

    The run goes into the folder `out`; for a file that may be left out and is runs/NAME then, as on the command line.
    """
    from glassformer.recipe import base_of, find_recipe, make_recipe, read_recipe
    from glassformer.runs import train as run_training

    if isinstance(recipe, str | Path):
        path = find_recipe(str(recipe))
        folder = Path("runs") / path.stem if out is None else Path(out)
        return run_training(read_recipe(path, changes), folder, base=base_of(path), resume=resume)
    if changes:
        raise ConfigurationError("changes are made to recipe files: change the recipe itself instead")
    if out is None:
        raise ConfigurationError("a recipe that is no file has no name: name the run's folder with `out`")
    made = make_recipe(recipe) if isinstance(recipe, dict) else recipe
    return run_training(made, Path(out), resume=resume)
