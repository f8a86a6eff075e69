"""Folders in Hugging Face's layout, without tasks: what is exported is imported, and nothing is written by halves."""

import json
from pathlib import Path

import pytest
import torch

from glassformer.errors import InputError, RunError
from glassformer.interop.checkpoints import load
from glassformer.interop.converter import labels_config
from glassformer.interop.huggingface import Checkpoint, Chosen, Exported, export, import_checkpoint, read_tokenizers
from glassformer.interop.special_tokens import read_special_tokens, special_keys
from glassformer.models import DecoderOnly, bart, bert, blueprint_of, gpt2
from glassformer.recipe import Tokenizer as Section
from glassformer.text import Tokenizer, own_special_tokens
from glassformer.writing import IMPORT, check_free

TEXTS = ["the dog saw the cat", "a cat sat on the mat"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS * 20, Section(kind="bpe", vocabulary=300))


def small(tokenizer: Tokenizer) -> DecoderOnly:
    torch.manual_seed(0)
    return gpt2(tokenizer.size, width=16, heads=2, layers=1, length=40)


def special_tokens(checkpoint: Checkpoint) -> Chosen:
    return checkpoint.special_tokens(), {}


def test_what_is_exported_is_imported_and_exported_again(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = small(tokenizer)
    special = own_special_tokens(tokenizer, tokenizer)
    exported = Exported("it", special_keys(model, special), frame="start", max_length=40)
    assert export(model, [tokenizer], exported, tmp_path / "one") == "it"
    (tmp_path / "one" / "generation_config.json").write_text(json.dumps({"eos_token_id": special.end}))
    settings = json.loads((tmp_path / "one" / "tokenizer_config.json").read_text())
    assert (settings["bos_token"], settings["model_max_length"]) == (tokenizer.spellings()["start"], 40)
    assert "mask_token" not in settings
    checkpoint = import_checkpoint(tmp_path / "one", tmp_path / "run", False, special_tokens)
    assert (tmp_path / "run" / IMPORT).is_file()
    assert read_special_tokens(tmp_path / "run") == checkpoint.special_tokens()
    assert read_tokenizers(tmp_path / "run")[0].framed("a cat") == [tokenizer.start, *tokenizer.encode("a cat")]
    export(checkpoint.model, checkpoint.tokenizers[:1], exported, tmp_path / "two", origin=tmp_path / "run")
    for path in (tmp_path / "one").iterdir():
        assert (tmp_path / "two" / path.name).read_bytes() == path.read_bytes(), path.name
    assert not (tmp_path / "two" / IMPORT).is_file()


def test_two_files_of_a_tokenizer_must_agree_about_letters(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """`BertTokenizer` of `transformers` believes tokenizer_config.json."""
    letters = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    state = json.loads(tokenizer.to_json()) | {"normalizer": {"type": "BertNormalizer", **letters}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    model = bert(tokenizer.size, width=8, heads=2, layers=1, hidden=8)
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "strip_accents": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert Checkpoint("it", tmp_path, model).tokenizers[0].encode("CAT") == tokenizer.encode("cat")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings | {"do_lower_case": False}))
    with pytest.raises(InputError, match=r"do_lower_case is False, but in tokenizer.json lowercase is True: make them"):
        _ = Checkpoint("it", tmp_path, model).tokenizers


def test_two_tokenizers_are_two_files_and_an_image_model_has_none(tokenizer: Tokenizer, tmp_path: Path) -> None:
    other = Tokenizer.train(TEXTS * 20, Section(kind="bpe", vocabulary=290))
    model = bart(tokenizer.size, width=8, heads=2, layers=1, hidden=8, length=12)
    export(model, [tokenizer, other], Exported("it"), tmp_path / "two")
    assert [each.size for each in read_tokenizers(tmp_path / "two")] == [tokenizer.size, other.size]
    assert not (tmp_path / "two" / "tokenizer_config.json").exists()
    export(small(tokenizer), [], Exported("it", preprocessor={"size": 8}), tmp_path / "none")
    assert json.loads((tmp_path / "none" / "preprocessor_config.json").read_text()) == {"size": 8}
    with pytest.raises(InputError, match=r"none has no tokenizer\.json"):
        read_tokenizers(tmp_path / "none")


def test_labels_are_named_in_the_config_and_the_model_is_not_changed(tmp_path: Path) -> None:
    model = bert(30, width=8, heads=2, layers=1, hidden=8, length=10, answer="classes", classes=2)
    export(model, [], Exported("it", labels_config(["no", "yes"])), tmp_path / "out")
    assert blueprint_of(load(tmp_path / "out")).notes["id2label"] == {"0": "no", "1": "yes"}
    assert "id2label" not in blueprint_of(model).notes


def test_nothing_is_written_where_no_task_suits(tokenizer: Tokenizer, tmp_path: Path) -> None:
    def refuse(checkpoint: Checkpoint) -> Chosen:
        raise InputError(f"{checkpoint.source} suits no task")

    export(small(tokenizer), [tokenizer], Exported("it"), tmp_path / "one")
    with pytest.raises(InputError, match="one suits no task"):
        import_checkpoint(tmp_path / "one", tmp_path / "run", False, refuse)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("key", ["eos_token_id", "bos_token_id"])
def test_a_special_token_outside_the_vocabulary_is_refused(key: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    export(small(tokenizer), [tokenizer], Exported("it", {key: tokenizer.size}), tmp_path / "one")
    with pytest.raises(InputError, match=rf"{key} has {tokenizer.size}, but the vocabulary of the model"):
        import_checkpoint(tmp_path / "one", tmp_path / "run", False, special_tokens)
    assert not (tmp_path / "run").exists()


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    check_free(tmp_path, force=True)
    check_free(tmp_path / "new", force=False)
    with pytest.raises(RunError, match="is not empty"):
        check_free(tmp_path, force=False)
    (tmp_path / "recipe.toml").touch()
    with pytest.raises(RunError, match="holds a run that was trained"):
        check_free(tmp_path, force=True)
    with pytest.raises(RunError, match="is a file: choose a folder"):
        check_free(tmp_path / "config.json", force=True)
