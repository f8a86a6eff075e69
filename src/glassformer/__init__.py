"""Glassformer: Transformers you can see through."""

from importlib.metadata import PackageNotFoundError, version

from glassformer.decoding import BeamTrees, Hypothesis, Limits, Sampler, beam_search, greedy, sample, stream
from glassformer.errors import ConfigurationError, GlassformerError, InputError
from glassformer.looking import Trace, record
from glassformer.models import EncoderDecoder, transformer, transformer_base, transformer_big, transformer_tiny
from glassformer.parts import pad, quantise

try:
    __version__ = version("glassformer")
except PackageNotFoundError:  # the source on a path, not installed
    __version__ = "0+source"

__all__ = [
    "BeamTrees",
    "ConfigurationError",
    "EncoderDecoder",
    "GlassformerError",
    "Hypothesis",
    "InputError",
    "Limits",
    "Sampler",
    "Trace",
    "beam_search",
    "greedy",
    "pad",
    "quantise",
    "record",
    "sample",
    "stream",
    "transformer",
    "transformer_base",
    "transformer_big",
    "transformer_tiny",
]
