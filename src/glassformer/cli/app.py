"""The commands. Exit codes: 0 well, 1 the work failed, 2 the user's input was wrong, 130 and 143 stopped."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer.cli import answering, classifying, comparing, experimenting, filling, generating, tagging, translating
from glassformer.cli.options import Adapter, AsJson, Beam, Changes, Device, Force, Int8, RunFolder
from glassformer.cli.vectors import vectors
from glassformer.errors import ConfigurationError, GlassformerError, InputError, Stopped

NO_MEMORY = "there is not enough memory: lower train.batch_tokens, decode.batch or model.width"
app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

RecipeName = Annotated[
    str, typer.Argument(metavar="RECIPE", help="a recipe file, or the name of one that ships", show_default=False)
]
UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # which typer has, but does not export


@app.command()
def train(
    recipe: RecipeName,
    folder: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="the run folder; runs/NAME if not given")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", metavar="", help="go on from the last checkpoint")] = False,
    changes: Changes = None,
) -> None:
    """Train a model as a recipe says.

    - `glassformer train dates`
    - `glassformer train my.toml --out runs/first --set train.steps=2000`
    - `glassformer train my.toml --out runs/first --resume`
    - `torchrun --nproc-per-node 2 -m glassformer train my.toml`
    """
    from glassformer.cli.finishing import finish
    from glassformer.cli.progress import TrainingProgress
    from glassformer.recipes import base_of, find_recipe, read_recipe
    from glassformer.run import train as run_training

    path = find_recipe(recipe)
    chosen = Path("runs") / path.stem if folder is None else folder
    read = read_recipe(path, changes)
    if os.environ.get("RANK", "0") != "0":  # torchrun's other processes work in silence
        run_training(read, chosen, base=base_of(path), resume=resume)
        return
    with TrainingProgress() as progress:
        run = run_training(read, chosen, base=base_of(path), resume=resume, listener=progress)
    finish(run, chosen)


app.command()(translating.translate)
app.command("transform", help=translating.TRANSFORM)(translating.translate)
app.command()(generating.generate)


@app.command("import")
def import_(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="a folder in Hugging Face's layout, or a hub name")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="the run folder to make")],
    force: Force = False,
) -> None:
    """Make a run folder of a checkpoint from elsewhere: one that translates, goes on with texts or fills gaps.

    - `glassformer import Helsinki-NLP/opus-mt-en-de runs/en-de`
    - `glassformer import ../stories-15m runs/stories`
    """
    from glassformer.models import DecoderOnly, EncoderOnly
    from glassformer.run.importing import import_checkpoint

    model = import_checkpoint(source, folder, force)
    size = sum(parameter.numel() for parameter in model.parameters())
    uses = {DecoderOnly: 'generate "Once upon a time"', EncoderOnly: 'fill "The [MASK] sat on the mat."'}
    command, *rest = uses.get(type(model), "translate").split(" ", 1)
    sys.stdout.write(f"{folder}: {type(model).__name__} with {size:,} parameters\n")
    sys.stdout.write(" ".join(["next: glassformer", command, "--run", str(folder), *rest]) + "\n")


@app.command()
def export(
    run: RunFolder,
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="the folder to write")],
    to: Annotated[str, typer.Option(metavar="FORMAT", help="huggingface")] = "huggingface",
    force: Force = False,
) -> None:
    """Write a run's model in another format.

    - `glassformer export --run runs/stories --to huggingface stories-hf`
    """
    from glassformer.run import load
    from glassformer.run.exporting import export as write

    if to != "huggingface":
        raise ConfigurationError(f'"{to}" is no format to export to: expected huggingface')
    sys.stdout.write(f"{folder}: transformers opens it with {write(load(run, 'cpu'), folder, force)}\n")


@app.command()
def evaluate(
    run: RunFolder,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="a TSV of source and target (of two texts and a label: three columns), a text, SQuAD's JSON, or a "
            "folder of labels' images, as the run's task wants; the run's own if not given",
        ),
    ] = None,
    split: Annotated[str, typer.Option(metavar="NAME", help="valid or test, of the run's own data")] = "test",
    beam: Beam = None,
    int8: Int8 = False,
    rouge: Annotated[
        bool, typer.Option("--rouge", metavar="", help="ROUGE as well, of summaries (in English letters)")
    ] = False,
    adapter: Adapter = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Score a run. Translation: sacreBLEU with its signature, chrF, exact match, perplexity. Labels: accuracy, F1.

    Tags: the same of words, and sentences without a mistake. Answers: exact match and F1 as SQuAD defines them.
    Documents: perplexity per token and word, bits per byte.

    - `glassformer evaluate --run runs/dates`
    - `glassformer evaluate --run runs/dates --data mine.tsv --json`
    """
    from glassformer.cli.finishing import report
    from glassformer.cli.showing import file_pairs
    from glassformer.run import load

    loaded = load(run, device, adapter)
    pairs = loaded.pairs(split) if data is None else file_pairs(data, loaded.recipe, getattr(loaded, "labels", None))
    facts, lines = report(loaded, pairs, beam=beam, int8=int8, rouge=rouge)
    sys.stdout.write(json.dumps(facts) + "\n" if as_json else "".join(f"{line}\n" for line in lines))


