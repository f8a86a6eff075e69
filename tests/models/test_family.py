"""Families: what they take, which of it a recipe may say, and what their models remember."""

import inspect
import sys
from collections.abc import Callable
from typing import Annotated, Any, get_args

import pytest
import torch
from torch import Tensor, nn

from glassformer.errors import ConfigurationError
from glassformer.models import (
    FAMILIES,
    GIVEN,
    Blueprint,
    bert,
    blueprint_of,
    captioner,
    family,
    family_parameters,
    gpt2,
    llama,
    recurrent,
    roberta,
    t5,
    transformer,
    variant,
)
from glassformer.models.descriptions import DESCRIPTIONS
from glassformer.models.family import longest
from glassformer.parts import (
    LSTM,
    Activation,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    Learned,
    Named,
    PostNorm,
    PreNorm,
    RMSNorm,
    ScoreKind,
    gelu,
    gelu_tanh,
    relu,
    schemes,
)
from glassformer.registry import Registry

SMALL: dict[str, Any] = {"vocabulary": 20, "width": 16, "heads": 4, "layers": 2, "hidden": 24, "length": 8}
TOKENS = torch.arange(12).view(2, 6)
SCHEMES: Named = get_args(schemes.Positions)[1]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry[Any]:
    """A registry of its own for families of a test."""
    own: Registry[Any] = Registry("family", "math", "tests.none")
    monkeypatch.setattr(sys.modules[longest.__module__], "FAMILIES", own)
    return own


@pytest.mark.parametrize("name", FAMILIES.names())
def test_every_argument_is_described_and_every_part_has_a_name(name: str) -> None:
    for key, argument in family_parameters(FAMILIES[name]).items():
        assert argument.description, f"{key} needs words in models/words.py"
        if callable(argument.default) and key not in GIVEN and argument.default is not inspect.Parameter.empty:
            assert argument.named is not None
            assert argument.named.name(argument.default) is not None


def test_no_word_is_said_of_nothing() -> None:
    known = {key for _, function in FAMILIES.items() for key in family_parameters(function)}
    assert set(DESCRIPTIONS) == known


@pytest.mark.parametrize("name", FAMILIES.names())
def test_what_has_an_effect_for_some_answers_only_is_an_argument_and_they_are_answers(name: str) -> None:
    known = family_parameters(FAMILIES[name])
    for key, answers in FAMILIES[name].only.items():
        assert key in known
        assert key not in GIVEN
        assert set(answers) < set(get_args(known["answer"].annotation))


def test_parameters_are_resolved() -> None:
    known = family_parameters(recurrent)
    assert known["width"].annotation is int
    assert known["width"].default == 256
    assert known["width"].named is None
    assert known["vocabulary"].default is inspect.Parameter.empty
    assert known["cell"].default is LSTM
    assert known["cell"].named is not None
    assert known["cell"].named.names() == ["rnn", "gru", "lstm"]
    assert known["attention"].named is get_args(ScoreKind)[1]
    assert known["truncate"].annotation == int | None
    optional = family_parameters(bert)["head_activation"]
    assert optional.named is get_args(Activation)[1]
    assert optional.annotation == Callable[[Tensor], Tensor] | None


def test_an_argument_may_bring_its_own_description(registry: Registry[Any]) -> None:
    @family
    def theirs(width: Annotated[int, "how wide it is"] = 3, heads: int = 1, strange: int = 2) -> nn.Module:
        """One of somebody else's."""
        return nn.Linear(width, heads)

    known = family_parameters(theirs)
    assert known["width"].description == "how wide it is"
    assert known["width"].annotation is int
    assert known["heads"].description == "attention heads"
    assert known["strange"].description == ""
    assert registry["theirs"] is theirs
    assert theirs(5).blueprint == Blueprint("theirs", {"width": 5, "heads": 1, "strange": 2})


def test_a_variant_is_the_same_family_with_other_defaults(registry: Registry[Any]) -> None:
    @family(only={"heads": ("words",)})
    def plain(width: int = 3, *, heads: int = 1) -> nn.Linear:
        """A plain one."""
        return nn.Linear(width, heads)

    wide = variant("wide", plain, "A wide one.", width=7)
    assert registry["wide"] is wide
    assert wide.__name__ == "wide"
    assert wide.__doc__ == "A wide one."
    assert wide.only == {"heads": ("words",)}
    assert family_parameters(wide)["width"].default == 7
    assert family_parameters(wide)["width"].annotation is int
    assert wide().in_features == 7
    assert wide(4, heads=2).blueprint == Blueprint("wide", {"width": 4, "heads": 2})
    assert plain().in_features == 3
    with pytest.raises(ConfigurationError, match="plain has no argument depth"):
        variant("deep", plain, "A deep one.", depth=7)


