"""The paper's Transformer as a Marian: `transformers` has the one, with post-norm, only under the other's name.

Marian has all sines of a position before all cosines where the paper has them in turn. A model's numbers may stand in
any order, as long as all weights agree on it: so the weights are put into Marian's order, and the outputs stay.

D model width, V vocabulary
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigurationError
from glassformer.interop.converter import Equivalent
from glassformer.models import marian, transformer
from glassformer.models.family import blueprint_of, family_parameters
from glassformer.parts import LayerNorm, PostNorm
from glassformer.parts.schemes import sinusoidal
from glassformer.parts.similarity import scaled_dot_similarity

KEPT = ("vocabulary", "width", "heads", "layers", "hidden", "length", "dropout", "decoder_layers", "activation")
SAME = {  # what Marian has, of what the Transformer lets its users choose
    "residual": PostNorm,
    "norm": LayerNorm,
    "positions": sinusoidal,
    "gated": False,
    "key_value_heads": None,
    "similarity": scaled_dot_similarity,
    "tie_source": True,
    "tie_output": True,
}
READS = re.compile(r"(embedding|query|key|value|expand)\.weight$")  # matrices whose columns are the model's width


def _marian(model: nn.Module) -> nn.Module:
    """The Marian that computes what a Transformer computes; refused where there is none."""
    arguments = blueprint_of(model).arguments
    for name, wanted in SAME.items():
        if arguments[name] != wanted:
            raise ConfigurationError(
                f"a transformer with {name} = {_shown(name, arguments[name])} has no counterpart in transformers: "
                f"train one with model.{name} = {_shown(name, wanted)}, or with the family bart, marian or t5"
            )
    made = marian(**{name: arguments[name] for name in KEPT}, attention_dropout=arguments["attention_dropout"])
    order = torch.arange(arguments["width"]).view(-1, 2).T.flatten()  # (D), those of the sines, those of the cosines
    weights = {name: _reordered(name, tensor, order) for name, tensor in model.state_dict().items()}
    made.load_state_dict(made.state_dict() | weights | {"head.bias": torch.zeros(arguments["vocabulary"])})
    return made.eval()


def _reordered(name: str, tensor: Tensor, order: Tensor) -> Tensor:
    """A tensor with the numbers of the model's width in another order; what is in heads and within stays."""
    if READS.search(name):
        return tensor[:, order.to(tensor.device)]  # (V, D), (…, D)
    within = name.endswith(".bias") and not re.search(r"(output|norm)\.bias$", name)
    return tensor if within else tensor[order.to(tensor.device)]  # (D), (D, …)


def _shown(name: str, value: Any) -> str:
    """A value as a recipe has it."""
    named = family_parameters(transformer)[name].named
    known = named.name(value) if named is not None else None
    return f'"{known}"' if known else str(value).lower()


TRANSFORMER = Equivalent(transformer, _marian)
