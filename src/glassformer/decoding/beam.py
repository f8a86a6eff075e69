"""Beam search: extend the k best partial outputs (beams) by one token, keep the k best, and repeat.

An output with tokens y₁ … yₙ (the end token included) has the score

    score(y) = Σ log p(yᵢ | y₁ … yᵢ₋₁, source) / n^α

where α is the length penalty: 0 ranks by probability, which favours short outputs; 1 by the average per token.
Each step considers the 2k most likely continuations of a sentence's k beams (with e end tokens, the (1 + e) k most
likely). Those that end, and are among the k most likely, are finished outputs; the k most likely others are the next
beams.

The search of a sentence stops when its result cannot change: log-probabilities only fall, so no continuation of a beam
with log-probability s can score above s / L^α, where L is the maximum length (the next length if α < 0). With early
stopping it stops as soon as there are k finished outputs ("filled"), or when in addition no beam would score above
them if it had ended at its present length ("estimated"); a better output may be missed. `generate` of `transformers`
calls these three rules early_stopping = "never", True and False.
A recipe asks for "estimated" unless it says otherwise.

B sentences, k beams
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import torch

from glassformer.decoding.beams import Beams, EarlyStopping, Rules
from glassformer.decoding.capturing import store_for
from glassformer.decoding.limits import Limits, Prefix, Scorer
from glassformer.decoding.loop import Job, Rows, decode
from glassformer.decoding.paths import Expansion
from glassformer.decoding.protocol import (
    NOT_FINITE,
    Generator,
    Hypothesis,
    first_of,
    first_tokens,
    parts_of,
)
from glassformer.decoding.starting import start
from glassformer.errors import ConfigurationError, InputError, NonFiniteError

EVERY = 4  # captured steps before the host looks which sentences are done


@torch.inference_mode()
def beam_search(
    model: Generator,
    *inputs: Any,
    limits: Limits,
    width: int = 5,
    best: int = 1,
    length_penalty: float = 1.0,
    early_stopping: EarlyStopping = "never",
    prefix: Prefix | None = None,
    watch: Callable[[Expansion], None] | None = None,
) -> list[list[Hypothesis]]:
    """The `best` outputs of each sentence, best first, found with `width` beams; fewer if fewer exist.

    Outputs that reach `max_length` without the end token are ranked like the others and have `finished=False`.
    `watch` gets every expansion: pass a `BeamTrees` to keep the whole search tree. (Inside `gf.record(model)`, the
    trace keeps it.)
    """
    if width < 1:
        raise ConfigurationError(f"the beam width must be at least 1, not {width}")
    if not -10 <= length_penalty <= 10:
        raise ConfigurationError(f"the length penalty must be a number from -10 to 10, not {length_penalty}")
    if not 1 <= best <= width:
        raise ConfigurationError(f"the number of outputs must be from 1 to the beam width ({width}), not {best}")
    if early_stopping not in get_args(EarlyStopping):
        known = ", ".join(get_args(EarlyStopping))
        raise ConfigurationError(f"early_stopping must be one of {known}, not {early_stopping!r}")
    source, parts = first_of(inputs), parts_of(model)
    store = store_for(model, parts, source.device)
    state = start(model, parts, inputs, store)
    watcher = getattr(state, "watcher", None)
    watchers = [tell for tell in (watch, watcher and watcher.expand) if tell is not None]
    collected = best if early_stopping == "never" else width
    scorer = Scorer(limits, prefix, inputs, greedily=False)
    rules = Rules(scorer, width, collected, length_penalty, early_stopping, tuple(watchers))
    first = first_tokens(state, limits.start, len(source), source.device)  # (B, 1)
    search = Beams.begin(rules, first, scorer.history(0))
    found: dict[int, list[Hypothesis]] = {}

    def read(search: Beams, rows: Rows, length: int) -> Rows:
        """Take the outputs of the sentences that are done."""
        done, broken = torch.stack((search.done, search.broken)).tolist()
        for row, sentence in rows:
            if broken[row]:
                raise NonFiniteError(NOT_FINITE.format(sentence))
        ended = [(row, sentence) for row, sentence in rows if done[row]]
        if ended:
            outputs = search.outputs([row for row, _ in ended], length)
            found.update(zip((sentence for _, sentence in ended), outputs, strict=True))
        return [(row, sentence) for row, sentence in rows if not done[row]]

    for _ in decode(Job(model, parts, limits.max_length, EVERY, store), state, search, read):
        pass
    for sentence in range(len(source)):
        if not found[sentence]:
            raise InputError(f"sentence {sentence}: every allowed output has probability 0")
    outputs = [found[sentence][:best] for sentence in range(len(source))]
    if watcher is not None:
        watcher.finish(outputs)
    return outputs
