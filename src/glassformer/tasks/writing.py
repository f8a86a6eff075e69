"""What runs that write have in common: texts become tokens, tokens texts, and outputs have limits.

B texts, T length, V vocabulary
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from glassformer.decoding import Choose, Hypothesis, Limits, Sampler, beam_search, complete, most_likely, stream
from glassformer.decoding import Written as Step
from glassformer.decoding.ensemble import members_of
from glassformer.decoding.limits import Scorer
from glassformer.errors import ConfigurationError, InputError
from glassformer.interop.generation import generation_settings
from glassformer.interop.huggingface import Exported
from glassformer.interop.special_tokens import special_keys
from glassformer.looking.patching import Forced
from glassformer.looking.points import Names, Numbers
from glassformer.looking.recording import MOST, record
from glassformer.looking.trace import Origin, Trace
from glassformer.models import EncoderDecoder
from glassformer.models.family import Blueprint, longest
from glassformer.parts import pack, pad, quantise
from glassformer.parts.inference import weights_state
from glassformer.parts.observing import share_observers
from glassformer.tasks.run import Progress, Run
from glassformer.text import SpecialTokens, Tokenizer, own_special_tokens


@dataclass(frozen=True)
class Output:
    """One output: its text, the score it was ranked by, and its tokens."""

    text: str
    score: float
    tokens: list[str]
    ids: list[int] = field(default_factory=list)
    log_probability: float = 0.0
    finished: bool = True
    cut: bool = False  # whether only the beginning of the input was read


@dataclass(frozen=True)
class Steps:
    """The steps of an output: the tokens, how they are spelled, and what each was chosen from."""

    tokens: list[int]  # T; the last one may be the end
    texts: list[str]  # T
    scores: Tensor  # (T, V): log-probabilities that a `Sampler` draws from, -inf for what is not allowed


class Writer(Run):
    """A run whose model writes: the model is laid out for decoding once, when it first writes."""

    _decoding: tuple[object, nn.Module] | None = None  # the state of the weights, and the model as it is laid out

    @property
    def target(self) -> Tokenizer:
        """The tokenizer of what it writes."""
        return self.assets.tokenizers[-1]

    @property
    def special(self) -> SpecialTokens:
        """The special tokens that the model expects."""
        return self.assets.special_tokens or own_special_tokens(self.tokenizer, self.target)

    @property
    def max_positions(self) -> int | None:
        """How many positions the model was made for, if it has such a limit; of an ensemble, the fewest."""
        blueprints = (getattr(model, "blueprint", None) for model in members_of(self.model))
        found = (longest(each) for each in blueprints if isinstance(each, Blueprint))
        return min((length for length in found if length is not None), default=None)

    @property
    def conventions(self) -> dict[str, Any]:
        """What the runs of an ensemble agree on, beside tokens: how inputs become numbers, by the names in messages."""
        data = self.recipe.data
        reading = {f"data.{name}": getattr(data, name) for name in ("normalise", "strip", "max_tokens")}
        return {**reading, "the number of tokens that are scored": self._scored}

    @property
    def limits(self) -> Limits:
        """The limits of outputs."""
        length = self.recipe.decode.max_length
        return self.limits_of(min(length, self.max_positions or length), self.special.start)

    def limits_of(self, length: int, start: int | None, prompt: int = 0) -> Limits:
        """The limits of outputs of some length; rows of the embedding beyond the vocabulary are no tokens.

        `prompt` is the number of tokens before an output that `decode.min_length` counts too.
        """
        special, decode = self.special, self.recipe.decode
        surplus = range(self.target.size, self._scored)
        return Limits(
            start,
            (special.end, *special.other_ends),
            max_length=length,
            min_length=min(max(0, decode.min_length - prompt), length),
            suppress=[*special.suppressed, *surplus],
            suppress_sequences=special.suppressed_sequences,
            no_repeat_ngram=decode.no_repeat_ngram,
            repetition_penalty=decode.repetition_penalty,
            forced_first=special.forced_first,
            forced_last=special.forced_last,
            renormalise=decode.renormalise,
        )

    @property
    def _scored(self) -> int:
        """How many tokens the model scores."""
        return int(members_of(self.model)[0].decoder.embedding.vocabulary)

    @property
    def sampler(self) -> Sampler | None:
        """What draws tokens, if the recipe says so."""
        decode = self.recipe.decode
        return Sampler(decode.temperature, decode.top_k, decode.top_p, decode.min_p) if decode.temperature else None

    def outputs(
        self,
        rows: Sequence[Sequence[int]],
        limits: Sequence[Limits],
        beam: int | None = None,
        best: int = 1,
        sampler: Choose | None = None,
        length_penalty: float | None = None,
        batch: int | None = None,
        int8: bool = False,
        progress: Progress | None = None,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        """The `best` outputs for each row of tokens, best first; each row has its own limits.

        A `sampler` draws tokens, a `beam` searches for the likeliest output. Missing values are the recipe's.
        `prefixes` are the first tokens of each output, from which decoding goes on.
        """
        decode, model = self.recipe.decode, self.decoding_model(int8)
        size = decode.batch if batch is None else batch
        if size < 1:
            raise ConfigurationError(f"the sentences decoded together must be at least 1, not {size}")
        if sampler is None and beam is None and best == 1:
            sampler = self.sampler
        width, seeds = decode.beam if beam is None else beam, _seeds(sampler, rows)
        alpha = decode.length_penalty if length_penalty is None else length_penalty
        found: dict[int, list[Hypothesis]] = {}
        for some in _together(rows, limits, size):
            given, limit = self.padded([rows[row] for row in some]), limits[some[0]]
            prefix = None if prefixes is None else [prefixes[row] for row in some]
            if sampler is not None or width == best == 1:
                choose = sampler or most_likely
                if isinstance(choose, Sampler):
                    choose = choose.seeded([seeds[row] for row in some])
                lines = complete(model, *given, limits=limit, choose=choose, prefix=prefix)  # type: ignore[arg-type]
                hypotheses = [[each] for each in lines]
            else:
                options: dict[str, Any] = {"length_penalty": alpha, "early_stopping": decode.early_stopping}
                options |= {"width": width, "best": best, "prefix": prefix}
                hypotheses = beam_search(model, *given, limits=limit, **options)  # type: ignore[arg-type]
            found.update(zip(some, hypotheses, strict=True))
            if progress is not None:
                progress(len(found), len(rows))
        return [found[row] for row in range(len(rows))]

    def streamed(self, ids: list[int], limits: Limits, sampler: Choose | None) -> Iterator[Step]:
        """The tokens written after a row of tokens, as they are chosen: drawn by a sampler, or the likeliest."""
        choose = sampler or self.sampler or most_likely
        if isinstance(choose, Sampler):
            choose = choose.seeded(_seeds(choose, [ids]))
        return stream(self.decoding_model(), *self.padded([ids]), limits=limits, choose=choose)  # type: ignore[arg-type]

    @property
    def notes(self) -> dict[str, Any]:
        return special_keys(self.model, self.special)

    def exported(self) -> Exported:
        """With how it writes: the special tokens, what is never written, and the section [decode]."""
        decode = self.recipe.decode.model_dump()
        settings = generation_settings(decode, self.max_positions, isinstance(self.model, EncoderDecoder))
        never = {"suppress_tokens": [*self.limits.suppress]}
        return replace(super().exported(), generation={**self.notes, **settings, **never})

    def decoding_model(self, int8: bool = False) -> nn.Module:
        """The model laid out for decoding; with `int8`, its larger matrices are rounded to 8 bits."""
        state = int8, weights_state(self.model)
        if self._decoding is None or self._decoding[0] != state:
            self._decoding = state, quantise(self.model) if int8 else pack(self.model)
        share_observers(self.model, self._decoding[1])  # whoever looks into the model sees what the copy does
        return self._decoding[1]

    def padded(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, ...]:
        """Rows of tokens on the model's device, (B, T), and which of them are real, (B, T)."""
        tokens, keep = pad(rows, self.special.pad)
        return tokens.to(self.device), keep.to(self.device)

    def scored(self, ids: Sequence[int], written: list[int], logits: Tensor, limits: Limits) -> Steps:
        """What each token was chosen from, given the logits (T, V) of all steps after what was read."""
        score, logits = Scorer(limits, None, self.padded([ids]), greedily=True), logits.to(self.device)
        before = torch.tensor(written, dtype=torch.long, device=self.device)[None, None]  # (1, 1, T)
        scores = [score(logits[None, None, step], before[..., :step], [0])[0, 0] for step in range(len(logits))]
        ended = len(written) < len(scores)
        tokens = [*written, *([self.special.end] if ended else [])]
        return Steps(tokens, [*self.target.tokens(written), *(["end"] if ended else [])], torch.stack(scores).cpu())


