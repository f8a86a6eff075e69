"""Gates and memory: by hand, and what is left of all tokens sums to the cell.

T tokens, W width
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer.errors import InputError
from looking.families import FAMILIES, same

from .making import made

analyses = gf.analyses
FORGET = [[0.5, 0.5], [0.5, 1.0], [0.0, 0.5]]
ADDED = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
CELL = [[1.0, 2.0], [3.5, 6.0], [5.0, 9.0]]  # each is the last one, times forget, plus added
TRACE = made(
    {"encoder.0.gates.forget": FORGET, "encoder.0.gates.added": ADDED, "encoder.0.cell": CELL},
    {"encoder": ["a", "b", "c"]},
)


def test_memory_by_hand() -> None:
    found = analyses.memory(TRACE)
    assert found.kept.tolist() == [[1, 0, 0], [0.75, 1, 0], [0.25, 0.25, 1]]
    assert found.vectors[2].tolist() == [[0, 1], [0, 2], [5, 6]]
    same(found.left[2], torch.tensor([1.0, 2.0, 61**0.5]))
    same(found.begun, torch.zeros(3, 2))
    assert found.tokens == ["a", "b", "c"]


def test_a_gru_by_hand() -> None:
    tensors = {"gates.update": [[0.5], [0.25]], "gates.candidate": [[4.0], [8.0]], "state": [[3.0], [6.75]]}
    found = analyses.memory(made({f"encoder.0.{name}": each for name, each in tensors.items()}))
    assert found.kept.tolist() == [[1, 0], [0.25, 1]]
    assert found.vectors[..., 0].tolist() == [[2, 0], [0.5, 6]]
    assert found.begun.tolist() == [[1.0], [0.25]]  # it began with 2


@pytest.mark.parametrize(
    ("name", "stack", "layer", "backward"),
    [
        ("lstm", "encoder", 0, False),
        ("lstm", "encoder", 1, True),
        ("gru", "encoder", 1, True),
        ("gru", "encoder", 0, False),
        ("gru-next", "decoder", 1, False),
        ("lstm-classes", "encoder", 0, True),
    ],
)
def test_what_is_left_of_all_tokens_is_the_state(name: str, stack: str, layer: int, backward: bool) -> None:
    model = FAMILIES[name].model()
    with gf.record(model) as trace, torch.no_grad():
        model(*FAMILIES[name].inputs)
    found = analyses.memory(trace, layer, stack, backward)
    place = f"{stack}.{layer}.{'backward.' if backward else ''}"
    cell = trace[f"{place}cell" if name.startswith("lstm") else f"{place}state"][0]
    same(found.vectors.sum(dim=1), cell)
    same(found.begun, torch.zeros_like(cell))
    assert bool((found.kept.tril(-1) == 0).all() if backward else (found.kept.triu(1) == 0).all())
    assert found.kept.diagonal().tolist() == [1.0] * 5


def test_a_decoder_begins_with_what_was_read() -> None:
    model = FAMILIES["lstm"].model()
    with gf.record(model) as trace, torch.no_grad():
        model(*FAMILIES["lstm"].inputs)
    found = analyses.memory(trace, 0, "decoder")
    forget = trace["decoder.0.gates.forget"][0]
    same(found.begun[1], found.begun[0] * forget[1])
    assert float(found.begun[0].norm()) > 0.01


def test_gates() -> None:
    model = FAMILIES["lstm"].model()
    with gf.record(model) as trace, torch.no_grad():
        model(*FAMILIES["lstm"].inputs)
    found = analyses.gates(trace, 1, backward=True, sentence=1)
    assert found.gates == ["forget", "input", "output"]
    assert torch.equal(found.values[0], trace["encoder.1.backward.gates.forget"][1])
    assert torch.equal(found.mean[2], trace["encoder.1.backward.gates.output"][1].mean(dim=-1))
    assert found.tokens == [*"8", "9", "10", "0", "0"]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: analyses.memory(TRACE, 3), "the trace holds no gates of encoder.3: it holds those of encoder.0; rec"),
        (
            lambda: analyses.gates(made({"encoder.0.after": [[1.0]]})),
            "the trace holds no gates of encoder.0: only LSTM",
        ),
        (lambda: analyses.gates(TRACE), "gates needs encoder.0.gates.input, which this trace does not hold: record w"),
        (
            lambda: analyses.memory(made({"encoder.0.gates.forget": FORGET})),
            "memory needs encoder.0.gates.added, which this trace does not hold: record with keep=",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(call: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}"):
        call()
