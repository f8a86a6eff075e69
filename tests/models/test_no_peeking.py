"""What a model may see: its past and its own source, never the future, padding or a batch mate."""

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer.parts import Residual, pad

from .helpers import VOCABULARY, batches, placements, seeds, sentences, tiny


@settings(max_examples=50)
@given(placements, seeds, sentences, st.data())
def test_changing_a_target_token_changes_no_logit_before_it(
    placement: Residual, seed: int, source: list[int], data: st.DataObject
) -> None:
    torch.manual_seed(seed)
    model = tiny(placement)
    target = torch.randint(VOCABULARY, (1, data.draw(st.integers(2, 8))))
    place = data.draw(st.integers(0, target.shape[1] - 1))
    changed = target.clone()
    changed[0, place] = (changed[0, place] + data.draw(st.integers(1, VOCABULARY - 1))) % VOCABULARY
    with torch.no_grad():
        before, after = model(torch.tensor([source]), target), model(torch.tensor([source]), changed)
    assert torch.equal(before[:, :place], after[:, :place])
    assert not torch.allclose(before[:, place], after[:, place])  # the token itself is read


@settings(max_examples=50)
@given(placements, seeds, st.data())
def test_every_later_logit_depends_on_an_earlier_token(placement: Residual, seed: int, data: st.DataObject) -> None:
    torch.manual_seed(seed)
    model = tiny(placement)
    seen: list[Tensor] = []

    def keep(part: nn.Module, inputs: Any, x: Tensor) -> None:
        x.retain_grad()
        seen.append(x)

    hook = model.decoder.embedding.register_forward_hook(keep)
    place = data.draw(st.integers(0, 5))
    logits = model(torch.randint(VOCABULARY, (1, 4)), torch.randint(VOCABULARY, (1, 6)))
    hook.remove()
    logits[0, place].square().sum().backward()
    gradient = seen[-1].grad  # the decoder reads after the encoder, with the same table
    assert gradient is not None
    reached = gradient[0].abs().sum(dim=-1) > 0
    assert reached.tolist() == [position <= place for position in range(6)]


@settings(max_examples=50)
@given(placements, seeds, batches, st.integers(0, 4), st.integers(0, VOCABULARY - 1))
def test_padding_and_batch_mates_change_nothing(
    placement: Residual, seed: int, batch: list[list[int]], more: int, filler: int
) -> None:
    torch.manual_seed(seed)
    model = tiny(placement)
    source, mask = pad(batch, value=filler)
    source = torch.cat((source, torch.full((len(batch), more), filler)), dim=1)
    mask = torch.cat((mask, torch.zeros(len(batch), more, dtype=torch.bool)), dim=1)
    target = torch.randint(VOCABULARY, (len(batch), 5))
    with torch.no_grad():
        together = model(source, target, mask)
        for row, sentence in enumerate(batch):
            alone = model(torch.tensor([sentence]), target[row : row + 1])
            torch.testing.assert_close(together[row : row + 1], alone, atol=1e-6, rtol=1e-6)


@settings(max_examples=50)
@given(placements, seeds, batches, st.integers(0, VOCABULARY - 1))
def test_what_stands_in_padding_changes_nothing_at_all(
    placement: Residual, seed: int, batch: list[list[int]], filler: int
) -> None:
    torch.manual_seed(seed)
    model = tiny(placement)
    target = torch.randint(VOCABULARY, (len(batch), 3))
    with torch.no_grad():
        zeros, others = (model(*(pad(batch, value)[0], target, pad(batch)[1])) for value in (0, filler))
    assert torch.equal(zeros, others)


@settings(max_examples=50)
@given(placements, seeds, batches)
def test_padding_at_the_end_of_the_target_changes_nothing_before_it(
    placement: Residual, seed: int, batch: list[list[int]]
) -> None:
    torch.manual_seed(seed)
    model = tiny(placement)
    source = torch.randint(VOCABULARY, (len(batch), 4))
    with torch.no_grad():
        together = model(source, pad(batch)[0])
        for row, target in enumerate(batch):
            alone = model(source[row : row + 1], torch.tensor([target]))
            torch.testing.assert_close(together[row : row + 1, : len(target)], alone, atol=1e-6, rtol=1e-6)


@settings(max_examples=30)
@given(placements, seeds, st.permutations(range(4)))
def test_the_order_of_the_batch_changes_nothing(placement: Residual, seed: int, order: list[int]) -> None:
    torch.manual_seed(seed)
    model = tiny(placement)
    source, mask = pad([[1], [2, 3], [4, 5, 6], [7, 8]])
    target = torch.randint(VOCABULARY, (4, 3))
    with torch.no_grad():
        straight, shuffled = model(source, target, mask), model(source[order], target[order], mask[order])
    torch.testing.assert_close(straight[order], shuffled, atol=1e-6, rtol=1e-6)


@settings(max_examples=50)
@given(placements, seeds, batches)
def test_stepping_gives_the_logits_of_reading_all_at_once(
    placement: Residual, seed: int, batch: list[list[int]]
) -> None:
    """A causal mask that is inverted, or off by one, at inference fails here: each step must see all of its past."""
    torch.manual_seed(seed)
    model = tiny(placement)
    source, mask = pad(batch)
    target = torch.randint(VOCABULARY, (len(batch), 6))
    with torch.no_grad():
        at_once = model(source, target, mask)
        state = model.start(source, mask)
        for position in range(6):
            logits, state = model.step(state, target[:, position : position + 1])
            torch.testing.assert_close(logits[:, 0], at_once[:, position], atol=2e-6, rtol=1e-5)
