"""Errors with messages for users.

Every message is one sentence that names the file or key, the value found, and what was expected.
"""

from signal import SIGINT, Signals


class GlassformerError(Exception):
    """The base class of all errors that Glassformer raises on purpose."""


class ConfigurationError(GlassformerError, ValueError):
    """Invalid options of a model or a search, such as a number of heads, a width or a beam width."""


class InputError(GlassformerError, ValueError):
    """Input that a model cannot read: an unknown token, an empty sentence, a wrong shape."""


class RecipeError(ConfigurationError):
    """A recipe with an invalid key, value or file."""


class TrainingError(GlassformerError, RuntimeError):
    """Training failed although its options are valid: a loss that is not finite, a full disk, a damaged checkpoint."""


class NonFiniteError(GlassformerError, ArithmeticError):
    """A model whose outputs are not finite numbers."""


class Stopped(GlassformerError):  # noqa: N818  (it is not an error)
    """Training was stopped by a signal and has saved its state."""

    def __init__(self, signal: int, step: int) -> None:
        name = "Ctrl-C" if signal == SIGINT else Signals(signal).name
        saved = f"state saved at step {step}" if step else "no step was done yet"
        super().__init__(f"stopped by {name}; {saved}: continue with --resume")
        self.signal, self.step = signal, step


class DataError(InputError):
    """Data that cannot be read: a missing or damaged file, a bad row in strict mode, an unreachable source."""


class RunError(InputError):
    """A run folder that is missing, unfinished or damaged."""
