"""What is exported gives `transformers` the same labels and the same probabilities."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import glassformer as gf
from glassformer.errors import ConfigurationError
from glassformer.interop import load
from glassformer.models.family import blueprint_of
from glassformer.runs import export_run, import_run
from labels import examples, table, text_recipe, trained_on
from stories import recipe, stories

transformers = pytest.importorskip("transformers")
MANNERED = ["the  old\thammer ", "a plum <end> hammer", "ﬁne cafe\u0301 drill", "x " * 50]  # spaces, letters, length


def probabilities(folder: Path, texts: list[Any]) -> list[dict[str, float]]:
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    found = []
    for text in texts:
        both = [text] if isinstance(text, str) else list(text)
        inputs = tokenizer(*both, return_tensors="pt", truncation=True)
        with torch.inference_mode():
            values = model(**inputs).logits.softmax(dim=-1)[0].tolist()
        found.append({model.config.id2label[number]: value for number, value in enumerate(values)})
    return found


def agree(run: Any, folder: Path, texts: list[Any]) -> None:
    for ours, theirs in zip(run.classify(texts), probabilities(folder, texts), strict=True):
        assert ours.probabilities == pytest.approx(theirs, abs=1e-5)


@pytest.mark.parametrize("kind", ["word", "bpe", "byte"])
def test_single_texts_whatever_the_tokenizer(tmp_path: Path, kind: str) -> None:
    file = table(tmp_path / "t.tsv", examples(200))
    asked = text_recipe(file, tokenizer={"kind": kind, "vocabulary": 300, "lowercase": True}, train={"steps": 3})
    run = gf.train(asked, tmp_path / "run")
    said = export_run(run, tmp_path / "out")
    assert said.startswith("AutoModelForSequenceClassification")
    agree(run, tmp_path / "out", [text for text, _ in run.examples("test")[:5]] + MANNERED)


def test_pairs_of_texts(tmp_path: Path) -> None:
    draw = random.Random(0)
    rows = [(f"{text} {draw.random():.3f}", text[::-1], label) for text, label in examples(120)]
    asked = text_recipe(table(tmp_path / "t.tsv", rows), source={"columns": [0, 1, 2]}, train={"steps": 3})
    run = gf.train(asked, tmp_path / "run")
    export_run(run, tmp_path / "out")
    agree(run, tmp_path / "out", [("the old hammer", "a plum"), ("one  two", "three " * 30)])


def test_a_checkpoint_that_was_tuned(tmp_path: Path) -> None:
    first = gf.train(text_recipe(table(tmp_path / "t.tsv", examples(120)), train={"steps": 2}), tmp_path / "first")
    export_run(first, tmp_path / "checkpoint")
    asked = text_recipe(tmp_path / "t.tsv", model={"pretrained": str(tmp_path / "checkpoint")}, train={"steps": 2})
    run = gf.train(asked, tmp_path / "run")
    export_run(run, tmp_path / "out")
    agree(run, tmp_path / "out", ["the old hammer", *MANNERED])
    assert blueprint_of(load(tmp_path / "out")).notes["label2id"] == {"fruit": 0, "tool": 1}


def test_a_roberta_of_our_own_numbers_its_padding_otherwise(tmp_path: Path) -> None:
    asked = text_recipe(table(tmp_path / "t.tsv", examples(60)), model={"family": "roberta"}, train={"steps": 1})
    run = gf.train(asked, tmp_path / "run")
    with pytest.raises(ConfigurationError, match=r"pad_token_id is 0: only 1 is supported in a roberta model"):
        export_run(run, tmp_path / "out")


@pytest.mark.parametrize("colours", [1, 3])
def test_images(tmp_path: Path, colours: int) -> None:
    run = trained_on(tmp_path, task={"colours": colours, "size": 8}, train={"steps": 3})
    assert export_run(run, tmp_path / "out").startswith("AutoModelForImageClassification")
    model = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "out").eval()
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "out")
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8))
    image = image.convert("L") if colours == 1 else image
    with torch.inference_mode():
        values = model(**processor(image, return_tensors="pt")).logits.softmax(dim=-1)[0].tolist()
    theirs = {model.config.id2label[number]: value for number, value in enumerate(values)}
    assert run.classify([image])[0].probabilities == pytest.approx(theirs, abs=1e-5)


def exported(tmp_path: Path, task: str, name: str, steps: int = 3, **changes: Any) -> tuple[Any, Any, Any]:
    """A run that learned from documents, and what transformers opens of it: the model, the tokenizer."""
    run = gf.train(recipe(stories(tmp_path / "t.txt"), task, train={"steps": steps}, **changes), tmp_path / "run")
    assert export_run(run, tmp_path / "out") == f"{name} and AutoTokenizer"
    theirs = getattr(transformers, name).from_pretrained(tmp_path / "out").eval()
    return run, theirs, transformers.AutoTokenizer.from_pretrained(tmp_path / "out")


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_language_model_goes_on_alike(tmp_path: Path, family: str) -> None:
    run, model, tokenizer = exported(tmp_path, "language-modelling", "AutoModelForCausalLM", model={"family": family})
    inputs = tokenizer("the big cow", return_tensors="pt")
    found = model.generate(**inputs, max_new_tokens=6, do_sample=False)
    ours = run.generate(["the big cow"], 6)[0].ids
    assert found[0, inputs["input_ids"].shape[1] :].tolist()[: len(ours)] == ours


def test_a_filler_finds_the_same_words(tmp_path: Path) -> None:
    run, model, tokenizer = exported(tmp_path, "masked-language-modelling", "AutoModelForMaskedLM", steps=40)
    inputs = tokenizer(f"the big {tokenizer.mask_token} says moo", return_tensors="pt")
    gaps = inputs["input_ids"] == tokenizer.mask_token_id
    assert gaps.sum() == 1
    with torch.inference_mode():
        logits = model(**inputs).logits[gaps][0, : run.tokenizer.size]
        logits[list(run.tokenizer.special)] = -torch.inf
    best = run.fill(["the big [MASK] says moo"], 1)[0].gaps[0][0]
    assert float(logits.softmax(dim=0).max()) == pytest.approx(best.probability, abs=1e-5)
    assert tokenizer.decode([int(logits.argmax())]).strip() == best.word


def test_a_mender_reads_and_writes_alike(tmp_path: Path) -> None:
    run, model, tokenizer = exported(tmp_path, "span-corruption", "AutoModelForSeq2SeqLM")
    text = "the big <extra_id_0> moo"
    inputs = tokenizer(text, return_tensors="pt")
    assert inputs["input_ids"][0].tolist() == run.read(text)
    assert model.config.decoder_start_token_id == run.tokenizer.start
    written = torch.tensor([[run.tokenizer.start, *run.tokenizer.sentinels[:2]]])
    with torch.inference_mode():
        theirs = model(**inputs, decoder_input_ids=written).logits
        ours = run.model(inputs["input_ids"], written)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_what_writes_brings_a_tokenizer_that_reads_alike(tmp_path: Path) -> None:
    table(tmp_path / "t.tsv", [(f"the old {a} {b}", f"{b} {a}") for a in "abcdefgh" for b in "abcdefgh"])
    asked = text_recipe(tmp_path / "t.tsv", model={"family": "t5"}, train={"steps": 1, "smoothing": 0.0})
    run = gf.train({**asked, "task": {"kind": "translation"}}, tmp_path / "run")
    assert export_run(run, tmp_path / "out") == "AutoModelForSeq2SeqLM and AutoTokenizer"
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    for text in ("the old a b", " the  old <end> c"):
        assert tokenizer(text)["input_ids"] == run.read(text)


SEARCHED = {"beam": 3, "length_penalty": 0.6, "min_length": 3, "max_length": 24, "no_repeat_ngram": 3}


@pytest.mark.parametrize("family", ["transformer", "bart", "marian", "t5"])
def test_what_is_written_there_and_after_an_import_is_what_the_recipe_says(tmp_path: Path, family: str) -> None:
    table(tmp_path / "t.tsv", [(f"the old {a} {b}", f"{b} {a}") for a in "abcdefgh" for b in "abcdefgh"])
    model = {"family": family, **({"residual": "post"} if family == "transformer" else {})}
    asked = text_recipe(tmp_path / "t.tsv", model=model, train={"steps": 20, "smoothing": 0.0}, decode=SEARCHED)
    run: Any = gf.train({**asked, "task": {"kind": "translation"}}, tmp_path / "run")
    export_run(run, tmp_path / "out")
    texts = ["the old a b", "old c"]
    ours = [each.ids for each in run.translate(texts)]
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    for text, ids in zip(texts, ours, strict=True):
        found = theirs.generate(torch.tensor([run.read(text)]))[0, 1:].tolist()
        assert [token for token in found if token != run.special.end] == ids
    back: Any = import_run(tmp_path / "out", tmp_path / "back")
    assert {key: getattr(back.recipe.decode, key) for key in SEARCHED} == SEARCHED
    assert back.recipe.decode.early_stopping == run.recipe.decode.early_stopping
    assert [each.ids for each in back.translate(texts)] == ours


@pytest.mark.parametrize(
    ("family", "decode", "kept"),
    [
        ("gpt2", {"max_length": 12, "temperature": 0.8, "top_p": 0.9}, {"temperature": 0.8, "top_p": 0.9, "beam": 1}),
        ("gpt2", {"max_length": 500, "beam": 3}, {"beam": 3, "count_prompt": True}),
        ("llama", {"max_length": 12}, {"max_length": 12, "count_prompt": False}),
    ],
)
def test_how_a_language_model_goes_on_comes_back(
    tmp_path: Path, family: str, decode: dict[str, Any], kept: dict[str, Any]
) -> None:
    run, model, tokenizer = exported(
        tmp_path, "language-modelling", "AutoModelForCausalLM", model={"family": family}, decode=decode
    )
    back: Any = import_run(tmp_path / "out", tmp_path / "back")
    assert {key: getattr(back.recipe.decode, key) for key in kept} == kept
    assert set(back.special.suppressed) == set(run.special.suppressed)
    if family == "gpt2":  # to the end of its positions, and not beyond
        model.generate(**tokenizer("the big cow", return_tensors="pt"))
