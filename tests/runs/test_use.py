"""A run in use: texts in, texts out, in order, whatever the batches."""

import random
from typing import Any

import pytest
import torch

from glassformer.data import Assets
from glassformer.errors import ConfigurationError, InputError
from glassformer.recipe import Tokenizer as Section
from glassformer.runs.building import build
from glassformer.tasks.translation import Translator
from glassformer.text import Tokenizer
from tiny import recipe


def letters(seed: int, count: int = 40) -> list[str]:
    """Texts of many lengths, empty ones among them."""
    draw = random.Random(seed)
    return [" ".join(draw.choices("abcdefgh", k=draw.randint(0, 5))) for _ in range(count)]


def test_the_order_of_the_texts_is_kept(trained: Translator) -> None:
    texts = letters(1)
    outputs = [each.text for each in trained.translate(texts)]
    assert len(outputs) == len(texts)
    assert [output == "" for output in outputs] == [text == "" for text in texts]
    right = sum(output == text for output, text in zip(outputs, texts, strict=True))
    assert right >= 0.9 * len(texts)  # it has learned to copy: other orders would fail


@pytest.mark.parametrize("beam", [1, 3])
def test_outputs_do_not_depend_on_company(trained: Translator, beam: int) -> None:
    texts = letters(2, count=20)
    together = trained.search(texts, beam=beam, best=min(beam, 2), batch=7)
    for text, found in zip(texts, together, strict=True):
        ((*alone,),) = trained.search([text], beam=beam, best=min(beam, 2), batch=1)
        assert [each.ids for each in alone] == [each.ids for each in found]
        assert [each.score for each in alone] == pytest.approx([each.score for each in found], abs=1e-4)


def test_the_best_come_first_and_say_what_they_are(trained: Translator) -> None:
    (found,) = trained.search(["c a b"], beam=4, best=4)
    assert len(found) == 4
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    assert len({each.text for each in found}) == 4
    assert found[0].text == "c a b"
    assert found[0].tokens == trained.target.tokens(found[0].ids)
    assert found[0].finished
    assert found[0].log_probability <= 0


def test_progress_counts_to_the_end(trained: Translator) -> None:
    told: list[tuple[int, int]] = []
    trained.search(["a", "b c", "", "d"], batch=2, progress=lambda done, of: told.append((done, of)))
    assert told == [(2, 3), (3, 3)]


def test_a_single_text_is_refused_before_its_letters_are_taken_for_texts(trained: Translator) -> None:
    with pytest.raises(InputError, match="translate takes a list"):
        trained.translate("a b c")


def test_nothing_to_translate_is_nothing(trained: Translator) -> None:
    assert trained.translate([]) == []


def test_text_is_normalised_as_in_training_and_cut_off(trained: Translator) -> None:
    assert trained.read("  a \t b ") == trained.read("a b")
    assert len(trained.read("a " * 200)) == trained.recipe.data.max_tokens
    trained.translate(["a " * 200])


def test_pieces_of_a_stream_join_to_the_greedy_text(trained: Translator) -> None:
    texts = letters(3, count=12)
    streamed = [list(trained.stream(text)) for text in texts]
    assert ["".join(pieces) for pieces in streamed] == [each.text for each in trained.translate(texts, beam=1)]
    assert max(map(len, streamed)) > 2
    assert "" not in [piece for pieces in streamed for piece in pieces]


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_of_bytes_never_shows_half_a_letter_and_ends_with_all(seed: int) -> None:
    torch.manual_seed(seed)
    made = recipe({"tokenizer": {"kind": "byte"}, "decode": {"max_length": 60}})
    tokenizer = Tokenizer.train([], Section(kind="byte"))
    assets = Assets((tokenizer, tokenizer))
    untrained = Translator(made, build(made, assets).eval(), assets)
    with torch.no_grad():
        for parameter in untrained.model.parameters():
            parameter.mul_(4)  # so that it writes many different bytes, most of them no letters
    for text in ("सोमवार", "a", "東京"):
        pieces = list(untrained.stream(text))
        assert "".join(pieces) == untrained.translate([text], beam=1)[0].text


def test_a_look_shows_the_weights_of_every_written_token(trained: Translator) -> None:
    seen = trained.look("a b c")
    assert seen.output == "a b c"
    axes = seen.axes("decoder.0.cross")
    assert axes["key"] == trained.tokenizer.tokens(trained.read("a b c"))
    assert axes["token"] == [*trained.translate(["a b c"])[0].tokens, "end"]
    model, weights = trained.recipe.model, seen.attention("decoder.cross")[:, 0]
    assert weights.shape == (model.layers, model.heads, len(axes["token"]), len(axes["key"]))
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert all(attention.observe is None for attention in _attentions(trained))


def _attentions(run: Translator) -> list[torch.nn.Module]:
    return [part for part in run.model.modules() if hasattr(part, "observe")]


def test_the_model_of_a_run_has_no_dropout_left(trained: Translator) -> None:
    assert not any(part.training for part in trained.model.modules())


@pytest.mark.parametrize("text", [5, None, b"a", "\ud800"])
def test_what_is_no_text_is_refused(trained: Translator, text: Any) -> None:
    with pytest.raises(InputError, match="is no text"):
        trained.translate(["a", text])
    with pytest.raises(InputError, match="is no text"):
        next(trained.stream(text))


def test_no_sentences_together_are_refused(trained: Translator) -> None:
    with pytest.raises(ConfigurationError, match="at least 1, not 0"):
        trained.search(["a"], batch=0)
