"""The recipe: everything that a training run needs to know, in one TOML file, checked before anything starts.

Each section is a class here, each key a field with its meaning; the reference in `docs/recipe.md` is made from them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, model_validator

from glassformer.usual import DOCUMENTS, FAMILIES, TASK_DEFAULTS, WATCHED

# What is written is what is meant: true is no number, and neither is "100"; but a whole number may stand for any.
Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
Switch = Annotated[bool, Strict()]
Fraction = Annotated[Number, Field(ge=0, lt=1)]
Count = Annotated[Whole, Field(ge=1, lt=2**31)]
Place = Annotated[Whole, Field(ge=0, lt=2**31)]
Seed = Annotated[Whole, Field(ge=0, lt=2**63)]


def _grey_or_three(colours: int) -> int:
    if colours not in (1, 3):
        raise ValueError(f"task.colours is {colours}: an image has 1 colour or 3")
    return colours


Colours = Annotated[Whole, AfterValidator(_grey_or_three)]


class Section(BaseModel):
    """A table of the recipe: unknown keys are refused, values do not change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


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


class ToySource(Section):
    """Random letters, to be copied, reversed or sorted: for tests."""

    kind: Literal["copy", "reverse", "sort"]
    count: Count = Field(5_000, description="training pairs")
    symbols: Annotated[Whole, Field(ge=2, le=26)] = Field(12, description="different letters")
    length: Count = Field(10, description="letters at most")
    seed: Seed = Field(0, description="which strings are drawn")


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
    | ToySource,
    Field(discriminator="kind", description="where the examples come from"),
]


class TranslationTask(Section):
    """From a text to a text: translation, summaries, spelling to sound."""

    kind: Literal["translation"] = "translation"


class ClassificationTask(Section):
    """From a text, or two, to one of the labels that occur in training."""

    kind: Literal["classification"]


class AnsweringTask(Section):
    """From a question and a context to the words of the context that answer it."""

    kind: Literal["answering"]
    stride: Count = Field(128, description="tokens that one window of a long context shares with the next")
    max_question: Count = Field(64, description="tokens of a question at most; what is longer is cut off")
    max_answer: Count = Field(30, description="tokens of an answer at most, where one is looked for")
    unanswerable: Switch = Field(False, description="learn from questions without an answer, and give none if likelier")


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
    TranslationTask | ClassificationTask | AnsweringTask | ImagesTask | LanguageTask | MaskedTask | CorruptionTask,
    Field(discriminator="kind", description="what is learned"),
]

IMAGES = ("digits", "image-folder")  # sources of images


class Data(Section):
    """What is done to the examples before they are learned from."""

    normalise: Literal["nfc", "nfkc", "none"] = Field("nfc", description="Unicode normalisation")
    strip: Switch = Field(True, description="trim spaces at the ends, join runs of spaces")
    max_characters: Count = Field(2_000, description="drop pairs with a longer side")
    max_ratio: Annotated[Number, Field(gt=1)] | None = Field(
        None, description="drop pairs whose lengths in characters differ by more than this factor"
    )
    duplicates: Literal["keep", "drop"] = Field("drop", description="pairs that were there before, word for word")
    strict: Switch = Field(False, description="stop at the first bad row instead of counting and reporting it")
    valid: Fraction = Field(0.02, description="share split off for validation where the source has no such file")
    test: Fraction = Field(0.02, description="share split off for testing where the source has no such file")
    seed: Seed = Field(0, description="which pairs are split off")
    max_tokens: Count = Field(256, description="the longest side of a pair, in tokens")
    long: Literal["drop", "truncate", "split"] = Field(
        "truncate", description="what happens to longer pairs (split: cut both sides in step)"
    )
    workers: Annotated[Whole, Field(ge=0)] = Field(0, description="processes that tokenise; 0: one a core")


class Tokenizer(Section):
    """How text becomes tokens."""

    kind: Literal["bpe", "unigram", "word", "character", "byte"] = Field("bpe", description="the kind of tokens")
    vocabulary: Count = Field(8_000, description="tokens at most, special ones included (byte: always 256 + 4)")
    joint: Switch = Field(True, description="one vocabulary for source and target")
    lowercase: Switch = Field(False, description="forget capitals")
    sample: Count = Field(1_000_000, description="training pairs that the tokenizer is trained on, at most")
    path: str | None = Field(None, description="an existing tokenizer.json or SentencePiece model to use instead")


