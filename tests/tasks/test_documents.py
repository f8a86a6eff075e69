"""Runs that learn from documents: they continue texts, fill gaps, restore spans; and others start from them."""

import json
import math
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer.cli.finishing import finish
from glassformer.decoding import Sampler
from glassformer.errors import ConfigurationError, InputError, RecipeError
from glassformer.models import bert, gpt2
from glassformer.recipe import RecipeWarning, make_recipe
from glassformer.tasks.corruption import CorruptionTask, Denoiser
from glassformer.tasks.language import LanguageModel, LanguageTask
from glassformer.tasks.masked import Filler, MaskedTask
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
    made = gf.train(recipe(file, MASKED, train={"steps": 320}), file.parent / MASKED)
    assert isinstance(made, Filler)
    return made


@pytest.fixture(scope="module")
def spans(file: Path) -> Denoiser:
    made = gf.train(recipe(file, SPANS, train={"steps": 30}), file.parent / SPANS)
    assert isinstance(made, Denoiser)
    return made


def test_a_language_model_continues_as_its_documents_do(language: LanguageModel) -> None:
    for animal, said in SAYS.items():
        (found,) = language.generate([f"the big {animal}"], 20)
        assert found.text.startswith(f"the big {animal} says {said} .\nand")
        assert "".join(language.stream(f"the big {animal}", length=20)) == found.text
    assert language.generate(["the"], 5, Sampler(seed=1))[0].text.startswith("the ")


def test_a_loaded_run_evaluates_alike(language: LanguageModel) -> None:
    assert language.path is not None
    loaded, texts = gf.load(language.path), language.examples("test")
    assert isinstance(loaded, LanguageModel)
    assert loaded.evaluate(texts) == language.evaluate(texts)


def test_nats_are_the_sum_over_the_texts_whatever_else_is_in_the_batch(language: LanguageModel) -> None:
    texts = language.examples("test")
    alone = [language.evaluate([text]) for text in texts]
    together = language.evaluate(texts)
    assert together.nats == pytest.approx(sum(each.nats for each in alone), rel=1e-5)
    assert together.tokens == sum(each.tokens for each in alone)
    assert together.bytes == sum(len(text.encode()) for (text,) in texts)
    assert together.loss < math.log(language.tokenizer.size) / 2


def test_a_long_text_is_read_in_windows(language: LanguageModel) -> None:
    long = "\n\n".join(text for (text,) in language.examples("test"))
    ids = language.tokenizer.encode(long)
    assert len(ids) > 3 * language.recipe.data.max_tokens
    assert language.evaluate([(long, "")]).tokens == len(ids) + 1


def test_a_prompt_that_leaves_no_room_is_refused(language: LanguageModel) -> None:
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
    assert masked.evaluate(masked.examples("test")).accuracy > 0.6


def test_gaps_are_filled_alike_whatever_else_is_in_the_batch(masked: Filler) -> None:
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
def test_texts_without_gaps_or_too_long_are_refused(masked: Filler, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        masked.fill(["a [MASK]", text])


def test_what_is_hidden_of_held_out_texts_is_always_the_same(masked: Filler) -> None:
    assert masked.evaluate(masked.examples("valid")) == masked.evaluate(masked.examples("valid"))


def test_a_denoiser_learns_and_puts_its_words_in_place(spans: Denoiser, file: Path) -> None:
    texts = spans.examples("test")
    found = spans.evaluate(texts)
    assert found == spans.evaluate(texts)
    assert found.loss < math.log(spans.tokenizer.size) - 1
    (restored,) = spans.restore(["the big cow says<extra_id_0> ."])
    assert restored.startswith("the big cow says")
    assert restored.endswith(" .")
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


def started(file: Path, run: Path | None, task: str, **changes: dict[str, Any]) -> dict[str, Any]:
    table = recipe(file, task, source={"kind": "tsv"}, train={"steps": 2}, **changes)
    del table["tokenizer"]  # the run has its own
    return {**table, "model": {"pretrained": str(run), "dropout": 0.0}}


def test_others_start_from_our_runs(masked: Filler, spans: Denoiser, tmp_path: Path) -> None:
    table = pairs(tmp_path / "t.tsv")
    classifier = gf.train(started(table, masked.path, "classification"), tmp_path / "labels")
    assert classifier.tokenizer.to_json().count("<mask>")
    translator = gf.train(started(table, spans.path, "translation"), tmp_path / "pairs")
    assert translator.tokenizer.size == spans.tokenizer.size
    assert isinstance(gf.load(tmp_path / "pairs").translate(["the old cow"])[0].text, str)
    with pytest.raises(ConfigurationError, match=r"model\.pretrained is a bert"):
        gf.train(started(table, masked.path, "translation"), tmp_path / "never")


def test_a_vocabulary_that_grows_keeps_what_was_learned(spans: Denoiser, tmp_path: Path) -> None:
    table = pairs(tmp_path / "t.tsv")
    asked = recipe(table, "classification", source={"kind": "tsv"}, train={"steps": 2})
    labels = gf.train(asked, tmp_path / "labels")
    filler = gf.train(
        started(table, labels.path, MASKED) | {"train": {"steps": 1, "lr": 1e-9, "batch_tokens": 256}},
        tmp_path / "gaps",
    )
    old, new = (run.model.encoder.embedding.weight for run in (labels, filler))
    assert len(new) == len(old) + 1
    torch.testing.assert_close(new[:-1], old, atol=1e-6, rtol=0)


def test_a_checkpoint_of_the_ecosystem_is_trained_further(tmp_path: Path, file: Path, masked: Filler) -> None:
    model = bert(masked.tokenizer.size, 16, 2, 1, 32, length=32, answer="words")
    gf.interop.save(model, tmp_path / "bert")
    masked.tokenizer.save(tmp_path / "bert" / "tokenizer.json")
    run = gf.train(
        started(file, tmp_path / "bert", MASKED) | {"source": {"kind": "text", "train": str(file)}}, tmp_path / "run"
    )
    assert run.path == tmp_path / "run"
    assert gf.load(run.path).fill(["the [MASK]"])[0].gaps[0]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"task": {"kind": "translation"}}, "source.kind is 'text': translation takes one of "),
        ({"model": {"family": "bert"}}, "model.family is 'bert': for this task it is one of gpt2, llama, recurrent"),
        ({"train": {"watch": "bleu"}}, "train.watch is 'bleu': for language-modelling it is one of loss"),
        ({"task": {"kind": "language-modeling"}}, "did you mean language-modelling?"),
        ({"source": {"documents": "page"}}, "source.documents is 'page'"),
        ({"task": {"kind": MASKED, "mask_ratio": 0.0}}, "task.mask_ratio is 0.0"),
        ({"task": {"kind": MASKED}, "data": {"max_tokens": 2}}, f"data.max_tokens is 2: for {MASKED} it is at least 3"),
        ({"task": {"kind": SPANS, "mean_span": 0.5}}, "task.mean_span is 0.5"),
    ],
)
def test_recipes_that_do_not_fit_are_refused(changes: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=re.escape(sentence)):
        gf.train(recipe(tmp_path / "t.txt", LANGUAGE, **changes), tmp_path / "run")