@app.command()
def data(
    recipe: RecipeName,
    samples: Annotated[int, typer.Option(metavar="N", min=0, help="pairs to show")] = 5,
    changes: Changes = None,
    as_json: AsJson = False,
) -> None:
    """Prepare a recipe's data and describe it: counts, lengths, samples, what was dropped, tokens per word.

    - `glassformer data dates`
    """
    from glassformer.cli.labelling import describe_images
    from glassformer.cli.progress import TrainingProgress
    from glassformer.cli.showing import describe
    from glassformer.recipes import anchored, base_of, find_recipe, read_recipe
    from glassformer.run import cache_folder
    from glassformer.run.kinds import KINDS

    path = find_recipe(recipe)
    read = anchored(read_recipe(path, changes), base_of(path))  # as train does, which finds it in the cache
    with TrainingProgress() as progress:
        prepared: Any = KINDS[read.task.kind].prepare(read, Path.cwd(), cache_folder(), progress.stage)
    show = describe_images if read.task.kind == "images" else describe
    show(prepared, read, samples, as_json)


@app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(metavar="RECIPE", help="a recipe to show", show_default=False)] = None,
    full: Annotated[bool, typer.Option("--full", metavar="", help="with every key and its meaning")] = False,
) -> None:
    """List the recipes that ship, or show one.

    - `glassformer recipes`
    - `glassformer recipes dates`
    - `glassformer recipes dates --full > my.toml`
    """
    from glassformer.recipes import bundled, find_recipe, read_recipe, to_toml

    if name is None:
        width = max(len(each) for each in bundled())
        for each, path in bundled().items():
            sys.stdout.write(f"{each:{width}}  {read_recipe(path).title}\n")
        return
    path = find_recipe(name)
    read = read_recipe(path)
    sys.stdout.write(to_toml(read, comments=True) if full else path.read_text(encoding="utf-8"))


app.command()(answering.answer)
app.command()(filling.fill)
app.command()(classifying.classify)
app.command()(tagging.tag)
app.command()(experimenting.experiment)
app.add_typer(vectors, name="vectors")
app.command()(comparing.compare)


def _version(wanted: bool) -> None:
    if wanted:
        from glassformer import __version__

        sys.stdout.write(f"glassformer {__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", metavar="", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Transformers you can see through: train a translator with one command, use it, look inside."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command; what goes wrong becomes a sentence and an exit code."""
    warnings.showwarning = _warn
    threading.excepthook = lambda failure: _warn(str(failure.exc_value))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # as what is read, whatever the terminal's
    sys.exit(_guarded(lambda: app(arguments, prog_name="glassformer", standalone_mode=False)))


def _guarded(work: Callable[[], Any]) -> int | str | None:
    try:
        try:
            code = work()
        finally:
            sys.stdout.flush()
    except UsageError as error:
        return _complain(_usage(error), 2)
    except SystemExit as end:  # how typer ends where nobody listens
        return _deaf() if isinstance(end.__context__, BrokenPipeError) else end.code
    except Stopped as stopped:
        return _complain(stopped, 128 + stopped.signal)
    except (InputError, ConfigurationError) as error:
        return _complain(error, 2)
    except GlassformerError as error:
        return _complain(error, 1)
    except BrokenPipeError:
        return _deaf()
    except OSError as error:
        return _complain(f"{error.filename or 'a file'}: {error.strerror or error}", 1)
    except MemoryError:
        return _complain(NO_MEMORY, 1)
    except RuntimeError as error:
        no_memory = type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)
        if not no_memory:  # on a GPU torch has a name for it, on a CPU but a phrase
            raise
        return _complain(NO_MEMORY, 1)
    return code if isinstance(code, int) else 0


def _usage(error: Any) -> str:
    """What is wrong with the words of a command, in a sentence."""
    near = getattr(error, "possibilities", None)
    said = f"{error.message}: did you mean {near[0]}?" if near else error.format_message().removesuffix(".")
    hint = f": see {error.ctx.command_path} --help" if error.ctx and said and not said.endswith("?") else ""
    return f"{said[:1].lower()}{said[1:]}{hint}"


def _deaf() -> int:
    """Nobody reads on: `| head` has seen enough. Python's own last flush must not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _complain(error: Exception | str, code: int) -> int:
    sys.stderr.write("".join(f"glassformer: {line}\n" for line in str(error).splitlines()))
    return code


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    sys.stderr.write(f"glassformer: {message}\n")
