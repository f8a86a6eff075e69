"""Interventions: what is written back changes no bit, and what is changed changes what follows, as the formulas say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import glassformer as gf
from glassformer.decoding import Limits, beam_search, greedy
from glassformer.errors import InputError
from glassformer.models import transformer
from glassformer.parts import adapt, pack, quantise

from .families import FAMILIES, KEEP, SOURCE, SPEAKERS, TARGET, WRITERS, same, translator

LIMITS = Limits(1, 2, max_length=6, min_length=5)


def recorded(name: str) -> tuple[Any, Any, gf.Trace]:
    """A model of a family, what it gives, and a trace of that."""
    case = FAMILIES[name]
    model = case.model()
    with torch.no_grad(), gf.record(model) as trace:
        return model, model(*case.inputs), trace


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_writing_back_what_was_there_changes_no_bit(name: str) -> None:
    """For every family and every point: by a copy, from a trace, and for some heads and positions."""
    model, before, trace = recorded(name)
    inputs = FAMILIES[name].inputs
    passed: list[str] = []
    with gf.intervene(model) as edit:
        for point in gf.points(model):

            def copy(x: Tensor, point: str = point) -> Tensor:
                passed.append(point)
                return x.clone()

            axes = trace.kept.axes_of(point)
            some: dict[str, Any] = {"heads": [0]} if "head" in axes else {}
            some |= {"positions": [1, 2]} if "token" in axes else {}
            edit.clear()
            edit.apply(point, copy)
            assert torch.equal(model(*inputs), before), point
            edit.clear()
            edit.patch(point, trace)
            assert torch.equal(model(*inputs), before), point
            edit.clear()
            edit.patch(point, trace, **some)
            edit.apply(point, copy, **some)
            assert torch.equal(model(*inputs), before), point
    assert {*passed} == {*gf.points(model)}  # so each was really in the way
    assert torch.equal(model(*inputs), before)


DEAD = {  # the last state says all
    (name, "encoder.output") for name in ("lstm-classes", "lstm-blind", "series_recurrent")
}


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_a_change_at_every_point_changes_the_output(name: str) -> None:
    model, before, _ = recorded(name)
    inputs = FAMILIES[name].inputs
    with gf.intervene(model) as edit:
        for point in gf.points(model):

            def change(x: Tensor, point: str = point) -> Tensor:
                if not x.is_floating_point():
                    return (x + 1) % 23
                if point.endswith(("keys", "scores")):  # the same number for all would not change a softmax
                    return x * torch.linspace(0.5, 3, x.shape[-1])
                return x * 0.5 + 0.3

            edit.apply(point, change)
            assert torch.equal(model(*inputs), before) == ((name, point) in DEAD), point
            edit.clear()
        assert torch.equal(model(*inputs), before)
    assert torch.equal(model(*inputs), before)


@pytest.mark.parametrize("name", [*WRITERS, *SPEAKERS])
@torch.no_grad()
def test_writing_back_while_decoding_changes_no_bit(name: str) -> None:
    case = FAMILIES[name]
    model = case.model()
    inputs = (case.inputs[0], *case.inputs[2:]) if name in WRITERS else (SOURCE[:, :3],)
    limits = LIMITS if name in WRITERS else Limits(None, 2, max_length=4)
    before = beam_search(model, *inputs, limits=limits, width=3, best=3)
    points = gf.points(model)
    with gf.intervene(model) as edit:
        for point in points:
            edit.apply(point, torch.clone)
        assert beam_search(model, *inputs, limits=limits, width=3, best=3) == before
    for point in points[::3]:
        with gf.intervene(model) as edit:
            edit.apply(point, torch.clone)
            assert beam_search(model, *inputs, limits=limits, width=3, best=3) == before


@pytest.mark.parametrize("make", [lambda model: quantise(model, least=1), pack, adapt])
@torch.no_grad()
def test_quantised_packed_and_adapted_models_too(make: Any) -> None:
    torch.manual_seed(0)
    model = make(transformer(4096, 256, 2, 1, 64, dropout=0.0).eval())
    before = model(SOURCE, TARGET, KEEP)
    with gf.intervene(model) as edit:
        for point in gf.points(model):
            edit.apply(point, torch.clone)
        assert torch.equal(model(SOURCE, TARGET, KEEP), before)
        edit.zero("decoder.0.cross.heads", heads=1)
        assert not torch.equal(model(SOURCE, TARGET, KEEP), before)


# --- each kind of change


@torch.no_grad()
def test_a_head_without_output_is_a_head_whose_matrix_is_zero() -> None:
    model, other = translator(), translator()
    part = other.decoder.blocks[1].cross_attention.part
    part.output.weight[:, 4:8] = 0
    with gf.intervene(model) as edit:
        edit.zero("decoder.1.cross.heads", heads=1)
        same(model(SOURCE, TARGET, KEEP), other(SOURCE, TARGET, KEEP))
        edit.clear()
        edit.zero("decoder.1.cross", heads=1)  # nothing is attended to
        same(model(SOURCE, TARGET, KEEP), other(SOURCE, TARGET, KEEP))


@torch.no_grad()
def test_other_heads_positions_and_sentences_keep_their_bits() -> None:
    model = translator()
    with gf.record(model) as before:
        model(SOURCE, TARGET, KEEP)
    with gf.intervene(model) as edit, gf.record(model) as after:
        edit.zero("encoder.0.self", heads=2, positions=1)
        model(SOURCE, TARGET, KEEP)
    ours, expected = after["encoder.0.self.heads"], before["encoder.0.self.heads"]
    same(ours[:, 2, 1], torch.zeros(2, 4))
    changed = torch.zeros_like(ours, dtype=torch.bool)
    changed[:, 2, 1] = True
    assert torch.equal(ours[~changed], expected[~changed])
    assert torch.equal(after["encoder.0.after"][:, 0], before["encoder.0.after"][:, 0])


@torch.no_grad()
def test_a_mean_is_that_of_all_tokens_of_the_text_or_of_a_trace() -> None:
    model = translator()
    with gf.record(model) as trace:
        model(SOURCE[:1], TARGET[:1])
    with gf.intervene(model) as edit, gf.record(model) as changed:
        edit.mean("encoder.0.ff.hidden")
        edit.mean("encoder.1.ff.hidden", trace)
        model(SOURCE[:1], TARGET[:1])
    expected = trace["encoder.0.ff.hidden"].mean(1, keepdim=True).expand(-1, 5, -1)
    same(changed["encoder.0.ff.hidden"], expected)
    same(changed["encoder.1.ff.hidden"], trace["encoder.1.ff.hidden"].mean(1, keepdim=True).expand(-1, 5, -1))


@pytest.mark.parametrize("point", ["decoder.0.self.weights", "decoder.0.self.scores"])
@torch.no_grad()
def test_the_mean_of_attention_is_even_over_what_may_be_seen(point: str) -> None:
    with gf.intervene(model := translator()) as edit, gf.record(model) as trace:
        edit.mean(point)
        model(SOURCE, TARGET, KEEP)
    even = torch.ones(4, 4).tril() / torch.arange(1, 5)[:, None]
    same(trace["decoder.0.self"], even.expand(2, 4, -1, -1))


@torch.no_grad()
def test_a_mean_while_decoding_needs_a_trace() -> None:
    model = translator()
    with gf.record(model) as trace:
        model(SOURCE, TARGET, KEEP)
    sentence = r"^decoder.0.after passes token by token here, so its mean is not known yet: take it from a trace, "
    with gf.intervene(model) as edit:
        edit.mean("decoder.0.after", trace)
        greedy(model, SOURCE, KEEP, limits=LIMITS)
        edit.clear()
        edit.mean("decoder.0.after")
        with pytest.raises(InputError, match=sentence):
            greedy(model, SOURCE, KEEP, limits=LIMITS)


@torch.no_grad()
def test_values_are_set_by_number_by_row_and_by_position() -> None:
    model, row = translator(), torch.arange(16.0)
    with gf.intervene(model) as edit, gf.record(model) as trace:
        edit.set("encoder.0.after", 2.0, positions=0)
        edit.set("encoder.0.after", row, positions=[1, 3])
        edit.set("encoder.1.after", row * torch.ones(1, 5, 1))
        model(SOURCE, TARGET, KEEP)
    x = trace["encoder.0.after"]
    assert (x[:, 0] == 2).all()
    assert (x[:, [1, 3]] == row).all()
    assert not (x[:, 2] == row).any(dim=-1).all()
    assert (trace["encoder.1.after"] == row).all()


@pytest.mark.parametrize("name", ["transformer", "lstm", "gru-next", "gpt2"])
@torch.no_grad()
def test_a_patch_of_everything_at_one_depth_gives_the_other_output(name: str) -> None:
    """All that the output depends on comes from the other text, so the output is that of the other text."""
    case = FAMILIES[name]
    model = case.model()
    other = (case.inputs[0].flip(0), *case.inputs[1:])
    last = "decoder.1.state" if name in ("lstm", "gru-next") else "decoder.1.after"
    if name == "lstm":  # it looks at the source once more
        last = "decoder.output"
    with gf.record(model) as trace:
        clean = model(*case.inputs)
    with gf.intervene(model) as edit:
        edit.patch(last, trace)
        same(model(*other), clean)


@torch.no_grad()
def test_a_patch_at_a_position_goes_on_from_there() -> None:
    """In a decoder, what stands before the patched position does not change."""
    model = FAMILIES["gpt2"].model()
    with gf.record(model) as trace:
        model(SOURCE)
    other = SOURCE.flip(1)
    before = model(other)
    with gf.intervene(model) as edit:
        edit.patch("decoder.0.after", trace, positions=2)
        after = model(other)
    assert torch.equal(after[:, :2], before[:, :2])
    assert all(not torch.equal(after[:, t], before[:, t]) for t in (2, 3, 4))


def test_a_word_that_the_source_does_not_have_is_refused_while_decoding() -> None:
    model = translator()
    limits = gf.Limits(start=1, end=2, max_length=4)
    with gf.intervene(model) as edit:
        edit.attend("decoder.0.cross", key=9)
        with pytest.raises(InputError, match="has no key 9: it has 5"):
            gf.greedy(model, SOURCE, KEEP, limits=limits)


@pytest.mark.parametrize("cached", [False, True])
@torch.no_grad()
def test_attention_is_set_by_hand(cached: bool) -> None:
    model = translator()
    with gf.intervene(model) as edit, gf.record(model) as trace:
        edit.attend("decoder.1.cross", query=2, key=[0, 4], heads=[1, 3])
        edit.attend("decoder.0.cross", key=1, weight=0.25)
        if cached:
            state = model.start(SOURCE, KEEP)
            for t in range(4):
                _, state = model.step(state, TARGET[:, t : t + 1])
        else:
            model(SOURCE, TARGET, KEEP)
    with gf.record(model) as before:
        model(SOURCE, TARGET, KEEP)
    weights = trace["decoder.1.cross"]
    same(weights[:, [1, 3], 2], torch.tensor([0.5, 0, 0, 0, 0.5]).expand(2, 2, 5))
    same(weights.sum(-1), torch.ones(2, 4, 4))
    wanted = 0.75 * before["decoder.0.cross"]
    wanted[..., 1] += 0.25
    same(trace["decoder.0.cross"], wanted)
    heads = trace["decoder.1.cross.heads"][:, 1, 2]
    same(heads, trace["decoder.1.cross.values"][:, 1, [0, 4]].mean(dim=1))


@pytest.mark.parametrize("name", ["transformer", "t5", "lstm"])
@pytest.mark.parametrize("width", [1, 3])
@torch.no_grad()
def test_changes_while_decoding_are_those_of_the_pass_at_once(name: str, width: int) -> None:
    """With caches and beams: the output that a changed model chooses has the probability that it has at once."""
    model = translator(4, name)
    layer = "decoder.cross" if name == "lstm" else "decoder.0.cross"
    state = "decoder.0.state" if name == "lstm" else "decoder.0.self.after"
    with gf.intervene(model) as edit:
        edit.attend(layer, query=[1, 2], key=2)
        edit.apply(state, lambda x: -x, positions=[0, 3])
        if name != "lstm":
            edit.attend("decoder.1.self", query=3, key=1, weight=0.5)
            edit.zero("decoder.1.self.values", heads=0, positions=1)
        for sentence in range(2):
            source = SOURCE[sentence : sentence + 1, : KEEP[sentence].sum()]
            ((best, *_),) = beam_search(model, source, limits=LIMITS, width=width)
            written = [*best.tokens, 2] if best.finished else best.tokens
            logits = model(source, torch.tensor([[1, *written[:-1]]]))
            own = logits[0].log_softmax(-1).gather(1, torch.tensor(written)[:, None])[:, 0]
            assert best.log_probabilities == pytest.approx(own.tolist(), abs=1e-4)
    assert beam_search(model, source, limits=LIMITS, width=width)[0][0].log_probabilities != best.log_probabilities


@torch.no_grad()
def test_patches_while_decoding_go_to_their_sentence_and_step() -> None:
    model = translator(2)
    with gf.record(model) as trace:
        model(SOURCE, TARGET, KEEP)
    with gf.intervene(model) as edit, gf.record(model) as stepped:
        edit.patch(["decoder.0.after", "decoder.1.cross", "decoder.1.self"], trace)
        state = model.start(SOURCE, KEEP)
        _, state = model.step(state, TARGET[:, :1])
        state.select(torch.tensor([[0, 0]]), torch.tensor([1]))  # the first sentence leaves, the other has two beams
        _, state = model.step(state, torch.tensor([[5, 6]]))
        model.step(state, torch.tensor([[5, 6]]))
    for point in ("decoder.0.after", "decoder.1.cross", "decoder.1.self"):
        ours, expected = stepped[point][1], trace[point][1]
        dim = 0 if point.endswith("after") else 1
        expected = expected.narrow(dim, 0, 3)
        assert torch.equal(ours, expected[..., :3] if point.endswith("self") else expected)


@pytest.mark.parametrize(
    ("point", "shape"),
    [
        ("encoder.0.after", (3, 5, 16)),
        ("decoder.0.self.weights", (2, 4, 4, 7)),
        ("decoder.0.cross.weights", (2, 4, 4, 4)),
    ],
)
@torch.no_grad()
def test_a_value_of_other_sentences_or_keys_does_not_fit(point: str, shape: tuple[int, ...]) -> None:
    model = translator()
    with gf.intervene(model) as edit:
        edit.set(point, torch.ones(shape))
        with pytest.raises(InputError, match=rf"^a value \({shape[0]}, {shape[1]}, .*\) does not fit {point}, where "):
            model(SOURCE, TARGET, KEEP)


@torch.no_grad()
def test_a_patch_of_another_source_does_not_fit_a_decoding() -> None:
    model = translator()
    with gf.record(model) as trace:
        model(SOURCE[:1, :3], TARGET[:1])
    with gf.intervene(model) as edit:
        edit.patch("decoder.0.cross", trace)
        with pytest.raises(InputError, match=r"^a value \(1, 4, 4, 3\) does not fit decoder.0.cross.weights, where "):
            greedy(model, SOURCE[:1], limits=LIMITS)


@torch.no_grad()
def test_a_decoding_may_be_longer_than_the_patch() -> None:
    model = translator()
    with gf.record(model) as trace:
        model(SOURCE, TARGET[:, :2], KEEP)
    with gf.intervene(model) as edit:
        edit.patch("decoder.0.after", trace)
        greedy(model, SOURCE, KEEP, limits=LIMITS)


def test_gradients_flow_through_what_is_set() -> None:
    """Enough for attributions: the embedding is a leaf of the graph."""
    model = FAMILIES["gpt2"].model()
    with torch.no_grad(), gf.record(model) as trace:
        expected = model(SOURCE)
    leaf = trace["decoder.embedding"].clone().requires_grad_()
    with gf.intervene(model) as edit:
        edit.set("decoder.embedding", leaf)
        logits = model(SOURCE)
    assert torch.equal(logits, expected)
    (slope,) = torch.autograd.grad(logits[0, 2].sum(), leaf)
    assert slope[0, :3].abs().sum(-1).min() > 0
    assert (slope[0, 3:] == 0).all()


@torch.no_grad()
def test_a_run_of_changes_is_made_in_order_and_seen_by_a_recording() -> None:
    model = translator()
    with gf.record(model) as trace, gf.intervene(model) as edit:
        edit.set("encoder.0.after", 1.0)
        edit.apply("encoder.0.after", lambda x: x + 1)
        model(SOURCE, TARGET, KEEP)
    assert (trace["encoder.0.after"] == 2).all()


# --- bad input


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda e: e.zero("encoder.0.self.head"), r'there is no point "encoder.0.self.head": did you mean encoder.0'),
        (lambda e: e.zero("encoder.0.self", heads=4), r"there is no head 4: there are 4 heads, 0 to 3"),
        (lambda e: e.zero("encoder.0.after", heads=1), r"encoder.0.after has no heads: leave heads out"),
        (lambda e: e.zero("encoder.0.after", positions=-1), r"a position is a number from 0, not -1"),
        (lambda e: e.zero("encoder.0.after", positions=5), r"there is no position 5 at encoder.0.after: it has 5"),
        (
            lambda e: e.set("encoder.0.after", torch.ones(7)),
            r"a value \(7,\) does not fit encoder.0.after, where \(2, 5,",
        ),
        (
            lambda e: e.set("encoder.0.after", torch.ones(1, 4, 16)),
            r"a value \(1, 4, 16\) does not fit encoder.0.after",
        ),
        (
            lambda e: e.set("encoder.0.after", torch.ones(3, 5, 16)[:1].expand(1, 5, 16)[..., :3]),
            r"a value \(1, 5, 3\)",
        ),
        (
            lambda e: e.apply("encoder.0.after", lambda x: x[:1]),
            r"the function for encoder.0.after gave \(1, 5, 16\): ",
        ),
        (lambda e: e.apply("encoder.0.after", lambda x: None), r"the function for encoder.0.after gave a NoneType: "),
        (lambda e: e.attend("encoder.0.after", key=1), r'"encoder.0.after" is no attention: name one, such as decoder'),
        (lambda e: e.attend("decoder.0.cross", key=9), r"decoder.0.cross.weights has no key 9: it has 5"),
        (
            lambda e: e.attend("decoder.0.cross", key=1, weight=0),
            r"the weight of attention must be above 0 and at most",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(change: Any, sentence: str) -> None:
    model = translator()

    def attempt() -> None:
        with gf.intervene(model) as edit:
            change(edit)
            model(SOURCE, TARGET, KEEP)

    with pytest.raises(InputError, match=f"^{sentence}"):
        attempt()
    assert torch.equal(model(SOURCE, TARGET, KEEP), translator()(SOURCE, TARGET, KEEP))


def test_positions_of_a_whole_text_are_refused() -> None:
    model = FAMILIES["bert-classes"].model()
    with gf.intervene(model) as edit:
        edit.zero("logits", positions=0)
        with pytest.raises(InputError, match=r"^logits is of the whole text: leave positions out$"):
            model(SOURCE, KEEP)


def test_some_heads_are_not_enough_to_patch() -> None:
    model = translator()
    with gf.record(model, heads=1) as trace:
        model(SOURCE, TARGET, KEEP)
    with (
        gf.intervene(model) as edit,
        pytest.raises(InputError, match=r"^the trace holds the heads 1 of encoder.0.self"),
    ):
        edit.patch("encoder.0.self.heads", trace)


def test_one_intervention_at_a_time() -> None:
    model = translator()
    with gf.intervene(model) as edit:
        edit.zero("logits")
        with (
            pytest.raises(InputError, match=r"^this model is being changed already: use one intervene\(\) at a time$"),
            gf.intervene(model),
        ):
            pass
        assert (model(SOURCE, TARGET) == 0).all()
