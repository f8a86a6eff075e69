"""The tasks of a recipe: a class for each thing that can be learned."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from glassformer.recipe.values import Count, Fraction, Number, Place, Section, Switch, Whole


def _grey_or_three(colours: int) -> int:
    if colours not in (1, 3):
        raise ValueError(f"task.colours is {colours}: an image has 1 colour or 3")
    return colours


Colours = Annotated[Whole, AfterValidator(_grey_or_three)]


class TranslationTask(Section):
    """From a text to a text: translation, summaries, spelling to sound."""

    kind: Literal["translation"] = "translation"


class ClassificationTask(Section):
    """From a text, or two, to one of the labels that occur in training."""

    kind: Literal["classification"]


class TaggingTask(Section):
    """From each word of a text to one of the tags in training. Words and tags have spaces between them."""

    kind: Literal["tagging"]


class AnsweringTask(Section):
    """From a question and a context to the words of the context that answer it."""

    kind: Literal["answering"]
    stride: Count = Field(128, description="tokens that one window of a long context shares with the next")
    max_question: Count = Field(64, description="tokens of a question at most; what is longer is cut off")
    max_answer: Count = Field(30, description="tokens of an answer at most, where one is looked for")
    unanswerable: Switch = Field(False, description="learn from questions without an answer, and give none if likelier")
    threshold: Number = Field(
        0.0, description="unanswerable: by how much nothing must be likelier than words, as a logit"
    )

    @model_validator(mode="after")
    def _silent(self) -> AnsweringTask:
        if self.threshold and not self.unanswerable:
            raise ValueError("task.threshold is for questions without an answer: set task.unanswerable as well")
        return self


class ImagesTask(Section):
    """From an image to one of the labels in training. A model sees (pixel / 255 - mean) / deviation."""

    kind: Literal["images"]
    size: Count = Field(32, description="pixels on each side")
    colours: Colours = Field(3, description="1: shades of grey; 3: red, green and blue")
    others: Literal["resize", "refuse"] = Field("resize", description="what happens to images of another size")
    mean: Fraction = Field(0.5, description="what is taken from each pixel, of 1")
    deviation: Annotated[Number, Field(gt=0)] = Field(0.5, description="what each is then divided by")
    shift: Place = Field(0, description="pixels that a training image is moved by at most, to each side")
    flip: Switch = Field(False, description="mirror every other training image, left to right")


class LanguageTask(Section):
    """From the beginning of a text to what follows."""

    kind: Literal["language-modelling"]


class MaskedTask(Section):
    """From a text with hidden tokens to what they are, as BERT learns first."""

    kind: Literal["masked-language-modelling"]
    share: Annotated[Fraction, Field(gt=0)] = Field(0.15, description="tokens that are hidden and asked for")


class CorruptionTask(Section):
    """From a text with stretches cut out to these, as T5 learns first."""

    kind: Literal["span-corruption"]
    share: Annotated[Fraction, Field(gt=0)] = Field(0.15, description="tokens that are cut out")
    mean: Annotated[Number, Field(ge=1)] = Field(3.0, description="tokens in a stretch, on average")


Task = Annotated[
    TranslationTask
    | ClassificationTask
    | TaggingTask
    | AnsweringTask
    | ImagesTask
    | LanguageTask
    | MaskedTask
    | CorruptionTask,
    Field(discriminator="kind", description="what is learned"),
]
