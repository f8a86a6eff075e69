"""Batches: every pair once, none above the budget, little padding, and an order that continues where it stopped."""

import json
import tempfile
from itertools import combinations, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glassformer.data import Batches, Rows, planning
from glassformer.errors import ConfigurationError, InputError
from glassformer.tasks.translation import PairBatch, PairCollator

from .helpers import BYTES, prepared, store

MULTI30K = Path(__file__).parents[3] / "shared" / "data" / "multi30k"
side = st.lists(st.integers(4, 259), min_size=1, max_size=12)
many = st.lists(st.tuples(side, side), min_size=1, max_size=60)
seeds = st.integers(-5, 2**31)


def stored(pairs: list[tuple[list[int], list[int]]]) -> Rows:
    with tempfile.TemporaryDirectory() as folder:  # what is mapped stays, though its name goes
        return store(Path(folder), pairs)


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 30, (400, 2))
    pairs = [(rng.integers(4, 260, a).tolist(), rng.integers(4, 260, b).tolist()) for a, b in sizes]
    return store(tmp_path_factory.mktemp("store"), pairs)


def batches(pairs: Rows, budget: int = 64, seed: int = 0, **more: Any) -> Batches[PairBatch]:
    return Batches(pairs, budget, PairCollator(pairs, BYTES.pad, BYTES), seed, **more)


def rows(found: list[PairBatch]) -> list[list[int]]:
    return [batch.rows.tolist() for batch in found]


@given(pairs=many, seed=seeds, wanted=st.integers(1, 200), each=st.integers(1, 3))
def test_tokens_are_counted_and_steps_for_them_known_ahead(
    pairs: list[tuple[list[int], list[int]]], seed: int, wanted: int, each: int
) -> None:
    made = batches(stored(pairs), 20, seed)
    steps, counted, done = made.steps_for(wanted, each), 0, list[int]()
    assert made.tokens == 0
    for batch in islice(made.for_rank(0, 1), steps * each):
        counted += sum(len(source) + len(target) for source, target in (pairs[row] for row in batch.rows.tolist()))
        assert made.tokens == counted
        done.append(counted)
    assert counted >= wanted
    assert steps == 1 or done[(steps - 1) * each - 1] < wanted
    other = batches(stored(pairs), 20, seed)
    other.load_state_dict(made.state_dict())
    assert other.tokens == counted


def test_steps_for_very_many_epochs_are_known_at_once_and_nearly(some: Rows) -> None:
    total, made = int(some.lengths.sum()), batches(some)
    hundred, thousands = (made.steps_for(epochs * total) for epochs in (100, 1_000_000))
    assert thousands == pytest.approx(hundred * 10_000, rel=1e-6)


@given(pairs=many, budget=st.integers(13, 100), seed=seeds, shuffle=st.booleans())
def test_an_epoch_has_every_pair_once_and_no_batch_above_the_budget(
    pairs: list[tuple[list[int], list[int]]], budget: int, seed: int, shuffle: bool
) -> None:
    each = batches(stored(pairs), budget, seed, shuffle=shuffle)
    expected = each.batches_per_epoch
    found = list(each)
    assert len(found) == expected
    assert sorted(row for batch in rows(found) for row in batch) == list(range(len(pairs)))
    for batch in found:
        assert len(batch.rows) * max(batch.source.shape[1], batch.target_in.shape[1]) <= budget
    assert (each.epoch, each.position) == (1, 0)


@given(pairs=many, seed=seeds)
def test_a_batch_holds_what_its_rows_say(pairs: list[tuple[list[int], list[int]]], seed: int) -> None:
    for batch in batches(stored(pairs), 40, seed):
        longest = [max(len(pairs[row][side]) for row in batch.rows.tolist()) for side in (0, 1)]
        assert batch.source.shape == (len(batch.rows), longest[0])
        assert batch.target_in.shape == batch.target_out.shape == (len(batch.rows), longest[1] + 1)
        for i, row in enumerate(batch.rows.tolist()):
            source, target = pairs[row]
            assert batch.source[i, : len(source)].tolist() == source
            assert batch.source_mask[i].tolist() == [place < len(source) for place in range(longest[0])]
            assert batch.target_in[i, : len(target) + 1].tolist() == [BYTES.start, *target]
            assert batch.target_out[i, : len(target) + 1].tolist() == [*target, BYTES.end]
            assert batch.target_mask[i].tolist() == [place <= len(target) for place in range(longest[1] + 1)]
        assert (batch.source[~batch.source_mask] == BYTES.pad).all()
        assert (batch.target_in[~batch.target_mask] == BYTES.pad).all()
        assert (batch.target_out[~batch.target_mask] == BYTES.pad).all()
        assert batch.source_tokens == int(batch.source_mask.sum())
        assert batch.targets == int(batch.target_mask.sum())
        masks = torch.cat((batch.source_mask.flatten(), batch.target_mask.flatten()))
        assert 1 - batch.tokens / batch.padded_tokens == pytest.approx(1 - masks.double().mean().item())
        assert batch.source.dtype == batch.target_in.dtype == batch.rows.dtype == torch.int64


@given(pairs=many, seed=seeds, stop=st.integers(0, 40))
def test_resuming_is_continuing(pairs: list[tuple[list[int], list[int]]], seed: int, stop: int) -> None:
    data = stored(pairs)

    straight = rows(list(islice(batches(data, 30, seed).for_rank(0, 1), stop + 20)))
    first = batches(data, 30, seed)
    before = rows(list(islice(first.for_rank(0, 1), stop)))
    state = json.loads(json.dumps(first.state_dict()))
    second = batches(data, 30, seed=99)
    second.load_state_dict(state)
    after = rows(list(islice(second.for_rank(0, 1), 20)))
    assert before + after == straight


