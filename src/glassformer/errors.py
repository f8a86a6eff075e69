"""What can go wrong, in words for the person at the keyboard.

Every message is one sentence that names the place, the value found and what was expected.
"""


class GlassformerError(Exception):
    """The root of every error that Glassformer raises on purpose."""


class ConfigurationError(GlassformerError, ValueError):
    """Numbers that do not make a model or a search: a head count, a width, a beam."""


class InputError(GlassformerError, ValueError):
    """Data that a model cannot read: an unknown token, an empty sentence, a wrong shape."""


class RecipeError(ConfigurationError):
    """A recipe with a key, a value or a file that cannot be."""


class TrainingError(GlassformerError, RuntimeError):
    """Work that was well asked for and failed: a loss that is no number, a full disk, a damaged checkpoint."""


class Stopped(GlassformerError):  # noqa: N818  (it is no error)
    """Training was asked to stop by a signal, saved its state, and did."""

    def __init__(self, signal: int, step: int) -> None:
        super().__init__(f"stopped by signal {signal} after step {step}; the state is saved: resume to go on")
        self.signal, self.step = signal, step


class DataError(InputError):
    """Examples that cannot be had: a missing or damaged file, a bad row in strict mode, a source that is away."""


class RunError(InputError):
    """A run folder that is not there, not finished or damaged."""