class Model(Section):
    """The model to train."""

    family: Literal["transformer", "bert", "roberta", "gpt2", "llama", "t5", "bart", "marian", "vit"] = Field(
        "transformer", description="the family"
    )
    pretrained: str | None = Field(
        None,
        description="a checkpoint to begin with: a folder, package:NAME or a hub name; it decides all but dropout",
    )
    width: Count = Field(256, description="numbers in a token's vector")
    heads: Count = Field(4, description="attention heads")
    patch: Count = Field(4, description="vit: pixels on each side of the squares that an image is cut into")
    layers: Count = Field(3, description="encoder blocks")
    decoder_layers: Count | None = Field(None, description="decoder blocks; missing: as many as the encoder's")
    hidden: Count = Field(1024, description="numbers in the middle of a feed-forward part")
    dropout: Fraction = Field(0.1, description="share of numbers dropped in training")
    attention_dropout: Fraction = Field(0.0, description="share of attention weights dropped in training")
    norm: Literal["pre", "post"] = Field("pre", description="where the norms stand")
    activation: Literal["relu", "gelu", "gelu_tanh", "silu"] | None = Field(
        None, description="of the feed-forward parts; missing: the family's own"
    )
    tie_source: Switch = Field(True, description="one embedding for source and target (a joint vocabulary only)")
    tie_output: Switch = Field(True, description="the head shares the target's embedding")


class Tune(Section):
    """What of a model learns that has learned before."""

    mode: Literal["full", "head", "lora", "unfreeze"] = Field(
        "full",
        description="all of it; its head; thin matrices beside its own (LoRA); head first, then block after block",
    )
    rank: Count = Field(8, description="lora: the width of the thin matrices")
    alpha: Annotated[Number, Field(gt=0)] = Field(16.0, description="lora: what they add is multiplied by alpha / rank")
    dropout: Fraction = Field(0.0, description="lora: share of their inputs dropped in training")
    targets: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        ("query", "value"), description="lora: the linear parts they stand beside, by the end of their names; * is any"
    )
    every: Count = Field(100, description="unfreeze: steps after which one more block learns")


class Train(Section):
    """How the model learns."""

    steps: Count = Field(10_000, description="optimiser steps")
    batch_tokens: Count = Field(4_096, description="padded tokens in a batch at most, on the longer side; or images")
    accumulate: Count = Field(1, description="batches in an optimiser step")
    optimiser: Literal["adamw", "adam", "muon"] = Field(
        "adamw", description="muon: Muon for matrices, AdamW for the rest"
    )
    lr: Annotated[Number, Field(gt=0)] = Field(1e-3, description="the highest learning rate (of AdamW's part)")
    muon_lr: Annotated[Number, Field(gt=0)] = Field(0.02, description="the highest learning rate of Muon's part")
    betas: tuple[Fraction, Fraction] = Field((0.9, 0.98), description="Adam's two decay rates")
    weight_decay: Annotated[Number, Field(ge=0)] = Field(0.01, description="of matrices")
    schedule: Literal["inverse-sqrt", "cosine", "linear", "constant", "wsd"] = Field(
        "inverse-sqrt", description="how the rate falls after warm-up; wsd: stable, then decay"
    )
    warmup: Annotated[Whole, Field(ge=0)] = Field(400, description="steps in which the rate rises")
    decay: Fraction = Field(0.2, description="the last share of the steps, in which wsd falls")
    clip: Annotated[Number, Field(ge=0)] = Field(1.0, description="the longest gradient; 0: any")
    smoothing: Fraction = Field(0.1, description="label smoothing")
    precision: Literal["float32", "bf16"] = Field("float32", description="of the forward pass")
    compile: Switch = Field(False, description="torch.compile the model")
    ema: Fraction = Field(0.0, description="decay of the moving average of weights; 0: none")
    average: Annotated[Whole, Field(ge=0)] = Field(0, description="average the last so many checkpoints at the end")
    validate_every: Count = Field(500, description="steps between validations")
    validate_sentences: Count = Field(500, description="validation pairs that are also decoded and scored, at most")
    patience: Annotated[Whole, Field(ge=0)] = Field(
        0, description="validations without progress before stopping; 0: never"
    )
    watch: Literal["loss", "bleu", "chrf", "exact", "rouge1", "rouge2", "rougeL", "accuracy", "f1"] = Field(
        "loss", description="what progress is measured by: the loss, or a score of the task's"
    )
    save_every: Count = Field(500, description="steps between checkpoints")
    keep: Count = Field(3, description="checkpoints kept, besides the best")
    log_every: Count = Field(50, description="steps between lines in metrics.jsonl")
    max_bad_steps: Count = Field(10, description="steps in a row with a non-finite loss before stopping")
    seed: Seed = Field(0, description="weights, order and dropout")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps")
    strategy: Literal["ddp", "fsdp"] = Field("ddp", description="how many processes share the work, under torchrun")