class SourceReader(Writer):
    """A run whose model reads a source and writes a target: looking at it follows the beam that was chosen."""

    attention_kind: ClassVar[str] = "decoder.cross"
    searches: ClassVar[bool] = True

    def look(
        self,
        text: Any,
        keep: Names | None = None,
        layers: Numbers | None = None,
        heads: Numbers | None = None,
        beam: int | None = None,
        length_penalty: float | None = None,
        sampler: Choose | None = None,
        prefix: Sequence[int] = (),
        *,
        gigabytes: float = MOST,
    ) -> Trace:
        """What happens inside the model while it reads a text and writes, step by step, what it writes.

        All follows the beam that was chosen; `trace.beams` has the tree of the search. What is written begins with the
        tokens of `prefix`. Other arguments are those of `gf.record` and of `outputs`.
        """
        ids, prefixes = self.read_something(text), [prefix] if prefix else None
        with record(self.model, keep, layers, heads, gigabytes) as trace:
            ((found, *_),) = self.outputs(
                [ids], [self.limits], beam, sampler=sampler, length_penalty=length_penalty, prefixes=prefixes
            )
        forced = self.forced(text, found.tokens, found.finished)
        beams = [self.target.tokens([node.token for node in tree.nodes]) for tree in trace.beams]
        spelled = {**forced.tokens, **self.spellings(trace), **({"beams": beams} if beams else {})}
        about = self.description(text, spelled, forced.words)
        about = replace(about, output=self.output_text(text, found.tokens))
        return trace.described(about, Origin(self, text, found.tokens))

    def steps(self, text: Any, trace: Trace) -> Steps:
        """The tokens that were written in a look of this run, and what each was chosen from. The trace has logits."""
        return self.scored(self.read_something(text), written_in(trace), trace["logits"][0], self.limits)

    def forced(self, text: Any, written: Sequence[int] | None = None, finished: bool = True) -> Forced:
        """What the model takes to read a text and to write some tokens, or those that it would write."""
        ids = self.read_something(text)
        if written is None:
            ((found, *_),) = self.outputs([ids], [self.limits])
            written, finished = found.tokens, found.finished
        tokens, end = list(written), ["end"] if finished else []
        read = [self.special.start, *(tokens if finished else tokens[:-1])]
        inputs = (self.padded([ids])[0], torch.tensor([read], device=self.device))
        spelled, words = self.spelled(ids)
        texts = {
            "encoder": [spelled],
            "decoder": [["start", *self.target.tokens(read[1:])]],
            "written": [[*self.target.tokens(tokens), *end]],
        }
        own = self.target.words(tokens)
        groups = {
            **({} if words is None else {"encoder": [words]}),
            "decoder": [[[0], *([place + 1 for place in word] for word in self.target.words(read[1:]))]],
            "written": [[*own, [len(tokens)]] if finished else own],
        }
        return Forced(inputs, texts, groups, tokens)

    def spelled(self, ids: Sequence[int]) -> tuple[list[str], list[list[int]] | None]:
        """How the tokens of a source are spelled, and which of them are words, if they are of words."""
        return self.tokenizer.tokens(ids), self.tokenizer.words(ids)

    def output_text(self, text: Any, written: list[int]) -> str:
        """What the run answers to a text, given the tokens that its model wrote."""
        return self.target.decode(written)


