"""A run that tags, from a file of tagged sentences to answers; recurrent, and BERT."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer.data import Report
from glassformer.data.source import SPLITS, Split
from glassformer.data.sources.generated import GrammarSource
from glassformer.errors import ConfigurationError, DataError, InputError, RecipeError
from glassformer.recipe import make_recipe
from glassformer.runs import export_run
from glassformer.tasks.tagging import TaggedText, Tagger

RECIPE: dict[str, Any] = {
    "task": {"kind": "tagging"},
    "source": {"kind": "grammar", "count": 1500},
    "tokenizer": {"kind": "word", "vocabulary": 100},
    "model": {"bidirectional": True, "width": 32, "layers": 1, "dropout": 0.0},
    "train": {"steps": 200, "batch_tokens": 512, "lr": 0.02, "warmup": 5, "validate_every": 75, "device": "cpu"},
}


def sentences(count: int, split: Split = "train") -> list[tuple[str, ...]]:
    source = GrammarSource(kind="grammar", count=count)
    return [example[0] for example, _ in source.read(split, Path(), Report())]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Tagger:
    made = gf.train(RECIPE, tmp_path_factory.mktemp("tagger") / "run")
    assert isinstance(made, Tagger)
    return made


def test_it_learns_what_only_the_words_after_tell(trained: Tagger) -> None:
    found = trained.evaluate(trained.examples("test"))
    assert found.scores.accuracy > 0.98
    assert found.exact == sum(
        answer.tags == list(tags) for answer, (_, tags) in zip(found.answers, trained.examples("test"), strict=True)
    ) / len(found.answers)
    noun, adjective = trained.tag(["the light can fish", "the light can fishes"])
    assert (noun.tags, adjective.tags) == (["DET", "NOUN", "AUX", "VERB"], ["DET", "ADJ", "NOUN", "VERB"])
    assert noun.words == ["the", "light", "can", "fish"]
    assert all(0.125 < each <= 1 for each in noun.probabilities)


def test_a_loaded_run_answers_alike_whatever_stands_beside_a_sentence(trained: Tagger) -> None:
    assert trained.path is not None
    loaded = gf.load(trained.path)
    assert all(map(torch.equal, loaded.model.parameters(), trained.model.parameters()))
    texts = [" ".join(words) for words, _ in trained.examples("test")][:20]
    for text, answer in zip(texts, loaded.tag(texts), strict=True):
        (alone,) = loaded.tag([text])
        assert alone.tags == answer.tags
        assert alone.probabilities == pytest.approx(answer.probabilities, abs=1e-5)


def test_a_sentence_longer_than_the_model_reads_is_read_in_pieces(trained: Tagger) -> None:
    small = trained.recipe.model_copy(update={"data": trained.recipe.data.model_copy(update={"max_tokens": 8})})
    cut = Tagger(small, trained.model, trained.assets)
    (whole,), (pieces) = cut.tag(["they can fish " * 10]), cut.tag(["they can fish they can fish", "they can fish"])
    assert len(whole.tags) == 30
    assert whole.tags[:6] == pieces[0].tags
    assert len(pieces[1].tags) == 3


def test_bert_tags_too_and_goes_to_transformers_and_back(tmp_path: Path) -> None:
    model = {"family": "bert", "width": 16, "heads": 2, "layers": 1, "hidden": 32}
    run = gf.train({**RECIPE, "model": model, "train": {**RECIPE["train"], "steps": 5}}, tmp_path / "run")
    assert "AutoModelForTokenClassification" in export_run(run, tmp_path / "out")
    back = gf.interop.load(tmp_path / "out")
    tokens = torch.tensor([[1, 5, 6, 2]])
    with torch.no_grad():
        torch.testing.assert_close(back(tokens), run.model(tokens))
    again = gf.train(
        {**RECIPE, "model": {"pretrained": str(tmp_path / "run")}, "train": {**RECIPE["train"], "steps": 1}},
        tmp_path / "more",
    )
    assert again.labels == run.labels


def test_a_recurrent_run_is_not_exported(trained: Tagger, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r'^the family "recurrent" has no counterpart in transformers'):
        export_run(trained, tmp_path / "out")


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda run: run.tag("a text"), "tag takes a list"),
        (lambda run: run.tag(["they fish", "  "]), "there is nothing to tag in '  '"),
        (lambda run: run.evaluate([]), "there is nothing to evaluate"),
        (lambda run: run.evaluate([(("they", "fish"), ("PRON",))]), "'they fish' has 2 words but 1 tags"),
        (
            lambda run: run.evaluate([TaggedText(("they", "fish"), ("PRON", "VRB"))]),
            "'VRB' is not among the labels .* did you mean VERB",
        ),
    ],
)
def test_what_cannot_be_tagged_is_said(trained: Tagger, ask: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ask(trained)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    rows = [f"{text}\t{tags}\n" for text, tags in sentences(200)]
    (tmp_path / "t.tsv").write_text("".join([*rows, "they fish\tPRON\n"]), encoding="utf-8")
    source = {"kind": "tsv", "train": str(tmp_path / "t.tsv")}
    few = {**RECIPE, "source": source, "train": {**RECIPE["train"], "steps": 2}}
    gf.train({**few, "data": {"valid": 0.1, "test": 0.1}}, tmp_path / "run")
    with pytest.raises(DataError, match=r"t.tsv:201: has 2 words but 1 tags"):
        gf.train({**few, "data": {"strict": True}}, tmp_path / "strict")


def test_lists_of_words_and_tags(tmp_path: Path) -> None:
    rows = [[text.split(), tags.split()] for text, tags in sentences(50)]
    lines = [json.dumps(dict(zip(("words", "tags"), row, strict=True))) for row in rows]
    (tmp_path / "t.jsonl").write_text("\n".join(lines), encoding="utf-8")
    source = {"kind": "jsonl", "train": str(tmp_path / "t.jsonl"), "fields": ["words", "tags"]}
    asked = {**RECIPE, "source": source, "data": {"test": 0.2}, "train": {**RECIPE["train"], "steps": 1}}
    run = gf.train(asked, tmp_path / "run")
    assert all([[*words], [*tags]] in rows for words, tags in run.examples("test"))


def test_held_out_sentences_never_occur_in_training() -> None:
    split = {name: {*sentences(2000, name)} for name in SPLITS}
    assert [len(split[name]) for name in split] == [2000, 1000, 1000]
    texts = {name: {text for text, _ in rows} for name, rows in split.items()}
    assert all(len(texts[name]) == len(rows) for name, rows in split.items())  # one reading each
    assert not texts["train"] & (texts["valid"] | texts["test"])
    assert all(len(text.split()) == len(tags.split()) for rows in split.values() for text, tags in rows)


def test_what_is_shown_of_it(trained: Tagger) -> None:
    examples = trained.examples("test")[:20]
    found = trained.evaluate(examples)
    assert found.facts()["words"] == sum(len(words) for words, _ in examples)
    assert list(found.facts()["f1"]) == trained.labels
    assert found.lines()[0].startswith(f"{found.words:,} words of 20 sentences: accuracy ")
    assert len(trained.shown(examples, found)) == 10
    wrong = [TaggedText(("they", "can", "fish"), ("NOUN", "AUX", "VERB"))]
    assert trained.shown(wrong, trained.evaluate(wrong)) == ["  they/PRON(true tag: NOUN) can/AUX fish/VERB"]
    assert trained.next_commands(examples)[0].startswith("tag --run RUN '")
    judged = trained.judge(examples)
    assert judged.value(range(20)) == pytest.approx(100 * found.scores.accuracy)
    assert sum(judged.weights) == found.words


def test_a_recurrent_model_has_no_attention_to_look_at(trained: Tagger) -> None:
    look = trained.look("they can fish")
    assert look.kinds == []
    tags = trained.tag(["they can fish"])[0].tags
    assert look.output == f"they/{tags[0]} can/{tags[1]} fish/{tags[2]}"
    with pytest.raises(InputError, match=r"^no encoder.self attention was recorded: the model has no attention, or"):
        look.attention("encoder.self")
    assert look["encoder.0.state"].shape[:2] == (1, len(trained.read("they can fish")))


@pytest.mark.parametrize("kind", ["tagging", "classification"])
def test_a_row_has_room_for_a_token_between_start_and_end(kind: str) -> None:
    table = {"task": {"kind": kind}, "source": {"kind": "tsv", "train": "t.tsv"}}
    make_recipe({**table, "data": {"max_tokens": 3}})
    with pytest.raises(RecipeError, match=f"data.max_tokens is 2: for {kind} it is at least 3"):
        make_recipe({**table, "data": {"max_tokens": 2}})
