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
