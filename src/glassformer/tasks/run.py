"""A run: a trained model with everything that is needed to use it, whatever its task."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from torch import Tensor, nn

from glassformer.data import Assets, normalise
from glassformer.data.examples import Pixels, from_first_version, read_examples
from glassformer.errors import ConfigurationError, InputError, RunError, TrainingError
from glassformer.evaluation.bootstrap import Statistic, intervals
from glassformer.evaluation.choosing import drawn, spread
from glassformer.evaluation.judging import Judged
from glassformer.interop.huggingface import Exported
from glassformer.looking.figures import attention_figure
from glassformer.looking.patching import Forced
from glassformer.looking.points import Names, Numbers
from glassformer.looking.recording import MOST, record
from glassformer.looking.sharpest import sharpest
from glassformer.looking.style import save
from glassformer.looking.trace import Description, Origin, Texts, Trace
from glassformer.parts import pad
from glassformer.recipe import Recipe
from glassformer.tasks.gathering import segments_of, uses_segments
from glassformer.tasks.showing import Part, Picture, Reply, Sample, Score
from glassformer.text import Tokenizer
from glassformer.writing import checksum, damage

if TYPE_CHECKING:
    from glassformer.decoding import Choose
    from glassformer.tasks.answering import Answer
    from glassformer.tasks.choosing import Chosen
    from glassformer.tasks.gaps import Filled
    from glassformer.tasks.labels import Classified
    from glassformer.tasks.series.forecaster import Forecast
    from glassformer.tasks.tagging import Tags
    from glassformer.tasks.writing import Output

Progress = Callable[[int, int], None]  # how many are done, of how many
HELD_OUT = ("valid", "test")
QUOTED = 60  # characters of a text in an error message
SHOWN = 10  # examples after training
SHORT = 100  # tokens that are written at most for a sample at each validation


class Evaluation:
    """How a run does on some examples: the mean loss and the scores of a task. A dataclass."""

    loss: float

    def summary(self) -> dict[str, float]:
        """The scores by name, as validation logs them: the numbers among the fields."""
        return {name: value for name, value in vars(self).items() if isinstance(value, float)}

    def facts(self) -> dict[str, Any]:
        """Everything, for programs."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]

    def table(self) -> list[Score]:
        """The scores for people."""
        return [self.score(name, value, ".4f") for name, value in self.summary().items()]

    def lines(self) -> list[str]:
        """Everything for people."""
        return [f"{each.name} {each}" for each in self.table()]

    def score(self, name: str, value: float, form: str, key: str = "", unit: str = "", note: str = "") -> Score:
        """A score for people; `key` is its name in `facts`, if that is another."""
        return Score(name, f"{value:{form}}", self.interval(key or name, form).strip(), unit, note)

    def resampled(self) -> tuple[int, dict[str, Statistic]]:
        """Of how many examples samples are drawn, and each score of a sample by its name in `facts`."""
        return 0, {}

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 95 % confidence interval of each score, by the bootstrap."""
        count, statistics = self.resampled()
        return intervals(statistics, count)

    def interval(self, name: str, form: str) -> str:
        """The interval of a score in brackets, after its value; nothing if it has none."""
        return "  [{:{form}}, {:{form}}]".format(*self.intervals[name], form=form) if name in self.intervals else ""

    def check(self, place: object) -> None:
        """Refuse scores that are no numbers: the outputs of the model were not finite."""
        if wrong := [name for name, value in self.summary().items() if math.isnan(value)]:
            raise TrainingError(f"{place}: the {wrong[0]} is not a number, as the model's outputs are not finite")


class Run:
    """A run of any task. What it can do follows from what it was trained for; all else is refused in a sentence."""

    options: ClassVar[frozenset[str]] = frozenset()  # what `evaluate` takes beside examples: beam, int8, rouge
    reads_files: ClassVar[bool] = False  # it reads files, not texts: what a command is given are their names
    reads_images: ClassVar[bool] = False  # of files, images: `evaluate` can leave some out and tell `complain` so
    attention_kind: ClassVar[str] = "encoder.self"  # the attention that is shown first
    searches: ClassVar[bool] = False  # `look` takes a beam
    extends: ClassVar[bool] = False  # `look` takes a length: what is written goes on where the text ends
    answers_at: ClassVar[int | None] = None  # the token that the answer is read from; None: there is no single one
    opens_with: ClassVar[str] = ""  # the classes of `transformers` that open what is exported
    exports: ClassVar[dict[str, Any]] = {}  # what else `Exported` is told
    others: tuple[Path, ...] = ()  # of an ensemble: the folders of its runs after the first

    def __init__(self, recipe: Recipe, model: nn.Module, assets: Assets, path: Path | None = None) -> None:
        self.recipe, self.assets, self.path = recipe, assets, path
        self.model: Any = model

    # --- what every run has

    @property
    def task(self) -> Any:
        """What it was trained for, with its options."""
        return self.recipe.task

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of what it reads."""
        return self.assets.tokenizers[0]

    @property
    def labels(self) -> list[str]:
        """What it tells apart, if it does, in the order of the numbers."""
        return self.assets.labels

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device  # type: ignore[no-any-return]

    def with_model(self, model: nn.Module) -> Self:
        """The same with another model."""
        return type(self)(self.recipe, model, self.assets, self.path)

    def examples(self, split: str = "test") -> list[Any]:
        """The examples that were kept out of its training: "valid" or "test"."""
        if self.path is None:
            raise InputError("this run has no folder to read its examples from")
        if split not in HELD_OUT:
            raise RunError(f"a run keeps its {' and '.join(HELD_OUT)} examples, not {split!r}")
        path = self.path / f"{split}.jsonl"
        for other in self.others:
            self._check_same(path, other / path.name)
        if path.exists() and (wrong := damage(self.path, lambda name: name == path.name)) is not None:
            raise RunError(f"{self.path} is damaged: {wrong}; restore that file from a copy, or name one with --data")

        def upgrade(row: dict[str, Any], number: int) -> Any:
            pixels = self.path / f"{split}.images.safetensors"  # type: ignore[operator]
            return self.task.example(
                from_first_version(row, self.task.reads, lambda: load_file(pixels)["pixels"][number])
            )

        found = read_examples(path, self.task.Example, upgrade) if path.exists() else []
        if not found:
            raise InputError(f"{self.path} has no {split} examples: name a file of your own with --data")
        return found

    def _check_same(self, path: Path, other: Path) -> None:
        """Refuse held-out examples that another run of an ensemble may have learned from."""
        if path.exists() and not (other.exists() and checksum(other) == checksum(path)):
            raise InputError(
                f"{other.parent} did not keep the {path.stem} examples of {path.parent}, and may have learned from "
                "them: name a file with --data that none of the runs has seen"
            )

    def normalised(self, text: str) -> str:
        """A text as in training."""
        try:
            text.encode()
        except (AttributeError, UnicodeEncodeError):
            raise InputError(f"{text!r} is no text") from None
        return normalise(text, self.recipe.data)

    # --- how good it is: each task says

    def evaluate(self, examples: Sequence[Any], progress: Progress | None = None) -> Evaluation:
        """Use the model on some examples, and compare with what is right."""
        raise NotImplementedError

    def drawn(self, examples: Sequence[Any], most: int) -> list[Any]:
        """At most so many of the examples, drawn over all of them, in their order."""
        return drawn(examples, most)

    def measure(self, examples: Sequence[Any], most: int) -> dict[str, float]:
        """The loss and scores that validation logs; what takes long is done for `most` of them, drawn over all."""
        return self.evaluate(examples).summary()

    def judge(self, examples: Sequence[Any], progress: Progress | None = None) -> Judged:
        """The score of each example, for comparisons."""
        raise InputError(f"runs for {self.task.kind} cannot be compared: the task does not say how to score them")

    # --- what is shown after training: each task says

    def rows_shown(self, examples: Sequence[Any], most: int = SHOWN) -> list[int]:
        """Which examples are shown: different ones, of all lengths."""
        keys, words = zip(*((self.task.split_key(each), self.task.words(each) or 0) for each in examples), strict=True)
        return spread(keys, words, most)

    def samples(self, examples: Sequence[Any], found: Any) -> list[Sample]:
        """Some of the examples, and what the run made of each; `found` is its evaluation of all."""
        return []

    def quick(self) -> Self:
        """The same, but it writes little, and the likeliest token each time: for samples at each validation."""
        decode = self.recipe.decode
        length = min(decode.max_length, SHORT)
        short = {"beam": 1, "temperature": 0.0, "max_length": length, "min_length": min(decode.min_length, length)}
        recipe = self.recipe.model_copy(update={"decode": decode.model_copy(update=short)})
        return type(self)(recipe, self.model, self.assets, self.path)

    def new_samples(self, examples: Sequence[Any]) -> list[Sample]:
        """Samples of a few examples that were not evaluated."""
        return self.samples(examples, self.evaluate(examples))

    def shown(self, examples: Sequence[Any], found: Any) -> list[str]:
        """The samples for a terminal, a line each."""
        return [f"  {each.line}" for each in self.samples(examples, found)]

    def attention_shown(self, examples: Sequence[Any]) -> Trace | None:
        """The attention over one of the examples; None: none is shown."""
        return None

    def attention_picture(self, examples: Sequence[Any]) -> Picture | None:
        """The attention over one of the examples as a picture, if it is shown and the model has any."""
        seen = self.attention_shown(examples)
        if seen is None or not seen.kinds:
            return None
        best = sharpest(seen)
        figure = attention_figure(best.weights, best.rows, best.columns, f"{seen.input} → {seen.output}\n{best.title}")
        return Picture("attention", f"{best.title.capitalize()}, over “{seen.input}”.", figure)

    def pictures(self, examples: Sequence[Any], found: Any) -> list[Picture]:
        """What there is to see of an evaluation."""
        picture = self.attention_picture(examples)
        return [] if picture is None else [picture]

    def draw(self, examples: Sequence[Any], found: Any, folder: Path) -> list[Path]:
        """Write the pictures of an evaluation; their files."""
        pictures = self.pictures(examples, found)
        for each in pictures:
            save(each.figure, folder / f"{each.name}.png")
        return [folder / f"{each.name}.png" for each in pictures]

    def next_commands(self, examples: Sequence[Any]) -> list[str]:
        """Commands to try next, after the program's name; RUN stands for the run's folder."""
        return ["evaluate --run RUN"]

    # --- what it can do: the tasks override what applies

    def translate(
        self, texts: Sequence[str], beam: int | None = None, int8: bool = False, progress: Progress | None = None
    ) -> list[Output]:
        """The best output for each text, in their order."""
        self._refuse("translate")

    def caption(
        self, images: Sequence[Any], beam: int | None = None, int8: bool = False, progress: Progress | None = None
    ) -> list[Output]:
        """The best caption of each image or film, in their order."""
        self._refuse("write captions")

    def generate(
        self,
        prompts: Sequence[str],
        length: int | None = None,
        sampler: Choose | None = None,
        beam: int | None = None,
        progress: Progress | None = None,
    ) -> list[Output]:
        """Each prompt and what follows it: what a `sampler` draws, what a `beam` finds, or as the recipe says."""
        self._refuse("generate")

    def choose(self, prompts: Sequence[str], choices: Sequence[str], progress: Progress | None = None) -> list[Chosen]:
        """Which of some continuations is the likeliest after each prompt."""
        self._refuse("choose")

    def stream(self, text: str, sampler: Choose | None = None, length: int | None = None) -> Iterator[str]:
        """The output for one text, piece by piece as it is written."""
        self._refuse("write")

    def classify(self, items: Sequence[Any], progress: Progress | None = None) -> list[Classified]:
        """The label of each text or image, in their order."""
        self._refuse("classify")

    def tag(self, texts: Sequence[str], progress: Progress | None = None) -> list[Tags]:
        """The tags of each text's words, in their order."""
        self._refuse("tag words")

    def answer(
        self,
        questions: Sequence[tuple[str, str]],
        progress: Progress | None = None,
        threshold: float | None = None,
    ) -> list[Answer]:
        """The answer to each question, found in its context, in their order."""
        self._refuse("answer")

    def embed(
        self,
        texts: Sequence[str],
        pooling: str | None = None,
        normalised: bool | None = None,
        progress: Progress | None = None,
    ) -> NDArray[np.float32]:
        """The vector of each text, (N, D): the mean of its tokens' or the first token's, of length 1 if normalised.

        What is not given is as the task says; where it says nothing, the mean, of length 1.
        """
        self._refuse("embed texts")

    def forecast(self, items: Sequence[Any], progress: Progress | None = None) -> list[Forecast]:
        """What comes after each series: the name of a CSV file, a `Series`, or rows of numbers."""
        self._refuse("forecast")

    def fill(self, texts: Sequence[str], top: int = 5, progress: Progress | None = None) -> list[Filled]:
        """Each text with its gaps filled, in their order."""
        self._refuse("fill gaps")

    def refuse(self, verb: str) -> NoReturn:
        """Say why the run does not do what one of these methods is for."""
        getattr(self, verb)(*([[]] * (2 if verb == "choose" else 1)))
        raise InputError(f"{self.path or 'this run'} does not {verb}")

    def can(self, verb: str) -> bool:
        """Whether the run does what one of these methods is for."""
        return getattr(type(self), verb, None) is not getattr(Run, verb, None)

    def _refuse(self, verb: str) -> NoReturn:
        raise InputError(f"{self.path or 'this run'} does not {verb}: it was trained for {self.task.kind}")

    # --- looking inside

    def item(self, text: str) -> Any:
        """What is worked with, given in a line of text: the text itself, two texts, the name of an image."""
        return text

    @property
    def fields(self) -> tuple[str, ...]:
        """What a page asks for: "text", "image", or the names of several texts."""
        return ("image",) if self.reads_images else ("text",)

    def from_page(self, text: str) -> Any:
        """What is worked with, given by a page: several texts have tabs between; no file of this machine is read."""
        if self.reads_files or self.reads_images:
            raise InputError(f"runs for {self.task.kind} take nothing from a page: the task does not say how")
        return self.item(text)

    def suggestions(self, most: int = 5) -> list[str]:
        """Held-out examples to try, short ones first, as `from_page` takes them; none, if none were kept."""
        for split in reversed(HELD_OUT):
            try:
                examples = self.examples(split)
            except (InputError, RunError):
                continue
            found = (self.suggestion(examples[row]) for row in self.rows_shown(examples, most))
            return sorted({text for text in found if text is not None}, key=lambda text: (len(text), text))
        return []

    def suggestion(self, example: Any) -> str | None:
        """What is read of an example, as `from_page` takes it; None: there is nothing to read."""
        return "\t".join(" ".join(text.split()) for text in self.task.texts(example, 0)) or None

    def picture(self, text: Any) -> Pixels | None:
        """The image that the model reads, (S, S, C), if it reads one."""
        return None

    def reply(self, text: Any, trace: Trace) -> Reply:
        """What the run answers to a text that was looked at, as a page shows it."""
        return Reply((Part(trace.output, marked=True),) if trace.output else ())

    def cuts(self, text: Any) -> bool:
        """Whether only the beginning of a text is read."""
        return False

    def read(self, text: Any) -> Sequence[int]:
        """A text as the tokens that the model reads."""
        raise InputError(f"runs for {self.task.kind} cannot be looked at: the task does not say what is read")

    def inputs(self, tokens: Tensor, mask: Tensor | None = None) -> tuple[Tensor | None, ...]:
        """What the model takes: tokens (B, T), which are real, and which of two texts each is from, if it is told."""
        return tokens, mask, segments_of(tokens, self.tokenizer.end) if uses_segments(self.model) else None

    def output_of(self, text: Any) -> str:
        """What the run answers to a text that is looked at, if anything."""
        return ""

    def look(
        self,
        text: Any,
        keep: Names | None = None,
        layers: Numbers | None = None,
        heads: Numbers | None = None,
        *,
        gigabytes: float = MOST,
    ) -> Trace:
        """What happens inside the model while it works on a text, with its tokens and words, and what the run answers.

        `keep`, `layers`, `heads` and `gigabytes` are those of `gf.record`; without them, everything is kept.
        """
        forced = self.forced(text)
        with record(self.model, keep, layers, heads, gigabytes) as trace, torch.inference_mode():
            self.model(*forced.inputs)
        about = self.description(text, {**forced.tokens, **self.spellings(trace)}, forced.words)
        return trace.described(about, Origin(self, text))

    def spellings(self, trace: Trace) -> dict[str, Texts]:
        """How the tokens are spelled that a trace's logits are of, by the axis; nothing, if they are of no tokens."""
        if "logits" not in trace.names or not self.assets.tokenizers:
            return {}
        (*_, axis), tokenizer = trace.kept.axes_of("logits"), self.assets.tokenizers[-1]
        filling = axis == "label" and not self.labels and trace["logits"].shape[-1] >= tokenizer.size  # gaps in a text
        return {axis: [tokenizer.vocabulary]} if axis == "vocabulary" or filling else {}

    def forced(self, text: Any, written: Sequence[int] | None = None) -> Forced:
        """What the model takes to read a text: its inputs, and how its tokens are spelled."""
        ids = self.read_something(text)
        stack = self.attention_kind.partition(".")[0]
        inputs = self.inputs(torch.tensor([ids], device=self.device))
        return Forced(inputs, {stack: [self.tokenizer.tokens(ids)]}, {stack: [self.tokenizer.words(ids)]})

    def read_something(self, text: Any) -> Sequence[int]:
        """A text as the tokens that the model reads, of which there is one at least."""
        if (isinstance(text, str) and not text.strip()) or not (ids := self.read(text)):
            raise InputError(f"there is nothing to look at in {text!r}")
        return ids

    def description(self, text: Any, tokens: Mapping[str, Any], words: Mapping[str, Any]) -> Description:
        """What a trace of a text says of it: how tokens are spelled, and which of them are words."""
        said = text if isinstance(text, str) else " | ".join(text) if isinstance(text, tuple) else ""
        labels = {"label": [list(self.labels)]} if self.labels else {}
        return Description(said, self.output_of(text), self.attention_kind, {**tokens, **labels}, words)

    # --- other formats

    @property
    def notes(self) -> dict[str, Any]:
        """What the config of a checkpoint holds beside the model: the labels, if there are any."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        names = {str(number): label for label, number in numbers.items()}
        return {"id2label": names, "label2id": numbers} if numbers else {}

    def exported(self) -> Exported:
        """What a checkpoint in Hugging Face's layout has to say of this run."""
        if not self.opens_with:
            raise ConfigurationError(f"runs for {self.task.kind} cannot be exported: the task does not say how")
        data = self.recipe.data
        reading = {"max_length": data.max_tokens, "normalise": data.normalise, "strip": data.strip}
        return Exported(self.opens_with, self.notes, **reading | self.exports)