def test_what_is_no_gap_stays_as_it_was_written(masked: Filler, spans: Denoiser) -> None:
    """Also words that the tokenizer does not know."""
    (found,) = masked.fill(["The zebra, the big [MASK] says moo"])
    assert re.fullmatch(r"The zebra, the big\s*\S+ says moo", found.text)
    for text in ("The zebra <extra_id_0> quagga .", "The zebra<extra_id_0> quagga ."):
        (restored,) = spans.restore([text])
        assert restored.startswith("The zebra")
        assert restored.endswith(" quagga .")


def test_a_span_takes_the_space_before_it_as_in_training(spans: Denoiser) -> None:
    read = spans.tokenizer.encode_with("the <extra_id_0> says", {"<extra_id_0>": spans.tokenizer.sentinels[0]})
    assert spans.tokenizer.tokens(read) == ["▁the", "<extra_id_0>", "▁says"]


ONE_TOKEN = ("the",)


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


every_run = pytest.mark.parametrize("run", ["language", "masked", "spans"], indirect=True)


@every_run
def test_judging_and_evaluating_give_the_same_score(run: Any) -> None:
    examples, ticks = run.examples("test"), list[tuple[int, int]]()
    judged = run.judge(examples, lambda done, total: ticks.append((done, total)))
    assert judged.better == "lower"
    assert ticks[-1] == (len(examples), len(examples))
    alone = [run.evaluate([example]) for example in examples]
    if judged.score == "bits per byte":
        assert judged.values == [each.nats / math.log(2) for each in alone]
        assert judged.weights == [len(text.encode()) for (text,) in examples]
        assert judged.value(range(len(examples))) == pytest.approx(run.evaluate(examples).bits_per_byte, rel=1e-5)
    else:
        assert judged.score == "loss"
        assert judged.values == [each.nats for each in alone]
        assert judged.weights == [each.tokens for each in alone]


@every_run
def test_what_is_shown_after_training(run: Any) -> None:
    examples = run.examples("test")
    found = run.evaluate(examples)
    lines = run.shown(examples, found)
    assert len(lines) == 3
    assert all("  →  " in line for line in lines)
    assert found.facts()["texts"] == len(examples)
    assert found.lines()[0] == f"{len(examples):,} texts"
    assert run.measure(examples, 1) == found.summary()
    first = run.next_commands(examples)[0]
    assert re.match(r"(generate|fill) --run RUN '", first)


@every_run
def test_a_look_has_a_row_and_a_column_for_each_token(run: Any) -> None:
    text = {Filler: "the [MASK] cow", Denoiser: "the<extra_id_0> cow says"}.get(type(run), "the big cow")
    seen = run.look(text)
    weights, axes = seen.attention(seen.shows), seen.axes(seen.attentions(seen.shows)[0])
    assert weights.shape[-2:] == (len(axes["token"]), len(axes["key"]))
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))
    assert axes["key"] == run.tokenizer.tokens(run.read(text))
    if not isinstance(run, LanguageModel):
        assert seen.output == run.fill([text])[0].text
    for empty in ("", " "):
        with pytest.raises(InputError, match=rf"^there is nothing to look at in '{empty}'$"):
            run.look(empty)


