"""The cache: nothing is lost when it grows, and every beam of its tree reads its own past only."""

from unittest.mock import Mock

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from glassformer.parts import Cache, DecoderState, KeyValues, Mask, padding, window

from .helpers import SCHEMES, VOCABULARY, WIDTH, same, seeds, small_decoder


@given(seed=seeds, room=st.integers(1, 6), pieces=st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_a_cache_gives_back_all_that_was_written(seed: int, room: int, pieces: list[int]) -> None:
    torch.manual_seed(seed)
    keys, values = torch.randn(2, 3, sum(pieces), 4), torch.randn(2, 3, sum(pieces), 4)
    positions = torch.randint(0, 9, (2, sum(pieces)))
    cache, end = Cache(room), 0
    for piece in pieces:
        start, end = end, end + piece
        got = cache.append(keys[:, :, start:end], values[:, :, start:end], positions[:, start:end])
        for ours, expected in zip(got, (keys[:, :, :end], values[:, :, :end], positions[:, :end]), strict=True):
            assert torch.equal(ours, expected)
    assert cache.length == end


def test_one_position_serves_a_whole_step() -> None:
    cache = Cache()
    step = torch.zeros(2, 1, 3, 4)
    cache.append(step, step, torch.full((1, 1), 5))
    *_, positions = cache.append(step, step, torch.full((1, 1), 6))
    assert positions.tolist() == [[5, 5, 5, 6, 6, 6]] * 2


def test_room_is_set_aside_ahead_and_not_moved_while_it_lasts() -> None:
    cache, step = Cache(room=4), torch.randn(1, 1, 1, 2)
    places = [cache.append(step, step, torch.zeros(1, 1))[0].data_ptr() for _ in range(4)]
    assert len(set(places)) == 1


@pytest.mark.parametrize("room", [1, 64])
def test_a_cache_keeps_some_sentences_and_goes_on(room: int) -> None:
    cache = Cache(room)
    x, positions = torch.randn(3, 2, 5, 4), torch.arange(15).view(3, 5)
    chosen = torch.tensor([2, 0])
    cache.append(x[:, :, :3], -x[:, :, :3], positions[:, :3])
    cache.select(chosen)
    keys, values, places = cache.append(x[chosen][:, :, 3:], -x[chosen][:, :, 3:], positions[chosen][:, 3:])
    assert torch.equal(keys, x[chosen])
    assert torch.equal(values, -x[chosen])
    assert torch.equal(places, positions[chosen])


def test_selecting_from_an_empty_cache_does_nothing() -> None:
    cache, x = Cache(), torch.randn(1, 1, 2, 3)
    cache.select(torch.tensor([0]))
    assert torch.equal(cache.append(x, x, torch.arange(2)[None])[0], x)


def test_projected_sources_select_sentences() -> None:
    source = KeyValues(torch.randn(3, 1, 2, 2), torch.randn(3, 1, 2, 2))
    chosen = source.select(torch.tensor([1, 1]))
    assert torch.equal(chosen.keys, source.keys[[1, 1]])
    assert torch.equal(chosen.values, source.values[[1, 1]])


def test_the_ancestors_of_beams_are_a_tree() -> None:
    state = DecoderState([Cache()], [None])
    assert state.grow(torch.zeros(1, 1)).allowed is None  # one beam has nobody to be kept from
    state.select(torch.tensor([[0, 0]]))
    state.grow(torch.zeros(1, 2))
    state.select(torch.tensor([[1, 0, 1]]))
    mask = state.grow(torch.zeros(1, 3))
    assert mask.allowed is not None
    #   slots: the root, two children, three grandchildren
    assert mask.allowed[0, 0].int().tolist() == [[1, 0, 1, 1, 0, 0], [1, 1, 0, 0, 1, 0], [1, 0, 1, 0, 0, 1]]
    assert (state.position, state.slots) == (3, 6)


def branched(steps: int, watched: bool = False) -> DecoderState:
    """After some steps of two sentences with four beams, of which always the second is the parent of all."""
    decoder = small_decoder(cross=False)
    state = decoder.start()
    state.watcher = Mock() if watched else None
    state.select(torch.zeros(2, 4, dtype=torch.long))
    with torch.no_grad():
        for _ in range(steps):
            _, state = decoder.step(state, torch.randint(VOCABULARY, (2, 4)))
            state.select(torch.ones(2, 4, dtype=torch.long))
    return state


def test_slots_that_no_beam_descends_from_are_given_up() -> None:
    state = branched(16)  # four slots a step, of which one lives on: 64 are twice what is kept at first
    assert (state.slots, state.position) == (16, 16)
    assert state.ancestors is not None
    assert state.ancestors.all()
    assert all(cache.length == 16 for cache in state.caches)
    assert branched(15).slots == 60


def test_who_follows_the_beams_is_told_which_slots_are_kept() -> None:
    state = branched(16, watched=True)
    told = state.watcher.prune.call_args_list  # type: ignore[union-attr]
    assert [call.args[0].tolist() for call in told] == [[[1, 5, 9, *range(13, 64, 4)]] * 2]


def test_choosing_beams_moves_no_keys() -> None:
    decoder = small_decoder(cross=False)
    with torch.no_grad():
        _, state = decoder.step(decoder.start(), torch.tensor([[1]]))
        before = [cache._keys for cache in state.caches]
        state.select(torch.tensor([[0, 0, 0]]))
        _, state = decoder.step(state, torch.tensor([[1, 2, 3]]))
        state.select(torch.tensor([[2, 1, 2]]))
    assert all(cache._keys is keys for cache, keys in zip(state.caches, before, strict=True))


class Walk:
    """A decoder that is stepped through choices, beside the plain list of what each beam has read."""

    def __init__(self, scheme: str, cross: bool, sentences: int, beams: int, room: int, own: Mask | None) -> None:
        self.decoder = small_decoder(scheme, cross, mask=own)
        self.memory = torch.randn(sentences, 4, WIDTH) if cross else None
        self.keep = (torch.rand(sentences, 4) < 0.6) | (torch.arange(4) == 0)
        self.paths = [[[] for _ in range(beams)] for _ in range(sentences)]  # type: list[list[list[int]]]
        self.state = self.decoder.start(self.memory, padding(self.keep) if cross else None)
        for cache in self.state.caches:
            cache.room = room
        if beams > 1:
            self.state.select(torch.zeros(sentences, beams, dtype=torch.long))

    def step(self) -> Tensor:
        """One more random token for every beam; its vector, (B, k, D)."""
        tokens = torch.randint(VOCABULARY, (len(self.paths), len(self.paths[0])))
        for sentence, row in zip(self.paths, tokens.tolist(), strict=True):
            for path, token in zip(sentence, row, strict=True):
                path.append(token)
        x, self.state = self.decoder.step(self.state, tokens)
        return x

    def select(self, beams: list[list[int]], sentences: list[int] | None) -> None:
        """Go on with some beams of some sentences."""
        self.state.select(torch.tensor(beams), None if sentences is None else torch.tensor(sentences))
        if sentences is not None:
            self.paths = [self.paths[sentence] for sentence in sentences]
            self.memory = None if self.memory is None else self.memory[sentences]
            self.keep = self.keep[sentences]
        self.paths = [[list(old[b]) for b in row] for old, row in zip(self.paths, beams, strict=True)]

    def alone(self) -> Tensor:
        """The last vector of each beam's path, read all at once and with no other beam around, (B, k, D)."""
        vectors = [[self.read(index, path) for path in paths] for index, paths in enumerate(self.paths)]
        return torch.stack([torch.stack(row) for row in vectors])

    def read(self, sentence: int, path: list[int]) -> Tensor:
        """The last vector of one path."""
        mask: Mask | None = None
        memory = None
        if self.memory is not None:
            mask, memory = padding(self.keep[sentence : sentence + 1]), self.memory[sentence : sentence + 1]
        last: Tensor = self.decoder(torch.tensor([path]), memory, mask)[0, -1]
        return last


@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=st.data(), seed=seeds, cross=st.booleans(), room=st.sampled_from([1, 3, 64]))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@torch.no_grad()
def test_every_beam_reads_as_if_it_were_alone(
    monkeypatch: pytest.MonkeyPatch, scheme: str, data: st.DataObject, seed: int, cross: bool, room: int
) -> None:
    torch.manual_seed(seed)
    sentences, beams = data.draw(st.integers(1, 3), "sentences"), data.draw(st.integers(1, 3), "beams")
    own = data.draw(st.sampled_from([None, window(1), window(2), window(3)]), "the decoder's own mask")
    walk = Walk(scheme, cross, sentences, beams, room, own)
    monkeypatch.setattr("glassformer.parts.cache.FEW", data.draw(st.sampled_from([1, 2, 32]), "slots that all stay"))
    for _ in range(data.draw(st.integers(1, 5), "steps")):
        same(walk.step(), walk.alone(), 1e-5)
        kept = None
        if data.draw(st.booleans(), "drop or reorder sentences"):
            kept = data.draw(st.lists(st.integers(0, sentences - 1), min_size=1, max_size=sentences, unique=True))
            sentences = len(kept)
        new = data.draw(st.integers(1, 3), "beams to come")
        row = st.lists(st.integers(0, beams - 1), min_size=new, max_size=new)
        walk.select(data.draw(st.lists(row, min_size=sentences, max_size=sentences), "choices"), kept)
        beams = new
    same(walk.step(), walk.alone(), 1e-5)
