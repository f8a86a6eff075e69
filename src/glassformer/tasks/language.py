"""Language modelling: which token comes next, at every position of the documents.

Documents stand end to end, in windows. Attention stays inside a document, positions restart with each, and the first
token of a document is never predicted from the one before. So the loss of a window is that of its documents by
themselves, and nothing is spent on padding.

W windows, B windows or texts in a batch, T length, D model width, N windows on texts that are evaluated
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from glassformer.data import Context, Corpus, Encode, Rows
from glassformer.data.encoding import DocumentEncoder
from glassformer.decoding import Choose, Limits, Sampler
from glassformer.errors import InputError
from glassformer.evaluation import perplexity
from glassformer.evaluation.bootstrap import Statistic, ratio
from glassformer.evaluation.judging import Judged
from glassformer.evaluation.metrics import perplexities
from glassformer.looking.patching import Forced
from glassformer.looking.points import Names, Numbers
from glassformer.looking.recording import MOST, record
from glassformer.looking.trace import Origin, Trace
from glassformer.models import DecoderOnly
from glassformer.recipe import Recipe
from glassformer.tasks.choosing import Chosen, choose
from glassformer.tasks.documents import (
    SAMPLES,
    UNUSED,
    DocumentEvaluation,
    DocumentTask,
    defaults_with,
    judge_each,
)
from glassformer.tasks.gathering import TokenBatch, gathered, token_loss
from glassformer.tasks.losses import row_losses
from glassformer.tasks.protocol import Loss
from glassformer.tasks.run import Progress, Run, by_length, check_list, quoted
from glassformer.tasks.showing import Part, Reply, Sample, Score, one_line
from glassformer.tasks.writing import Output, Steps, Writer, output, pieces, written_in
from glassformer.text import SpecialTokens, own_special_tokens

PROMPT, WRITTEN = 12, 60  # after training: tokens of a document that are given, and tokens that are written
LOOKED = 20  # tokens that are written to be looked at
LONGEST = 10_000  # characters of a document in which these tokens are looked for
SAMPLER = Sampler(temperature=0.8, top_p=0.95, seed=0)


class Windows:
    """Documents end to end, cut every `length` tokens: where each window begins (W), and how long it is (W, 2).

    The very last token is in no window: nothing comes after it.
    """

    def __init__(self, documents: Rows, length: int) -> None:
        self.flat, self.starts = documents.flat, documents.starts
        total = max(len(self.flat) - 1, 0)
        self.begins = np.arange(0, total, length, dtype=np.int64)
        sizes = np.minimum(length, total - self.begins)
        self.lengths = np.stack((sizes, np.zeros_like(sizes)), axis=1).astype(np.int32)


@dataclass(frozen=True)
class WindowCollator:
    """Makes batches of windows, whose labels are the tokens after each, if those are of the same document."""

    pairs: Windows
    pad: int
    shifted: bool = False  # whether each window begins anywhere before the next one, drawn anew each time
    skipped: int = 0  # labels at the beginning of each longer window that do not count, as little comes before them

    def __call__(self, rows: NDArray[Any], rng: np.random.Generator) -> TokenBatch:
        windows = self.pairs
        begins, sizes = windows.begins[rows], windows.lengths[rows, 0].astype(np.int64)  # (B), (B)
        if self.shifted:
            begins = np.minimum(begins + rng.integers(0, sizes), len(windows.flat) - 1 - sizes)
        text, real = gathered(windows.flat, begins, sizes, self.pad)  # (B, T)
        labels, _ = gathered(windows.flat, begins + 1, sizes, self.pad)  # (B, T)
        places = begins[:, None] + np.arange(text.shape[1] + 1)
        numbers = np.searchsorted(windows.starts, places, side="right")  # (B, T + 1)
        label_mask = real & (numbers[:, 1:] == numbers[:, :-1])
        label_mask[sizes > self.skipped, : self.skipped] = False
        packed = bool((real & (numbers[:, :-1] != numbers[:, :1])).any())
        return TokenBatch(
            text=torch.from_numpy(text),
            labels=torch.from_numpy(labels),
            label_mask=torch.from_numpy(label_mask),
            documents=torch.from_numpy(numbers[:, :-1].astype(np.int64)) if packed else None,
            tokens=int(sizes.sum()),
            targets=int(label_mask.sum()),
        )


@dataclass(frozen=True)
class LanguageEvaluation(DocumentEvaluation):
    """How likely some texts are, their ends included: -log p of their tokens, and of how much text.

    A piece of a text counts as many of its words and bytes as it has of its tokens, in proportion.
    """

    words: int  # between spaces
    bytes: int  # in UTF-8

    @property
    def word_perplexity(self) -> float:
        """The perplexity of a word: it does not depend on the tokenizer."""
        return perplexity(self.nats / self.words)

    @property
    def bits_per_byte(self) -> float:
        """What a byte costs if the text is compressed with the model: it does not depend on the tokenizer."""
        return self.nats / math.log(2) / self.bytes

    @property
    def weighed(self) -> tuple[float, float]:
        return self.nats / math.log(2), float(self.bytes)

    def resampled(self) -> tuple[int, dict[str, Statistic]]:
        count, statistics = super().resampled()
        if self.pieces is not None:
            nats, _, words, size = self.pieces
            bits, per_word = ratio(nats / math.log(2), size), ratio(nats, words)
            statistics |= {"word_perplexity": lambda counts: perplexities(per_word(counts)), "bits_per_byte": bits}
        return count, statistics

    def summary(self) -> dict[str, float]:
        return {**super().summary(), "word_perplexity": self.word_perplexity, "bits_per_byte": self.bits_per_byte}

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "tokens": self.tokens, "words": self.words, "bytes": self.bytes}

    def table(self) -> list[Score]:
        per_word = self.score("perplexity", self.word_perplexity, ".3f", "word_perplexity", unit="per word")
        bits = self.score("bits per byte", self.bits_per_byte, ".4f", "bits_per_byte")
        return [*super().table(), per_word, bits]


class LanguageModel(Writer):
    """A trained language model: `run.generate(["Once upon a time"])`."""

    attention_kind: ClassVar[str] = "decoder.self"
    searches: ClassVar[bool] = True
    extends: ClassVar[bool] = True
    opens_with: ClassVar[str] = "AutoModelForCausalLM and AutoTokenizer"
    exports: ClassVar[dict[str, Any]] = {"frame": "start"}  # the tokenizer puts the start before a text

    @property
    def special(self) -> SpecialTokens:
        return self.assets.special_tokens or own_special_tokens(self.tokenizer, self.tokenizer, alone=True)

    def generate(
        self,
        prompts: Sequence[str],
        length: int | None = None,
        sampler: Choose | None = None,
        beam: int | None = None,
        progress: Progress | None = None,
    ) -> list[Output]:
        check_list(prompts, "generate")
        rows = [self._prompt(prompt) for prompt in prompts]
        limits = [self._room(len(ids), length) for ids in rows]
        found = self.outputs(rows, limits, beam, sampler=sampler, progress=progress)
        return [output(best, self.tokenizer, ids) for ids, (best, *_) in zip(rows, found, strict=True)]

    def stream(self, text: str, sampler: Choose | None = None, length: int | None = None) -> Iterator[str]:
        """A text and what follows it, piece by piece as it is written."""
        ids = self._prompt(text)
        return pieces(self.streamed(ids, self._room(len(ids), length), sampler), self.tokenizer, ids)

    def choose(self, prompts: Sequence[str], choices: Sequence[str], progress: Progress | None = None) -> list[Chosen]:
        check_list(prompts, "choose")
        check_list(choices, "choose")
        return choose(self, prompts, choices, progress)

    def check(self, prompt: str) -> str:
        """The prompt, if the model has room for it and for something more."""
        self._room(len(self._prompt(prompt)), None)
        return prompt

    def read(self, text: str) -> list[int]:
        ids, last = self._prompt(text), self.max_positions
        if last is not None and len(ids) > last:
            raise InputError(f"{quoted(text)} has {len(ids)} tokens: the model reads {last}")
        return ids

    def look(
        self,
        text: Any,
        keep: Names | None = None,
        layers: Numbers | None = None,
        heads: Numbers | None = None,
        length: int | None = None,
        beam: int | None = None,
        length_penalty: float | None = None,
        sampler: Choose | None = None,
        prefix: Sequence[int] = (),
        *,
        gigabytes: float = MOST,
    ) -> Trace:
        """What happens inside the model while it reads a text, and at most `length` tokens that it has written then.

        All is read at once, which gives the same numbers as step by step; `trace.beams` has the tree of the search.
        What is written begins with the tokens of `prefix`. If no length is named, nothing is written, or 20 tokens
        where a beam, a sampler or a prefix is. Other arguments are those of `gf.record` and of `outputs`.
        """
        if length is None:
            length = LOOKED if beam is not None or sampler is not None or prefix else 0
        if not length:
            return super().look(text, keep, layers, heads, gigabytes=gigabytes)
        ids = self.read_something(text)
        limits, prefixes = [self._room(len(ids), length)], [prefix] if prefix else None
        with record(self.model, "decoder.tokens") as searched:
            ((found, *_),) = self.outputs(
                [ids], limits, beam, sampler=sampler, length_penalty=length_penalty, prefixes=prefixes
            )
        whole = [*ids, *found.tokens]
        read = whole if found.finished else whole[:-1]  # what was written last is not read any more
        with record(self.model, keep, layers, heads, gigabytes) as trace, torch.inference_mode():
            self.model(*self.inputs(torch.tensor([read], device=self.device)))
        trees = searched.beams
        beams = {"beams": [self.tokenizer.tokens([node.token for node in tree.nodes]) for tree in trees]}
        tokens = {"decoder": [self.tokenizer.tokens(read)], **self.spellings(trace), **(beams if trees else {})}
        about = self.description(text, tokens, {"decoder": [self.tokenizer.words(read)]})
        before, after = self.tokenizer.decode(ids), self.tokenizer.decode(whole)
        about = replace(about, output=after.removeprefix(before))
        return trace.with_beams(trees).described(about, Origin(self, text, found.tokens))

    def steps(self, text: Any, trace: Trace) -> Steps:
        """The tokens that were written in a look of this run, and what each was chosen from. The trace has logits."""
        ids, written = self.read_something(text), written_in(trace)
        return self.scored(ids, written, trace["logits"][0, len(ids) - 1 :], self._room(len(ids), max(1, len(written))))

    def forced(self, text: Any, written: Sequence[int] | None = None) -> Forced:
        """What the model takes to read a text, and what it is to have written after it."""
        ids = [*self.read_something(text), *(written or ())]
        inputs = self.inputs(torch.tensor([ids], device=self.device))
        return Forced(inputs, {"decoder": [self.tokenizer.tokens(ids)]}, {"decoder": [self.tokenizer.words(ids)]})

    def reply(self, text: str, trace: Trace) -> Reply:
        """The text, and what was written after it."""
        written = (Part(trace.output, marked=True),) if trace.output else ()
        return Reply((Part(text), *written))

    def suggestion(self, example: tuple[Any, ...]) -> str | None:
        return self._prompts([example])[0].strip() or None

    def _prompt(self, text: str) -> list[int]:
        """A prompt as tokens between the special ones; an empty prompt is the start token in any case."""
        ids, special = self.tokenizer.encode(self.normalised(text)), self.special
        return [*special.source_prefix, *ids, *special.source_suffix] or [special.start]

    def _room(self, prompt: int, length: int | None) -> Limits:
        """The limits of an output of some length after a prompt of so many tokens: it ends where positions end."""
        decode, last = self.recipe.decode, self.max_positions
        counted = prompt if decode.count_prompt else 0
        most = decode.max_length - counted if length is None else length
        if last is not None and prompt >= last:
            raise InputError(f"a prompt of {prompt} tokens leaves no room: the model reads {last} in all")
        if most < 1:
            raise InputError(f"a prompt of {prompt} tokens leaves no room: decode.max_length is {decode.max_length}")
        return self.limits_of(most if last is None else min(most, last - prompt), None, counted)

    @torch.inference_mode()
    def evaluate(self, examples: Sequence[tuple[Any, ...]], progress: Progress | None = None) -> LanguageEvaluation:
        """How likely some texts are.

        A text longer than the model reads is read in windows that overlap by half: each of its tokens counts once, and
        the model has seen half a window before it at least, or all there is.
        """
        texts = [self.normalised(example[0]) for example in examples]
        if not any(text.strip() for text in texts):
            raise InputError("there is nothing to evaluate: no text")
        windows = [[*self._windows(ids)] for ids in self.tokenizer.encode_batch(texts)]
        rows, done = [row for some in windows for row in some], 0
        nats = np.zeros(len(rows))
        for some in by_length([len(ids) for ids, _ in rows], self.recipe.train.batch_tokens):
            nats[some] = self.nats([rows[row] for row in some])
            done += len(some)
            if progress is not None:
                progress(done, len(rows))
        tokens = np.array([len(ids) - 1 - seen for ids, seen in rows], np.float64)
        of_text = np.repeat(np.arange(len(texts)), [len(some) for some in windows])
        part = tokens / np.bincount(of_text, tokens)[of_text]  # of the text that a window is of
        words = part * np.array([max(1, len(text.split())) for text in texts])[of_text]
        size = part * np.array([len(text.encode()) for text in texts])[of_text]
        return LanguageEvaluation.of(np.stack((nats, tokens, words, size)), len(texts))

    def _windows(self, ids: list[int]) -> Iterator[tuple[list[int], int]]:
        """A text in windows of tokens to read and one more to predict, and how many of each were predicted before."""
        framed = [self.special.start, *ids, self.special.end]
        for begin, end, seen in sliding(len(framed) - 1, self.recipe.data.max_tokens):
            yield framed[begin : end + 1], seen

    def nats(self, rows: Sequence[tuple[list[int], int]]) -> Tensor:
        """-log p of what is predicted in each of some windows, (B), without that of so many tokens at its beginning."""
        tokens, keep = self.padded([ids for ids, _ in rows])  # (B, T)
        seen = torch.tensor([seen for _, seen in rows], device=tokens.device)
        places = torch.arange(tokens.shape[1] - 1, device=tokens.device)
        label_mask = keep[:, 1:] & (places >= seen[:, None])  # (B, T)
        hidden = self.model.hidden(tokens[:, :-1], keep[:, :-1])  # (B, T, D)
        return row_losses(hidden, tokens[:, 1:], label_mask, self.model.head)

    def judge(self, examples: Sequence[tuple[Any, ...]], progress: Progress | None = None) -> Judged:
        return judge_each("bits per byte", self.evaluate, examples, progress)

    def _prompts(self, examples: Sequence[tuple[Any, ...]]) -> list[str]:
        """The beginnings of some documents."""
        few = min(PROMPT, self.recipe.data.max_tokens // 4)
        texts = [self.normalised(examples[row][0][:LONGEST]) for row in self.rows_shown(examples, SAMPLES)]
        return [self.tokenizer.decode(self.tokenizer.encode(text)[:few]) for text in texts]

    def samples(self, examples: Sequence[tuple[Any, ...]], found: LanguageEvaluation | None) -> list[Sample]:
        """Beginnings of documents, and what the model writes after each."""
        prompts = self._prompts(examples)
        outputs = self.generate(prompts, WRITTEN, SAMPLER)
        return [Sample(prompt, each.text[len(prompt) :]) for prompt, each in zip(prompts, outputs, strict=True)]

    def new_samples(self, examples: Sequence[tuple[Any, ...]]) -> list[Sample]:
        return self.samples(examples, None)

    def next_commands(self, examples: Sequence[tuple[Any, ...]]) -> list[str]:
        prompt = shlex.quote(one_line(self._prompts(examples[:1])[0]))
        return [f"generate --run RUN {prompt} --temperature 0.8 --stream", "evaluate --run RUN"]


def sliding(total: int, length: int) -> Iterator[tuple[int, int, int]]:
    """Windows on so many tokens: from where, to where, and how many of the first were in the window before."""
    begin = end = 0
    while end < total:
        known, end = end, min(total, max(begin + length, end + (length + 1) // 2))
        begin = max(0, end - length)
        yield begin, end, known - begin


class LanguageTask(DocumentTask):
    """From the beginning of a text to what follows."""

    kind: Literal["language-modelling"] = "language-modelling"
    windows: Literal["fixed", "shifted"] = Field(
        "fixed", description="where training sequences begin: at the same tokens in every epoch, or shifted at random"
    )

    answer: ClassVar[str] = "next"
    drawn: ClassVar[set[str]] = {"windows"}
    writes: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = defaults_with("gpt2")
    unused: ClassVar[Mapping[str, str]] = UNUSED | {
        "data.long": "documents stand end to end, in windows of data.max_tokens",
    }
    suggested: ClassVar[Mapping[str, Mapping[str, Any]]] = {"task": {"windows": "shifted"}}
    loss: ClassVar[Loss] = staticmethod(token_loss)
    Run: ClassVar[type[Run]] = LanguageModel

    @classmethod
    def likelihood(cls, rows: Sequence[Any]) -> float:
        """Texts without targets are most often that."""
        return 0.2

    def encoder(self, context: Context) -> Encode:
        """Documents as they are, each with a start and an end."""
        return DocumentEncoder(context.tokenizer, None, framed=True)

    def collator(self, recipe: Recipe, corpus: Corpus, model: nn.Module) -> WindowCollator:
        windows = Windows(corpus.splits["train"], recipe.data.max_tokens)
        return WindowCollator(windows, corpus.assets.tokenizers[0].pad, self.windows == "shifted")

    def unvaried(
        self, recipe: Recipe, corpus: Corpus, model: nn.Module, rows: NDArray[Any]
    ) -> tuple[WindowCollator, NDArray[Any]]:
        """Windows that begin at the same tokens each time; as in evaluation, half a window comes before each label."""
        half = recipe.data.max_tokens // 2
        return replace(self.collator(recipe, corpus, model), shifted=False, skipped=half), rows

    @classmethod
    def adopts(cls, model: nn.Module) -> bool:
        """A decoder without a source."""
        return isinstance(model, DecoderOnly)