def _together(rows: Sequence[Sequence[int]], limits: Sequence[Limits], size: int) -> Iterator[list[int]]:
    """Which rows are decoded together: at most `size` with the same limits, the longest first."""

    def lengths(row: int) -> tuple[int, int]:
        return limits[row].max_length, limits[row].min_length

    order = sorted(range(len(rows)), key=lambda row: (lengths(row), -len(rows[row])))
    for _, group in groupby(order, key=lengths):
        alike = list(group)
        yield from (alike[first : first + size] for first in range(0, len(alike), size))


def _seeds(sampler: Choose | None, rows: Sequence[Sequence[int]]) -> Sequence[Any]:
    """A seed for each row, which the other rows do not change; rows that are equal get different ones."""
    if not isinstance(sampler, Sampler):
        return []
    if not isinstance(sampler.seed, int):
        return sampler.seed
    count: Counter[tuple[int, ...]] = Counter()
    seeds = []
    for row in map(tuple, rows):
        seeds.append(f"{sampler.seed} {count[row]} {row}")
        count[row] += 1
    return seeds


def written_in(trace: Trace) -> list[int]:
    """The tokens that a run has written in a look."""
    if trace.origin is None or trace.origin.written is None:
        raise InputError("this trace does not know what was written: make it by run.look(text)")
    return trace.origin.written


def output(found: Hypothesis, tokenizer: Tokenizer, prompt: Sequence[int] = ()) -> Output:
    """What was written, after the prompt that it continues."""
    return Output(
        tokenizer.decode([*prompt, *found.tokens]),
        found.score,
        tokenizer.tokens(found.tokens),
        found.tokens,
        found.log_probability,
        found.finished,
    )


def pieces(written: Iterable[Step], tokenizer: Tokenizer, prompt: Sequence[int] = ()) -> Iterator[str]:
    """The prompt and what is written after it as text, piece by piece."""
    tokens = list(prompt)
    shown = whole = ""
    for event in written:
        tokens.append(event.token)
        whole = tokenizer.decode(tokens)
        if whole != shown and not whole.endswith("\ufffd"):  # a letter of which some bytes are missing yet
            yield whole[len(shown) :]
            shown = whole
    if whole != shown:
        yield whole[len(shown) :]
