"""Captioning: an image, or a short film, is read whole, and what is to be seen is written, word by word.

One to many: an image has one vector for each patch, a caption as many words as it takes. An image may have several
captions; each time that it is seen in training, one of them is drawn.

B captions in a batch, F frames, S pixels on a side, C colours, T caption length, D model width, N images
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from glassformer.data import Assets, BadRow, Context, Corpus, Encoded, Rows
from glassformer.data.cleaning import normalise, why_dropped
from glassformer.data.examples import Captioned, Pixels
from glassformer.data.store import Lengths
from glassformer.errors import ConfigurationError, InputError
from glassformer.evaluation import check_rouge
from glassformer.models import EncoderDecoder
from glassformer.models.family import Blueprint
from glassformer.recipe import Data, Recipe
from glassformer.recipe.values import Whole
from glassformer.tasks.captioning.captioner import Captioner as Captioner
from glassformer.tasks.captioning.films import film_of, inputs_of
from glassformer.tasks.images.options import PictureTask
from glassformer.tasks.images.pictures import moved
from glassformer.tasks.losses import sequence_loss
from glassformer.tasks.protocol import Learner, Loss, Tensors
from glassformer.tasks.run import Run
from glassformer.text import SpecialTokens, own_special_tokens

MOST_FRAMES = 64  # of a film, as a model reads it


class CaptionedImage(NamedTuple):
    """The frames of a film, or one image, as it is read; its captions; its name."""

    frames: tuple[Pixels, ...]
    captions: tuple[str, ...]
    name: str


@dataclass(frozen=True)
class CaptionBatch(Tensors):
    """Images or films, each with a caption. The decoder reads `target_in` and should write `target_out`."""

    pixels: Tensor  # (B, C, S, S), or of films (B, F, C, S, S)
    target_in: Tensor  # (B, T), the start and the caption's tokens
    target_out: Tensor  # (B, T), the caption's tokens and the end
    target_mask: Tensor  # (B, T), True where there is a token
    targets: int  # tokens without padding, the end counted

    @property
    def tokens(self) -> int:
        """As in the plan of batches, each image counts as one."""
        return len(self.pixels)

    padded_tokens = tokens


def caption_loss(learner: Learner, batch: CaptionBatch) -> Tensor:
    """The summed loss of the captions' words, given the image and the words before."""
    hidden = learner.hidden(batch.pixels, batch.target_in)  # (B, T, D)
    words = batch.target_out, batch.target_mask, batch.targets
    return sequence_loss(hidden, *words, learner.head, learner.smoothing, learner.chunk)


@dataclass(frozen=True)
class CaptionedRows:
    """Images and their captions as rows of numbers: pixels on one side, captions end to end on the other."""

    rows: Rows
    end: int  # the token after each caption

    @property
    def lengths(self) -> Lengths:
        """To the plan of batches, each image counts as one token: (N, 2)."""
        return np.broadcast_to(np.array([1, 0], np.int32), (len(self.rows), 2))

    def captions(self, row: int) -> list[NDArray[np.int64]]:
        """The tokens of each caption of a row, the end included."""
        tokens = self.rows.target(row).astype(np.int64)
        return np.split(tokens, np.flatnonzero(tokens == self.end) + 1)[:-1]

    def films(self, rows: Sequence[int], shape: tuple[int, ...]) -> Pixels:
        """The films of some rows, of a shape (F, S, S, C): (B, F, S, S, C)."""
        return np.stack([self.rows.source(row) for row in rows]).astype(np.uint8, copy=False).reshape(-1, *shape)


