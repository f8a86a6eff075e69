"""Names of parts: what a recipe calls the parts that a family can be given.

    Activation = Annotated[Callable[[Tensor], Tensor], Named(relu=relu, gelu=gelu)]

A family whose argument has this type takes either the part itself (in Python) or one of its names (in a recipe).
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Self

from glassformer.errors import ConfigurationError


class Named:
    """Metadata of a type (`Annotated`): parts by name. Families, recipes and run folders look parts up in it."""

    def __init__(self, **parts: Any) -> None:
        self.parts: Mapping[str, Any] = parts
        self.refused: Mapping[str, str] = {}  # names of parts that would be wrong here, each with the reason

    def refusing(self, **reasons: str) -> Self:
        """The same; recipes that ask for one of these names are told why it is none."""
        self.refused = {**self.refused, **reasons}
        return self

    def names(self) -> list[str]:
        """All names, in the order in which they were given."""
        return list(self.parts)

    def part(self, name: str) -> Any:
        """The part of this name."""
        if name not in self.parts:
            near = get_close_matches(name, self.parts, n=1)
            hint = f'did you mean "{near[0]}"?' if near else f"there are: {', '.join(self.parts)}"
            raise ConfigurationError(f'unknown part "{name}": {hint}')
        return self.parts[name]

    def name(self, part: Any) -> str | None:
        """The name of a part; None: it has none."""
        return next((name for name, each in self.parts.items() if each is part), None)

    def __repr__(self) -> str:
        """The names, for documentation."""
        return f"Named({', '.join(self.parts)})"
