"""The sources of a recipe: a class for each place that examples come from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from glassformer.recipe.values import Count, Place, Section, Seed, Switch, Whole


class Files(Section):
    """What the file sources share: paths are relative to the recipe; valid and test may be missing."""

    train: str = Field(description="the training file (plain, .gz or .xz)")
    valid: str | None = Field(None, description="the validation file; missing: split off by content hash")
    test: str | None = Field(None, description="the test file; missing: split off by content hash")


class TsvSource(Files):
    """A table of tab-separated columns, one pair a line."""

    kind: Literal["tsv"]
    columns: Annotated[tuple[Place, ...], Field(min_length=2, max_length=3)] = Field(
        (0, 1), description="the columns of source and target, counted from 0; of two texts and a label: three"
    )
    header: Switch = Field(False, description="the first line names the columns")


class AlignedSource(Section):
    """Two files, the n-th line of one being the translation of the n-th line of the other."""

    kind: Literal["aligned"]
    train: tuple[str, str] = Field(description="the training files: source, target")
    valid: tuple[str, str] | None = Field(None, description="the validation files")
    test: tuple[str, str] | None = Field(None, description="the test files")


class JsonlSource(Files):
    """One JSON object a line."""

    kind: Literal["jsonl"]
    fields: Annotated[tuple[str, ...], Field(min_length=2, max_length=3)] = Field(
        ("source", "target"), description="the names of source and target; of two texts and a label: three"
    )


class FolderSource(Section):
    """A folder of train, valid and test: `train.en` and `train.de`, or `train.tsv`, or `train.jsonl`; .gz, .xz too."""

    kind: Literal["folder"]
    path: str = Field(description="the folder")
    languages: tuple[str, str] | None = Field(None, description="the endings of aligned files: source, target")
    fields: tuple[str, str] = Field(("source", "target"), description="the names of source and target in JSONL")


class PoSource(Files):
    """A gettext catalogue: msgid to msgstr."""

    kind: Literal["po"]


class TmxSource(Files):
    """A TMX translation memory."""

    kind: Literal["tmx"]
    languages: tuple[str, str] = Field(description="the codes of source and target, as in the file")


class HuggingFaceSource(Section):
    """A dataset by its name on the Hugging Face hub. Needs a network and the extra `hub`."""

    kind: Literal["huggingface"]
    name: str = Field(description="the dataset's name, such as wmt14")
    subset: str | None = Field(None, description="its configuration, such as de-en")
    revision: str | None = Field(None, description="a commit or tag of the dataset, to have the same data always")
    fields: tuple[str, str] = Field(description="source and target, such as translation.en and translation.de")


class DebianSource(Section):
    """English package descriptions and their translations, through apt, on any Debian or Ubuntu machine."""

    kind: Literal["debian"]
    language: Literal["it", "fr", "de"] = Field(description="the language to translate into")


class DatesSource(Section):
    """Dates in many languages and styles, to ISO 8601. Made here, with Babel."""

    kind: Literal["dates"]
    count: Count = Field(20_000, description="training pairs")
    locales: tuple[str, ...] = Field(
        ("en_US", "en_GB", "it", "fr", "de", "es", "pt", "nl", "hi", "ta"), description="languages, as Babel names them"
    )
    first_year: Annotated[Whole, Field(ge=1, le=9999)] = Field(1950, description="the earliest year")
    last_year: Annotated[Whole, Field(ge=1, le=9999)] = Field(2049, description="the latest year")
    seed: Seed = Field(0, description="which dates are drawn")

    @model_validator(mode="after")
    def _in_order(self) -> DatesSource:
        if self.first_year > self.last_year:
            raise ValueError(f"source.first_year {self.first_year} is after source.last_year {self.last_year}")
        return self


class LabelledFolderSource(Section):
    """A text a file, its label the name of its folder: `path/LABEL/*.txt`, or `path/train/LABEL/*.txt` and so on."""

    kind: Literal["labelled-folder"]
    path: str = Field(description="the folder of the labels' folders, or of train, valid and test")


class TopicsSource(Section):
    """BBC News: 2,225 documents, each business, entertainment, politics, sports or tech. Needs the extra `tasks`."""

    kind: Literal["topics"]


class SquadSource(Files):
    """Questions, contexts and answers in SQuAD's JSON layout, version 1 or 2."""

    kind: Literal["squad"]


class TextSource(Section):
    """Texts without targets, from files, for the tasks that learn from documents."""

    kind: Literal["text"]
    train: str | tuple[str, ...] = Field(description="the training file, or several in brackets (plain, .gz or .xz)")
    valid: str | tuple[str, ...] | None = Field(None, description="for validation; missing: split off by content hash")
    test: str | tuple[str, ...] | None = Field(None, description="for testing; missing: split off by content hash")
    documents: Literal["paragraph", "line", "stretch", "file"] = Field(
        "paragraph",
        description="what a document is; paragraphs have a blank line between; stretch: some of them, a few pages",
    )


class FilesSource(Section):
    """All files of a folder and the folders in it, each a document."""

    kind: Literal["files"]
    path: str = Field(description="the folder")
    pattern: str = Field("**/*.txt", description="which files: * is any name, ** any folders")


class PythonSource(Section):
    """The standard library of this Python, each file a document, without its tests."""

    kind: Literal["python"]


class DigitsSource(Section):
    """Handwriting: 1,797 images of 8 x 8 pixels in shades of grey, of scikit-learn. Needs the extra `tasks`."""

    kind: Literal["digits"]


class ImageFolderSource(Section):
    """Images in folders named after their labels: `path/LABEL/*.png`, or `path/train/LABEL/*.png` and so on."""

    kind: Literal["image-folder"]
    path: str = Field(description="the folder of the labels' folders, or of train, valid and test")


class GrammarSource(Section):
    """English sentences of a small grammar, each word tagged: many words have two tags, and the others tell which."""

    kind: Literal["grammar"]
    count: Count = Field(5_000, description="training sentences")
    seed: Seed = Field(0, description="which sentences are drawn")


class ToySource(Section):
    """Random letters, to be copied, reversed or sorted: for tests."""

    kind: Literal["copy", "reverse", "sort"]
    count: Count = Field(5_000, description="training pairs")
    symbols: Annotated[Whole, Field(ge=2, le=26)] = Field(12, description="different letters")
    length: Count = Field(10, description="letters at most")
    seed: Seed = Field(0, description="which strings are drawn")


def texts_of(source: Section) -> int:
    """How many texts an example of a labelled source has before its label: two where three columns or fields are."""
    return len(getattr(source, "columns", getattr(source, "fields", (0, 1)))) - 1


Source = Annotated[
    TsvSource
    | AlignedSource
    | JsonlSource
    | FolderSource
    | PoSource
    | TmxSource
    | HuggingFaceSource
    | DebianSource
    | DatesSource
    | LabelledFolderSource
    | TopicsSource
    | SquadSource
    | TextSource
    | FilesSource
    | PythonSource
    | DigitsSource
    | ImageFolderSource
    | GrammarSource
    | ToySource,
    Field(discriminator="kind", description="where the examples come from"),
]
