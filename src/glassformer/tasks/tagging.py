"""Tagging: a text is read whole, and each of its words gets one of a few tags.

    <start> the do ##g can fish <end>
             0       1   2   3            the words that end there

A word is tagged at its last token, where a model that reads from left to right has read all of it.

B texts or pieces of them in a batch, T length, W words, C classes
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from glassformer.data import Assets, BadRow, Columns, Context, Corpus, Encoded, Rows, normalise
from glassformer.data.cleaning import why_dropped
from glassformer.errors import InputError
from glassformer.evaluation.bootstrap import Statistic, ratio
from glassformer.evaluation.judging import Judged, accuracy
from glassformer.looking.trace import Trace
from glassformer.recipe import Data, Recipe
from glassformer.tasks.encoding import TextEncoder
from glassformer.tasks.gathering import TokenBatch, both_sides, token_loss
from glassformer.tasks.labels import REPEATED, LabelEvaluation, predictions
from glassformer.tasks.protocol import Loss
from glassformer.tasks.run import Progress, Run, check_list, in_batches, quoted
from glassformer.tasks.showing import Likely, Part, Reply, Sample, Score
from glassformer.tasks.task import Task, encodes_for
from glassformer.text import Tokenizer

Examples = Sequence[tuple[Sequence[str], Sequence[str]]]  # words, tags
LIKELY = 5  # tags of a word that a page shows


class TaggedText(NamedTuple):
    """The words of a text, and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass
class Piece:
    """Some words of a sentence, framed: their tokens, and the position of each word's last one."""

    tokens: list[int] = field(default_factory=list)
    lasts: list[int] = field(default_factory=list)


def cut(sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, limit: int) -> list[list[Piece]]:
    """The pieces of each sentence, in their order: at most `limit` tokens, and each word is in one of them.

    A word longer than the limit is cut off.
    """
    before, after = tokenizer.around()
    room = max(1, limit - len(before) - len(after))
    spelled = tokenizer.spelled([" ".join(words) for words in sentences])
    found = []
    for words, (ids, spans) in zip(sentences, spelled, strict=True):
        pieces = [Piece([*before])]
        for spelling in spellings(words, ids, spans):
            tokens = spelling or [tokenizer.unknown]
            if pieces[-1].lasts and len(pieces[-1].tokens) - len(before) + len(tokens) > room:
                pieces.append(Piece([*before]))
            pieces[-1].tokens += tokens[:room]
            pieces[-1].lasts.append(len(pieces[-1].tokens) - 1)
        for piece in pieces:
            piece.tokens += after
        found.append(pieces)
    return found


def spellings(words: Sequence[str], ids: list[int], spans: list[tuple[int, int]]) -> Iterator[list[int]]:
    """The tokens of each word and of the space before it; `spans` are the characters that each token stands for."""
    token, end = 0, -1
    for word in words:
        end, first = end + 1 + len(word), token
        while token < len(ids) and spans[token][0] < end:
            token += 1
        yield ids[first:token]


@dataclass(frozen=True)
class TagCollator:
    """Makes batches of framed texts and tags."""

    pairs: Rows
    pad: int

    def __call__(self, rows: NDArray[Any], rng: np.random.Generator) -> TokenBatch:
        text, mask, tags = both_sides(self.pairs, rows, self.pad)  # (B, T), 0: no word ends there
        return TokenBatch(
            text=torch.from_numpy(text),
            labels=torch.from_numpy(np.maximum(tags - 1, 0)),
            label_mask=torch.from_numpy(tags > 0),
            documents=None,
            tokens=int(mask.sum()),
            targets=int((tags > 0).sum()),
            mask=torch.from_numpy(mask),
        )


@dataclass(frozen=True)
class Tags:
    """A sentence's words, the likeliest tag of each, and its probability."""

    words: list[str]
    tags: list[str]
    probabilities: list[float]


@dataclass(frozen=True)
class TagEvaluation(LabelEvaluation):
    """How a run does on some tagged sentences: on all words, and how many sentences have no mistake."""

    hits: list[bool]  # whether all tags of each sentence are right
    answers: list[Tags]

    @property
    def exact(self) -> float:
        """The fraction of sentences without a mistake."""
        return sum(self.hits) / len(self.hits)

    @property
    def words(self) -> int:
        """The words of all sentences."""
        return len(self.predictions.true)

    def resampled(self) -> tuple[int, dict[str, Statistic]]:
        count, statistics = super().resampled()
        return count, statistics | {"exact": ratio(self.hits)}

    def summary(self) -> dict[str, float]:
        return super().summary() | {"exact": self.exact}

    def facts(self) -> dict[str, Any]:
        scores = super().facts()
        f1 = scores.pop("f1")
        return {"sentences": len(self.answers), "words": self.words, **scores, "exact": self.exact, "f1": f1}

    def table(self) -> list[Score]:
        return [*super().table(), self.score("sentences without a mistake", self.exact, ".2%", "exact")]

    def lines(self) -> list[str]:
        sentences = self.table()[-1]
        return [
            f"{self.words:,} words of {len(self.answers):,} sentences: {self.sentence}",
            f"{sentences.name}: {sentences}",
            *self.f1_lines("tag"),
        ]


