"""The command line: parse, call, print. Each file in `commands` holds a command, or a few that belong together."""

from glassformer.stopping import stoppable

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run a command. From here on it can be stopped, also while its libraries load."""
    with stoppable():
        from glassformer.cli.app import main as run

        run(arguments)
