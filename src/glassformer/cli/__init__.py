"""The command line: parse, call, print."""

from glassformer.cli.app import main

__all__ = ["main"]