class Tagger(TextEncoder):
    """A trained model that tags words: `run.tag(["they can fish"])`."""

    opens_with: ClassVar[str] = (
        "AutoModelForTokenClassification and AutoTokenizer; a word's tag is that of its last token"
    )
    exports: ClassVar[dict[str, Any]] = {"encodes": True, "strip": True}

    def check(self, text: str) -> list[str]:
        """The words of a text, if it has any."""
        words = self.normalised(text).split()
        if not words:
            raise InputError(f"there is nothing to tag in {quoted(text)}")
        return words

    def tag(self, texts: Sequence[str], progress: Progress | None = None) -> list[Tags]:
        """The tags of each text's words, in their order. Words have spaces between them."""
        check_list(texts, "tag")
        return self.tag_words([self.check(text) for text in texts], progress)

    def tag_words(self, sentences: Sequence[list[str]], progress: Progress | None = None) -> list[Tags]:
        """The same for sentences whose words are given one by one."""
        return self._tagged(sentences, self._log_probabilities(sentences, progress))

    def evaluate(self, examples: Examples, progress: Progress | None = None) -> TagEvaluation:
        if not examples:
            raise InputError("there is nothing to evaluate: no tagged sentence")
        sentences, right = [self.check(" ".join(words)) for words, _ in examples], [list(tags) for _, tags in examples]
        for words, tags in zip(sentences, right, strict=True):
            if len(words) != len(tags):
                raise InputError(f"{quoted(' '.join(words))} has {len(words)} words but {len(tags)} tags")
        found = self._log_probabilities(sentences, progress)
        answers = self._tagged(sentences, found)
        hits = [answer.tags == tags for answer, tags in zip(answers, right, strict=True)]
        return TagEvaluation(predictions(found, right, self.labels), self.labels, hits, answers)

    def judge(self, examples: Examples, progress: Progress | None = None) -> Judged:
        """The accuracy of words, not of sentences."""
        answers = self.tag([" ".join(words) for words, _ in examples], progress)
        right = [tags for _, tags in examples]
        hits = [sum(map(str.__eq__, answer.tags, tags)) for answer, tags in zip(answers, right, strict=True)]
        return accuracy(hits, [float(len(tags)) for tags in right])

    def _tagged(self, sentences: Sequence[list[str]], found: list[Tensor]) -> list[Tags]:
        answers = []
        for words, log_probabilities in zip(sentences, found, strict=True):
            values, numbers = log_probabilities.exp().max(dim=1)
            answers.append(Tags(words, [self.labels[number] for number in numbers.tolist()], values.tolist()))
        return answers

    @torch.inference_mode()
    def _log_probabilities(self, sentences: Sequence[list[str]], progress: Progress | None = None) -> list[Tensor]:
        """Of each tag for each word, (W, C) a sentence; pieces of similar length go together."""
        pieces = cut(sentences, self.tokenizer, self.recipe.data.max_tokens)
        numbered = [(sentence, piece) for sentence, some in enumerate(pieces) for piece in some]
        found: dict[int, Tensor] = {}
        for rows, tokens, keep in in_batches([piece.tokens for _, piece in numbered], self, progress):
            of_tokens = F.log_softmax(self.model(tokens, keep).float(), dim=-1).cpu()  # (B, T, C)
            found |= {row: each[numbered[row][1].lasts] for row, each in zip(rows, of_tokens, strict=True)}
        joined: list[list[Tensor]] = [[] for _ in sentences]
        for row, (sentence, _) in enumerate(numbered):
            joined[sentence].append(found[row])
        return [torch.cat(each) for each in joined]

    def read(self, text: str) -> list[int]:
        """A text as the tokens that the model reads: of a long one, the first piece."""
        return cut([self.check(text)], self.tokenizer, self.recipe.data.max_tokens)[0][0].tokens

    def output_of(self, text: str) -> str:
        found = self.tag([text])[0]
        return " ".join(map("{}/{}".format, found.words, found.tags))

    def reply(self, text: str, trace: Trace) -> Reply:
        """Each word with its tag, and the likeliest tags."""
        words = self.check(text)
        values, numbers = self._log_probabilities([words])[0].exp().topk(min(LIKELY, len(self.labels)), dim=1)  # (W, k)
        parts = []
        for word, some, tags in zip(words, values.tolist(), numbers.tolist(), strict=True):
            likely = tuple(Likely(self.labels[tag], value) for tag, value in zip(tags, some, strict=True))
            parts.append(Part(word, label=likely[0].text, likely=likely))
        return Reply(tuple(parts))

    def samples(self, examples: Examples, found: TagEvaluation) -> list[Sample]:
        """Sentences with the tag of each word, and with the true tags."""
        made = []
        for row in self.rows_shown(examples):
            words, tags, true = found.answers[row].words, found.answers[row].tags, list(examples[row][1])
            output, reference = (" ".join(map("{}/{}".format, words, some)) for some in (tags, true))
            made.append(Sample(" ".join(words), output, reference, tags == true, called="true tags"))
        return made

    def shown(self, examples: Examples, found: TagEvaluation) -> list[str]:
        """Sentences with the tag of each word, and the true tag where it differs."""
        lines = []
        for row in self.rows_shown(examples):
            right, answer = examples[row][1], found.answers[row]
            each = zip(answer.words, answer.tags, right, strict=True)
            words = (f"{word}/{tag}" + (f"(true tag: {true})" if tag != true else "") for word, tag, true in each)
            lines.append("  " + " ".join(words))
        return lines

    def next_commands(self, examples: Examples) -> list[str]:
        """Tag the shortest sentence."""
        shortest = min((" ".join(words) for words, _ in examples), key=len)
        return [f"tag --run RUN {shlex.quote(shortest)}", "evaluate --run RUN"]


