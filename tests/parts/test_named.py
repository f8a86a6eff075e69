"""Parts by name."""

from typing import Any, get_args

import pytest

from glassformer.errors import ConfigurationError
from glassformer.parts import (
    GRU,
    LSTM,
    RNN,
    Activation,
    AdditiveScore,
    BatchNorm,
    CellKind,
    LayerNorm,
    MultiplicativeScore,
    Named,
    Norm,
    Positions,
    PostNorm,
    PreNorm,
    Residual,
    RMSNorm,
    ScoreKind,
    UnpaddedNorm,
    gelu,
    gelu_tanh,
    relu,
    schemes,
    silu,
)

NAMED: list[tuple[Any, dict[str, Any]]] = [
    (Activation, {"relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu}),
    (Residual, {"pre": PreNorm, "post": PostNorm}),
    (Norm, {"layer": LayerNorm, "rms": RMSNorm}),
    (UnpaddedNorm, {"layer": LayerNorm, "rms": RMSNorm, "batch": BatchNorm}),
    (
        Positions,
        {
            "sinusoidal": schemes.sinusoidal,
            "learned": schemes.learned,
            "rotary": schemes.rotary,
            "alibi": schemes.alibi,
            "relative": schemes.relative,
            "none": schemes.unordered,
        },
    ),
    (CellKind, {"rnn": RNN, "gru": GRU, "lstm": LSTM}),
    (ScoreKind, {"none": None, "additive": AdditiveScore, "multiplicative": MultiplicativeScore}),
]


@pytest.mark.parametrize(("kind", "parts"), NAMED)
def test_every_part_has_its_name(kind: Any, parts: dict[str, Any]) -> None:
    named: Named = get_args(kind)[1]
    assert named.names() == list(parts)
    for name, part in parts.items():
        assert named.part(name) is part
        assert named.name(part) == name


def test_an_unknown_name_is_refused_and_an_unknown_part_has_none() -> None:
    named = Named(relu=relu, gelu=gelu)
    assert named.name(silu) is None
    assert repr(named) == "Named(relu, gelu)"
    with pytest.raises(ConfigurationError, match='unknown part "rel": did you mean "relu"'):
        named.part("rel")
    with pytest.raises(ConfigurationError, match='unknown part "x": there are: relu, gelu'):
        named.part("x")
