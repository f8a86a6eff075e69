"""[model] is the family's own: its keys, its defaults; what is another family's is refused by name."""

from typing import Any

import pytest

from glassformer.errors import RecipeError
from glassformer.parts import BatchNorm, Decoder, DecoderBlock, Embedding
from glassformer.recipe import Pretrained, RecipeWarning, make_recipe
from glassformer.recipe.model import section_of
from glassformer.registry import FAMILIES

TEXT = {"kind": "text", "train": "t"}


def model_of(family: str, task: str, **changes: Any) -> Any:
    source = {"images": {"kind": "digits"}, "language-modelling": TEXT}.get(task, {"kind": "tsv", "train": "t"})
    options = {"kind": task, "size": 32} if task == "images" else {"kind": task}
    return make_recipe({"task": options, "source": source, "model": {"family": family, **changes}}).model


def test_defaults_are_the_familys_own() -> None:
    llama = model_of("llama", "language-modelling")
    assert (llama.tie_output, llama.dropout, llama.norm, llama.positions) == (False, 0.0, "rms", "rotary")
    assert (llama.gated, llama.activation, llama.width) == (True, "silu", 288)
    gpt2 = model_of("gpt2", "language-modelling", width=16, heads=2, layers=1)
    assert (gpt2.hidden, gpt2.attention_dropout, gpt2.tie_output) == (None, 0.1, True)
    assert section_of("gpt2", "next")(**gpt2.model_dump()).arguments()["hidden"] is None  # four times the width
    bert = model_of("bert", "classification")
    assert (bert.attention_dropout, bert.residual, bert.layers) == (0.1, "post", 12)
    vit = model_of("vit", "images")
    assert (vit.dropout, vit.patch, vit.residual) == (0.0, 16, "pre")
    recurrent = model_of("recurrent", "translation")
    assert (recurrent.layers, recurrent.cell, recurrent.attention) == (1, "lstm", "multiplicative")
    transformer = model_of("transformer", "translation")
    assert (transformer.residual, transformer.positions, transformer.hidden) == ("pre", "sinusoidal", 2048)


def test_a_gpt2_without_hidden_is_four_times_as_wide_inside() -> None:
    from glassformer.tasks.task import fresh_model

    recipe = make_recipe(
        {
            "task": {"kind": "language-modelling"},
            "source": TEXT,
            "model": {"family": "gpt2", "width": 16, "heads": 2, "layers": 1},
        }
    )
    shapes = [each.shape for each in fresh_model(recipe, recipe.task.given(recipe, (20, 20), 0)).parameters()]
    assert (64, 16) in shapes
    assert (16, 64) in shapes


@pytest.mark.parametrize(
    ("family", "task", "changes", "sentence"),
    [
        (
            "bert",
            "classification",
            {"cell": "gru"},
            "model.cell is not a key of the family bert, only of recurrent, series_recurrent: ",
        ),
        (
            "transformer",
            "translation",
            {"head_width": 8},
            "model.head_width is not a key of the family transformer, only of llama, t5: remove it, or --set model.he",
        ),
        ("gpt2", "language-modelling", {"patch": 8}, "only of captioner, vit: remove it"),
        ("bert", "classification", {"tie_output": False}, "model.tie_output has no effect in a bert for this task"),
        ("transformer", "translation", {"widht": 8}, r"model.widht is not a key: did you mean width\?"),
        ("llama", "language-modelling", {"zzz": 8}, "model.zzz is not a key: its keys are .*positions"),
        ("bert", "translation", {}, "model.family is 'bert': for this task it is one of .*transformer"),
        ("brt", "translation", {}, r'unknown family "brt": did you mean "bert"\?'),
    ],
)
def test_keys_that_a_family_does_not_have_are_refused(
    family: str, task: str, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(RecipeError, match=sentence) as error:
        model_of(family, task, **changes)
    assert "\n" not in str(error.value)


BATCH = (
    "recipe: model.norm is 'batch': its statistics are over all tokens of a batch, so those of later words and of "
    "padding would enter; series_encoder, vit can have it"
)


@pytest.mark.parametrize(
    ("family", "task"),
    [
        *(("transformer", "translation"), ("bert", "classification"), ("bert", "tagging")),
        *(("gpt2", "language-modelling"), ("captioner", "captioning"), ("series_decoder", "forecasting")),
    ],
)
def test_batch_norm_is_refused_where_something_is_later_or_padding(family: str, task: str) -> None:
    with pytest.raises(RecipeError) as error:
        model_of(family, task, norm="batch")
    assert BATCH in str(error.value)


def test_batch_norm_is_a_key_where_nothing_is_later_and_nothing_is_padding() -> None:
    """Families say so by the type of their argument: their models have no decoder, and read no tokens."""
    assert model_of("vit", "images", norm="batch").arguments()["norm"] is BatchNorm
    families = [name for name, each in FAMILIES.items() if "norm" in each.parameters]
    takes = [name for name in families if BatchNorm in FAMILIES[name].parameters["norm"].named.parts.values()]
    assert sorted(takes) == ["series_encoder", "vit"]
    for name in takes:
        sizes = {"columns": 3} if name == "series_encoder" else {"image": 8, "patch": 4}
        model = FAMILIES[name](**sizes, width=8, heads=2, layers=1, hidden=8, norm=BatchNorm)
        kinds = {type(part) for part in model.modules()}
        assert BatchNorm in kinds
        assert not kinds & {Decoder, DecoderBlock, Embedding}


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_what_the_key_was_for_before_is_told(norm: str) -> None:
    sentence = f"model.norm is '{norm}': since Glassformer 0.2 that is model.residual = \"{norm}\""
    with pytest.raises(RecipeError, match=f"^recipe: {sentence}$"):
        model_of("vit", "images", norm=norm)


def test_sizes_beside_a_checkpoint_are_a_warning_and_gone() -> None:
    asked = {"source": {"kind": "copy"}, "model": {"pretrained": "somewhere", "width": 64, "dropout": 0.2}}
    with pytest.warns(
        RecipeWarning, match=r"recipe: model\.width has no effect: model\.pretrained decides it"
    ) as found:
        recipe = make_recipe(asked)
    assert len([each for each in found if "model." in str(each.message)]) == 1
    assert recipe.model == Pretrained(pretrained="somewhere", dropout=0.2)
    with pytest.raises(RecipeError, match=r"model\.widht is not a key: its keys are pretrained, dropout"):
        make_recipe({**asked, "model": {"pretrained": "somewhere", "widht": 64}})


@pytest.mark.parametrize(
    ("family", "task", "changes", "sentence"),
    [
        (
            "llama",
            "language-modelling",
            {"positions": "alibi", "base": 5.0},
            "recipe: model: base = 5 has no effect: it is for rotary positions only",
        ),
        (
            "t5",
            "translation",
            {"positions": "none", "buckets": 8},
            "recipe: model: buckets and distance have no effect: they are for relative positions only",
        ),
    ],
)
def test_numbers_of_positions_that_are_not_chosen_are_refused(
    family: str, task: str, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(RecipeError, match=sentence):
        model_of(family, task, **changes)
