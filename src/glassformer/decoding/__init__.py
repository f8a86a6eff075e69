"""Decoding: greedy, sampling and beam search for every model that has `start` and `step`."""

from glassformer.decoding.beam import beam_search as beam_search
from glassformer.decoding.beams import EarlyStopping as EarlyStopping
from glassformer.decoding.ensemble import Ensemble as Ensemble
from glassformer.decoding.ensemble import Mean as Mean
from glassformer.decoding.limits import Limits as Limits
from glassformer.decoding.protocol import Generator as Generator
from glassformer.decoding.protocol import Hypothesis as Hypothesis
from glassformer.decoding.sampling import Sampler as Sampler
from glassformer.decoding.stepwise import Choose as Choose
from glassformer.decoding.stepwise import Written as Written
from glassformer.decoding.stepwise import collect as collect
from glassformer.decoding.stepwise import complete as complete
from glassformer.decoding.stepwise import greedy as greedy
from glassformer.decoding.stepwise import most_likely as most_likely
from glassformer.decoding.stepwise import sample as sample
from glassformer.decoding.stepwise import stream as stream
from glassformer.decoding.tree import BeamTrees as BeamTrees
