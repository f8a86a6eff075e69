"""What learns, and what does not: counts, bits, memory, and gradual unfreezing that resumes."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from glassformer.errors import ConfigurationError, Stopped
from glassformer.models import FAMILIES, bert, gpt2, t5, transformer
from glassformer.parts import TiedHead, adapt, merged, use
from glassformer.tasks.translation import translation_loss
from glassformer.training import Checkpoints, Trainer
from glassformer.training.optimisers import Optimiser, optimiser
from glassformer.training.tuning import Mode, Summary, Unfreezing, choose, stages, summary

from .helpers import VOCABULARY, FakeBatches, options

Kind = Literal["adamw", "adam", "muon"]
OPTIMISERS: list[Kind] = ["adamw", "adam", "muon"]
SMALL: dict[str, Any] = {"vocabulary": 30, "width": 8, "heads": 2, "layers": 2, "hidden": 12}


def classifier() -> nn.Module:
    return bert(**SMALL, answer="classes", classes=3)


def learning(model: nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def translator(**changes: Any) -> nn.Module:
    torch.manual_seed(0)
    return transformer(VOCABULARY, width=16, heads=2, layers=2, hidden=32, tie_output=False, **changes)


def adapted() -> nn.Module:
    return adapt(translator(), rank=2, targets=["query", "value"])


def values(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def moved(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


def state_bytes(chosen: Optimiser) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in chosen.state().values())


def test_each_mode_lets_its_own_learn() -> None:
    model = classifier()
    everything = set(dict(model.named_parameters()))
    head = {name for name in everything if name.startswith("head.")}
    assert choose(model, "head").trained == 8 * 8 + 8 + 8 * 3 + 3
    assert learning(model) == head
    adapt(model, rank=2, targets=["query", "value"])
    thin = {name for name, _ in model.named_parameters() if ".adapters." in name}
    assert choose(model, "lora").trained == 99 + 4 * 2 * (8 + 8)
    assert learning(model) == head | thin
    choose(model, "lora", head=False)
    assert learning(model) == thin
    for mode in ("full", "unfreeze"):
        choose(model, mode)
        assert learning(model) == everything | thin
    adapt(model, rank=1, targets=["key"], name="other")
    choose(model, "lora")
    assert learning(model) == head | {name for name, _ in model.named_parameters() if ".adapters.other." in name}
    choose(model, "full")
    assert learning(model).isdisjoint(thin)


def test_a_head_that_scores_words_is_not_new() -> None:
    for make in (lambda: gpt2(**SMALL), lambda: gpt2(**SMALL, tie_output=False), lambda: bert(**SMALL, answer="words")):
        for targets in (["query"], ["*"]):
            model = adapt(make(), targets=targets)
            choose(model, "lora")
            assert all(".adapters." in name for name in learning(model))
    model = adapt(gpt2(**SMALL, tie_output=False), targets=["query"])
    choose(model, "lora", head=True)
    assert "head.weight" in learning(model)


def test_what_cannot_be_chosen_is_a_sentence() -> None:
    for name in ("gpt2", "bart", "bert"):
        with pytest.raises(
            ConfigurationError, match="head of this model is tied to its embedding or has no parameters of its own"
        ):
            choose(FAMILIES[name](**SMALL), "head")
    with pytest.raises(ConfigurationError, match="no adapter is in use"):
        choose(gpt2(**SMALL), "lora")
    model = adapt(gpt2(**SMALL))
    use(model, None)
    with pytest.raises(ConfigurationError, match="no adapter is in use"):
        choose(model, "lora")


def test_the_summary_counts_shared_numbers_once() -> None:
    model = transformer(**SMALL)
    assert isinstance(model.head, TiedHead)
    size = sum(parameter.numel() for parameter in {id(each): each for each in model.parameters()}.values())
    assert summary(model) == Summary(size, size)
    adapt(model, rank=1, targets=["head"])
    assert summary(model) == Summary(8 + 30, size + 8 + 30)


@pytest.mark.parametrize(
    ("trained", "total", "sentence"),
    [
        (135_600, 22_600_000, "0.6 % of 22.6 M"),
        (22_600_000, 22_600_000, "100 % of 22.6 M"),
        (1, 999, "0.1 % of 999"),
        (45, 1500, "3 % of 1.5 k"),
        (345, 10_000, "3.5 % of 10.0 k"),
        (0, 2_000_000_000, "0 % of 2.0 G"),
    ],
)
def test_the_summary_is_a_short_sentence(trained: int, total: int, sentence: str) -> None:
    assert str(Summary(trained, total)) == sentence


@pytest.mark.parametrize("kind", OPTIMISERS)
@pytest.mark.parametrize("mode", ["head", "lora"])
def test_what_is_frozen_keeps_its_bits_and_the_rest_learns(mode: Mode, kind: Kind, tmp_path: Path) -> None:
    model = adapted() if mode == "lora" else translator()
    choose(model, mode)
    learns, before = learning(model), values(model)
    wish = options(steps=6, optimiser=kind, weight_decay=0.1, ema=0.9, save_every=3, average=2)
    trainer = Trainer(model, FakeBatches(), wish, tmp_path, translation_loss)
    trainer.run()
    assert moved(before, values(trainer.model)) == learns
    saved = Checkpoints(tmp_path).at(6)
    assert set(saved.tensors("average")) == learns
    assert {name.partition("/")[0] for name in saved.tensors("optimiser")} == learns | {"time"}


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_the_optimiser_remembers_only_what_learns(kind: Kind) -> None:
    full = state_bytes(optimiser(translator(), options(optimiser=kind)))
    model = adapt(translator(), rank=2, targets=["query", "value"])
    chosen = choose(model, "lora")
    thin = state_bytes(optimiser(model, options(optimiser=kind)))
    assert thin == 4 * (2 * chosen.trained + len(learning(model)))
    assert thin < full * (0.13 if kind == "muon" else 0.08)


@pytest.mark.parametrize("mode", ["lora", "unfreeze"])
def test_killed_and_resumed_is_as_if_nothing_had_been(mode: Mode, tmp_path: Path) -> None:
    def run(folder: Path, resume: bool = False, stop: int = 0) -> nn.Module:
        model = adapted() if mode == "lora" else translator()
        choose(model, mode)
        trainer = Trainer(
            model,
            FakeBatches(),
            options(steps=12, ema=0.9, save_every=100),
            folder,
            translation_loss,
            unfreeze=3 if mode == "unfreeze" else 0,
            tick=lambda tick: os.kill(os.getpid(), signal.SIGTERM) if tick["step"] == stop else None,
        )
        trainer.run(resume)
        return trainer.model

    straight = run(tmp_path / "a")
    with pytest.raises(Stopped):
        run(tmp_path / "b", stop=5)  # in the middle of a stage
    assert not moved(values(straight), values(run(tmp_path / "b", resume=True)))
    ours, theirs = (Checkpoints(tmp_path / each).at(12).tensors("optimiser") for each in "ab")
    assert not moved(ours, theirs)


def test_stages_go_from_the_head_to_the_embeddings() -> None:
    found = stages(translator())
    tops = [sorted({".".join(name.split(".")[:3]) for name in names}) for names in found]
    assert tops == [
        ["head.weight"],
        ["decoder.blocks.1", "decoder.norm.bias", "decoder.norm.weight"],
        ["decoder.blocks.0"],
        ["encoder.blocks.1", "encoder.norm.bias", "encoder.norm.weight"],
        ["encoder.blocks.0"],
        ["encoder.embedding.weight"],
    ]
    tied = stages(gpt2(**SMALL))
    assert all(name.startswith(("decoder.blocks.1", "decoder.norm")) for name in tied[0])  # there is no head before it
    assert set(tied[-1]) == {"decoder.embedding.weight", "decoder.embedding.positions.weight"}
    assert [names[0].partition(".")[0] for names in stages(classifier())] == ["head", *["encoder"] * 3]


@pytest.mark.parametrize("make", [translator, classifier, lambda: t5(**SMALL), lambda: gpt2(**SMALL), adapted])
def test_every_parameter_that_learns_has_one_stage(make: Callable[[], nn.Module]) -> None:
    model = make()
    names = [name for stage in stages(model) for name in stage]
    assert sorted(names) == sorted(learning(model))


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_what_is_still_frozen_does_not_move(kind: Kind, tmp_path: Path) -> None:
    model = translator()
    choose(model, "unfreeze")
    expected = stages(model)
    wish = options(steps=2 * len(expected), optimiser=kind, weight_decay=0.5, warmup=1, schedule="constant")
    before, seen = [values(model)], []

    def tick(record: dict[str, Any]) -> None:
        after = values(model)
        seen.append(moved(before.pop(), after))
        before.append(after)

    Trainer(model, FakeBatches(), wish, tmp_path, translation_loss, tick=tick, unfreeze=2).run()
    for step, names in enumerate(seen):
        assert names == {name for stage in expected[: 1 + step // 2] for name in stage}


def test_a_parameter_that_thaws_late_begins_as_adam_begins() -> None:
    late, early = nn.Linear(3, 2, bias=False), nn.Linear(3, 2, bias=False)
    both = nn.ModuleDict({"late": late, "early": early})
    chosen = optimiser(both, options(optimiser="adamw", lr=0.1, weight_decay=0.5))
    start = late.weight.detach().clone()
    for step in range(5):
        early.weight.grad = torch.randn(2, 3)
        late.weight.grad = torch.full((2, 3), 7.0) if step == 4 else None
        chosen.prepare(torch.tensor(1.0), torch.tensor(False))(1.0)
        if step < 4:
            assert torch.equal(late.weight, start)
    torch.testing.assert_close(late.weight.detach(), start * (1 - 0.1 * 0.5) - 0.1)  # the first step is one rate long


def test_unfreezing_is_a_function_of_the_step() -> None:
    model = translator()
    choose(model, "unfreeze")
    slowly = Unfreezing(model, every=10)
    assert [slowly.trained_stages(step) for step in (1, 10, 11, 20, 21, 51, 60, 1000)] == [1, 1, 2, 2, 3, 6, 6, 6]
    with pytest.raises(ConfigurationError, match="unfreeze must be at least 1"):
        Unfreezing(model, every=0)


def test_an_adapter_learns_what_its_base_does_not_know(tmp_path: Path) -> None:
    model = adapt(translator(dropout=0.0), rank=4, targets=["*.part.*", "head"])
    choose(model, "lora")
    losses: list[float] = []
    wish = options(steps=150, lr=2e-2, log_every=10, save_every=1000, schedule="constant", smoothing=0.0)
    Trainer(
        model,
        FakeBatches(),
        wish,
        tmp_path,
        translation_loss,
        log=lambda record: losses.append(record["loss"]) if "loss" in record else None,
    ).run()
    assert losses[-1] < 0.75 * losses[0]
    batch = next(FakeBatches().for_rank(0, 1))
    inputs = batch.source, batch.target_in, batch.source_mask
    torch.testing.assert_close(merged(model)(*inputs), model(*inputs), atol=1e-4, rtol=1e-4)