@pytest.mark.parametrize("run", ["masked", "spans"], indirect=True)
def test_a_long_text_is_refused_before_it_is_looked_at(run: Any) -> None:
    with pytest.raises(InputError, match="the model reads 32"):
        run.look("cow " * 40)
    with pytest.raises(InputError, match="is no text"):
        run.check("\ud800")


def test_a_document_of_one_token_has_no_span_to_cut_out(spans: Denoiser) -> None:
    examples = [ONE_TOKEN, *spans.examples("test")[:2]]
    assert len(spans.tokenizer.encode("the")) == 1
    assert spans.corrupted("the") == "the"
    judged = spans.judge(examples)
    assert (judged.values[0], judged.weights[0]) == (0.0, 0.0)
    assert len(spans.shown(examples, spans.evaluate(examples))) == 2
    assert "<extra_id_0>" in spans.next_commands([ONE_TOKEN])[0]
    with pytest.raises(InputError, match="nothing to evaluate: no text of two tokens"):
        spans.evaluate([ONE_TOKEN])


def test_training_ends_well_where_nothing_can_be_tested(
    spans: Denoiser, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spans, "examples", lambda split: [ONE_TOKEN])
    assert spans.path is not None
    finish(spans, spans.path)
    assert "It is not tested: there is nothing to evaluate: no text of two tokens" in "".join(capsys.readouterr())
    assert "no text of two tokens" in (spans.path / "report.html").read_text(encoding="utf-8")


def test_training_leaves_documents_of_one_token_out(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("\n\n".join(f"cow{i}" for i in range(40)) + "\n\nthe cow says moo" * 2)
    table = recipe(tmp_path / "t.txt", SPANS, data={"valid": 0.0, "test": 0.0, "duplicates": "keep"})
    run = gf.train({**table, "train": {"steps": 2, "batch_tokens": 256, "device": "cpu"}}, tmp_path / "run")
    assert json.loads((tmp_path / "run" / "data.json").read_text())["kept"]["train"] == 2
    assert isinstance(run, Denoiser)


@pytest.mark.parametrize(("kind", "text"), [(MASKED, "ξψξψ"), (SPANS, "c"), (LANGUAGE, "c")])
def test_training_goes_without_validation_where_nothing_can_be_predicted(kind: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "valid.txt").write_text(text)
    source = {"valid": str(tmp_path / "valid.txt")}
    small = {"steps": 2, "batch_tokens": 256, "device": "cpu", "validate_every": 1}
    table = recipe(stories(tmp_path / "t.txt"), kind, data={"test": 0.0}, tokenizer={"kind": "character"}, train=small)
    gf.train({**table, "source": {**table["source"], **source}}, tmp_path / "run")
    validated = ["valid_loss" in line for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert any(validated) == (kind == LANGUAGE)


def test_a_denoiser_fills_gaps_with_one_text_each(spans: Denoiser) -> None:
    texts = ["the big<extra_id_0> says moo", "the <extra_id_0> cow"]
    assert [(found.text, found.gaps) for found in spans.fill(texts)] == [(text, []) for text in spans.restore(texts)]
    with pytest.raises(InputError, match="there is no gap in 'the cow': write <extra_id_0> where words are missing"):
        spans.fill(["the cow"])


def test_which_checkpoints_are_adopted() -> None:
    language, words, vectors = gpt2(20, 16, 2, 1), bert(20, 16, 2, 1, 32, answer="words"), bert(20, 16, 2, 1, 32)
    models = (language, words, vectors)
    assert [LanguageTask.adopts(model) for model in models] == [True, False, False]
    assert [MaskedTask.adopts(model) for model in models] == [False, True, False]
    assert not any(CorruptionTask.adopts(model) for model in models)


WRITING = {"beam", "length_penalty", "max_length", "batch"}  # the keys that a task uses which writes


@pytest.mark.parametrize(
    ("task", "used"),
    [(LANGUAGE, WRITING), (MASKED, set[str]()), (SPANS, WRITING)],
)
def test_keys_without_effect_are_named(task: str, used: set[str], file: Path) -> None:
    decode = {"beam": 2, "length_penalty": 0.5, "max_length": 20, "batch": 3}
    table = recipe(file, task, data={"max_ratio": 2.0, "long": "drop"}, tokenizer={"joint": True}, decode=decode)
    with pytest.warns(RecipeWarning) as found:
        make_recipe({**table, "train": table["train"] | {"validate_sentences": 3}})
    named = {str(each.message).split()[1] for each in found}
    others = {"data.max_ratio", "data.long", "tokenizer.joint", "train.validate_sentences"}
    assert named == others | {f"decode.{key}" for key in decode.keys() - used}


def test_a_file_is_read_as_in_training(language: LanguageModel) -> None:
    source = language.task.file_source("t.txt", language.recipe)
    assert source == {"kind": "text", "train": "t.txt", "documents": "paragraph"}
