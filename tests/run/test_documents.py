"""Runs that learn from documents: they go on with texts, fill gaps, mend; and others begin with them."""

import math
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer.decoding import Sampler
from glassformer.errors import ConfigurationError, InputError, RecipeError
from glassformer.models import bert
from glassformer.run import Denoiser, Filler, LanguageModel
from stories import SAYS, recipe, stories

LANGUAGE, MASKED, SPANS = "language-modelling", "masked-language-modelling", "span-corruption"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stories(tmp_path_factory.mktemp("stories") / "t.txt")


@pytest.fixture(scope="module")
def language(file: Path) -> LanguageModel:
    made = gf.train(recipe(file, LANGUAGE), file.parent / LANGUAGE)
    assert isinstance(made, LanguageModel)
    return made


@pytest.fixture(scope="module")
def masked(file: Path) -> Filler:
    made = gf.train(recipe(file, MASKED, train={"steps": 250}), file.parent / MASKED)
    assert isinstance(made, Filler)
    return made


@pytest.fixture(scope="module")
def spans(file: Path) -> Denoiser:
    made = gf.train(recipe(file, SPANS, train={"steps": 30}), file.parent / SPANS)
    assert isinstance(made, Denoiser)
    return made


def test_a_language_model_goes_on_as_its_documents_do(language: LanguageModel) -> None:
    for animal, said in SAYS.items():
        (found,) = language.generate([f"the big {animal}"], 20)
        assert found.text.startswith(f"the big {animal} says {said} .\nand")
        assert "".join(language.stream(f"the big {animal}", length=20)) == found.text
    assert language.generate(["the"], 5, Sampler(seed=1))[0].text.startswith("the ")


def test_loaded_it_is_as_surprised_as_it_was(language: LanguageModel) -> None:
    assert language.path is not None
    loaded, texts = gf.load(language.path), language.pairs("test")
    assert loaded.evaluate(texts) == language.evaluate(texts)


def test_surprise_is_the_sum_over_the_texts_whatever_stands_beside_them(language: LanguageModel) -> None:
    texts = language.pairs("test")
    alone = [language.evaluate([text]) for text in texts]
    together = language.evaluate(texts)
    assert together.nats == pytest.approx(sum(each.nats for each in alone), rel=1e-5)
    assert together.tokens == sum(each.tokens for each in alone)
    assert together.bytes == sum(len(text.encode()) for text, _ in texts)
    assert together.loss < math.log(language.tokenizer.size) / 2


def test_a_long_text_is_read_in_windows(language: LanguageModel) -> None:
    long = "\n\n".join(text for text, _ in language.pairs("test"))
    ids = language.tokenizer.encode(long)
    assert len(ids) > 3 * language.recipe.data.max_tokens
    assert language.evaluate([(long, "")]).tokens == len(ids) + 1


def test_a_prompt_that_leaves_no_room_is_told(language: LanguageModel) -> None:
    with pytest.raises(InputError, match="leaves no room"):
        language.generate(["the " * 40])
    with pytest.raises(InputError, match="nothing to evaluate"):
        language.evaluate([])


def test_a_filler_knows_who_says_what(masked: Filler) -> None:
    texts = [f"the big [MASK] says {said} .\nand" for said in SAYS.values()]
    assert [found.gaps[0][0].word for found in masked.fill(texts)] == list(SAYS)
    (both,) = masked.fill(["the big <mask> says moo [MASK]"], top=3)
    assert [len(gap) for gap in both.gaps] == [3, 3]
    assert both.text.startswith("the big cow says moo .")
    likely = [word.probability for word in both.gaps[0]]
    assert likely == sorted(likely, reverse=True)
    assert masked.evaluate(masked.pairs("test")).accuracy > 0.6


