"""How a model's numbers begin.

matrices            uniform in ±√(6 / (in + out))       (Glorot and Bengio), so that signals keep their size
last of a branch    the same, divided by √(branches)    so that the sum of all residual branches does, too
embeddings          normal, deviation 1/√D              times √D at the input they have deviation 1; as a tied
                                                        head they give logits of deviation about 1
biases              0
norms               weight 1, bias 0
"""

import torch
from torch import nn

from glassformer.parts.norms import ResidualBranch


@torch.no_grad()
def initialise(*stacks: nn.Module) -> None:
    """Set the matrices and biases of stacks (encoders or decoders); embeddings and heads have set themselves."""
    for stack in stacks:
        branches = [module.part for module in stack.modules() if isinstance(module, ResidualBranch)]
        linears = [each for branch in branches for each in branch.named_modules() if isinstance(each[1], nn.Linear)]
        for name, linear in linears:
            nn.init.xavier_uniform_(linear.weight, gain=len(branches) ** -0.5 if name == "output" else 1.0)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
