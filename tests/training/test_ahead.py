"""Batches made ahead are the same batches, and their place is that of those which were handed out."""

from itertools import islice
from typing import Any

import pytest

from glassformer.training.ahead import Ahead

from .helpers import FakeBatches


def taken(batches: Any, count: int) -> list[Any]:
    stream = batches.for_rank(0, 1)
    found = [batch.source for batch in islice(stream, count)]
    stream.close()
    return found


def test_the_same_batches_in_the_same_order() -> None:
    plain, ahead = taken(FakeBatches(), 7), taken(Ahead(FakeBatches(), lambda batch: batch), 7)
    assert all((one == other).all() for one, other in zip(plain, ahead, strict=True))


def test_the_place_is_that_of_what_was_handed_out() -> None:
    plain, inner = FakeBatches(), FakeBatches()
    ahead = Ahead(inner, lambda batch: batch)
    taken(plain, 3)
    taken(ahead, 3)
    assert ahead.state_dict() == plain.state_dict()
    assert (ahead.epoch, ahead.tokens) == (plain.epoch, plain.tokens)
    again = Ahead(FakeBatches(), lambda batch: batch)
    again.load_state_dict(ahead.state_dict())
    for one, other in zip(taken(again, 3), taken(plain, 3), strict=True):
        assert (one == other).all()


def test_what_goes_wrong_is_raised_where_a_batch_was_expected() -> None:
    def refuse(batch: Any) -> Any:
        raise ValueError("no such batch")

    with pytest.raises(ValueError, match="no such batch"):
        taken(Ahead(FakeBatches(), refuse), 1)
