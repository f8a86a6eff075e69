"""The command line: parse, call, print."""

from glassformer.cli.stopping import stoppable

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run a command. It can be stopped from here on, also while its libraries load."""
    with stoppable():
        from glassformer.cli.app import main as run

        run(arguments)
