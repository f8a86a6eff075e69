"""The command line: parse, call, print. Each file in `commands` holds a command, or a few that belong together."""

import os

from glassformer.stopping import stoppable

__all__ = ["main"]

SPINS = 1000  # how often a thread looks for work before it sleeps


def main(arguments: list[str] | None = None) -> None:
    """Run a command. From here on it can be stopped, also while its libraries load."""
    with stoppable():
        _let_threads_sleep()
        from glassformer.cli.app import main as run

        run(arguments)


def _let_threads_sleep() -> None:
    """Have threads that wait for each other leave their core soon, where the user has not decided about it.

    GNU's OpenMP looks 300,000 times first: on a machine that other programs use as well, cores do nothing else, and a
    small model trains several times as slowly. It reads this when PyTorch is loaded (`benchmarks/waiting.py`).
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))
