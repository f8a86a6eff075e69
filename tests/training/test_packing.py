"""Sentences packed into rows: the same losses and gradients as with padding, in one shape, with hardly any padding."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import glassformer as gf
from glassformer.data import Batches
from glassformer.data.planning import Grid, Stream, fill, make_plan, stream_for, written
from glassformer.errors import ConfigurationError, TrainingError
from glassformer.models import bart, gpt2, marian, recurrent, t5
from glassformer.parts import adapt
from glassformer.parts.blocks import EncoderBlock
from glassformer.parts.positions import Rotary
from glassformer.parts.schemes import alibi, learned, rotary
from glassformer.recipe import Train
from glassformer.tasks.losses import IGNORED
from glassformer.tasks.objective import Objective
from glassformer.tasks.translation import PackedPairs, PairBatch, translation_loss
from glassformer.tasks.translation.pairs import hidden
from glassformer.training import shaping
from glassformer.training.distribution import Distribution
from glassformer.training.shaping import packable, shape_for
from glassformer.training.stepping import CapturedSteps, Counted, Setting, Steps, shape_of
from training.test_stepping import batch_of, setting_of

GPU = Distribution(torch.device("cuda"))
STREAM = Stream((48, 56), sentences=9, longest=9, usual=6)
BUILD: dict[str, Callable[[], Any]] = {
    "sinusoids": lambda: gf.transformer(30, width=16, heads=2, layers=2, hidden=32, dropout=0.0),
    "rotary": lambda: gf.transformer(30, 16, 2, 1, 32, dropout=0.0, positions=rotary),
    "learned": lambda: gf.transformer(30, 16, 2, 1, 32, dropout=0.0, positions=learned, length=12),
    "bart": lambda: bart(30, 16, 2, 1, 32, dropout=0.0, attention_dropout=0.0, length=12),
}


def lengths_of(seed: int, pairs: int, longest: int = 40) -> Any:
    rng = np.random.default_rng(seed)
    source = 1 + rng.binomial(longest - 1, rng.beta(2, 5, pairs))
    return SimpleNamespace(lengths=np.stack((source, np.clip(source + rng.integers(-3, 5, pairs), 1, longest)), 1))


def packed_of(batch: PairBatch, stream: Stream = STREAM) -> PackedPairs:
    found = batch.fitted(stream)
    assert isinstance(found, PackedPairs)
    return found


@pytest.mark.parametrize("family", BUILD)
@pytest.mark.parametrize("consistency", [0.0, 2.0])
def test_packed_pairs_have_the_losses_and_gradients_of_padded_ones(family: str, consistency: float) -> None:
    torch.manual_seed(0)
    model = BUILD[family]()
    for seed in range(4):
        objective, found = Objective(model, translation_loss, 0.1, consistency), []
        for batch in (batch_of(seed), packed_of(batch_of(seed))):
            model.zero_grad()
            loss = objective(batch)
            loss.backward()
            found.append((loss.detach(), [part.grad.clone() for part in model.parameters() if part.grad is not None]))
        torch.testing.assert_close(found[1], found[0], rtol=2e-4, atol=2e-5)


def test_a_sentence_knows_nothing_of_those_beside_it() -> None:
    torch.manual_seed(0)
    model, batch = BUILD["sinusoids"](), packed_of(batch_of(1))
    first = int(batch.target_starts[1])
    before = hidden(Objective(model, translation_loss), batch)
    begin = int(batch.source_starts[1])
    batch.source[:, begin:] = torch.randint(3, 30, batch.source[:, begin:].shape)
    batch.target_in[:, first:] = torch.randint(3, 30, batch.target_in[:, first:].shape)
    again = hidden(Objective(model, translation_loss), batch)
    torch.testing.assert_close(again[:, :first], before[:, :first])
    assert not torch.allclose(again[:, first:], before[:, first:])


def test_a_row_is_filled_up_with_sentences_that_do_not_count() -> None:
    batch = batch_of(2)
    form = packed_of(batch)
    for starts, tokens in ((form.source_starts, 48), (form.target_starts, 56)):
        assert len(starts) == STREAM.slots + 1
        assert (int(starts[0]), int(starts[-1])) == (0, tokens)
        assert 0 <= int(starts.diff().min()) <= int(starts.diff().max()) <= STREAM.longest
    assert int((form.target_out != IGNORED).sum()) == batch.targets
    assert form.source[0, : batch.source_tokens].tolist() == batch.source[batch.source_mask].tolist()
    assert shape_of(form) == shape_of(packed_of(batch_of(5)))


@given(st.integers(0, 10**6), st.integers(1, 3000), st.sampled_from([64, 300, 1000, 4096]))
@settings(deadline=None, max_examples=60)
def test_an_epoch_takes_every_pair_once_and_all_batches_fit(seed: int, pairs: int, budget: int) -> None:
    known = lengths_of(seed, pairs)
    stream = stream_for(known, budget)
    assert max(stream.tokens) <= budget
    plan = make_plan(known, budget, seed, 0, True, stream)
    assert sorted(plan.order.tolist()) == [*range(pairs)]
    assert plan.order.tolist() == make_plan(known, budget, seed, 0, True, stream).order.tolist()
    for number in range(len(plan)):
        rows = written(known.lengths)[plan.rows(number)]
        assert 0 < len(rows) <= stream.sentences
        assert (rows.sum(axis=0) <= stream.tokens).all()
        assert rows.max() <= stream.longest


@pytest.mark.parametrize(("pairs", "budget", "padding"), [(30_000, 4096, 0.03), (200_000, 32_768, 0.015)])
def test_hardly_anything_is_padding(pairs: int, budget: int, padding: float) -> None:
    known = lengths_of(0, pairs)
    stream = stream_for(known, budget)
    plan = make_plan(known, budget, 0, 0, True, stream)
    real = written(known.lengths).sum() / (len(plan) * sum(stream.tokens))
    assert 1 - real < padding
    sorted_into = make_plan(known, budget, 0, 0, True, Grid(budget, 4))
    assert len(plan) < len(sorted_into)


@pytest.mark.parametrize(("pairs", "budget"), [(700, 8192), (300, 1024), (2000, 4096), (900, 2048), (1200, 2048)])
def test_a_small_corpus_is_divided_evenly(pairs: int, budget: int) -> None:
    known = lengths_of(0, pairs)
    stream = stream_for(known, budget)
    sizes = fill(written(known.lengths), stream)
    real = int(written(known.lengths).sum())
    assert len(sizes) <= real / 2 / budget + 2
    assert min(sizes) > 0.7 * max(sizes)
    assert 1 - real / (len(sizes) * sum(stream.tokens)) < 0.13


def test_a_pair_that_is_larger_than_a_batch_is_refused() -> None:
    known = SimpleNamespace(lengths=np.array([[3, 4], [70, 2]], np.int32))
    with pytest.raises(ConfigurationError, match="a pair of 70 tokens does not fit into a batch of 64"):
        stream_for(known, 64)
    other = Stream((64, 64), sentences=9, longest=9, usual=6)  # of other pairs
    with pytest.raises(ConfigurationError, match="a pair of 70 tokens does not fit into a batch of 64"):
        make_plan(known, 128, 0, 0, True, other)


def test_a_batch_that_is_larger_than_planned_is_refused() -> None:
    with pytest.raises(TrainingError, match="tokens was planned to have 8 at most"):
        packed_of(batch_of(0), Stream((8, 8), sentences=9, longest=9, usual=6))


def test_which_models_and_corpora_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shaping, "TRITON", True)
    monkeypatch.setattr(shaping, "in_16_bits", lambda precision, _: precision == "bf16")
    options, short = Train(precision="bf16"), lengths_of(0, 50)
    sizes: dict[str, Any] = {"width": 16, "heads": 2, "layers": 1, "hidden": 32}
    assert all(packable(True, build()) for build in BUILD.values())
    assert packable(True, marian(30, **sizes))
    assert isinstance(shape_for(options, GPU, marian(30, **sizes), short, packs=True), Stream)
    for other in (
        t5(30, **sizes),
        gf.transformer(30, **sizes, positions=alibi),
        gf.transformer(30, **sizes, key_value_heads=1),
        gf.transformer(30, **sizes, attention_dropout=0.1),
        gpt2(30, **sizes, length=12),
    ):
        assert not packable(True, other)
        assert isinstance(shape_for(options, GPU, other, short, packs=True), Grid)
    assert isinstance(shape_for(options, GPU, BUILD["bart"](), short, packs=False), Grid)
    assert not packable(False, BUILD["bart"]())
    assert not packable(True, recurrent(30, width=16, dropout=0.0))
    for longest in (900, 20):  # tokens; more than the kernels or the table of positions take
        assert isinstance(shape_for(options, GPU, BUILD["bart"](), lengths_of(0, 50, longest), packs=True), Grid)
    assert shape_for(Train(compile=False), GPU, BUILD["bart"](), short, packs=True) is None


def test_parts_that_could_mix_sentences_are_not_packed() -> None:
    across = BUILD["rotary"]()
    across.decoder.blocks[0].cross_attention.part.positions = Rotary(8)
    assert not packable(True, across)  # it would count the source's positions along the row

    class Mixing(EncoderBlock):
        """A block of another package."""

    mixing = BUILD["sinusoids"]()
    mixing.encoder.blocks[0].__class__ = Mixing
    assert not packable(True, mixing)
    assert packable(True, adapt(BUILD["sinusoids"](), rank=2))


class Written:
    """A graph that writes gradients where they were when it was first replayed, as one on a GPU does."""

    def __init__(self, work: Callable[[], None], parameters: list[nn.Parameter]) -> None:
        self.work, self.parameters = work, parameters
        self.kept: list[Any] | None = None

    def replay(self) -> None:
        if self.kept is None:
            self.work()
            self.kept = [parameter.grad for parameter in self.parameters]
            return
        for parameter in self.parameters:
            parameter.grad = None
        self.work()
        for parameter, own in zip(self.parameters, self.kept, strict=True):
            if own is not None and parameter.grad is not None:
                parameter.grad = own.copy_(parameter.grad)


def replayed(setting: Setting, lone: bool, graphs: list[Any] | None = None) -> CapturedSteps:
    """Steps whose graphs are their own work."""

    def capture(work: Callable[[], None], pool: object) -> Any:
        passes = getattr(work, "__name__", "") != "_finish"
        made = Written(work, setting.parameters) if lone and passes else SimpleNamespace(replay=work)
        if graphs is not None:
            graphs.append(made)
        return made

    return CapturedSteps(setting, capture, lone)


def test_a_step_that_is_not_finite_changes_nothing_where_gradients_are_written() -> None:
    torch.manual_seed(0)
    model = BUILD["sinusoids"]()
    steps = replayed(setting_of(model), lone=True)
    for step in range(6):
        before = [weight.clone() for weight in model.parameters()]
        steps.add(packed_of(batch_of(step)), True)
        if step in (1, 3, 4):  # the one that is captured, and two that are replayed
            model.get_parameter("encoder.norm.weight").grad.fill_(torch.inf)
        steps.prepare(10)(1.0)
        same = all(torch.equal(weight, old) for weight, old in zip(model.parameters(), before, strict=True))
        assert same == (step in (1, 3, 4))
    found = steps.setting.meter.read()
    assert (found.skipped, found.in_a_row, found.worst) == (3, 0, 2)


def test_steps_of_one_batch_each_write_gradients_and_add_nothing() -> None:
    torch.manual_seed(0)
    model, graphs = BUILD["sinusoids"](), list[Any]()
    other = copy.deepcopy(model)
    one, two = Steps(setting_of(model, clip=0.5)), replayed(setting_of(other, clip=0.5), True, graphs)
    for step in range(6):
        plain, form = Counted.of(batch_of(step)), Counted.of(batch_of(step), STREAM)
        assert (plain.targets, plain.tokens) == (form.targets, form.tokens)
        assert form.padded_tokens == sum(STREAM.tokens)
        one.begin()
        one.add(plain.form, True)
        two.add(form.form, True)
        for steps in (one, two):
            steps.prepare(plain.targets)(1 / (step + 1))
    assert len(graphs) == 2  # one shape, and the update
    for name, weight in model.named_parameters():
        if not name.endswith("key.bias"):  # whose gradient is nothing but rounding
            torch.testing.assert_close(other.get_parameter(name), weight, atol=2e-5, rtol=1e-4, msg=name)


def test_batches_of_a_stream_continue_where_they_were() -> None:
    known = lengths_of(3, 400)
    stream = stream_for(known, 512)

    def collate(rows: Any, rng: Any) -> list[int]:
        return [int(row) for row in rows]

    whole = Batches(known, 512, collate, seed=1, shape=stream).for_rank(0, 1)
    taken = [next(whole) for _ in range(30)]
    first = Batches(known, 512, collate, seed=1, shape=stream)
    begun = first.for_rank(0, 1)
    assert [next(begun) for _ in range(11)] == taken[:11]
    rest = Batches(known, 512, collate, seed=1, shape=stream)
    rest.load_state_dict(first.state_dict())
    going_on = rest.for_rank(0, 1)
    assert [next(going_on) for _ in range(19)] == taken[11:]
