"""The sections that every recipe has, whatever its task and source: data, tokenizer, model and how they are used."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from glassformer.recipe.values import Count, Fraction, Number, Section, Seed, Switch, Whole


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

    family: Literal["transformer", "bert", "roberta", "gpt2", "llama", "t5", "bart", "marian", "vit", "recurrent"] = (
        Field("transformer", description="the family")
    )
    pretrained: str | None = Field(
        None,
        description="a checkpoint to begin with: a folder, package:NAME or a hub name; it decides all but dropout",
    )
    embeddings: str | None = Field(
        None,
        description="vectors that the input embedding begins with: a file in word2vec's text format, one-hot or tf-idf",
    )
    embeddings_learn: Switch = Field(True, description="false: they stay as they are (a head tied to them, too)")
    width: Count = Field(256, description="numbers in a token's vector")
    heads: Count = Field(4, description="attention heads")
    patch: Count = Field(4, description="vit: pixels on each side of the squares that an image is cut into")
    layers: Count = Field(3, description="encoder blocks; recurrent layers, of a decoder too")
    decoder_layers: Count | None = Field(None, description="decoder blocks; missing: as many as the encoder's")
    hidden: Count = Field(1024, description="numbers in the middle of a feed-forward part")
    dropout: Fraction = Field(0.1, description="share of numbers dropped in training")
    attention_dropout: Fraction = Field(0.0, description="share of attention weights dropped in training")
    norm: Literal["pre", "post"] = Field("pre", description="where the norms stand")
    activation: Literal["relu", "gelu", "gelu_tanh", "silu"] | None = Field(
        None, description="of the feed-forward parts; missing: the family's own"
    )
    cell: Literal["rnn", "gru", "lstm"] | None = Field(
        None, description="recurrent: the kind of its cells; missing: lstm"
    )
    attention: Literal["none", "additive", "multiplicative"] | None = Field(
        None, description="recurrent, translation: how the decoder looks at the source; missing: multiplicative"
    )
    bidirectional: Switch | None = Field(
        None, description="recurrent: what is read is read both ways, half of the width each; missing: false"
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
    tokens: Annotated[Whole, Field(ge=1)] | None = Field(
        None, description="instead: as many steps as take so many tokens of the examples, both sides, without padding"
    )
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
    truncate: Count | None = Field(
        None, description="recurrent, language-modelling: steps that gradients go back in time; missing: all of them"
    )
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
