"""Wrapped models, compiled or data-parallel ones, are looked into as the models inside."""

from __future__ import annotations

import torch

import glassformer as gf
from glassformer.parts import MultiHeadAttention

from .families import KEEP, SOURCE, TARGET, same, translator


@torch.no_grad()
def test_a_wrapped_model_is_looked_into_as_the_model_itself() -> None:
    outside = torch.nn.DataParallel(model := translator())
    assert gf.points(outside) == gf.points(model)
    with gf.record(outside) as trace:
        logits = outside(SOURCE, TARGET, KEEP)
    assert torch.equal(trace["logits"], logits)
    assert torch.equal(logits, model(SOURCE, TARGET, KEEP))


@torch.no_grad()
def test_a_compiled_part_runs_as_it_is_written_while_somebody_looks() -> None:
    part, x = MultiHeadAttention(8, 2), torch.randn(1, 3, 8)
    compiled = torch.compile(part, backend="eager")
    before = compiled(x)
    with gf.record(compiled) as trace, gf.intervene(compiled) as edit:
        same(compiled(x), before)
        edit.zero("attention.heads")
        assert not torch.equal(compiled(x), before)
    assert trace.calls("attention.weights")[0].shape == (1, 2, 3, 3)
    same(compiled(x), before)
