"""Translation: from a text to a text. Also summaries, spelling to sound, and any other text made of a text.

A source is read, a target is written; in training the right words before each are given.

B pairs in a batch, S source length, T target length
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn

from glassformer.data import BadRow, Columns, Context, Corpus, Encode, Rows
from glassformer.data.encoding import PairEncoder
from glassformer.evaluation import check_rouge
from glassformer.models import EncoderDecoder
from glassformer.recipe import Data, Recipe
from glassformer.recipe.values import Fraction, Word
from glassformer.tasks.gathering import gathered
from glassformer.tasks.protocol import Loss
from glassformer.tasks.run import Run
from glassformer.tasks.task import Task
from glassformer.tasks.translation.pairs import PackedPairs as PackedPairs
from glassformer.tasks.translation.pairs import PairBatch as PairBatch
from glassformer.tasks.translation.pairs import translation_loss as translation_loss
from glassformer.tasks.translation.translator import Translator as Translator
from glassformer.tasks.translation.varying import as_typed, with_other_name
from glassformer.text import SpecialTokens, Tokenizer, own_special_tokens


class TextPair(NamedTuple):
    """A source and its target."""

    source: str
    target: str


@dataclass(frozen=True)
class PairCollator:
    """Makes batches of token pairs, gathered from the flat file at once; `target` knows how outputs start and end."""

    pairs: Rows
    source_pad: int
    target: SpecialTokens | Tokenizer

    def __call__(self, rows: NDArray[Any], rng: np.random.Generator) -> PairBatch:
        pairs, target = self.pairs, self.target
        lengths, starts = pairs.lengths[rows].astype(np.int64), pairs.starts[rows]  # (B, 2), (B)
        source, source_mask = gathered(pairs.flat, starts, lengths[:, 0], self.source_pad)  # (B, S)
        tokens, _ = gathered(pairs.flat, starts + lengths[:, 0], lengths[:, 1], target.pad, 1)  # (B, T), the last free
        places = np.arange(tokens.shape[1])
        target_in = np.concatenate((np.full((len(rows), 1), target.start), tokens[:, :-1]), axis=1)  # (B, T)
        target_out = np.where(places == lengths[:, 1:], target.end, tokens)  # (B, T)
        return PairBatch(
            source=torch.from_numpy(source),
            source_mask=torch.from_numpy(source_mask),
            target_in=torch.from_numpy(target_in),
            target_out=torch.from_numpy(target_out),
            target_mask=torch.from_numpy(places <= lengths[:, 1:]),
            rows=torch.from_numpy(rows.astype(np.int64)),
            source_tokens=int(lengths[:, 0].sum()),
            targets=int(lengths[:, 1].sum()) + len(rows),
        )


class TranslationTask(Task):
    """From a text to a text: translation, summaries, spelling to sound."""

    kind: Literal["translation"] = "translation"
    swap_names: Fraction = Field(
        0.0, description="fraction of the training pairs with a name on both sides that get an invented name instead"
    )
    name_words: tuple[tuple[Word, Word], ...] = Field(
        (),
        description='words of both sides that count as names where each stands once, such as ["he", "er"]',
    )
    informal: Fraction = Field(
        0.0, description="fraction of the training pairs that lose the full stop of both sides, some also a capital"
    )

    answer: ClassVar[str] = "target"
    tokenizers: ClassVar[int] = 2
    varies: ClassVar[bool] = True
    packs: ClassVar[bool] = True
    varied_by: ClassVar[tuple[str, ...]] = ("swap_names", "informal")
    writes: ClassVar[bool] = True
    scores: ClassVar[tuple[str, ...]] = ("loss", "bleu", "chrf", "exact", "rouge1", "rouge2", "rougeL")
    defaults: ClassVar[dict[str, dict[str, Any]]] = {"model": {"family": "transformer"}}
    unused: ClassVar[Mapping[str, str]] = {"decode.count_prompt": "there is no prompt"}
    suggested: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "data": {"max_ratio": 3.0, "max_tokens": 128},
        "train": {"validate_sentences": 100, "watch": "chrf"},
        "decode": {"beam": 4, "max_length": 150},
    }
    Example: ClassVar[type[TextPair]] = TextPair
    loss: ClassVar[Loss] = staticmethod(translation_loss)
    Run: ClassVar[type[Run]] = Translator

    def check(self, recipe: Recipe) -> None:
        """ROUGE needs its library; words count as names only where names are changed."""
        super().check(recipe)
        if self.name_words and not self.swap_names:
            raise ValueError("task.name_words has no effect: it needs task.swap_names above 0")
        if recipe.train.watch.startswith("rouge"):
            check_rouge()

    @classmethod
    def likelihood(cls, rows: Sequence[Any]) -> float:
        """Two texts in each row are most often that."""
        return 0.5 if all(len(row.cells) == 2 for row in rows) else 0.0

    def example(self, found: Columns) -> TextPair:
        if len(found.cells) != 2:
            raise BadRow("wrong column count", f"{len(found.cells)} texts, but a source and a target are expected")
        return TextPair(*found.cells)

    def why_dropped(self, example: TextPair, data: Data) -> str | None:
        """Besides the filters of all texts: lengths that differ too much."""
        reason = super().why_dropped(example, data)
        shorter, longer = sorted(map(len, example))
        too_different = data.max_ratio is not None and longer > data.max_ratio * shorter
        return reason or ("lengths too different" if too_different else None)

    def texts(self, example: TextPair, side: int) -> Sequence[str]:
        return [example[side]]

    def varied(self, example: TextPair, view: int) -> TextPair:
        """With an invented name, or as people type."""
        pair: tuple[str, str] = example
        if self.swap_names:
            pair = with_other_name(*pair, self.swap_names, view, self.name_words)
        return TextPair(*as_typed(*pair, self.informal, view) if self.informal else pair)

    def length(self, recipe: Recipe) -> int:
        """A decoder also reads the start of what it writes."""
        return max(recipe.data.max_tokens, recipe.decode.max_length) + 1

    def encoder(self, context: Context) -> Encode:
        data, assets = context.recipe.data, context.assets
        source, target = assets.tokenizers
        long = "truncate" if context.keep_all else data.long
        return PairEncoder(source, target, data.max_tokens, long, context.keep_all, assets.special_tokens)

    def collator(self, recipe: Recipe, corpus: Corpus, model: nn.Module) -> PairCollator:
        source, target = corpus.assets.tokenizers
        special = corpus.assets.special_tokens or own_special_tokens(source, target)
        return PairCollator(corpus.splits["train"], special.pad, special)

    def unvaried(
        self, recipe: Recipe, corpus: Corpus, model: nn.Module, rows: NDArray[Any]
    ) -> tuple[PairCollator, NDArray[Any]]:
        """Pairs in the tokens of held-out ones: what BPE-dropout has split is put together, and split without it."""
        collator, (source, target) = self.collator(recipe, corpus, model), corpus.assets.tokenizers
        if not recipe.tokenizer.dropout:
            return collator, rows
        found = ((collator.pairs.source(row), collator.pairs.target(row)) for row in rows.tolist())
        pairs = [TextPair(source.decode(read), target.decode(written)) for read, written in found]
        encoded = self.encoder(Context(recipe, corpus.assets, keep_all=True))(pairs).rows()
        return replace(collator, pairs=encoded), np.arange(len(encoded))

    @classmethod
    def adopts(cls, model: nn.Module) -> bool:
        """An encoder-decoder that reads tokens."""
        return isinstance(model, EncoderDecoder) and hasattr(model.encoder.embedding, "vocabulary")
