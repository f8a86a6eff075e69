"""Experiments: what the lecture notes claim, each as a small thing to run, with a figure and a sentence of numbers.

One file an experiment: `dot-product-variance` is `dot_product_variance.py`, and its `run(trial, …)` returns a
`Finding`. The numbers after `trial` are its sizes, so that a test can ask for less.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from glassformer.errors import ConfigurationError
from glassformer.experiments.finding import Finding, Progress, silent

__all__ = ["EXPERIMENTS", "Experiment", "Finding", "Progress", "find", "silent"]


@dataclass(frozen=True)
class Experiment:
    """A claim, and the name under which it is tried."""

    name: str
    claim: str

    def run(self, seed: int = 0, progress: Progress = silent, **sizes: Any) -> Finding:
        """Try the claim; the caller's own random numbers stay as they are."""
        import torch

        from glassformer.experiments.trial import Trial

        module = import_module(f"{__name__}.{self.name.replace('-', '_')}")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            found: Finding = module.run(Trial(seed, progress), **sizes)
        return found


CLAIMS = {  # in the order of the story
    "static-vs-contextual": (
        '"bank" and "apple" have one vector in Word2Vec, and one for each of their senses in a contextual model.'
    ),
    "gradient-flow": (
        "Gradients vanish or explode on their way back through an RNN; gates mitigate that, attention gives a short "
        "way round it."
    ),
    "long-memory": "Information from long ago is hard to reach for a model that reads step by step.",
    "bottleneck": (
        "A fixed context vector loses the beginning of long sentences, of about 30 words; attention looks back at it."
    ),
    "parallel-speed": (
        "An RNN is slow on long sequences, as each step waits for the last; a Transformer reads all at once."
    ),
    "dot-product-variance": (
        "The variance of q · k grows as the width d; dividing by √d keeps it at 1 and the softmax alive."
    ),
    "order-blind": 'Without positions "dog bites man" is "man bites dog".',
    "positions": (
        "Counting positions is unbounded; sinusoids are bounded, distinct, and give relative offsets by a linear map."
    ),
    "batch-vs-layer-norm": (
        "Padding corrupts batch norm's statistics and small batches hurt it; layer and RMS norm do not care, and RMS "
        "is cheaper."
    ),
    "residual-and-norm": "Depth without residual connections or norms does not train.",
    "heads": (
        "Different heads attend to different relations: the previous token, the subject of a verb, a rare word. Take "
        "a head away, and the loss shows which."
    ),
    "causal-mask": "Without the mask training leaks the future: the training loss falls, generation fails.",
    "teacher-forcing": "Training on all places in parallel equals training step by step (same loss), and is faster.",
    "greedy-vs-beam": (
        "Greedy decoding takes the likeliest word at each step and misses likelier sentences; beam search finds them."
    ),
    "lora": "As B begins at 0, an adapted model begins as its base; a small rank learns nearly as well as all weights.",
}
EXPERIMENTS = {name: Experiment(name, claim) for name, claim in CLAIMS.items()}


def find(name: str) -> Experiment:
    """The experiment of this name."""
    if name not in EXPERIMENTS:
        near = difflib.get_close_matches(name, EXPERIMENTS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(EXPERIMENTS)}"
        raise ConfigurationError(f'there is no experiment "{name}": {hint}')
    return EXPERIMENTS[name]
