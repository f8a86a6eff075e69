"""The commands. Exit codes: 0 well, 1 the work failed, 2 the user's input was wrong, 130 and 143 stopped."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from glassformer.errors import ConfigurationError, GlassformerError, InputError, Stopped

out = Console(highlight=False)
app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Transformers you can see through: train a translator with one command, use it, look inside.",
)

RunFolder = Annotated[Path, typer.Option("--run", help="a folder that train made", show_default=False)]
Beam = Annotated[int | None, typer.Option(help="beam width; 1: greedy; the recipe's if not given")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps")]
Changes = Annotated[list[str] | None, typer.Option("--set", help="change a key: train.lr=3e-4; may be repeated")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="a recipe file, or the name of one that ships", show_default=False)],
    folder: Annotated[Path | None, typer.Option("--out", help="the run folder; runs/NAME if not given")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on from the last checkpoint")] = False,
    changes: Changes = None,
) -> None:
    """Train a model as a recipe says.

    Examples: `glassformer train dates` · `glassformer train my.toml --out runs/first --set train.steps=2000` ·
    `glassformer train my.toml --out runs/first --resume` · `torchrun --nproc-per-node 2 -m glassformer train my.toml`
    """
    from glassformer.cli.progress import TrainingProgress
    from glassformer.cli.showing import finish
    from glassformer.recipes import find_recipe, read_recipe
    from glassformer.run import train as run_training

    path = find_recipe(recipe)
    chosen = Path("runs") / path.stem if folder is None else folder
    with TrainingProgress() as progress:
        run = run_training(read_recipe(path, changes), chosen, base=path.parent, resume=resume, listener=progress)
    finish(run, chosen)


@app.command()
def translate(
    run: RunFolder,
    file: Annotated[str, typer.Argument(help="a text file, a sentence a line; - for standard input")] = "-",
    beam: Beam = None,
    nbest: Annotated[int, typer.Option(help="outputs for each line, best first, with their scores")] = 1,
    stream: Annotated[bool, typer.Option("--stream", help="show each word as it is written (greedy)")] = False,
    device: Device = "auto",
) -> None:
    """Translate lines: one line in, one line out, in the same order.

    Examples: `glassformer translate --run runs/dates days.txt` ·
    `echo "5 May 2031" | glassformer translate --run runs/dates --nbest 3`
    """
    from glassformer.cli.showing import bar
    from glassformer.run import Run

    loaded = Run.load(run, device)
    lines = _lines(file)
    if stream:
        for line in lines:
            for piece in loaded.stream(line):
                sys.stdout.write(piece)
                sys.stdout.flush()
            sys.stdout.write("\n")
        return
    if nbest > 1:
        beam = max(nbest, beam or loaded.recipe.decode.beam)
    with bar("translating", len(lines)) as progress:
        answers = loaded.search(lines, beam=beam, best=nbest, progress=progress)
    for number, found in enumerate(answers, start=1):
        for each in found:
            text = each.text.replace("\n", " ")
            sys.stdout.write(f"{text}\n" if nbest == 1 else f"{number}\t{each.score:.4f}\t{text}\n")


@app.command()
def evaluate(
    run: RunFolder,
    data: Annotated[
        Path | None, typer.Option(help="a TSV of source and target; the run's own test split if not given")
    ] = None,
    split: Annotated[str, typer.Option(help="valid or test, of the run's own data")] = "test",
    beam: Beam = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Score a run: sacreBLEU with its signature, chrF, exact match, perplexity.

    Examples: `glassformer evaluate --run runs/dates` · `glassformer evaluate --run runs/dates --data mine.tsv --json`
    """
    from glassformer.cli.showing import bar, tsv_pairs
    from glassformer.run import Run

    loaded = Run.load(run, device)
    pairs = loaded.pairs(split) if data is None else tsv_pairs(data)
    with bar("evaluating", len(pairs)) as progress:
        found = loaded.evaluate(pairs, beam=beam, progress=progress)
    facts: dict[str, Any] = {
        "pairs": len(pairs),
        "loss": found.loss,
        "perplexity": found.perplexity,
        **asdict(found.scores),
    }
    if as_json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return
    out.print(f"{len(pairs):,} pairs")
    out.print(f"exact match  {found.scores.exact:.2%}")
    out.print(f"BLEU         {found.scores.bleu:.2f}   {found.scores.bleu_signature}", markup=False)
    out.print(f"chrF         {found.scores.chrf:.2f}   {found.scores.chrf_signature}", markup=False)
    out.print(f"perplexity   {found.perplexity:.3f}   (loss {found.loss:.4f} per target token)")


@app.command()
def data(
    recipe: Annotated[str, typer.Argument(help="a recipe file, or the name of one that ships", show_default=False)],
    samples: Annotated[int, typer.Option(help="pairs to show")] = 5,
    changes: Changes = None,
    as_json: AsJson = False,
) -> None:
    """Prepare a recipe's data and describe it: counts, lengths, samples, what was dropped, tokens per word.

    Example: `glassformer data dates`
    """
    from glassformer.cli.progress import TrainingProgress
    from glassformer.cli.showing import describe
    from glassformer.data import prepare
    from glassformer.recipes import find_recipe, read_recipe
    from glassformer.run import cache_folder

    path = find_recipe(recipe)
    read = read_recipe(path, changes)
    with TrainingProgress() as progress:
        prepared = prepare(read, path.parent, cache_folder(), progress.stage)
    describe(prepared, read, samples, as_json)


@app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(help="a recipe to show", show_default=False)] = None,
    full: Annotated[bool, typer.Option("--full", help="with every key and its meaning")] = False,
) -> None:
    """List the recipes that ship, or show one.

    Examples: `glassformer recipes` · `glassformer recipes dates` · `glassformer recipes dates --full > my.toml`
    """
    from glassformer.recipes import bundled, find_recipe, read_recipe, to_toml

    if name is None:
        width = max(len(each) for each in bundled())
        for each, path in bundled().items():
            out.print(f"{each:{width}}  {read_recipe(path).title}", markup=False)
        return
    path = find_recipe(name)
    sys.stdout.write(to_toml(read_recipe(path), comments=True) if full else path.read_text(encoding="utf-8"))


def _lines(file: str) -> list[str]:
    """The lines of a file, or of standard input."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{'standard input' if file == '-' else file}:{line}: is not UTF-8 text") from None


def main(arguments: list[str] | None = None) -> None:
    """Run a command; what goes wrong becomes a sentence and an exit code."""
    warnings.showwarning = _warn
    sys.exit(_guarded(lambda: app(arguments, standalone_mode=True)))


def _guarded(work: Callable[[], Any]) -> int:
    try:
        work()
    except Stopped as stopped:
        return _complain(stopped, 128 + stopped.signal)
    except (InputError, ConfigurationError) as error:
        return _complain(error, 2)
    except GlassformerError as error:
        return _complain(error, 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `| head` has seen enough
        sys.stderr.close()
        return 0
    return 0


def _complain(error: Exception, code: int) -> int:
    sys.stderr.write("".join(f"glassformer: {line}\n" for line in str(error).splitlines()))
    return code


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    sys.stderr.write(f"glassformer: {message}\n")