def quoted(text: str) -> str:
    """A text in an error message: in quotes, and cut where it is long."""
    return repr(text if len(text) <= QUOTED else f"{text[:QUOTED]}…")


def check_list(items: Any, verb: str) -> None:
    """Refuse a single text where a list is expected: its letters would be taken for texts."""
    if isinstance(items, str | Path):
        raise InputError(f"{verb} takes a list: put the text into brackets")


def by_length(lengths: Sequence[int], budget: int, most: int | None = None) -> Iterator[list[int]]:
    """Rows of similar length together, the longest first: as many as the budget of tokens allows, and at least one.

    There are at most `most` of them, if that is given.
    """
    left = sorted(range(len(lengths)), key=lambda row: lengths[row])
    while left:
        fitting = max(1, min(len(left) if most is None else most, budget // max(lengths[left[-1]], 1)))
        rows, left = left[-fitting:], left[:-fitting]
        yield rows


def in_batches(
    rows: Sequence[Sequence[int]], run: Run, progress: Progress | None = None
) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Rows of similar length together, on the run's device: their numbers, tokens (B, T), which tokens are real."""
    done = 0
    for numbers in by_length([len(row) for row in rows], run.recipe.train.batch_tokens):
        tokens, keep = pad([rows[number] for number in numbers], run.tokenizer.pad)
        yield numbers, tokens.to(run.device), keep.to(run.device)
        done += len(numbers)
        if progress is not None:
            progress(done, len(rows))