def test_gaps_are_filled_alike_whatever_stands_beside_a_text(masked: Filler) -> None:
    texts = ["the [MASK] dog", "the old [MASK] says miaow .\nand", "[MASK]"]
    together = masked.fill(texts)
    for text, found in zip(texts, together, strict=True):
        (alone,) = masked.fill([text])
        assert alone.gaps[0][0].word == found.gaps[0][0].word
        assert alone.gaps[0][0].probability == pytest.approx(found.gaps[0][0].probability, abs=1e-5)
    assert masked.fill([]) == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("the cow", "there is no gap in 'the cow': write [MASK] where a word is missing"),
        ("", "there is no gap in ''"),
        ("[MASK] " + "cow " * 40, "the model reads 32"),
    ],
)
def test_texts_without_gaps_or_too_long_are_told(masked: Filler, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        masked.fill(["a [MASK]", text])


def test_what_is_hidden_of_held_out_texts_is_always_the_same(masked: Filler) -> None:
    assert masked.evaluate(masked.pairs("valid")) == masked.evaluate(masked.pairs("valid"))


def test_a_mender_learns_and_puts_its_words_in_place(spans: Denoiser, file: Path) -> None:
    texts = spans.pairs("test")
    found = spans.evaluate(texts)
    assert found == spans.evaluate(texts)
    assert found.loss < math.log(spans.tokenizer.size) - 1
    (mended,) = spans.restore(["the big cow says<extra_id_0> ."])
    assert mended.startswith("the big cow says")
    assert mended.endswith(" .")
    assert "<extra_id_0>" in spans.corrupted(texts[0][0])


@pytest.mark.parametrize("task", [LANGUAGE, MASKED, SPANS])
def test_a_resumed_training_draws_what_an_unbroken_one_draws(task: str, file: Path, tmp_path: Path) -> None:
    few = {"steps": 6, "save_every": 3, "validate_every": 3, "batch_tokens": 256, "schedule": "constant"}
    dropout = {"dropout": 0.1}
    whole = gf.train(recipe(file, task, train=few, model=dropout), tmp_path / "whole")
    gf.train(recipe(file, task, train=few | {"steps": 3}, model=dropout), tmp_path / "parts")
    parts = gf.train(recipe(file, task, train=few, model=dropout), tmp_path / "parts", resume=True)
    for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        assert torch.equal(one, other)


def pairs(path: Path) -> Path:
    draw = random.Random(1)
    rows = [
        f"the {draw.choice(['old', 'big', 'red'])} {animal} {i}\t{SAYS[animal]}\n" for i in range(20) for animal in SAYS
    ]
    path.write_text("".join(rows), encoding="utf-8")
    return path


def begun(file: Path, run: Path | None, task: str, **changes: dict[str, Any]) -> dict[str, Any]:
    table = recipe(file, task, source={"kind": "tsv"}, train={"steps": 2}, **changes)
    return {**table, "model": {"pretrained": str(run), "dropout": 0.0}}


def test_others_begin_with_our_runs(masked: Filler, spans: Denoiser, tmp_path: Path) -> None:
    table = pairs(tmp_path / "t.tsv")
    classifier = gf.train(begun(table, masked.path, "classification"), tmp_path / "labels")
    assert classifier.tokenizer.to_json().count("<mask>")
    translator = gf.train(begun(table, spans.path, "translation"), tmp_path / "pairs")
    assert translator.source.size == spans.tokenizer.size
    assert isinstance(gf.load(tmp_path / "pairs").translate(["the old cow"])[0].text, str)
    with pytest.raises(ConfigurationError, match=r"model\.pretrained is a bert"):
        gf.train(begun(table, masked.path, "translation"), tmp_path / "never")


def test_a_vocabulary_that_grows_keeps_what_was_learned(spans: Denoiser, tmp_path: Path) -> None:
    table = pairs(tmp_path / "t.tsv")
    asked = recipe(table, "classification", source={"kind": "tsv"}, train={"steps": 2})
    labels = gf.train(asked, tmp_path / "labels")
    filler = gf.train(
        begun(table, labels.path, MASKED) | {"train": {"steps": 1, "lr": 1e-9, "batch_tokens": 256}}, tmp_path / "gaps"
    )
    old, new = (run.model.encoder.embedding.weight for run in (labels, filler))
    assert len(new) == len(old) + 1
    torch.testing.assert_close(new[:-1], old, atol=1e-6, rtol=0)


def test_a_checkpoint_of_the_ecosystem_goes_on_learning(tmp_path: Path, file: Path, masked: Filler) -> None:
    model = bert(masked.tokenizer.size, 16, 2, 1, 32, length=32, answer="words")
    gf.pretrained.save(model, tmp_path / "bert")
    masked.tokenizer.save(tmp_path / "bert" / "tokenizer.json")
    run = gf.train(
        begun(file, tmp_path / "bert", MASKED) | {"source": {"kind": "text", "train": str(file)}}, tmp_path / "run"
    )
    assert gf.load(run.path).fill(["the [MASK]"])[0].gaps[0]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"task": {"kind": "translation"}}, "source.kind is 'text', which has no targets: translation needs some"),
        ({"model": {"family": "bert"}}, "model.family is 'bert': for language-modelling it is one of gpt2, llama"),
        ({"train": {"watch": "bleu"}}, "train.watch is 'bleu': for language-modelling it is one of loss"),
        ({"task": {"kind": "language-modeling"}}, "did you mean language-modelling?"),
        ({"source": {"documents": "page"}}, "source.documents is 'page'"),
        ({"task": {"kind": MASKED, "share": 0.0}}, "task.share is 0.0"),
    ],
)
def test_recipes_that_do_not_fit_are_told(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=re.escape(sentence)):
        gf.train(recipe(tmp_path / "t.txt", LANGUAGE, **changes), tmp_path / "run")


def test_what_is_no_gap_stays_as_it_was_written(masked: Filler, spans: Denoiser) -> None:
    """Also words that the tokenizer does not know."""
    (found,) = masked.fill(["The zebra, the big [MASK] says moo"])
    assert re.fullmatch(r"The zebra, the big\s*\S+ says moo", found.text)
    for text in ("The zebra <extra_id_0> quagga .", "The zebra<extra_id_0> quagga ."):
        (mended,) = spans.restore([text])
        assert mended.startswith("The zebra")
        assert mended.endswith(" quagga .")


def test_a_span_takes_the_space_before_it_as_in_training(spans: Denoiser) -> None:
    read = spans.tokenizer.encode_with("the <extra_id_0> says", {"<extra_id_0>": spans.tokenizer.sentinels[0]})
    assert spans.tokenizer.tokens(read) == ["the", "<extra_id_0>", "▁says"]
