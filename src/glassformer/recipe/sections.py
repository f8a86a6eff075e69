"""The sections that every recipe has, whatever its task, source and family: data, tokenizer, tune, train and others."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from glassformer.recipe.values import Count, Fraction, Number, Place, Section, Seed, Switch, Whole


class Data(Section):
    """What is done to the examples before training."""

    normalise: Literal["nfc", "nfkc", "none"] = Field("nfc", description="Unicode normalisation")
    strip: Switch = Field(True, description="trim spaces at the ends, join runs of spaces")
    max_characters: Count = Field(2_000, description="drop examples with a longer text")
    max_ratio: Annotated[Number, Field(gt=1)] | None = Field(
        None, description="drop pairs whose lengths in characters differ by more than this factor"
    )
    duplicates: Literal["keep", "drop"] = Field("drop", description="examples that occur again, word for word")
    strict: Switch = Field(False, description="stop at the first bad row instead of counting and reporting it")
    valid: Fraction = Field(0.02, description="fraction split off for validation if the source has no validation split")
    test: Fraction = Field(0.02, description="fraction split off for testing if the source has no test split")
    seed: Seed = Field(0, description="which examples are split off")
    max_tokens: Count = Field(256, description="the longest text of an example, in tokens")
    long: Literal["drop", "truncate", "split"] = Field(
        "truncate", description="what happens to longer pairs (split: cut both sides in step)"
    )
    views: Count = Field(
        1, description="how often each training example is prepared, varied anew each time; an epoch has all views"
    )
    workers: Place = Field(0, description="processes that tokenise; 0: one per core")


class Tokenizer(Section):
    """How text becomes tokens."""

    kind: str = Field("bpe", description="the kind of tokens")
    vocabulary: Count = Field(8_000, description="tokens at most, special tokens included")
    joint: Switch = Field(True, description="one vocabulary for source and target")
    lowercase: Switch = Field(False, description="convert all text to lower case")
    contractions: Switch = Field(False, description="word: “doesn't” is “does” and “n't”, “it's” is “it” and “'s”")
    dropout: Fraction = Field(
        0.0, description="BPE-dropout: the probability that a merge is left out, in training examples only"
    )
    sample: Count = Field(1_000_000, description="training examples that the tokenizer is trained on, at most")
    path: str | None = Field(None, description="an existing tokenizer.json or SentencePiece model to use instead")


class Tune(Section):
    """Which weights of a pretrained model are trained."""

    mode: Literal["full", "head", "lora", "unfreeze"] = Field(
        "full", description="all weights; the head; low-rank matrices (LoRA); the head first, then block after block"
    )
    rank: Count = Field(8, description="lora: the rank of the low-rank matrices")
    alpha: Annotated[Number, Field(gt=0)] = Field(16.0, description="lora: their output is multiplied by alpha / rank")
    dropout: Fraction = Field(0.0, description="lora: dropout on their input")
    targets: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        ("query", "value"), description="lora: the linear layers that get one, by the end of their names; * is any"
    )
    every: Count = Field(100, description="unfreeze: steps after which one more block is trained")


class Train(Section):
    """How the model is trained."""

    steps: Place = Field(10_000, description="optimiser steps; 0: the model is scored and kept as it is")
    tokens: Annotated[Whole, Field(ge=1, lt=10**15)] | None = Field(
        None, description="train on this many tokens, padding not counted, instead of train.steps"
    )
    minutes: Annotated[Number, Field(gt=0, le=10**6)] | None = Field(
        None,
        description="train for as many steps as fit into this time, which is measured at the start, instead of "
        "train.steps",
    )
    batch_tokens: Count = Field(4_096, description="padded tokens in a batch at most, on the longer side; or images")
    accumulate: Annotated[Whole, Field(ge=1, le=2**16)] = Field(1, description="batches in an optimiser step")
    optimiser: Literal["adamw", "adam", "muon"] = Field(
        "adamw", description="muon: Muon for matrices, AdamW for the rest"
    )
    lr: Annotated[Number, Field(gt=0)] = Field(1e-3, description="the highest learning rate (of AdamW's part)")
    muon_lr: Annotated[Number, Field(gt=0)] = Field(0.02, description="the highest learning rate of Muon's part")
    betas: tuple[Fraction, Fraction] = Field((0.9, 0.98), description="Adam's two decay rates")
    weight_decay: Annotated[Number, Field(ge=0)] = Field(0.01, description="weight decay of matrices")
    schedule: Literal["inverse-sqrt", "cosine", "linear", "constant", "wsd"] = Field(
        "inverse-sqrt", description="how the learning rate falls after warm-up; wsd: warm-up, stable, decay"
    )
    warmup: Place = Field(400, description="steps in which the learning rate rises")
    decay: Fraction = Field(0.2, description="wsd: the last fraction of the steps, in which the learning rate falls")
    clip: Annotated[Number, Field(ge=0)] = Field(1.0, description="gradient clipping by norm; 0: none")
    smoothing: Fraction = Field(0.1, description="label smoothing")
    consistency: Annotated[Number, Field(ge=0)] = Field(
        0.0, description="R-Drop: weight of the divergence between two passes with different dropout; 0: one pass"
    )
    precision: Literal["auto", "float32", "bf16"] = Field(
        "float32", description="of the forward pass; auto: bf16 where the device has instructions for it"
    )
    compile: Literal["auto", True, False] = Field(
        "auto",
        description="auto: on a GPU, steps are CUDA graphs and long trainings compiled; true: always; false: neither",
    )
    ema: Fraction = Field(0.0, description="decay of the moving average of weights; 0: none")
    average: Place = Field(0, description="number of last checkpoints whose weights are averaged at the end")
    validate_every: Count = Field(500, description="steps between validations")
    validate_sentences: Count = Field(500, description="validation examples that are also decoded and scored, at most")
    patience: Place = Field(0, description="validations without progress before stopping; 0: never")
    watch: str = Field("loss", description="the loss or score by which progress is measured")
    save_every: Count = Field(500, description="steps between checkpoints")
    keep: Count = Field(3, description="checkpoints kept, besides the best")
    log_every: Count = Field(50, description="steps between lines in metrics.jsonl")
    max_bad_steps: Count = Field(10, description="steps in a row with a non-finite loss before stopping")
    seed: Seed = Field(0, description="weights, order and dropout")
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps")
    strategy: Literal["ddp", "fsdp"] = Field("ddp", description="how processes share the work, under torchrun")


class Look(Section):
    """Which texts are looked at while the model is trained, so that attention can be watched being born."""

    texts: Annotated[tuple[str, ...], Field(max_length=8)] = Field(
        (), description="texts, 8 at most; looks/STEP.trace in the run folder has the attention over them"
    )
    every: Count = Field(500, description="steps between looks; the first is before training, the last after it")


class Decode(Section):
    """How outputs are searched for in validation, and by default after training."""

    beam: Count = Field(4, description="beam width; 1: greedy")
    length_penalty: Number = Field(1.0, description="the power of the length that log-probabilities are divided by")
    early_stopping: Literal["never", "estimated", "filled"] = Field(
        "estimated",
        description="when beam search stops: no output can be better; or none is expected; or there are decode.beam",
    )
    renormalise: Switch = Field(False, description="beam search: scale the probabilities of allowed tokens to sum 1")
    temperature: Annotated[Number, Field(ge=0)] = Field(
        0.0, description="0: the likeliest output; above: tokens are drawn, the more evenly the higher"
    )
    top_k: Count | None = Field(None, description="draw from this many likeliest tokens")
    top_p: Annotated[Number, Field(gt=0, le=1)] | None = Field(
        None, description="draw from the fewest tokens with this probability together"
    )
    min_p: Annotated[Number, Field(ge=0, le=1)] | None = Field(
        None, description="draw from tokens with this fraction of the highest probability"
    )
    repetition_penalty: Annotated[Number, Field(gt=0)] = Field(
        1.0, description="above 1: tokens of the prompt and of the output so far are less likely"
    )
    no_repeat_ngram: Place = Field(0, description="no sequence of this many tokens occurs twice; 0: any may")
    min_length: Place = Field(0, description="tokens in an output at least")
    max_length: Count = Field(200, description="tokens in an output at most")
    count_prompt: Switch = Field(False, description="min_length and max_length count the tokens of the prompt too")
    batch: Count = Field(64, description="sentences decoded together")
