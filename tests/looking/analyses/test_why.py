"""Why this word and not that one: the word is found, compared at the piece that differs, and explained by occlusion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer as gf
import labels
import stories
from glassformer import analyses
from glassformer.errors import InputError
from glassformer.looking.plots import grids

TEXT = "The old gardener lives here."


@pytest.fixture(scope="module")
def run() -> Any:
    return gf.load("en-de")


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("language")
    made = stories.recipe(stories.stories(folder / "t.txt"), "language-modelling", train={"steps": 60})
    return gf.train(made, folder / "run")


def test_a_written_word_stands_where_its_pieces_are(run: Any) -> None:
    found = analyses.outputs(run, TEXT)
    assert [each.name for each in found] == ["Der", "alte", "Gärtner", "lebt", "hier", "."]
    gardener = found[2]
    assert run.target.tokens(gardener.tokens) == ["▁G", "är", "t", "ner"]
    assert gardener.places == [2, 3, 4, 5]
    assert analyses.output_of(run, TEXT, "Gärtner") == gardener
    assert analyses.output_of(run, TEXT) == found[0]


@pytest.mark.parametrize(
    ("word", "instead", "place", "tokens"),
    [
        ("Der", "Die", 0, ("Der", "Die")),
        ("Gärtner", "Mann", 2, ("▁G", "▁Mann")),
        ("Gärtner", "Gärtnerin", 6, ("▁lebt", "in")),  # alike up to the end of the word that was written
    ],
)
def test_two_words_are_compared_where_they_first_differ(
    run: Any, word: str, instead: str, place: int, tokens: tuple[str, str]
) -> None:
    found = analyses.output_of(run, TEXT, word, instead)
    assert (found.place, found.instead) == (place, instead)
    assert tuple(run.target.tokens([found.tokens[0], found.against])) == tokens


@pytest.mark.parametrize(
    ("word", "instead", "message"),
    [
        ("Hund", None, 'there is no "Hund" among what the run answers: there is Der, alte, Gärtner, lebt, hier, .'),
        ("Gartner", None, "did you mean Gärtner?"),
        ("Gärtner", "Gärt", '"Gärtner" begins with all of "Gärt": name a word that begins otherwise'),
        ("Der", " ", "an empty text is no word"),
        ("", None, 'there is no "" among what the run answers'),
    ],
)
def test_words_that_are_not_there_are_sentences(run: Any, word: str, instead: str | None, message: str) -> None:
    with pytest.raises(InputError) as caught:
        analyses.why(run, TEXT, word, instead)
    assert message in str(caught.value)


def test_the_woman_makes_it_die_and_not_der(run: Any) -> None:
    found = analyses.why(run, "The woman is old.", "Die", "Der")
    assert (found.rows, found.against) == (["Die"], "Der")
    source = found.of("encoder")
    assert source.columns[int(source.values[0].argmax())] == "woman"
    same = analyses.occlusion(run, "The woman is old.", "Die", 0, "Der").words()
    torch.testing.assert_close(found.values, same.values)
    figure = found.figure()
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == source.columns  # nothing written yet
    assert figure.get_suptitle() == 'Why "Die" and not "Der": what speaks for it'


def test_without_a_word_each_has_a_row_the_mean_of_its_pieces(run: Any) -> None:
    found = analyses.why(run, TEXT)
    assert found.rows == ["Der", "alte", "Gärtner", "lebt", "hier", "."]
    pieces = analyses.occlusion(run, TEXT).words()
    torch.testing.assert_close(found.values[2], pieces.values[2:6].mean(dim=0), atol=1e-4, rtol=1e-4)
    left, right, *_ = found.figure().axes
    assert (left.get_title(loc="left"), right.get_title(loc="left")) == ("is read", "was written before")
    shown = [label.get_text() for label in right.get_xticklabels()]
    assert shown == ["Der", "alte", "Gärtner", "lebt", "hier"]  # no word has seen the last


def test_a_language_model_explains_the_texts_words_and_the_next(language: Any) -> None:
    text = "the big cow says"
    names = [each.name for each in analyses.outputs(language, text)]
    assert names[:-1] == ["the", "big", "cow", "says"]
    last = analyses.output_of(language, text)
    assert last.place == len(language.read(text)) - 1
    other = analyses.output_of(language, text, "miaow")  # any word that it knows may come next
    assert (other.place, language.tokenizer.tokens(other.tokens)) == (last.place, ["▁miaow"])
    inside = analyses.output_of(language, text, "cow", "hen")
    assert inside.place == 2
    assert language.tokenizer.tokens([*inside.tokens, inside.against or 0]) == ["▁cow", "▁hen"]
    with pytest.raises(InputError, match='"horse" is not in the vocabulary of this run'):
        analyses.why(language, text, "horse")
    found = analyses.why(language, text)
    assert found.values.triu(diagonal=1).abs().max() < 1e-4  # nobody sees what comes later


def test_a_label_is_explained_by_its_name(tmp_path: Path) -> None:
    file = labels.table(tmp_path / "t.tsv", labels.examples(60))
    run: Any = gf.train(labels.text_recipe(file), tmp_path / "run")
    text = run.examples("test")[0][0]
    one, other = run.labels[:2]
    found = analyses.why(run, text, one, other)
    back = analyses.why(run, text, other, one)
    torch.testing.assert_close(found.values, -back.values)
    assert analyses.why(run, text).rows == [run.classify([text])[0].label]
    with pytest.raises(InputError, match=f'there is no label "{one}x": did you mean {one}'):
        analyses.why(run, text, f"{one}x")


def test_several_places_are_explained_at_once(run: Any) -> None:
    tokens = run.forced(TEXT).written
    both = analyses.input_x_gradient(run, TEXT, tokens[:2], [0, 1])
    for place in (0, 1):
        one = analyses.input_x_gradient(run, TEXT, tokens[place], place)
        torch.testing.assert_close(both.values[place], one.values[0], atol=1e-4, rtol=1e-4)
    with pytest.raises(InputError, match="there are 1 tokens for 2 positions: expected as many"):
        analyses.input_x_gradient(run, TEXT, tokens[:1], [0, 1])


def test_a_trace_knows_the_run_that_it_is_from(run: Any, tmp_path: Path) -> None:
    trace = run.look("The man is old.", keep=["logits", "before", "after"])
    lens: Any = trace.plot.logit_lens().axes[0]
    assert [label.get_text() for label in lens.get_yticklabels()] == ["Der", "·Mann", "·ist", "·alt", ".", "end"]
    assert [label.get_text() for label in lens.get_xticklabels()] == ["before", "layer 0", "layer 1", "layer 2"]
    said = [text.get_text() for text in lens.texts]
    assert said[3::4] == ["Der", "·Mann", "·ist", "·alt", ".", "<end>"]  # the last column is what it says
    assert "Mann" in trace.plot.attribution("Mann", "Junge").get_suptitle()
    effects: Any = trace.words().plot.patching("The girl is old.").axes[0]
    assert [label.get_text() for label in effects.get_xticklabels()][1] == "·man/·girl"
    loaded = gf.load_trace(trace.save(tmp_path / "x.trace"))
    assert len(loaded.plot.logit_lens(run).axes[0].texts) == len(said)
    with pytest.raises(InputError, match="the logit lens needs the run, and this trace does not know it"):
        loaded.plot.logit_lens()
    with pytest.raises(InputError, match="the logit lens is of tokens"):
        trace.words().plot.logit_lens()


def test_bars_of_parts_have_the_names_and_numbers_of_the_parts(run: Any) -> None:
    trace = run.look("The man is old.")
    found = analyses.logit_attribution(run, trace, position=1)
    axes: Any = found.figure().axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        *("embedding", "positions", "0.self", "0.cross", "0.ff", "1.self", "1.cross", "1.ff"),
        *("2.self", "2.cross", "2.ff", "biases"),
    ]
    assert [patch.get_width() for patch in axes.patches] == pytest.approx(found.values.tolist())


def test_layers_are_spread_where_there_are_many() -> None:
    assert grids.spread(4, 6) == [0, 1, 2, 3]
    assert grids.spread(33, 5) == [0, 8, 16, 24, 32]
