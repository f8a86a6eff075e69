"""Looking inside: record what a model does, read it back, and change it while it works."""

from glassformer.looking import analyses as analyses
from glassformer.looking.editing import intervene as intervene
from glassformer.looking.patching import patching as patching
from glassformer.looking.points import points as points
from glassformer.looking.recording import record as record
from glassformer.looking.stages import stages as stages
from glassformer.looking.storing import load_trace as load_trace
from glassformer.looking.sums import sum_of as sum_of
from glassformer.looking.trace import Trace as Trace
from glassformer.looking.unfolding import unfold as unfold
