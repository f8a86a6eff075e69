"""What the sections of a recipe are made of: numbers and switches that are read strictly, and the section itself."""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, Strict

from glassformer.registry import Registry

# Values are read strictly: true and "100" are no numbers; a whole number is accepted where any number is.
Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
Switch = Annotated[bool, Strict()]
Fraction = Annotated[Number, Field(ge=0, lt=1)]
Count = Annotated[Whole, Field(ge=1, lt=2**31)]
Place = Annotated[Whole, Field(ge=0, lt=2**31)]
Word = Annotated[str, Field(pattern=r"^\w+$")]
Seed = Annotated[Whole, Field(ge=0, lt=2**63)]


class Section(BaseModel):
    """A table of the recipe: unknown keys are refused, values do not change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def register(registry: Registry[Any], section: type[Section]) -> None:
    """Register a class of sections under each value that its field `kind`, a Literal, may have."""
    for kind in get_args(section.model_fields["kind"].annotation):
        registry.register(kind, section)