class TaggingTask(Task):
    """From each word of a text to one of the tags in training. Words and tags have spaces between them."""

    kind: Literal["tagging"]

    answer: ClassVar[str] = "tags"
    scores: ClassVar[tuple[str, ...]] = ("loss", "accuracy", "f1", "exact")
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "model": {"family": "recurrent"},
        "train": {"smoothing": 0.0, "watch": "accuracy"},
    }
    unused: ClassVar[dict[str, str]] = {
        "data.strip": "texts are split into words",
        "data.max_ratio": "there is a tag for each word",
        "data.long": "long texts are read in pieces",
        "tokenizer.joint": "there is one tokenizer",
        "train.validate_sentences": "all validation examples are scored",
        "decode.*": "nothing is written",
    }
    framed: ClassVar[bool] = True
    least: ClassVar[int] = 3  # start, a token, end
    Example: ClassVar[type[TaggedText]] = TaggedText
    loss: ClassVar[Loss] = staticmethod(token_loss)
    Run: ClassVar[type[Run]] = Tagger

    @classmethod
    def likelihood(cls, rows: Sequence[Any]) -> float:
        """There are as many tags as words, and the tags occur again and again."""
        pairs = [[cell.split() for cell in row.cells] for row in rows]
        if any(len(pair) != 2 or len(pair[0]) != len(pair[1]) for pair in pairs):
            return 0.0
        tags = [tag for _, some in pairs for tag in some]
        return 0.9 if len(tags) > 2 * len(rows) and len({*tags}) * REPEATED <= len(tags) else 0.0

    def example(self, found: Columns) -> TaggedText:
        """Two columns with as many words as tags."""
        if len(found.cells) != 2:
            raise BadRow("wrong column count", f"{len(found.cells)} columns, but words and tags are expected")
        words, tags = (cell.split() for cell in found.cells)
        if len(words) != len(tags):
            raise BadRow("not a tag a word", f"has {len(words)} words but {len(tags)} tags")
        return TaggedText(tuple(words), tuple(tags))

    def clean(self, example: TaggedText, data: Data) -> TaggedText:
        """Words and tags are normalised; none gets a space inside."""
        words, tags = (tuple("".join(normalise(each, data).split()) for each in some) for some in example)
        return TaggedText(words, tags)

    def why_dropped(self, example: TaggedText, data: Data) -> str | None:
        """The words count together, and the tags."""
        return why_dropped(map(" ".join, example), data)

    def identity(self, example: TaggedText) -> bytes:
        return "\0".join(map(" ".join, example)).encode()

    def labels_of(self, example: TaggedText) -> tuple[str, ...]:
        return example.tags

    def texts(self, example: TaggedText, side: int) -> list[str]:
        return [" ".join(example.words)]

    def largest_number(self, assets: Assets) -> int:
        """Tags are counted from 1."""
        return max(super().largest_number(assets), len(assets.labels))

    def encode(self, examples: list[TaggedText], context: Context) -> Encoded:
        """One row a piece: the tokens, then for each the number of its word's tag plus 1, or 0: no word ends there."""
        numbers = {label: number for number, label in enumerate(context.assets.labels, start=1)}
        known = [example for example in examples if numbers.keys() >= {*example.tags}]
        found = cut([example.words for example in known], context.tokenizer, context.max_tokens)
        rows, split = [], 0
        for pieces, example in zip(found, known, strict=True):
            tags = [numbers[tag] for tag in example.tags]
            split += len(pieces) > 1
            for piece in pieces:
                ending, tags = dict(zip(piece.lasts, tags, strict=False)), tags[len(piece.lasts) :]
                rows.append((piece.tokens, [ending.get(position, 0) for position in range(len(piece.tokens))]))
        return Encoded.of(rows, Counter(label=len(examples) - len(known), split=split))

    def collator(self, recipe: Recipe, corpus: Corpus, model: nn.Module) -> TagCollator:
        return TagCollator(corpus.splits["train"], corpus.assets.tokenizers[0].pad)

    @classmethod
    def adopts(cls, model: nn.Module) -> bool:
        """An encoder with a head for each token."""
        return encodes_for(model, cls.answer)
