"""Runs that write: the copy that is laid out for decoding has the weights of the model."""

from typing import Any

import torch

import glassformer as gf
from glassformer.parts import lora

TEXT = "The old gardener lives here."


def test_what_is_trained_after_it_has_written_writes_anew() -> None:
    run: Any = gf.load("en-de")
    before = run.translate([TEXT])[0]
    copy = run.decoding_model()
    assert run.decoding_model() is copy  # it is made once
    with torch.no_grad():
        run.model.head.weight.mul_(0.5)  # as a step of an optimiser does, in place
    after = run.translate([TEXT])[0]
    assert after.log_probability != before.log_probability
    assert after == run.with_model(run.model).translate([TEXT])[0]


def test_another_adapter_is_another_model() -> None:
    run: Any = gf.load("en-de")
    lora.adapt(run.model, rank=2, name="own")
    lora.use(run.model, None)
    plain = run.decoding_model()
    lora.use(run.model, "own")
    assert run.decoding_model() is not plain