@given(pairs=many, ranks=st.integers(1, 5), seed=seeds)
def test_ranks_take_the_batches_in_turn_across_epochs(
    pairs: list[tuple[list[int], list[int]]], ranks: int, seed: int
) -> None:
    data = stored(pairs)
    alone = rows(list(islice(batches(data, 40, seed).for_rank(0, 1), 12 * ranks)))
    everyone = [batches(data, 40, seed) for _ in range(ranks)]
    shares = [rows(list(islice(each.for_rank(rank, ranks), 12))) for rank, each in enumerate(everyone)]
    assert [batch for group in zip(*shares, strict=True) for batch in group] == alone
    assert len({(each.epoch, each.position) for each in everyone}) == 1


def test_a_rank_makes_no_batch_but_its_own(some: Rows) -> None:
    made: list[int] = []
    each = Batches(some, 64, lambda rows, _: made.append(len(rows)), seed=0)
    list(islice(each.for_rank(1, 4), 5))
    assert len(made) == 5


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1), (1, 4)])
def test_another_number_of_ranks_continues_with_the_next_batch(some: Rows, before: int, after: int) -> None:
    alone = rows(list(batches(some)))
    first, second = batches(some), batches(some)
    list(islice(first.for_rank(before - 1, before), 5))
    assert first.position == 5 * before
    second.load_state_dict(first.state_dict())
    assert rows(list(islice(second.for_rank(0, after), 3))) == [alone[5 * before + i * after] for i in range(3)]


def test_another_budget_continues_as_far_through_the_epoch(some: Rows) -> None:
    small, large = batches(some, 64), batches(some, 256)
    list(islice(small, 3 * small.batches_per_epoch // 4))
    large.load_state_dict(small.state_dict())
    assert large.epoch == 0
    assert large.position / large.batches_per_epoch == pytest.approx(0.75, abs=0.05)


def test_epochs_and_seeds_differ_and_repeat(some: Rows) -> None:
    each = batches(some)
    first, second = rows(list(each)), rows(list(each))
    assert first != second
    assert rows(list(batches(some))) == first
    assert rows(list(batches(some, seed=1))) != first
    still = batches(some, shuffle=False)
    assert rows(list(still)) == rows(list(still))


def test_batches_are_mixed_not_in_order_of_length(some: Rows) -> None:
    widths = [batch.source.shape[1] for batch in batches(some)]
    assert widths != sorted(widths)
    falls = sum(a > b for a, b in pairwise(widths))
    assert falls > len(widths) / 4


def test_small_pools_still_have_every_pair_once(some: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "POOL", 37)
    assert sorted(row for batch in rows(list(batches(some))) for row in batch) == list(range(400))


@given(
    lengths=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=9),
    budget=st.integers(9, 60),
)
def test_no_other_cuts_cost_less(lengths: list[tuple[int, int]], budget: int) -> None:
    table = np.array(lengths, np.int32)
    blocks = planning.cut(table.max(axis=1), int(table.max()))

    def cost(sizes: list[int]) -> float:
        batches = np.split(table, np.cumsum(sizes)[:-1])
        if any(len(batch) * batch.max() > budget for batch in batches):
            return float("inf")
        return float(sum(len(batch) * batch.max(axis=0).sum() + planning.STEP * budget for batch in batches))

    others = [
        [int(part.sum()) for part in np.split(blocks, list(cuts))]
        for count in range(len(blocks))
        for cuts in combinations(range(1, len(blocks)), count)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "LITTLE", -1.0)
        assert cost(planning.divide(table, budget).tolist()) == min(map(cost, others))


def test_where_little_is_padded_batches_are_full() -> None:
    lengths = np.repeat(np.arange(1, 11, dtype=np.int32), 1000)[:, None].repeat(2, axis=1)
    assert planning.divide(lengths, 100).tolist() == planning.cut(lengths[:, 0], 100).tolist()


def test_a_pair_that_fits_no_batch_is_refused(some: Rows) -> None:
    with pytest.raises(ConfigurationError, match="a pair of 30 tokens does not fit into a batch of 20"):
        list(batches(some, 20))


def test_what_cannot_be_is_refused(some: Rows, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no examples"):
        batches(store(tmp_path, []))


def test_a_batch_moves_whole(some: Rows) -> None:
    batch = next(iter(batches(some)))
    moved = batch.to("meta")
    tensors = [value for value in vars(moved).values() if isinstance(value, torch.Tensor)]
    assert len(tensors) == 6
    assert all(tensor.device.type == "meta" for tensor in tensors)
    assert moved.targets == batch.targets


@pytest.mark.skipif(not MULTI30K.is_dir(), reason="Multi30k is not beside this checkout, under ../shared/data")
def test_padding_is_under_five_percent_on_multi30k(tmp_path: Path) -> None:
    files = {split: [str(MULTI30K / f"{name}.{language}.gz") for language in ("en", "de")]
             for split, name in (("train", "train"), ("valid", "val"), ("test", "test_2016_flickr"))}  # fmt: skip
    made = prepared({"kind": "aligned", **files}, tmp_path, kind="bpe", tokenizer={"vocabulary": 8000})
    assert len(made.splits["test"]) == 1000
    pairs, (source, target) = made.splits["train"], made.assets.tokenizers
    for budget, most in ((4096, 0.03), (8192, 0.045)):
        each = Batches(pairs, budget, PairCollator(pairs, source.pad, target), seed=0)
        found = [(b.tokens, b.padded_tokens) for b in each]
        tokens, places = map(sum, zip(*found, strict=True))
        assert 1 - tokens / places < most
        assert len(found) < 1.1 * (pairs.lengths.max(axis=1) + 1).sum() / budget  # and batches are full enough
