"""Decoding: from a model to its output, one token at a time, for every model that can `start` and `step`."""

from glassformer.decoding.beam import beam_search
from glassformer.decoding.limits import Limits
from glassformer.decoding.protocol import Generator, Hypothesis, State
from glassformer.decoding.sampling import Sampler
from glassformer.decoding.stepwise import Written, collect, greedy, most_likely, sample, stream
from glassformer.decoding.tree import BeamTree, BeamTrees, Fate, Node

__all__ = [
    "BeamTree",
    "BeamTrees",
    "Fate",
    "Generator",
    "Hypothesis",
    "Limits",
    "Node",
    "Sampler",
    "State",
    "Written",
    "beam_search",
    "collect",
    "greedy",
    "most_likely",
    "sample",
    "stream",
]