@dataclass(frozen=True)
class CaptionCollator:
    """Makes batches of images with one of their captions each, drawn by `rng`; or with `every` caption in turn.

    Images are moved by up to `task.shift` pixels to each side, all frames of a film alike.
    """

    pairs: CaptionedRows
    task: CaptioningTask
    special: SpecialTokens
    every: bool = False

    def __call__(self, rows: NDArray[Any], rng: np.random.Generator) -> CaptionBatch:
        numbers, chosen = list[int](), list[NDArray[np.int64]]()
        for row in rows.tolist():
            captions = self.pairs.captions(row)
            captions = captions if self.every else [captions[rng.integers(len(captions))]]
            numbers += [row] * len(captions)
            chosen += captions
        films = self.pairs.films(numbers, self.task.shape)  # (B, F, S, S, C)
        if self.task.shift and not self.every:
            films = self._moved(films, rng)
        length = max(map(len, chosen))
        target_out, mask = np.full((len(chosen), length), self.special.pad), np.zeros((len(chosen), length), bool)
        for place, tokens in enumerate(chosen):
            target_out[place, : len(tokens)], mask[place, : len(tokens)] = tokens, True
        starts = np.full((len(chosen), 1), self.special.start)
        return CaptionBatch(
            pixels=inputs_of(films, self.task),
            target_in=torch.from_numpy(np.concatenate((starts, target_out[:, :-1]), axis=1)),
            target_out=torch.from_numpy(target_out),
            target_mask=torch.from_numpy(mask),
            targets=int(mask.sum()),
        )

    def _moved(self, films: Pixels, rng: np.random.Generator) -> Pixels:
        frames, by = films.shape[1], rng.integers(-self.task.shift, self.task.shift + 1, (len(films), 2))
        return moved(films.reshape(-1, *films.shape[2:]), by.repeat(frames, axis=0)).reshape(films.shape)


