"""Plots: what a trace holds, as figures. `trace.plot.heads()` draws one, `trace.plot.heads().savefig(…)` keeps it.

Every plot is a matplotlib figure in the style of `looking/style.py`, as wide as a column or a slide can show. Plots are
of the sentence `sentence`; those of attention are of the kind that the task shows first ("decoder.cross" of a
translator), or of another `kind`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glassformer.errors import InputError
from glassformer.looking.plots import attention as _attention
from glassformer.looking.plots import beam as _beam
from glassformer.looking.plots import images as _images
from glassformer.looking.plots import vectors as _vectors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from glassformer.looking.patching import Over
    from glassformer.looking.trace import Origin, Trace


class Plots:
    """The figures of a trace: `trace.plot`."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def attention(
        self, layer: int | None = None, head: int | None = None, kind: str | None = None, sentence: int = 0
    ) -> Figure:
        """The weights of one head; if it is not named, of the sharpest (of the layer)."""
        return _attention.attention(self._of(sentence), layer, head, kind, sentence)

    def heads(self, kind: str | None = None, sentence: int = 0) -> Figure:
        """The weights of all heads, small, a row for each layer."""
        return _attention.heads(self._of(sentence), kind, sentence)

    def lines(
        self, layer: int | None = None, head: int | None = None, kind: str | None = None, sentence: int = 0
    ) -> Figure:
        """Lines from each token to those that it looks at, the stronger the thicker."""
        return _attention.lines(self._of(sentence), layer, head, kind, sentence)

    def alignment(
        self, layer: int | None = None, head: int | None = None, kind: str | None = None, sentence: int = 0
    ) -> Figure:
        """Each token, and the one that it looks at most, by the sharpest head or another."""
        return _attention.alignment(self._of(sentence), layer, head, kind, sentence)

    def beam(self, sentence: int = 0, pruned: int = 2) -> Figure:
        """The tree of the beam search; of what was pruned, the best `pruned` after each step."""
        return _beam.beam(self._of(sentence), sentence, pruned)

    def positions(self, stack: str | None = None, sentence: int = 0) -> Figure:
        """What is added to embeddings for their positions, and how alike positions are."""
        return _vectors.positions(self._of(sentence), stack, sentence)

    def embeddings(self, stack: str | None = None, sentence: int = 0) -> Figure:
        """The tokens of a stack as points: as they enter it, and as they leave it."""
        return _vectors.embeddings(self._of(sentence), stack, sentence)

    def gates(self, stack: str | None = None, layer: int = 0, sentence: int = 0) -> Figure:
        """The gates of a recurrent layer, token by token."""
        return _vectors.gates(self._of(sentence), stack, layer, sentence)

    def patches(
        self, image: Any = None, layer: int | None = None, head: int | None = None, sentence: int = 0
    ) -> Figure:
        """Which patches of an image the class token looks at, or each word; over the image, if that is given."""
        return _images.patches(self._of(sentence), image, layer, head, sentence)

    def logit_lens(self, run: Any = None, sentence: int = 0) -> Figure:
        """What the model would say after each layer; a trace from a file needs the run."""
        from glassformer.looking.analyses.lens import logit_lens

        if "logits" not in self._trace:
            raise InputError("the logit lens is of tokens: take the trace before words(), with its logits")
        return logit_lens(run or self._origin("the logit lens").run, self._of(sentence), sentence).figure()

    def attribution(self, word: str | None = None, instead: str | None = None) -> Figure:
        """What was read that speaks for a word of the output, and not for another; without a word, for each."""
        from glassformer.looking.analyses.why import why

        origin = self._origin("attribution")
        return why(origin.run, origin.item, word, instead, origin.written).figure()

    def patching(self, against: Any, metric: Any = None, over: Over = "positions") -> Figure:
        """Which place carries the difference to another text: see `gf.patching`.

        The metric is the log-probability of what the run has answered, if none is given.
        """
        from glassformer.looking.patching import answer_metric, patching

        origin = self._origin("patching")
        usual, written = answer_metric(origin.run, origin.item, origin.written)
        return patching(origin.run, origin.item, against, metric or usual, over, written=written).figure()

    def _of(self, sentence: int) -> Trace:
        """The trace, if it has this sentence."""
        self._trace.check_sentence(sentence)
        return self._trace

    def _origin(self, what: str) -> Origin:
        """The run that a trace is from, and what it worked on."""
        if self._trace.origin is None:
            raise InputError(f"{what} needs the run, and this trace does not know it: make the trace by run.look(text)")
        return self._trace.origin


def born(looks: Sequence[tuple[int, Trace]], kind: str | None = None, sentence: int = 0) -> Figure:
    """Attention being born: the head that is the sharpest in the end, at each of some steps of a training."""
    return _attention.born(looks, kind, sentence)
