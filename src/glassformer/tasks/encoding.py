"""Vectors of texts: an encoder makes one vector of a text; texts of like meaning have vectors of like direction.

The vector is the mean of the vectors of all real tokens, or the one of the first token, which BERT calls [CLS].

N texts, B texts in a batch, T length, D model width
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from glassformer.errors import ConfigurationError, InputError
from glassformer.models import EncoderOnly
from glassformer.tasks.run import Progress, Run, check_list, in_batches, quoted

Pooling = Literal["mean", "first"]
POOLINGS = ("mean", "first")
Vectors = NDArray[np.float32]  # (N, D)


def pooled(hidden: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """One vector for each text, (B, D), of those of its tokens (B, T, D); `mask` (B, T) is True where one is real."""
    if pooling == "first":
        return hidden[:, 0]
    weights = mask[..., None].to(hidden.dtype)  # (B, T, 1)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1)  # (B, D)


class TextEncoder(Run):
    """A run whose model is an encoder of texts: `run.embed(["a cat", "a dog"])` gives their vectors."""

    def embed(
        self,
        texts: Sequence[str],
        pooling: str | None = None,
        normalised: bool | None = None,
        progress: Progress | None = None,
    ) -> Vectors:
        check_list(texts, "embed")
        pooling = getattr(self.task, "pooling", "mean") if pooling is None else pooling
        if pooling not in POOLINGS:
            raise ConfigurationError(f'the pooling is "{pooling}": expected {" or ".join(POOLINGS)}')
        found = self._vectors(self.read_alone(texts)[0], pooling, progress)
        units = getattr(self.task, "normalised", True) if normalised is None else normalised
        return F.normalize(found, dim=1).numpy() if units else found.numpy()

    @torch.inference_mode()
    def _vectors(self, rows: Sequence[Sequence[int]], pooling: str, progress: Progress | None = None) -> Tensor:
        """The vectors of framed texts, (N, D); texts of similar length go together."""
        if not isinstance(self.model, EncoderOnly):
            raise InputError(f"{self.path or 'this run'} does not embed: its model is no encoder")
        found = torch.zeros(len(rows), self.model.encoder.embedding.width)
        for numbers, tokens, keep in in_batches(rows, self, progress):
            found[numbers] = pooled(self.model.hidden(tokens, keep), keep, pooling).float().cpu()
        return found

    def read_alone(self, texts: Sequence[str]) -> tuple[list[list[int]], list[int]]:
        """The tokens of each text by itself, with its start and end, and which texts were cut."""
        for text in texts:
            if not str(text).strip():
                raise InputError(f"there is nothing to embed in {quoted(str(text))}")
        whole, limit = [[self.normalised(text)] for text in texts], self.recipe.data.max_tokens
        if any(self.tokenizer.around()):
            return self.tokenizer.frame_within(whole, limit)
        start, end, room = self.tokenizer.start, self.tokenizer.end, max(1, limit - 2)
        rows = self.tokenizer.encode_batch([text for (text,) in whole])
        return [[start, *ids[:room], end] for ids in rows], [row for row, ids in enumerate(rows) if len(ids) > room]
