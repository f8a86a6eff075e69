"""Exporting: a run as a checkpoint that `transformers` opens and gets the same answers from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from glassformer.errors import ConfigurationError, RunError
from glassformer.models import EncoderDecoder
from glassformer.pretrained.adapter import made_of
from glassformer.run.answerer import Answerer
from glassformer.run.classifier import Classifier
from glassformer.run.denoiser import Denoiser
from glassformer.run.filler import Filler
from glassformer.run.folder import JOINT, check_free, write_text
from glassformer.run.image_classifier import ImageClassifier
from glassformer.run.importing import IMPORT, SEEING, save_alone, write_tokenizers
from glassformer.run.language import LanguageModel
from glassformer.run.run import Run
from glassformer.run.tagger import Tagger
from glassformer.text import Habits, Tokenizer, own_habits

Reader = Classifier | Tagger | Answerer | Filler | LanguageModel | Denoiser  # what has one tokenizer
TOLD = "tokenizer_config.json"
ROBERTA_PAD = 1  # its positions count from there, in transformers too


def export(run: Any, folder: Path, force: bool = False) -> str:
    """Write a run in Hugging Face's layout. Gives what `transformers` opens it with.

    Only with `force` is something written over.
    """
    check_free(folder, force)
    if run.path is not None and run.path.resolve() == folder.resolve():
        raise RunError(f"{folder} is the run itself: choose another folder")
    if run.path is not None and (run.path / IMPORT).is_file():
        return _again(run, folder)
    if isinstance(run, Classifier):
        _write_reader(run, folder, _named(run.labels))
        return "AutoModelForSequenceClassification and AutoTokenizer (with truncation=True)"
    if isinstance(run, Tagger):
        _write_reader(run, folder, _named(run.labels))
        return "AutoModelForTokenClassification and AutoTokenizer; a word's tag is that of its last token"
    if isinstance(run, Answerer):
        _write_reader(run, folder, {})
        return "AutoModelForQuestionAnswering and AutoTokenizer"
    if isinstance(run, Filler):
        _write_reader(run, folder, {})
        return "AutoModelForMaskedLM and AutoTokenizer"
    if isinstance(run, LanguageModel | Denoiser):
        _write_reader(run, folder, _special(run.model, own_habits(run.tokenizer, run.tokenizer)))
        return f"AutoModelFor{'Seq2Seq' if isinstance(run, Denoiser) else 'Causal'}LM and AutoTokenizer"
    if isinstance(run, ImageClassifier):
        return _image_classifier(run, folder)
    return _again(run, folder)


def _again(run: Run | LanguageModel | Filler, folder: Path) -> str:
    """Write a run whose tokenizers go out as they came in: one that was imported, or has a source and a target."""
    own = (run.source, run.target) if isinstance(run, Run) else (run.tokenizer, run.tokenizer)
    if not isinstance(run, Filler):
        made_of(run.model).notes.update(_special(run.model, run.habits))
    save_alone(run.model, folder)
    write_tokenizers(own, run.path, folder)
    if own[0] is not own[1]:
        return "AutoModel; its two tokenizers are files of their own"
    if run.path is None or not (run.path / TOLD).is_file():  # else it was copied
        _write_tokenizer(run, own[0], folder)
    kind = {LanguageModel: "ForCausalLM", Filler: "ForMaskedLM"}.get(type(run), "")
    return f"AutoModel{kind} and AutoTokenizer"


def _special(model: nn.Module, habits: Habits) -> dict[str, int]:
    """The special tokens of what is written, as their configs name them."""
    named = {"pad_token_id": habits.pad, "eos_token_id": habits.end}
    return {**named, f"{'decoder_start' if isinstance(model, EncoderDecoder) else 'bos'}_token_id": habits.start}


def _write_reader(run: Reader, folder: Path, notes: dict[str, Any]) -> None:
    """Write a run that has one tokenizer, which does what the run does to texts."""
    made = made_of(run.model)
    if made.family == "roberta" and run.tokenizer.pad != ROBERTA_PAD:
        raise ConfigurationError(
            f"a RoBERTa whose padding is token {run.tokenizer.pad} has no counterpart there: "
            f"theirs is token {ROBERTA_PAD}"
        )
    made.notes.update(notes, pad_token_id=run.tokenizer.pad)
    save_alone(run.model, folder)
    _write_tokenizer(run, run.tokenizer, folder)


def _write_tokenizer(run: Reader | Run, own: Tokenizer, folder: Path) -> None:
    """Write a run's tokenizer, and what `transformers` must be told of it beside its file."""
    tokenizer = own.normalising(run.recipe.data.normalise, run.recipe.data.strip)
    if isinstance(run, Filler | LanguageModel) and not (run.path is not None and (run.path / IMPORT).is_file()):
        tokenizer.add_frame(ending=isinstance(run, Filler))
    tokenizer.save(folder / JOINT[0])
    names, encodes = own.spellings(), isinstance(run, Classifier | Tagger | Answerer | Filler)
    start, end = ("cls", "sep") if encodes else ("bos", "eos")
    facts: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": names["pad"],
        f"{start}_token": names["start"],
        f"{end}_token": names["end"],
        "unk_token": names["unknown"],
        "model_max_length": run.recipe.data.max_tokens,
        "model_input_names": ["input_ids", *(["token_type_ids"] if encodes else []), "attention_mask"],
        "split_special_tokens": not isinstance(run, Filler | Denoiser),  # "<end>" in a text is only text
    }
    if isinstance(run, Filler):
        facts["mask_token"] = own.tokens([own.mask])[0]
    _write(folder / TOLD, facts)


def _image_classifier(run: ImageClassifier, folder: Path) -> str:
    task = run.task
    made_of(run.model).notes.update(_named(run.labels))
    save_alone(run.model, folder)
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
    _write(folder / SEEING, described)
    return "AutoModelForImageClassification and AutoImageProcessor"


def _named(labels: list[str]) -> dict[str, Any]:
    numbered = list(enumerate(labels))
    return {
        "id2label": {str(number): label for number, label in numbered},
        "label2id": {label: number for number, label in numbered},
    }


def _write(path: Path, values: dict[str, Any]) -> None:
    write_text(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")
