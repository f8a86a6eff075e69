"""A translator: a trained model from text to text, in use.

B sentences, T target length, D model width, N different sources, or pairs
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.decoding import Choose
from glassformer.evaluation import drawn, perplexity, rouge
from glassformer.evaluation.judging import BLEU, Judged
from glassformer.interop.huggingface import Exported
from glassformer.looking.points import points
from glassformer.looking.trace import Trace
from glassformer.parts import quantise
from glassformer.tasks.losses import row_losses
from glassformer.tasks.run import Progress, by_length, check_list
from glassformer.tasks.scoring import WrittenEvaluation, mean_loss
from glassformer.tasks.showing import Sample
from glassformer.tasks.writing import Output, SourceReader, output, pieces

Pairs = Sequence[tuple[str, str]]  # sources, targets


class Translator(SourceReader):
    """A trained model from text to text: `run.translate(["5 May 2031"], beam=5)`."""

    options: ClassVar[frozenset[str]] = frozenset({"beam", "int8", "rouge"})
    opens_with: ClassVar[str] = "AutoModelForSeq2SeqLM and AutoTokenizer"

    def translate(
        self, texts: Sequence[str], beam: int | None = None, int8: bool = False, progress: Progress | None = None
    ) -> list[Output]:
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
    ) -> list[list[Output]]:
        """The `best` outputs for each text, best first, in the order of the texts. Missing values are the recipe's.

        With `int8` the larger matrices are rounded to 8 bits: on a CPU a large model is faster so, and nearly as good.
        """
        check_list(texts, "translate")
        whole, most = [self._ids(text) for text in texts], self._most
        filled = [row for row, ids in enumerate(whole) if ids]
        found = self.outputs(
            [self._framed(whole[row]) for row in filled],
            [self.limits] * len(filled),
            beam,
            best,
            length_penalty=length_penalty,
            batch=batch,
            int8=int8,
            progress=progress,
        )
        answers: list[list[Output]] = [[Output("", 0.0, [])] for _ in texts]
        for row, hypotheses in zip(filled, found, strict=True):
            answers[row] = [replace(output(each, self.target), cut=len(whole[row]) > most) for each in hypotheses]
        return answers

    def stream(self, text: str, sampler: Choose | None = None, length: int | None = None) -> Iterator[str]:
        ids = self.read(text)
        if not ids:
            return iter(())
        limits = self.limits if length is None else self.limits_of(length, self.special.start)
        return pieces(self.streamed(ids, limits, sampler), self.target)

    def evaluate(
        self,
        examples: Pairs,
        progress: Progress | None = None,
        beam: int | None = None,
        int8: bool = False,
        rouge: bool | None = None,
    ) -> WrittenEvaluation:
        """Translate each source of some pairs once, and compare with all its targets.

        ROUGE is among the scores if it is asked for, or if training watched it.
        """
        return self._compared(examples, self.losses(examples, int8=int8), beam, int8, rouge, progress)

    def measure(self, examples: Pairs, most: int) -> dict[str, float]:
        """The loss of all pairs, and scores of so many of them, drawn over all, decoded greedily."""
        losses = self.losses(examples)
        rows = drawn(range(len(examples)), most, key=lambda row: examples[row][0])
        found = self._compared([examples[row] for row in rows], losses[:, rows], beam=1).summary()
        return found | {"loss": (loss := mean_loss(losses)), "perplexity": perplexity(loss)}

    def _compared(
        self,
        pairs: Pairs,
        losses: NDArray[np.float64],
        beam: int | None = None,
        int8: bool = False,
        wanted: bool | None = None,
        progress: Progress | None = None,
    ) -> WrittenEvaluation:
        """Outputs, references and summed losses of each different source, in the order of their first pairs."""
        numbers = {source: number for number, source in enumerate(dict.fromkeys(source for source, _ in pairs))}
        of_source = np.array([numbers[source] for source, _ in pairs], np.int64)
        references: list[dict[str, None]] = [{} for _ in numbers]  # each once, in their order
        for source, target in pairs:
            references[numbers[source]][target] = None
        found = WrittenEvaluation(
            sources=[*numbers],
            outputs=[each.text for each in self.translate([*numbers], beam, int8, progress)],
            references=[[*some] for some in references],
            pairs=len(pairs),
            losses=np.stack([np.bincount(of_source, each) for each in losses]),
        )
        also = self.recipe.train.watch.startswith("rouge") if wanted is None else wanted
        return replace(found, rouge=rouge(found.outputs, found.references)) if also else found

    def drawn(self, examples: Pairs, most: int) -> list[Any]:
        """Pairs with the same source are drawn together."""
        return drawn(examples, most, key=lambda pair: pair[0])

    def judge(self, examples: Pairs, progress: Progress | None = None) -> Judged:
        """The outputs, for BLEU."""
        found = self.translate([source for source, _ in examples], progress=progress)
        references = [target for _, target in examples]
        return Judged(BLEU, "higher", outputs=[each.text for each in found], references=references)

    def loss(self, pairs: Pairs, size: int = 64, int8: bool = False) -> float:
        """The mean of -log p over all target tokens, ends included, given the right tokens before each."""
        return mean_loss(self.losses(pairs, size, int8))

    @torch.inference_mode()
    def losses(self, pairs: Pairs, size: int = 64, int8: bool = False) -> NDArray[np.float64]:
        """-log p of each pair's target, ends included, and how many tokens that is, (2, N); 0 without a source.

        Targets are cut off where sources are. At most `size` pairs go together, and no more than in training.
        """
        model, special = quantise(self.model) if int8 else self.model, self.special
        encoded = [(self.read(source), self._written(target)) for source, target in pairs]
        filled = [row for row, (source, _) in enumerate(encoded) if source]
        lengths = [1 + max(map(len, encoded[row])) for row in filled]
        found = np.zeros((2, len(encoded)))
        for some in by_length(lengths, self.recipe.train.batch_tokens, size):
            rows = [filled[number] for number in some]
            source, source_keep = self.padded([encoded[row][0] for row in rows])
            target, keep = self.padded([[special.start, *encoded[row][1], special.end] for row in rows])
            hidden = model.hidden(source, target[:, :-1], source_keep)  # (B, T, D)
            found[0, rows] = row_losses(hidden, target[:, 1:], keep[:, 1:], model.head)
            found[1, rows] = keep[:, 1:].sum(dim=1).cpu()
        return found

    @property
    def _most(self) -> int:
        """How many tokens of a text are read, or written in training."""
        return self.special.room(self.recipe.data.max_tokens)

    def read(self, text: str) -> list[int]:
        """A source text as in training: normalised, cut off at the longest, special tokens around; or nothing."""
        return self._framed(self._ids(text))

    def cuts(self, text: str) -> bool:
        """Whether only the beginning of a text is read."""
        return len(self._ids(text)) > self._most

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(self.normalised(text))

    def _framed(self, whole: list[int]) -> list[int]:
        ids = whole[: self._most]
        return [*self.special.source_prefix, *ids, *self.special.source_suffix] if ids else []

    def _written(self, text: str) -> list[int]:
        """A target text as in training but for its start and end; cut off where sources are."""
        return [*self.special.target_prefix, *self.target.encode(text)[: self._most]]

    # --- what is shown

    def samples(self, examples: Pairs, found: WrittenEvaluation) -> list[Sample]:
        """Sources, outputs, and a reference of each: the output itself, if it is one."""
        rows = self.rows_shown([(source, "") for source in found.sources])
        each = ((found.sources[row], found.outputs[row], found.references[row]) for row in rows)
        return [Sample(source, text, text if text in some else some[0], text in some) for source, text, some in each]

    def example_of(self, sources: Sequence[str]) -> str:
        """A text to look at: of middle length among those that fit a terminal, in letters that all terminals have.

        If there is none, the shortest.
        """
        lengths = {source: len(self.read(source)) for source in dict.fromkeys(sources)}
        fitting = [source for source, length in lengths.items() if 4 <= length <= 14]
        fitting = [source for source in fitting if source.isascii()] or fitting or [min(lengths, key=len)]
        return sorted(fitting, key=lambda source: lengths[source])[len(fitting) // 2]

    def attention_shown(self, examples: Pairs) -> Trace | None:
        if not any(name.endswith(".weights") for name in points(self.model)):
            return None
        return self.look(self.example_of([source for source, _ in examples]), keep="weights")

    def next_commands(self, examples: Pairs) -> list[str]:
        source = self.example_of([source for source, _ in examples])
        return [f"translate --run RUN --nbest 3 {shlex.quote(source)}", "evaluate --run RUN"]

    def exported(self) -> Exported:
        """An encoder-decoder with one tokenizer, or two."""
        found = super().exported()
        if self.tokenizer is self.target:
            return found
        return replace(found, opens_with="AutoModelForSeq2SeqLM; its two tokenizers are separate files")
