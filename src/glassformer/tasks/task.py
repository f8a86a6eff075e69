"""The task: everything that one kind of problem needs, in one place. This is what a task must say of itself.

A task is a section of the recipe, [task], whose fields are its options. It says which examples it takes, how they
become rows of numbers and batches, what the loss is, and which `Run` uses the trained model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import nn
from torch.overrides import TorchFunctionMode

from glassformer.data import Assets, Columns, Context, Corpus, Encode, Encoded
from glassformer.data.batches import Collator
from glassformer.data.cleaning import folded, normalise, split_of, why_dropped
from glassformer.data.examples import texts_in, with_texts
from glassformer.errors import ConfigurationError, DataError
from glassformer.interop.huggingface import Checkpoint
from glassformer.models import EncoderOnly
from glassformer.models.family import Blueprint
from glassformer.recipe import Data, Recipe
from glassformer.recipe.values import Section, register
from glassformer.registry import FAMILIES, TASKS
from glassformer.tasks.protocol import Loss
from glassformer.tasks.run import Run
from glassformer.text import SpecialTokens, Tokenizer

LARGE = 8192  # sizes above which a model is checked on the meta device, whose first use imports PyTorch's compiler
MOST_LABELS = 50  # beyond which labels that hardly ever repeat are taken for a mistake


class Task(Section):
    """The base of all tasks. Subclasses are registered under the values of their field `kind`, a Literal."""

    kind: str

    # What goes with it
    answer: ClassVar[str]  # what its models answer with: the families that do are suited
    reads: ClassVar[tuple[type, ...]] = (Columns,)  # the examples that it takes from sources
    tokenizers: ClassVar[int] = 1  # of what is read, and of what is written; 0: it reads no text
    writes: ClassVar[bool] = False  # whether its models write text
    adds_tokens: ClassVar[bool] = False  # whether it adds tokens to the vocabulary of a checkpoint
    scores: ClassVar[tuple[str, ...]] = ("loss",)  # what train.watch may name
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # of other sections
    unused: ClassVar[Mapping[str, str]] = {}  # keys of other sections that have no effect, and why
    suggested: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # what `glassformer new` writes into its recipes

    # Its examples
    Example: ClassVar[type[Any]]
    least: ClassVar[int] = 1  # tokens in the shortest row
    framed: ClassVar[bool] = False  # whether texts have a start, and an end after each, as encoders expect
    drawn: ClassVar[set[str]] = set()  # options that matter in training only, not for the prepared rows
    packs: ClassVar[bool] = False  # whether its batches can be packed into a `Stream`
    varies: ClassVar[bool] = False  # whether training examples can be varied: see `varied`
    varied_by: ClassVar[tuple[str, ...]] = ()  # options that make an example's views differ
    threads: ClassVar[bool] = False  # whether `clean` is done by several threads, as it waits for files
    block: ClassVar[int] = 10_000  # examples that are read and cleaned together
    keeps_sample: ClassVar[bool] = False  # whether some training examples are kept for a baseline
    left_out: ClassVar[Mapping[str, str]] = {}  # what its encoder counts and leaves out, and why

    # Training and use
    loss: ClassVar[Loss]
    loss_unit: ClassVar[str] = "nats"  # of the loss, in figures; empty: it has none
    counted_in: ClassVar[str] = "tokens"  # what batches are counted in
    learned_from: ClassVar[str] = "examples"  # what an epoch consists of
    Run: ClassVar[type[Run]]

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Register the class."""
        super().__pydantic_init_subclass__(**options)
        register(TASKS, cls)

    # --- the recipe

    @classmethod
    def likelihood(cls, rows: Sequence[Any]) -> float:
        """How likely some rows of a source, of a type that it reads, are meant for this task: 0 to 1."""
        return 0.1

    def check(self, recipe: Recipe) -> None:
        """Refuse sections that do not go with the task, by a ValueError."""
        if recipe.data.max_tokens < self.least:
            raise ValueError(
                f"data.max_tokens is {recipe.data.max_tokens}: for {self.kind} it is at least {self.least}"
            )
        if recipe.data.max_tokens >= recipe.train.batch_tokens:
            raise ValueError(
                "data.max_tokens must be below train.batch_tokens: the longest example and its end fit into no batch"
            )

    def check_model(self, recipe: Recipe) -> None:
        """Refuse a model that cannot be built, before anything starts: it is built without weights."""
        if recipe.pretrained is None:
            layers = [key for key in type(recipe.model).model_fields if key.endswith("layers")]
            one = recipe.model.model_copy(update=dict.fromkeys(layers, 1))  # all layers are alike
            sizes = [value for value in one.model_dump().values() if isinstance(value, int)]
            large = max(self.length(recipe), *sizes) > LARGE
            try:
                with torch.device("meta") if large else nullcontext(), _WithoutValues():
                    fresh_model(recipe.model_copy(update={"model": one}), self.given(recipe, (512, 512), 2))
            except RuntimeError as error:
                if "overflow" not in str(error):
                    raise
                raise ConfigurationError("[model] asks for matrices that no memory can hold: lower its sizes") from None

    # --- examples

    def file_source(self, path: str, recipe: Recipe) -> dict[str, Any]:
        """The [source] that reads a file of examples, to evaluate on: a table with the columns of the run's source."""
        columns = recipe.source.columns_read() if recipe.source is not None else 2
        return {"kind": "tsv", "train": path, "columns": tuple(range(columns))}

    def example(self, found: Any) -> Any:
        """The example that a source's row is; raises BadRow if it is none."""
        raise NotImplementedError

    def clean(self, example: Any, data: Data) -> Any:
        """The example with its texts normalised, if the task reads any."""
        return with_texts(example, lambda text: normalise(text, data)) if self.tokenizers else example

    def why_dropped(self, example: Any, data: Data) -> str | None:
        """The filter of texts that a clean example does not pass, or None."""
        return why_dropped(texts_in(example), data) if self.tokenizers else None

    def split_key(self, example: Any) -> bytes:
        """What decides on the split: examples with the same key are in the same split."""
        return folded("\0".join(self.texts(example, 0)))

    def parts(self, example: Any, hashed: int, valid: float, test: float) -> Iterable[tuple[str, Any]]:
        """The splits that an example goes to, when these fractions are split off: one, which its content decides.

        `hashed` stands for its `split_key`. A task may cut an example, such as a series by time.
        """
        return [(split_of(hashed, valid, test), example)]

    def identity(self, example: Any) -> bytes:
        """What makes two examples duplicates."""
        return "\0".join(texts_in(example)).encode()

    def scorable(self, examples: Sequence[Any], assets: Assets) -> list[Any]:
        """The held-out examples that can be scored: those whose labels are all known from training."""
        known = {*assets.labels}
        return [example for example in examples if known.issuperset(self.labels_of(example))]

    def labels_of(self, example: Any) -> Iterable[str]:
        """The labels of an example, if it has any."""
        return (example.label,) if hasattr(example, "label") else ()

    def labels(self, examples: Iterable[Any]) -> list[str]:
        """The labels that occur in training, sorted."""
        counts = Counter(label for example in examples for label in self.labels_of(example))
        if len(counts) == 1:
            raise DataError(
                f"every training example has the label {next(iter(counts))!r}: a classifier needs two labels or more"
            )
        if len(counts) > MOST_LABELS and 2 * len(counts) > counts.total():
            raise DataError(
                f"{counts.total():,} examples have {len(counts):,} different labels, such as {next(iter(counts))!r}: "
                "is the label in that column?"
            )
        return sorted(counts)

    def texts(self, example: Any, side: int) -> Sequence[str]:
        """The texts that the tokenizer of the source (0) or of the target (1) is trained on."""
        return list(texts_in(example)) if self.tokenizers else []

    @classmethod
    def text_sides(cls) -> tuple[int, ...]:
        """The sides of a row that are text: what is read (0), what is predicted (1)."""
        return tuple(range(cls.tokenizers))

    def words(self, example: Any) -> int | None:
        """How many words are read in an example; None: the task reads no text."""
        return sum(len(text.split()) for text in self.texts(example, 0)) if self.tokenizers else None

    def name_of(self, example: Any) -> str:
        """An example that is no text, in a line."""
        return str(example.name)

    def shortened(self, example: Any) -> Any:
        """The example as a sample keeps it."""
        return example

    def varied(self, example: Any, view: int) -> Any:
        """A training example as it is in one of its views."""
        return example

    # --- from examples to rows and batches

    def add_special_tokens(self, tokenizer: Tokenizer) -> None:
        """Give a tokenizer the special tokens that the task needs."""
        if self.framed:
            tokenizer.add_frame()

    def largest_number(self, assets: Assets) -> int:
        """The largest number in a row."""
        return max([len(assets.labels), *(tokenizer.size for tokenizer in assets.tokenizers)]) - 1

    def encode(self, examples: list[Any], context: Context) -> Encoded:
        """The rows of those examples that can be learned from."""
        raise NotImplementedError

    def encoder(self, context: Context) -> Encode:
        """What makes rows of examples."""
        return partial(self.encode, context=context)

    def collator(self, recipe: Recipe, corpus: Corpus, model: nn.Module) -> Collator[Any]:
        """What makes batches of rows."""
        raise NotImplementedError

    def unvaried(
        self, recipe: Recipe, corpus: Corpus, model: nn.Module, rows: NDArray[Any]
    ) -> tuple[Collator[Any], NDArray[Any]]:
        """What makes batches of some training rows as of held-out ones, without random changes; and their numbers."""
        return self.collator(recipe, corpus, model), rows

    # --- the model

    def length(self, recipe: Recipe) -> int:
        """How many positions a model needs."""
        return recipe.data.max_tokens

    def given(self, recipe: Recipe, vocabularies: tuple[int, ...], classes: int) -> dict[str, Any]:
        """The arguments of a family that the data decides."""
        sizes = {"vocabulary": vocabularies[0], "target_vocabulary": vocabularies[-1]} if vocabularies else {}
        return {**sizes, "length": self.length(recipe), "classes": classes, "answer": self.answer}

    def begin(self, model: nn.Module, corpus: Corpus) -> None:
        """Give a new model what it takes over from the training data before it learns, such as means of columns."""

    def check_checkpoint(self, blueprint: Blueprint) -> None:
        """Refuse a checkpoint that was made for other inputs than the task's."""

    def imported(self, checkpoint: Checkpoint) -> SpecialTokens | None:
        """The special tokens to keep of a checkpoint that is imported for this task."""
        return checkpoint.special_tokens() if self.writes else None

    def kept_of(self, checkpoint: Checkpoint) -> dict[str, dict[str, Any]]:
        """The options of sections, [task] and [data], that a checkpoint's own files decide when it is imported."""
        return {}

    @classmethod
    def adopts(cls, model: nn.Module) -> bool:
        """Whether an imported checkpoint's model can be used for this task."""
        return False


def encodes_for(model: nn.Module, answer: str) -> bool:
    """Whether a checkpoint's model is an encoder of texts that answers so: vectors, words, classes, tags, span."""
    blueprint: Any = getattr(model, "blueprint", None)
    return isinstance(model, EncoderOnly) and blueprint is not None and blueprint.arguments.get("answer") == answer


class _WithoutValues(TorchFunctionMode):
    """Within this context new weights get no values, so that a model is built at once."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(function, "__name__", "") in ("normal_", "uniform_"):
            return args[0] if args else kwargs["tensor"]
        return function(*args, **(kwargs or {}))


def fresh_model(recipe: Recipe, given: Mapping[str, Any]) -> nn.Module:
    """The model that a recipe describes, with new weights; of what is given, the family takes what it knows."""
    family: Any = FAMILIES[recipe.model.family]
    arguments = {name: value for name, value in given.items() if name in family.parameters}
    model: nn.Module = family(**recipe.model.arguments(), **arguments)
    return model
