"""A run in use: text in, text out.

B sentences, T target length, D model width
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from glassformer.decoding import Hypothesis, Limits, Sampler, beam_search, collect, greedy, most_likely, stream
from glassformer.errors import ConfigurationError, InputError
from glassformer.evaluation import Rouge, Scores, perplexity, rouge, score
from glassformer.models import DecoderOnly, EncoderDecoder, Made
from glassformer.parts import pack, pad, quantise
from glassformer.pretrained import load as load_checkpoint
from glassformer.pretrained.files import read_config as read_checkpoint_config
from glassformer.recipe import Data, Decode, Recipe, Train
from glassformer.run import folder as files
from glassformer.run.held_out import Progress, device_of, held_out
from glassformer.run.importing import IMPORT, read_habits, read_tokenizers
from glassformer.tasks import sequence_loss
from glassformer.text import Habits, Tokenizer, own_habits
from glassformer.training import resolve


@dataclass(frozen=True)
class Translation:
    """One output: its text, the score it was ranked by, and its tokens."""

    text: str
    score: float
    tokens: list[str]
    ids: list[int] = field(default_factory=list)
    log_probability: float = 0.0
    finished: bool = True
    cut: bool = False  # whether only the beginning of the text was read


@dataclass(frozen=True)
class Evaluation:
    """How a run does on some pairs: the outputs, their scores, and the loss per target token."""

    scores: Scores
    loss: float
    outputs: list[str]
    rouge: Rouge | None = None  # where it was asked for

    @property
    def perplexity(self) -> float:
        """e to the loss: how many equally likely tokens the model hesitates between."""
        return perplexity(self.loss)


class Run:
    """A trained model with everything needed to use it: `run.translate(["5 May 2031"], beam=5)`."""

    def __init__(
        self,
        recipe: Recipe,
        model: EncoderDecoder | DecoderOnly,
        source: Tokenizer,
        target: Tokenizer,
        path: Path | None = None,
        habits: Habits | None = None,
    ) -> None:
        self.recipe, self.model, self.source, self.target, self.path = recipe, model, source, target, path
        self.habits = habits or own_habits(source, target, alone=isinstance(model, DecoderOnly))

    @classmethod
    def load(cls, path: str | Path, device: str = "auto") -> Run:
        """The run in a folder."""
        path = Path(path)
        if (path / IMPORT).is_file():
            return cls._imported(path, device)
        files.read_config(path)
        recipe, (source, target) = files.read_run_recipe(path), files.read_tokenizers(path)
        model = cast(EncoderDecoder, files.read_model(path).to(resolve(device)))
        return cls(recipe, model, source, target, path, read_habits(path))

    @classmethod
    def _imported(cls, path: Path, device: str) -> Run:
        """The checkpoint from elsewhere in a folder. Texts are read as they are: its tokenizer knows what it wants."""
        model = load_checkpoint(path).to(resolve(device))
        if not isinstance(model, EncoderDecoder | DecoderOnly):
            raise InputError(f"{path} reads, but does not write: use it from Python, with glassformer.pretrained.load")
        source, target = read_tokenizers(path, read_checkpoint_config(path))
        data, decode = Data(normalise="none", strip=False, max_tokens=2**31 - 1), Decode(beam=1)
        recipe = Recipe.model_construct(source=None, data=data, decode=decode, train=Train())  # type: ignore[arg-type]
        return cls(recipe, model, source, target, path, read_habits(path))

    def pairs(self, split: str = "test") -> list[tuple[str, str]]:
        """The pairs that were kept out of its training: "valid" or "test"."""
        return held_out(self.path, split)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return device_of(self.model)

    def with_model(self, model: nn.Module) -> Run:
        """The same with another model."""
        return Run(self.recipe, cast(EncoderDecoder, model), self.source, self.target, self.path, self.habits)

    def measure(self, examples: Sequence[tuple[str, str]], most: int) -> dict[str, float]:
        """What validation tells: the loss of all pairs, and scores of the first so many, decoded greedily."""
        loss, some = self.loss(examples), examples[:most]
        outputs = [each.text for each in self.translate([source for source, _ in some], beam=1)]
        references = [target for _, target in some]
        scores = score(outputs, references)
        also = asdict(rouge(outputs, references)) if self._watches_rouge else {}
        return {
            "loss": loss,
            "perplexity": perplexity(loss),
            "bleu": scores.bleu,
            "chrf": scores.chrf,
            "exact": scores.exact,
            **also,
        }

    @property
    def _watches_rouge(self) -> bool:
        return self.recipe.train.watch.startswith("rouge")

    def translate(
        self, texts: Sequence[str], beam: int | None = None, int8: bool = False, progress: Progress | None = None
    ) -> list[Translation]:
        """The best output for each text, in their order."""
        return [best for best, *_ in self.search(texts, beam=beam, int8=int8, progress=progress)]

    def search(
        self,
        texts: Sequence[str],
        beam: int | None = None,
        best: int = 1,
        length_penalty: float | None = None,
        batch: int | None = None,
        int8: bool = False,
        progress: Progress | None = None,
    ) -> list[list[Translation]]:
        """The `best` outputs for each text, best first, in the order of the texts. What is not said is the recipe's.

        With `int8` the larger matrices are rounded to 8 bits: on a CPU a large model is faster so, and nearly as good.
        """
        if isinstance(texts, str):
            raise InputError("translate takes a list of texts: put the text into brackets")
        self._translator()
        decode = self.recipe.decode
        beam = decode.beam if beam is None else beam
        size = decode.batch if batch is None else batch
        if size < 1:
            raise ConfigurationError(f"the sentences decoded together must be at least 1, not {size}")
        model = quantise(self.model) if int8 else pack(self.model)
        whole, room = [self._ids(text) for text in texts], self.habits.room(self.recipe.data.max_tokens)
        tokens = [self._framed(ids) for ids in whole]
        answers: list[list[Translation]] = [[Translation("", 0.0, [])] for _ in texts]
        order = sorted((index for index, ids in enumerate(tokens) if ids), key=lambda index: -len(tokens[index]))
        for first in range(0, len(order), size):
            rows = order[first : first + size]
            inputs = self._inputs([tokens[row] for row in rows])
            if beam == 1 and best == 1:
                found = [[each] for each in greedy(model, *inputs, limits=self.limits)]
            else:
                alpha = decode.length_penalty if length_penalty is None else length_penalty
                found = beam_search(model, *inputs, limits=self.limits, width=beam, best=best, length_penalty=alpha)
            for row, hypotheses in zip(rows, found, strict=True):
                cut = len(whole[row]) > room
                answers[row] = [replace(self._translation(each), cut=cut) for each in hypotheses]
            if progress is not None:
                progress(min(first + size, len(order)), len(order))
        return answers

    def generate(
        self,
        prompts: Sequence[str],
        length: int | None = None,
        sampler: Sampler | None = None,
        beam: int = 1,
        progress: Progress | None = None,
    ) -> list[Translation]:
        """Each prompt and what follows it, by a language model: the likeliest words, or what a `sampler` draws."""
        if isinstance(prompts, str):
            raise InputError("generate takes a list of prompts: put the prompt into brackets")
        if not isinstance(self.model, DecoderOnly):
            raise InputError("this run translates: it does not go on with a prompt; use translate")
        model, size = pack(self.model), self.recipe.decode.batch
        tokens = [self._prompt(prompt) for prompt in prompts]
        rooms = [self._room(len(ids), length).max_length for ids in tokens]
        answers: dict[int, Translation] = {}
        for room in dict.fromkeys(rooms):  # nobody's output ends early because another's prompt is long
            order, limits = (
                [row for row, each in enumerate(rooms) if each == room],
                replace(self.limits, max_length=room),
            )
            for rows in (order[first : first + size] for first in range(0, len(order), size)):
                inputs = self._inputs([tokens[row] for row in rows])
                if sampler is not None:
                    found = collect(stream(model, *inputs, limits=limits, choose=sampler), len(rows), limits.end)
                elif beam > 1:
                    found = [best for best, *_ in beam_search(model, *inputs, limits=limits, width=beam)]
                else:
                    found = greedy(model, *inputs, limits=limits)
                for row, each in zip(rows, found, strict=True):
                    answers[row] = self._translation(each, tokens[row])
                if progress is not None:
                    progress(len(answers), len(tokens))
        return [answers[row] for row in range(len(prompts))]

    def check(self, prompt: str) -> str:
        """The prompt, if the model has room for it and for something more."""
        self._room(len(self._prompt(prompt)), None)
        return prompt

    def stream(self, text: str, sampler: Sampler | None = None, length: int | None = None) -> Iterator[str]:
        """The output for one text, piece by piece as it is written; a language model begins with the text itself."""
        ids = self._prompt(text) if isinstance(self.model, DecoderOnly) else self.encode(text)
        if not ids:
            return
        choose = most_likely if sampler is None else sampler
        limits = self._room(len(ids), length)
        written = list(ids) if isinstance(self.model, DecoderOnly) else []
        shown = whole = ""
        for event in stream(self.model, *self._inputs([ids]), limits=limits, choose=choose):
            written.append(event.token)
            whole = self.target.decode(written)
            if whole != shown and not whole.endswith("\ufffd"):  # a letter of which only some bytes are there yet
                yield whole[len(shown) :]
                shown = whole
        if whole != shown:
            yield whole[len(shown) :]

    def evaluate(
        self,
        pairs: Sequence[tuple[str, str]],
        beam: int | None = None,
        int8: bool = False,
        progress: Progress | None = None,
        with_rouge: bool | None = None,
    ) -> Evaluation:
        """Translate the sources of some pairs, and compare with their targets; by ROUGE too if training watched it."""
        sources, references = [source for source, _ in pairs], [target for _, target in pairs]
        outputs = [each.text for each in self.translate(sources, beam=beam, int8=int8, progress=progress)]
        wanted = self._watches_rouge if with_rouge is None else with_rouge
        also = rouge(outputs, references) if wanted else None
        return Evaluation(score(outputs, references), self.loss(pairs, int8=int8), outputs, also)

    @torch.inference_mode()
    def loss(self, pairs: Sequence[tuple[str, str]], size: int = 64, int8: bool = False) -> float:
        """The mean of -log p over all target tokens, ends included, given the right tokens before each.

        Targets are cut off where sources are. At most `size` pairs go together, and no more than in training.
        """
        model = quantise(self._translator()) if int8 else self._translator()
        budget, habits = self.recipe.train.batch_tokens, self.habits
        encoded = [(self.encode(source), self._written(target)) for source, target in pairs]
        left = sorted((pair for pair in encoded if pair[0]), key=lambda pair: max(map(len, pair)))
        total, count = 0.0, 0
        while left:
            fitting = max(1, min(size, budget // (1 + max(map(len, left[-1])))))
            rows, left = left[-fitting:], left[:-fitting]
            source, source_keep = self._inputs([ids for ids, _ in rows])
            target, keep = pad([[habits.start, *ids, habits.end] for _, ids in rows], habits.pad)
            target, keep = target.to(self.device), keep[:, 1:].to(self.device)
            hidden = model.hidden(source, target[:, :-1], source_keep)  # (B, T, D)
            tokens = int(keep.sum())
            total += float(sequence_loss(hidden, target[:, 1:], keep, tokens, model.head))
            count += tokens
        return total / max(count, 1)

    @property
    def limits(self) -> Limits:
        """What outputs may look like."""
        length = min(self.recipe.decode.max_length, self._places or self.recipe.decode.max_length)
        nameless = range(self.target.size, self.model.decoder.embedding.vocabulary)  # rows that only fill the table
        start = None if isinstance(self.model, DecoderOnly) else self.habits.start
        return Limits(start, self.habits.end, max_length=length, suppress=[*self.habits.never, *nameless])

    def encode(self, text: str) -> list[int]:
        """A source text as tokens, as in training: normalised, cut off at the recipe's longest, framed; or nothing."""
        return self._framed(self._ids(text))

    def _framed(self, whole: list[int]) -> list[int]:
        ids = whole[: self.habits.room(self.recipe.data.max_tokens)]
        return [*self.habits.before, *ids, *self.habits.after] if ids else []

    def _written(self, text: str) -> list[int]:
        """A target text as tokens, as in training but for its start and end; cut off where sources are."""
        return [*self.habits.lead, *self.target.encode(text)[: self.habits.room(self.recipe.data.max_tokens)]]

    def _ids(self, text: str) -> list[int]:
        """A text as tokens, all of it."""
        from glassformer.data import normalise

        try:
            text.encode()
        except (AttributeError, UnicodeEncodeError):
            raise InputError(f"{text!r} is no text") from None
        return self.source.encode(normalise(text, self.recipe.data))

    def _inputs(self, sources: list[list[int]]) -> tuple[Tensor, Tensor]:
        tokens, keep = pad(sources, self.habits.pad)
        return tokens.to(self.device), keep.to(self.device)

    def _prompt(self, text: str) -> list[int]:
        """A prompt as tokens, after what texts begin with; an empty one is a start in any case."""
        return [*self.habits.before, *self._ids(text), *self.habits.after] or [self.habits.start]

    @property
    def _places(self) -> int | None:
        """How many positions the model was made for, where it has such a limit."""
        made = getattr(self.model, "made", None)
        return made.arguments.get("length") if isinstance(made, Made) else None

    def _room(self, prompt: int, length: int | None) -> Limits:
        """The limits of an output of some length; after a prompt it ends where the model's positions end."""
        length = self.limits.max_length if length is None else length
        last = self._places
        if last is not None and isinstance(self.model, DecoderOnly):
            if prompt >= last:
                raise InputError(f"a prompt of {prompt} tokens leaves no room: the model reads {last} in all")
            length = min(length, last - prompt)
        return replace(self.limits, max_length=length)

    def _translator(self) -> EncoderDecoder:
        if not isinstance(self.model, EncoderDecoder):
            raise InputError("this run is a language model: it does not translate; use generate")
        return self.model

    def _translation(self, found: Hypothesis, prompt: Sequence[int] = ()) -> Translation:
        return Translation(
            self.target.decode([*prompt, *found.tokens]),
            found.score,
            self.target.tokens(found.tokens),
            found.tokens,
            found.log_probability,
            found.finished,
        )