class CaptioningTask(PictureTask):
    """From an image, or a film, to a text that says what is to be seen."""

    kind: Literal["captioning"] = "captioning"
    frames: Annotated[Whole, Field(ge=1, le=MOST_FRAMES)] = Field(
        1, description="images of a film, as the model reads it; of longer ones some, at equal distances; 1: an image"
    )

    answer: ClassVar[str] = "caption"
    reads: ClassVar[tuple[type, ...]] = (Captioned,)
    writes: ClassVar[bool] = True
    scores: ClassVar[tuple[str, ...]] = (
        *("loss", "accuracy", "bleu", "chrf", "exact"),
        *("rouge1", "rouge2", "rougeL"),
    )
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "model": {"family": "captioner"},
        "train": {"batch_tokens": 64},
        "decode": {"max_length": 60},
    }
    unused: ClassVar[Mapping[str, str]] = {
        "data.max_ratio": "an image has no length to compare with",
        "data.long": "captions that are too long are truncated",
        "tokenizer.joint": "only captions are text",
        "look.*": "no texts are read, but images",
        "decode.count_prompt": "there is no prompt",
    }
    suggested: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "task": {"size": 64},
        "data": {"max_tokens": 60},
        "model": {"patch": 8, "width": 128, "heads": 4, "layers": 3, "hidden": 512, "dropout": 0.1},
        "train": {"batch_tokens": 64, "validate_sentences": 100, "watch": "bleu"},
        "decode": {"beam": 4, "max_length": 60},
    }
    drawn: ClassVar[set[str]] = {"mean", "deviation", "shift"}
    threads: ClassVar[bool] = True
    block: ClassVar[int] = 256
    Example: ClassVar[type[CaptionedImage]] = CaptionedImage
    loss: ClassVar[Loss] = staticmethod(caption_loss)
    Run: ClassVar[type[Run]] = Captioner

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of a film as it is read, (F, S, S, C)."""
        return self.frames, self.size, self.size, self.colours

    def check(self, recipe: Recipe) -> None:
        """Scores need what they are computed with; films need a model of films."""
        super().check(recipe)
        train, source = recipe.train, recipe.source
        if train.watch == "accuracy" and not source.parses:
            raise ValueError(f"train.watch is 'accuracy': source.kind {source.kind!r} cannot tell what a caption says")
        if train.watch.startswith("rouge"):
            check_rouge()
        if getattr(source, "films", False) and self.frames == 1:
            raise ValueError("source.films needs task.frames above 1, such as 6: the images of a film that are read")
        if self.frames == 1 and getattr(recipe.model, "frame_positions", "learned") != "learned":
            raise ValueError("model.frame_positions has no effect: it needs task.frames above 1")

    def check_checkpoint(self, blueprint: Blueprint) -> None:
        """It expects images of one size, or films of so many."""
        super().check_checkpoint(blueprint)
        if (frames := blueprint.arguments["frames"]) != self.frames:
            raise ConfigurationError(f"model.pretrained expects task.frames = {frames}, not {self.frames}")

    @classmethod
    def likelihood(cls, rows: Sequence[Any]) -> float:
        """Images with texts are meant for nothing else."""
        return 1.0

    def given(self, recipe: Recipe, vocabularies: tuple[int, ...], classes: int) -> dict[str, Any]:
        """The size of images, how many make a film, and the tokens of captions."""
        return {**super().given(recipe, vocabularies, classes), **self.image_given(), "frames": self.frames}

    def file_source(self, path: str, recipe: Recipe) -> dict[str, Any]:
        """Objects with an image and its captions."""
        return {"kind": "captions", "train": path}

    # --- examples

    def example(self, found: Captioned) -> CaptionedImage:
        """The pixels, read and fitted."""
        try:
            return CaptionedImage(tuple(film_of(found.images, self)), found.captions, found.name)
        except InputError as error:
            raise BadRow("unreadable images", str(error)) from None

    def clean(self, example: CaptionedImage, data: Data) -> CaptionedImage:
        """Captions normalised, each once."""
        return example._replace(captions=tuple(dict.fromkeys(normalise(each, data) for each in example.captions)))

    def why_dropped(self, example: CaptionedImage, data: Data) -> str | None:
        return why_dropped(example.captions, data)

    def split_key(self, example: CaptionedImage) -> bytes:
        """The pixels."""
        return b"".join(frame.tobytes() for frame in example.frames)

    def identity(self, example: CaptionedImage) -> bytes:
        """The pixels and the captions."""
        return self.split_key(example) + "\0".join(example.captions).encode()

    def texts(self, example: CaptionedImage, side: int) -> Sequence[str]:
        return example.captions

    @classmethod
    def text_sides(cls) -> tuple[int, ...]:
        """The captions."""
        return (1,)

    def words(self, example: CaptionedImage) -> int:
        """Those of the first caption."""
        return len(example.captions[0].split())

    # --- rows and batches

    def largest_number(self, assets: Assets) -> int:
        """Of pixels and tokens."""
        return max(255, super().largest_number(assets))

    def encode(self, examples: list[CaptionedImage], context: Context) -> Encoded:
        """One side is the pixels of all frames, the other the tokens of all captions, with the end after each."""
        tokenizer, special = context.tokenizer, _special(context.assets)
        most, counts, sides = special.room(context.max_tokens), Counter[str](), list[tuple[Any, list[int]]]()
        for example in examples:
            captions = [tokenizer.encode(text) for text in example.captions]
            counts["truncate"] += sum(len(ids) > most for ids in captions)
            kept = [[*special.target_prefix, *ids[:most], special.end] for ids in captions if ids or context.keep_all]
            counts["empty"] += not kept
            if kept:
                pixels = np.concatenate([frame.ravel() for frame in example.frames])
                sides.append((pixels, [token for caption in kept for token in caption]))
        dtype = np.min_scalar_type(self.largest_number(context.assets))
        flat = [np.concatenate((pixels, np.array(tokens, dtype))) for pixels, tokens in sides]
        lengths = np.array([[len(pixels), len(tokens)] for pixels, tokens in sides], np.int64).reshape(-1, 2)
        return Encoded(np.concatenate([np.zeros(0, dtype), *flat]), lengths, +counts)

    def collator(self, recipe: Recipe, corpus: Corpus, model: nn.Module) -> CaptionCollator:
        special = _special(corpus.assets)
        return CaptionCollator(CaptionedRows(corpus.splits["train"], special.end), self, special)

    def unvaried(
        self, recipe: Recipe, corpus: Corpus, model: nn.Module, rows: NDArray[Any]
    ) -> tuple[CaptionCollator, NDArray[Any]]:
        """Images that are not moved, with all their captions."""
        return replace(self.collator(recipe, corpus, model), every=True), rows

    def length(self, recipe: Recipe) -> int:
        """A decoder also reads the start of what it writes."""
        return max(recipe.data.max_tokens, recipe.decode.max_length) + 1

    @classmethod
    def adopts(cls, model: nn.Module) -> bool:
        """An encoder-decoder that reads images."""
        return isinstance(model, EncoderDecoder) and not hasattr(model.encoder.embedding, "vocabulary")


def _special(assets: Assets) -> SpecialTokens:
    """The special tokens of captions."""
    return assets.special_tokens or own_special_tokens(assets.tokenizers[0], assets.tokenizers[-1])
