"""A captioner: a trained model that says what is to be seen in images or short films, in use.

B images, F frames, S pixels on a side, C colours, T caption length, N images
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glassformer.data.examples import Pixels, png_of
from glassformer.decoding import Choose
from glassformer.decoding.ensemble import members_of
from glassformer.errors import ConfigurationError, InputError
from glassformer.evaluation import drawn, perplexity, rouge
from glassformer.evaluation.bootstrap import Statistic, ratio
from glassformer.evaluation.judging import BLEU, Judged, accuracy
from glassformer.interop.huggingface import Exported
from glassformer.looking.trace import Trace
from glassformer.parts import pad, quantise
from glassformer.tasks.captioning.films import film_of, inputs_of, token_names
from glassformer.tasks.images.pictures import picture_in
from glassformer.tasks.losses import row_losses
from glassformer.tasks.run import Progress, check_list
from glassformer.tasks.scoring import WrittenEvaluation, mean_loss
from glassformer.tasks.showing import Picture, Sample, Score
from glassformer.tasks.writing import Output, SourceReader, output, pieces

Complain = Callable[[str], None]


@dataclass(frozen=True)
class CaptionEvaluation(WrittenEvaluation):
    """How a run does on some images: the caption of each, compared with all that people gave it.

    Where the source can tell what a caption says, `right` has for each image whether its caption says what is so.
    """

    nouns: ClassVar[tuple[str, str]] = ("captions", "images")

    right: list[bool] | None = None  # N
    unreadable: int = 0  # images that were left out

    @property
    def accuracy(self) -> float | None:
        """How many captions say what is to be seen, every word of it; None: nobody can tell."""
        return None if self.right is None else sum(self.right) / len(self.right)

    def resampled(self) -> tuple[int, dict[str, Statistic]]:
        count, statistics = super().resampled()
        own = {} if self.right is None else {"accuracy": ratio([float(each) for each in self.right])}
        return count, {**own, **statistics}

    def summary(self) -> dict[str, float]:
        own = {} if self.accuracy is None else {"accuracy": self.accuracy}
        return {**super().summary(), **own}

    def facts(self) -> dict[str, Any]:
        own = {} if self.accuracy is None else {"accuracy": self.accuracy}
        return {**super().facts(), **own, "unreadable": self.unreadable}

    def table(self) -> list[Score]:
        own = []
        if self.accuracy is not None:
            note = "captions that say what is to be seen, in whatever words"
            own = [self.score("accuracy", self.accuracy, ".2%", note=note)]
        return [*own, *super().table()]

    def lines(self) -> list[str]:
        left_out = f"{self.unreadable:,} of the images could not be read, and are left out"
        return [*super().lines(), *([left_out] if self.unreadable else [])]


class Captioner(SourceReader):
    """A trained model that writes captions: `run.caption(["one.png", "film.gif"])`."""

    reads_files: ClassVar[bool] = True
    reads_images: ClassVar[bool] = True
    options: ClassVar[frozenset[str]] = frozenset({"beam", "int8", "rouge"})
    opens_with: ClassVar[str] = "VisionEncoderDecoderModel, AutoTokenizer and AutoImageProcessor"

    # --- what it reads

    @property
    def conventions(self) -> dict[str, Any]:
        """Also what is made of an image."""
        names = ("size", "colours", "others", "mean", "deviation", "frames")
        return {**{f"task.{name}": getattr(self.task, name) for name in names}, **super().conventions}

    def see(self, image: Any) -> Pixels:
        """An image or a film as the model reads it, (F, S, S, C): from files, arrays or Pillow's images."""
        return film_of(image, self.task)

    def item(self, text: str) -> Pixels:
        """The image or the film in a file of some name, or in a folder."""
        if not text.strip():
            raise InputError("the line is empty: expected the name of an image file")
        return self.see(text)

    def from_page(self, text: str) -> Pixels:
        """The image in a data URL of a PNG or a JPEG; as a film, it stands still."""
        return self.see(picture_in(text, self.task))

    def suggestion(self, example: Any) -> str | None:
        """The image as a data URL; a film is none."""
        film = self.see(example[0])
        return f"data:image/png;base64,{png_of(film[0])}" if len(film) == 1 else None

    def picture(self, text: Any) -> Pixels | None:
        """The image; of a film, there is not one."""
        film = self.see(text)
        return film[0] if len(film) == 1 else None

    def read(self, image: Any) -> bytes:
        """The pixels, one after another."""
        return self.see(image).tobytes()

    def padded(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, ...]:
        """Rows of pixels as images (B, C, S, S) or films (B, F, C, S, S), none of which is padded."""
        films = np.stack([np.frombuffer(bytes(row), np.uint8).reshape(self.task.shape) for row in rows])
        return (inputs_of(films, self.task).to(self.device),)

    def spelled(self, ids: Sequence[int]) -> tuple[list[str], None]:
        """The names of patches, which are no words."""
        return token_names(self.task, self.model.blueprint.arguments["patch"]), None

    # --- what it writes

    def caption(
        self, images: Sequence[Any], beam: int | None = None, int8: bool = False, progress: Progress | None = None
    ) -> list[Output]:
        return [best for best, *_ in self.search(images, beam, int8=int8, progress=progress)]

    def search(
        self,
        images: Sequence[Any],
        beam: int | None = None,
        best: int = 1,
        int8: bool = False,
        progress: Progress | None = None,
    ) -> list[list[Output]]:
        """The `best` captions of each image, best first. Missing values are the recipe's."""
        check_list(images, "caption")
        rows = [self.read(image) for image in images]
        found = self.outputs(rows, [self.limits] * len(rows), beam, best, int8=int8, progress=progress)
        return [[output(each, self.target) for each in hypotheses] for hypotheses in found]

    def stream(self, text: Any, sampler: Choose | None = None, length: int | None = None) -> Any:
        limits = self.limits if length is None else self.limits_of(length, self.special.start)
        return pieces(self.streamed(self.read(text), limits, sampler), self.target)  # type: ignore[arg-type]

    # --- how good it is

    def evaluate(
        self,
        examples: Sequence[Any],
        progress: Progress | None = None,
        beam: int | None = None,
        int8: bool = False,
        rouge: bool | None = None,
        complain: Complain | None = None,
    ) -> CaptionEvaluation:
        """Caption the images of some examples (images, captions, name), and compare with all their captions.

        An image that cannot be read is an error, unless `complain` is given: then that is called, and it is left out.
        """
        if not examples:
            raise InputError("there is nothing to evaluate: no captioned image")
        read = self._readable(examples, complain)
        if not read:
            raise InputError(f"none of the {len(examples):,} images could be read")
        found = self._compared(read, self.losses(read, int8=int8), beam, int8, rouge, progress)
        return replace(found, unreadable=len(examples) - len(read))

    def _readable(self, examples: Sequence[Any], complain: Complain | None) -> list[tuple[Pixels, Any, str]]:
        """The examples whose images can be read, with these."""
        found = []
        for images, captions, name in examples:
            try:
                found.append((self.see(images), [self.normalised(each) for each in captions], name))
            except InputError as error:
                if complain is None:
                    raise
                complain(str(error))
        return found

    def measure(self, examples: Sequence[Any], most: int) -> dict[str, float]:
        """The loss of all captions, and scores of so many images, drawn over all, decoded greedily."""
        read = self._readable(examples, None)
        losses = self.losses(read)
        rows = drawn(range(len(examples)), most)
        found = self._compared([read[row] for row in rows], losses[:, rows], beam=1).summary()
        return found | {"loss": (loss := mean_loss(losses)), "perplexity": perplexity(loss)}

    def _compared(
        self,
        read: Sequence[tuple[Pixels, Any, str]],
        losses: NDArray[np.float64],
        beam: int | None = None,
        int8: bool = False,
        wanted: bool | None = None,
        progress: Progress | None = None,
    ) -> CaptionEvaluation:
        outputs = [each.text for each in self.caption([film for film, _, _ in read], beam, int8, progress)]
        references = [list(dict.fromkeys(captions)) for _, captions, _ in read]
        found = CaptionEvaluation(
            sources=[name for _, _, name in read],
            outputs=outputs,
            references=references,
            pairs=sum(map(len, references)),
            losses=losses,
            right=self._right(outputs, references),
        )
        also = self.recipe.train.watch.startswith("rouge") if wanted is None else wanted
        return replace(found, rouge=rouge(outputs, references)) if also else found

    def _right(self, outputs: Sequence[str], references: Sequence[Sequence[str]]) -> list[bool] | None:
        """Whether each output says what its references say, if the source can tell."""
        source = self.recipe.source
        if source is None or not source.parses:
            return None
        meanings = [{source.meaning(each) for each in some} - {None} for some in references]
        if not all(meanings):  # captions of another source
            return None
        return [source.meaning(text) in some for text, some in zip(outputs, meanings, strict=True)]

    @torch.inference_mode()
    def losses(self, examples: Sequence[tuple[Pixels, Sequence[str], str]], int8: bool = False) -> NDArray[np.float64]:
        """-log p of all captions of each image, ends included, and how many tokens that is, (2, N)."""
        model, special, size = quantise(self.model) if int8 else self.model, self.special, self.recipe.decode.batch
        most, found = special.room(self.recipe.data.max_tokens), np.zeros((2, len(examples)))
        for first in range(0, len(examples), size):
            some = examples[first : first + size]
            images, models = self.padded([film.tobytes() for film, _, _ in some]), members_of(model)
            seen = [each.encode(*images)[0] for each in models]  # (B, S, D)
            owners = [number for number, (_, captions, _) in enumerate(some) for _ in captions]
            texts = [self.target.encode(text)[:most] for _, captions, _ in some for text in captions]
            rows = [[special.start, *special.target_prefix, *ids, special.end] for ids in texts]
            for begin in range(0, len(rows), size):
                part = slice(begin, begin + size)
                tokens, keep = (each.to(self.device) for each in pad(rows[part], special.pad))
                each_sees = zip(models, seen, strict=True)
                vectors = [each.decoder(tokens[:, :-1], memory[owners[part]]) for each, memory in each_sees]
                hidden = torch.cat(vectors, dim=-1)  # (B, T, D)
                numbers = np.array(owners[part]) + first
                np.add.at(found[0], numbers, row_losses(hidden, tokens[:, 1:], keep[:, 1:], model.head).cpu().numpy())
                np.add.at(found[1], numbers, keep[:, 1:].sum(dim=1).cpu().numpy())
        return found

    def judge(self, examples: Sequence[Any], progress: Progress | None = None) -> Judged:
        """Whether each caption is right, where the source can tell; else the outputs, for BLEU."""
        found = self.evaluate(examples, progress)
        if found.right is not None:
            return accuracy([float(each) for each in found.right])
        return Judged(BLEU, "higher", outputs=found.outputs, references=[some[0] for some in found.references])

    # --- what is shown

    def samples(self, examples: Sequence[Any], found: CaptionEvaluation) -> list[Sample]:
        """Images, captions, and a reference of each: the caption itself, if it is one."""
        made = []
        for row in self.rows_shown(examples):
            text, some = found.outputs[row], found.references[row]
            right = text in some if found.right is None else found.right[row]
            film = self.see(examples[row][0])  # (F, S, S, C)
            strip = np.concatenate(list(film), axis=1)  # (S, F · S, C)
            made.append(Sample(found.sources[row], text, text if right else some[0], right, pixels=strip))
        return made

    def look(self, text: Any, *args: Any, **options: Any) -> Trace:
        """What happens inside the model while it looks at an image or a film and writes its caption, step by step."""
        return super().look(self.see(text), *args, **options)

    def attention_picture(self, examples: Sequence[Any]) -> Picture:
        """Where in one of the images each word of its caption looked."""
        film = self._readable(examples, complain=lambda sentence: None)[0][0]
        seen = self.look(film, keep=["weights"])
        caption = f"Where each word of “{seen.output}” looked."
        return Picture("attention", caption, seen.words().plot.patches(film))

    def next_commands(self, examples: Sequence[Any]) -> list[str]:
        file = "image.png" if self.task.frames == 1 else "film.gif"
        return [f"caption --run RUN {file}", f"look --run RUN {file} --out words.png", "evaluate --run RUN"]

    # --- other formats

    def exported(self) -> Exported:
        """A ViT and a GPT-2 in one model, its tokenizer, and how images are resized and scaled."""
        if self.task.frames > 1:
            raise ConfigurationError(f"task.frames is {self.task.frames}: transformers has no captioner of films")
        return replace(super().exported(), preprocessor=self.task.preprocessor())
