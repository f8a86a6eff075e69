"""Exporting: a run as a checkpoint that `transformers` opens and gets the same answers from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glassformer.errors import ConfigurationError, InputError
from glassformer.models import EncoderDecoder
from glassformer.pretrained import save
from glassformer.pretrained.adapter import made_of
from glassformer.run.answerer import Answerer
from glassformer.run.classifier import Classifier
from glassformer.run.folder import JOINT, write_text
from glassformer.run.image_classifier import ImageClassifier
from glassformer.run.importing import write_tokenizers
from glassformer.run.run import Run

ROBERTA_PAD = 1  # its positions count from there, in transformers too


def export(run: Any, folder: Path) -> str:
    """Write a run in Hugging Face's layout. Gives what `transformers` opens it with."""
    if isinstance(run, Classifier):
        _write_reader(run, folder, _named(run.labels))
        return "AutoModelForSequenceClassification and AutoTokenizer (with truncation=True)"
    if isinstance(run, Answerer):
        _write_reader(run, folder, {})
        return "AutoModelForQuestionAnswering and AutoTokenizer"
    if isinstance(run, ImageClassifier):
        return _image_classifier(run, folder)
    if isinstance(run, Run):
        made_of(run.model).notes.update(_special(run))
        save(run.model, folder)
        write_tokenizers((run.source, run.target), run.path, folder)
        own = " and AutoTokenizer" if run.source is run.target else "; its two tokenizers are files of their own"
        return f"AutoModel{own}"
    raise InputError(f"{run.path} was trained for {run.recipe.task.kind}: it cannot be exported yet")


def _special(run: Run) -> dict[str, int]:
    """The special tokens of what is written, as their configs name them."""
    habits = run.habits
    named = {"pad_token_id": habits.pad, "eos_token_id": habits.end}
    if isinstance(run.model, EncoderDecoder):
        return {**named, "decoder_start_token_id": habits.start}
    return {**named, "bos_token_id": habits.start}


def _write_reader(run: Classifier | Answerer, folder: Path, notes: dict[str, Any]) -> None:
    """Write a run that reads texts and points or tells apart; its tokenizer does what the run does to texts."""
    made, tokenizer, data = made_of(run.model), run.tokenizer, run.recipe.data
    if made.family == "roberta" and tokenizer.pad != ROBERTA_PAD:
        raise ConfigurationError(
            f"a RoBERTa whose padding is token {tokenizer.pad} has no counterpart there: theirs is token {ROBERTA_PAD}"
        )
    made.notes.update(notes, pad_token_id=tokenizer.pad)
    save(run.model, folder)
    tokenizer.normalising(data.normalise, data.strip).save(folder / JOINT[0])
    names = tokenizer.spellings()
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": names["pad"],
        "cls_token": names["start"],
        "sep_token": names["end"],
        "unk_token": names["unknown"],
        "model_max_length": data.max_tokens,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "split_special_tokens": True,  # "<end>" in a text is only text
    }
    _write(folder / "tokenizer_config.json", described)


def _image_classifier(run: ImageClassifier, folder: Path) -> str:
    task = run.task
    made_of(run.model).notes.update(_named(run.labels))
    save(run.model, folder)
    described = {
        "image_processor_type": "ViTImageProcessor",
        "do_convert_rgb": task.colours == 3,
        "do_resize": task.others == "resize",
        "size": {"height": task.size, "width": task.size},
        "resample": 2,  # bilinear
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [task.mean] * task.colours,
        "image_std": [task.deviation] * task.colours,
    }
    _write(folder / "preprocessor_config.json", described)
    return "AutoModelForImageClassification and AutoImageProcessor"


def _named(labels: list[str]) -> dict[str, Any]:
    numbered = list(enumerate(labels))
    return {
        "id2label": {str(number): label for number, label in numbered},
        "label2id": {label: number for number, label in numbered},
    }


def _write(path: Path, values: dict[str, Any]) -> None:
    write_text(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")