def test_roberta_has_berts_signature() -> None:
    assert list(family_parameters(roberta)) == list(family_parameters(bert))
    ours, berts = family_parameters(roberta), family_parameters(bert)
    differ = {key for key in ours if ours[key].default != berts[key].default}
    assert differ == {"vocabulary", "segments", "epsilon", "skip", "head_activation", "pooled"}
    assert blueprint_of(roberta(20, 16, 4, 1, 24)).family == "roberta"


def test_a_model_without_a_family_cannot_be_described() -> None:
    with pytest.raises(ConfigurationError, match="a Linear that no family function has made"):
        blueprint_of(nn.Linear(2, 2))


@pytest.mark.parametrize("positions", SCHEMES.names())
@pytest.mark.parametrize("name", ["transformer", "gpt2", "bert", "roberta", "bart", "llama", "t5"])
def test_every_scheme_of_positions_fits(name: str, positions: str) -> None:
    torch.manual_seed(0)
    model = FAMILIES[name](**SMALL, positions=SCHEMES.part(positions)).eval()
    inputs = (TOKENS, TOKENS) if name in ("transformer", "bart", "t5") else (TOKENS,)
    with torch.no_grad():
        swapped = tuple(each.flip(1) for each in inputs)
        before, after = model(*inputs), model(*swapped).flip(1)
        assert before.isfinite().all()
        if name in ("bert", "roberta"):
            blind = positions in ("none", "alibi")  # ALiBi sees distances, which stay
            assert torch.allclose(before, after, atol=1e-4) == blind
    assert any(isinstance(part, Learned) for part in model.modules()) == (positions == "learned")


@pytest.mark.parametrize("name", ["transformer", "gpt2", "bert", "bart", "vit", "llama"])
def test_other_parts_fit(name: str) -> None:
    sizes = {key: value for key, value in SMALL.items() if name != "vit" or key not in ("vocabulary", "length")}
    sizes |= {"image": 4, "patch": 2} if name == "vit" else {}
    inputs = torch.randn(2, 3, 4, 4) if name == "vit" else TOKENS
    for residual in (PreNorm, PostNorm):
        changes: dict[str, Any] = {"residual": residual, "norm": RMSNorm, "gated": True, "activation": relu}
        changes |= {} if name == "bart" else {"key_value_heads": 2}
        model = FAMILIES[name](**sizes, **changes).eval()
        parts = list(model.modules())
        assert not any(isinstance(part, LayerNorm) for part in parts)
        assert any(isinstance(part, residual) for part in parts)
        assert any(isinstance(part, GatedFeedForward) and part.activation is relu for part in parts)
        answer = model(inputs, inputs) if name in ("transformer", "bart") else model(inputs)
        assert answer.isfinite().all()


def test_the_activation_of_t5_follows_its_gate_unless_given() -> None:
    given: list[tuple[dict[str, Any], Any]] = [({}, relu), ({"gated": True}, gelu_tanh), ({"activation": gelu}, gelu)]
    for changes, wanted in given:
        kinds = (FeedForward, GatedFeedForward)
        parts = [part for part in t5(**SMALL, **changes).modules() if isinstance(part, kinds)]
        assert {part.activation for part in parts} == {wanted}


def test_only_positions_that_end_limit_a_text() -> None:
    assert longest(blueprint_of(gpt2(**SMALL))) == 8
    assert longest(blueprint_of(llama(**SMALL))) == 8
    assert longest(blueprint_of(transformer(**SMALL))) is None
    assert longest(blueprint_of(transformer(**SMALL, positions=schemes.learned))) == 8
    assert longest(blueprint_of(gpt2(**SMALL, positions=schemes.alibi))) is None


def test_numbers_of_positions_that_the_model_does_not_have_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="base = 500 has no effect: it is for rotary positions only"):
        llama(**SMALL, base=500.0, positions=schemes.learned)
    with pytest.raises(ConfigurationError, match="buckets and distance have no effect"):
        t5(**SMALL, buckets=8, positions=schemes.learned)


@pytest.mark.parametrize("positions", SCHEMES.names())
@pytest.mark.parametrize("residual", [PreNorm, PostNorm])
def test_a_captioner_takes_the_parts_of_a_gpt2(positions: str, residual: Any) -> None:
    torch.manual_seed(0)
    parts: dict[str, Any] = {"positions": SCHEMES.part(positions), "residual": residual, "norm": RMSNorm, "gated": True}
    model = captioner(20, 8, 4, 16, 4, 2, 24, length=8, image_width=8, key_value_heads=2, **parts).eval()
    pixels = torch.randn(2, 3, 8, 8)
    with torch.inference_mode():
        state, steps = model.start(pixels), []
        for column in TOKENS.T:
            logits, state = model.step(state, column[:, None])
            steps.append(logits[:, 0])
        torch.testing.assert_close(torch.stack(steps, dim=1), model(pixels, TOKENS), atol=1e-5, rtol=1e-5)