class Decode(Section):
    """How outputs are searched for in validation and by default afterwards."""

    beam: Count = Field(4, description="beam width; 1: greedy")
    length_penalty: Number = Field(1.0, description="the power of the length that log-probabilities are divided by")
    max_length: Count = Field(200, description="tokens in an output at most")
    batch: Count = Field(64, description="sentences decoded together")


class Recipe(Section):
    """A whole recipe."""

    title: str = Field("", description="what this recipe makes, in a line")
    task: Task = TranslationTask()
    source: Source
    data: Data = Data()
    tokenizer: Tokenizer = Tokenizer()
    model: Model = Model()
    tune: Tune = Tune()
    train: Train = Train()
    decode: Decode = Decode()

    @model_validator(mode="before")
    @classmethod
    def _for_its_task(cls, table: Any) -> Any:
        """What is not said is what is usual for the task."""
        task = table.get("task") if isinstance(table, dict) else None
        kind = task.get("kind") if isinstance(task, dict) else None
        usual = TASK_DEFAULTS.get(kind, {}) if isinstance(kind, str) else {}
        said = {name: table.get(name, {}) for name in usual}
        return {**table, **{name: {**usual[name], **each} for name, each in said.items() if isinstance(each, dict)}}

    @model_validator(mode="after")
    def _suits_its_task(self) -> Recipe:
        kind = self.task.kind
        for key, found, known in (
            ("model.family", self.model.family, FAMILIES[kind]),
            ("train.watch", self.train.watch, WATCHED[kind]),
        ):
            if found not in known and not (key == "model.family" and self.model.pretrained):
                raise ValueError(f"{key} is {found!r}: for {kind} it is one of {', '.join(known)}")
        if isinstance(self.source, TextSource | FilesSource | PythonSource) and kind not in DOCUMENTS:
            raise ValueError(f"source.kind is {self.source.kind!r}, which has no targets: {kind} needs some")
        return self

    @model_validator(mode="after")
    def _has_learned_before(self) -> Recipe:
        if self.tune.mode != "full" and self.model.pretrained is None:
            raise ValueError(f"tune.mode is {self.tune.mode!r}, but model.pretrained names nothing that has learned")
        return self

    @model_validator(mode="after")
    def _can_be_answered(self) -> Recipe:
        if (self.task.kind == "answering") != (self.source.kind == "squad"):
            raise ValueError(f"source.kind is {self.source.kind!r} for {self.task.kind}: squad is for answering alone")
        if self.task.kind == "answering" and (self.data.normalise != "none" or self.data.strip):
            raise ValueError('answers are found by counting letters: data.normalise must be "none", data.strip false')
        return self

    @model_validator(mode="after")
    def _can_be_seen(self) -> Recipe:
        if (self.task.kind == "images") != (self.source.kind in IMAGES):
            known = " and ".join(IMAGES)
            raise ValueError(f"source.kind is {self.source.kind!r} for {self.task.kind}: {known} are for images alone")
        if self.task.kind == "images" and self.model.pretrained is None and self.task.size % self.model.patch:
            raise ValueError(f"task.size {self.task.size} does not divide into model.patch {self.model.patch}")
        return self

    @model_validator(mode="after")
    def _fits(self) -> Recipe:
        if self.model.width % self.model.heads:
            raise ValueError(f"model.width {self.model.width} does not divide into model.heads {self.model.heads}")
        if self.model.family == "transformer" and self.model.tie_source and not self.tokenizer.joint:
            raise ValueError("model.tie_source needs tokenizer.joint: two vocabularies cannot share one embedding")
        if self.model.family in ("t5", "bart", "marian") and not self.tokenizer.joint:
            raise ValueError(f"model.family {self.model.family} needs tokenizer.joint: it has one embedding for all")
        if self.data.max_tokens >= self.train.batch_tokens and self.task.kind != "images":
            raise ValueError(
                "data.max_tokens must be below train.batch_tokens: the longest pair and its end would fit into no batch"
            )
        if self.data.valid + self.data.test >= 1:
            raise ValueError("data.valid and data.test leave nothing to train on")
        return self
