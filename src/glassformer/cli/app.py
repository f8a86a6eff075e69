"""The program: all commands, and exit codes (0 success, 1 the work failed, 2 wrong input, 130 and 143 stopped).

A command is added by a file in `commands` which registers a function with `@app.command(rich_help_panel=…)`.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import warnings
from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated, Any

import typer

from glassformer.errors import ConfigurationError, GlassformerError, InputError, Stopped

NO_MEMORY = "there is not enough memory: lower train.batch_tokens, decode.batch, model.width, or the numbers given"
TRAIN, USE, STUDY = PANELS = ("Train a model", "Use a run", "Compare and study")  # of the help, in this order
LONGEST = 2000  # characters of a message, which may repeat what was given
UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer has this class but does not export it

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


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
    """Transformers you can see through: train a model with one command, use it, look inside."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command; an error becomes a sentence on stderr and an exit code."""
    warnings.showwarning = _warn
    warnings.filterwarnings("ignore", module=r"PIL\b")  # what can be read of an image is read
    threading.excepthook = lambda failure: _warn(str(failure.exc_value))
    _open_streams()
    _register_commands()
    sys.exit(_exit_code(lambda: app(arguments, prog_name="glassformer", standalone_mode=False)))


def _open_streams() -> None:
    """Give the program an empty input and outputs that go nowhere where it was started without them (`>&-`)."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    if isinstance(sys.stdout, io.TextIOWrapper):  # whatever the encoding of the terminal, and of names of files
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def _register_commands() -> None:
    """Import the files of commands, each of which registers its own; then put those in the order of the panels."""
    room = import_module("glassformer.cli.commands")
    for module in iter_modules(room.__path__, f"{room.__name__}."):
        import_module(module.name)
    app.registered_commands.sort(key=lambda command: PANELS.index(str(command.rich_help_panel)))


def _exit_code(work: Callable[[], Any]) -> int | str | None:
    try:
        try:
            code = work()
        finally:
            sys.stdout.flush()
    except UsageError as error:
        return _complain(_usage(error), 2)
    except SystemExit as end:  # this is how typer ends when its output is closed
        return _reader_closed() if isinstance(end.__context__, BrokenPipeError) else end.code
    except Stopped as stopped:
        return _complain(stopped, 128 + stopped.signal)
    except (InputError, ConfigurationError) as error:
        return _complain(error, 2)
    except GlassformerError as error:
        return _complain(error, 1)
    except BrokenPipeError:
        return _reader_closed()
    except OSError as error:
        return _complain(f"{error.filename or 'a file'}: {error.strerror or error}", 1)
    except MemoryError:
        return _complain(NO_MEMORY, 1)
    except RuntimeError as error:
        # On a GPU torch has a class for it, on a CPU only a phrase.
        if type(error).__name__ != "OutOfMemoryError" and "can't allocate memory" not in str(error):
            raise
        return _complain(NO_MEMORY, 1)
    return code if isinstance(code, int) else 0


def _usage(error: Any) -> str:
    """What is wrong with the arguments of a command, in a sentence."""
    near = getattr(error, "possibilities", None)
    message = f"{error.message}: did you mean {near[0]}?" if near else error.format_message().removesuffix(".")
    hint = f": see {error.ctx.command_path} --help" if error.ctx and message and not message.endswith("?") else ""
    return f"{message[:1].lower()}{message[1:]}{hint}"


def _reader_closed() -> int:
    """The reader of the output has closed it, as `| head` does: Python's own last flush must not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _complain(error: Exception | str, code: int) -> int:
    lines = (line if len(line) <= LONGEST else f"{line[:LONGEST]}…" for line in str(error).splitlines())
    sys.stderr.write("".join(f"glassformer: {line}\n" for line in lines))
    return code


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    sys.stderr.write(f"glassformer: {message}\n")
