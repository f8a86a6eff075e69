"""Plots show what a trace holds, the right way round, and say in a sentence what they cannot show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib import colormaps
from matplotlib.colors import to_rgb

import glassformer as gf
from glassformer.decoding.tree import BeamTree, Fate, Node
from glassformer.errors import InputError
from glassformer.looking.patching import Effects
from glassformer.looking.plots import born
from glassformer.looking.plots.beam import shown
from glassformer.looking.plots.vectors import flattened
from glassformer.looking.style import HEAT, TWO_SIDED, ink_on, save
from glassformer.looking.trace import Description, Stored, Trace
from glassformer.parts.observing import axes as axes_of

READ, WRITTEN = ["the", "old", "cat"], ["die", "alte", "Katze", "end"]


def cross(layers: int = 2, heads: int = 2, read: list[str] = READ, written: list[str] = WRITTEN) -> Trace:
    """A trace of cross-attention: layer 1, head 0 aligns; all other heads look everywhere."""
    even = torch.full((1, heads, len(written), len(read)), 1 / len(read))
    tensors = {f"decoder.{layer}.cross.weights": [even.clone()] for layer in range(layers)}
    aligned = torch.zeros(len(written), len(read))
    aligned[range(len(written)), [min(row, len(read) - 1) for row in range(len(written))]] = 1.0
    tensors[f"decoder.{layers - 1}.cross.weights"][0][0, 0] = aligned
    axes = dict.fromkeys(tensors, axes_of(head=heads, token=None, key=None))
    return Trace(
        Stored(tensors, axes, {}),
        Description("the old cat", "die alte Katze", "decoder.cross", {"encoder": [read], "written": [written]}),
    )


def images(figure: Any) -> list[Any]:
    return [np.asarray(image.get_array()) for axes in figure.axes for image in axes.images]


def ticks(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def texts(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_attention_is_that_of_the_head_that_is_named() -> None:
    trace = cross()
    figure = trace.plot.attention(1, 0)
    assert images(figure)[0].tolist() == trace["decoder.1.cross"][0, 0].tolist()
    assert ticks(figure.axes[0].yaxis) == WRITTEN  # who looks
    assert ticks(figure.axes[0].xaxis) == READ  # who is looked at
    assert figure.get_suptitle() == "the old cat → die alte Katze\nCross attention of layer 1, head 0"
    assert images(trace.plot.attention(0, 1))[0].tolist() == trace["decoder.0.cross"][0, 1].tolist()


def test_attention_without_a_head_is_the_sharpest_and_of_a_layer_the_sharpest_there() -> None:
    trace = cross()
    aligned = trace["decoder.1.cross"][0, 0].tolist()
    for figure in (trace.plot.attention(), trace.plot.attention(layer=1), trace.plot.attention(head=0)):
        assert images(figure)[0].tolist() == aligned


def test_an_alignment_of_long_texts_stands_in_columns() -> None:
    long = [f"{word}{number}" for number in range(10) for word in READ]
    short, tall = cross().plot.alignment(1, 0), cross(read=long).plot.alignment(1, 0)
    for figure, most in ((short, 3), (tall, 12)):
        width, height = figure.get_size_inches()
        assert width <= 9
        assert height <= most
    assert texts(tall) == [*long, *WRITTEN]
    assert len(tall.axes[0].lines) == len(short.axes[0].lines) == len(WRITTEN)
    begins = [np.asarray(line.get_ydata())[0] for line in tall.axes[0].lines]  # each at the word that is looked at
    assert begins == pytest.approx([0, 1, 2, 3])


def test_the_same_picture_is_the_same_file(tmp_path: Path) -> None:
    for name in ("first", "second"):
        save(cross().plot.attention(1, 0), tmp_path / f"{name}.svg")
    assert (tmp_path / "first.svg").read_bytes() == (tmp_path / "second.svg").read_bytes()


def test_heads_are_all_there_a_row_for_each_layer() -> None:
    trace = cross(layers=3, heads=2)
    figure = trace.plot.heads()
    found = images(figure)
    assert len(found) >= 6
    for number in range(6):
        assert found[number].tolist() == trace[f"decoder.{number // 2}.cross"][0, number % 2].tolist()
    assert [axes.get_ylabel() for axes in figure.axes[:6:2]] == ["layer 0", "layer 1", "layer 2"]


def test_lines_lead_from_what_is_read_to_what_is_written_as_thick_as_the_weights() -> None:
    axes: Any = cross().plot.lines(1, 0).axes[0]
    assert len(axes.lines) == len(WRITTEN)  # weights of 0 are no lines
    placed = {text.get_text(): text.get_position() for text in axes.texts}
    for line, (source, target) in zip(axes.lines, [("the", "die"), ("old", "alte"), ("cat", "Katze")], strict=False):
        x, y = line.get_xydata()[0], line.get_xydata()[-1]
        assert (x[1], y[1]) == (placed[source][1], placed[target][1])
        assert placed[source][0] < x[0] < y[0] < placed[target][0]
    thin, thick = (cross().plot.lines(layer, 0).axes[0].lines[0].get_linewidth() for layer in (0, 1))
    assert thin < thick


def test_an_alignment_has_one_link_for_each_token_that_looks() -> None:
    axes: Any = cross().plot.alignment(1, 0).axes[0]
    assert len(axes.lines) == len(WRITTEN)
    placed = {text.get_text(): text.get_position() for text in axes.texts}
    across = [(line.get_xdata()[0], line.get_xdata()[-1]) for line in axes.lines]
    assert across[1] == (placed["alte"][0], placed["old"][0])
    assert across[3] == (placed["end"][0], placed["cat"][0])


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda plot: plot.attention(7), "there is no layer 7: decoder.cross attention has 2 layers, 0 to 1"),
        (lambda plot: plot.attention(0, 2), "there is no head 2: decoder.cross attention has 2 heads, 0 to 1"),
        (lambda plot: plot.heads("decoder.self"), 'there is no attention "decoder.self": there is decoder.cross'),
        (lambda plot: plot.beam(), "there was no beam search"),
        (lambda plot: plot.positions(), "nothing is added to embeddings for positions"),
        (lambda plot: plot.gates(), "this model has no gates"),
        (lambda plot: plot.patches(), "this trace is of no image"),
        (lambda plot: plot.embeddings(), "no embeddings were recorded"),
    ],
)
def test_what_is_not_there_is_a_sentence(draw: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw(cross().plot)


def test_a_trace_without_attention_says_what_it_has() -> None:
    kept = Stored(
        {"encoder.0.state": [torch.zeros(1, 3, 4)]}, {"encoder.0.state": axes_of(token=None, feature=None)}, {}
    )
    with pytest.raises(InputError, match="no attention, or it was not recorded: there is state"):
        Trace(kept).plot.attention()


def test_more_tokens_than_can_be_read_are_refused_but_small_maps_have_more_room() -> None:
    many = [f"w{number}" for number in range(100)]
    trace = cross(read=many, written=many)
    for draw in (trace.plot.attention, trace.plot.lines, trace.plot.alignment):
        with pytest.raises(InputError, match="there are 100 tokens, and a plot with names has room for 80"):
            draw()
    assert len(images(trace.plot.heads())) >= 4
    with pytest.raises(InputError, match="small maps have room for 300"):
        cross(1, 1, [*many] * 4, many).plot.heads()


def test_pictures_are_written_by_the_end_of_their_name(tmp_path: Path) -> None:
    figure = cross().plot.attention()
    for ending, begins in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        save(figure, tmp_path / f"a.{ending}")
        assert (tmp_path / f"a.{ending}").read_bytes().startswith(begins)


# --- beams


def tree() -> BeamTree:
    """The first step keeps two of four, then one ends, the other goes on; the one that ended is the best."""

    def node(number: int, parent: int, length: int, score: float, fate: Fate) -> Node:
        return Node(number, parent, length, 10 + number, score, score, score, fate)

    kept, pruned, finished = Fate.KEPT, Fate.PRUNED, Fate.FINISHED
    return BeamTree(
        [
            node(0, -1, 1, -1.0, kept),
            node(1, -1, 1, -2.0, kept),
            node(2, -1, 1, -3.0, pruned),
            node(3, -1, 1, -4.0, pruned),
            node(4, 1, 2, -0.5, finished),
            node(5, 0, 2, -0.9, kept),
            node(6, 5, 3, -0.8, kept),
        ]
    )


def test_a_tree_is_shown_until_its_best_output_ends_with_the_best_that_was_pruned() -> None:
    found = shown(tree(), pruned=1)
    assert [node.number for node in found.nodes] == [0, 1, 2, 4, 5]
    assert found.best == {1, 4}
    assert found.hidden == 2
    leaves = [found.rows[number] for number in (5, 4, 2)]  # from the top, in the order of their parents
    assert leaves == [0, 1, 2]
    assert found.rows[0] == found.rows[5]


def test_a_tree_is_drawn_with_tokens_scores_and_fates() -> None:
    about = Description(tokens={"beams": [["der", "die", "das", "ein", "end", "Hund", "bellt"]]})
    kept = Stored({"decoder.tokens": [torch.zeros(1, 1)]}, {"decoder.tokens": axes_of(token=None)}, {}, [tree()])
    figure: Any = Trace(kept, about).plot.beam(pruned=1)
    said = texts(figure)
    assert {"der", "die", "das", "end", "Hund"} <= {*said}
    assert "ein" not in said
    assert "-0.50" in said
    legend = [each.get_text() for each in figure.axes[0].get_legend().get_texts()]
    assert legend == ["the best", "kept", "finished", "pruned (2 more are not drawn)"]
    assert "12" in texts(Trace(kept).plot.beam())  # without a run, tokens are numbers


# --- vectors


def test_the_plane_of_two_components_keeps_distances_in_it() -> None:
    x = torch.zeros(4, 5)
    x[:, 1], x[:, 3] = torch.tensor([0.0, 3.0, 0.0, 3.0]), torch.tensor([0.0, 0.0, 1.0, 1.0])
    points, parts = flattened(x)
    assert torch.allclose(torch.cdist(points, points), torch.cdist(x, x), atol=1e-5)
    assert parts == pytest.approx([0.9, 0.1])


def test_vectors_of_a_model_are_drawn_and_words_in_place_of_pieces() -> None:
    run = gf.load("en-de")
    trace = run.look("Where is the old station?", keep=["embedding", "positions", "encoder.output"])
    positions = images(trace.plot.positions())[0]
    assert np.allclose(positions, trace["encoder.positions"][0].numpy())
    left, right = trace.words().plot.embeddings().axes
    assert [text.get_text() for text in left.texts] == ["Where", "is", "the", "old", "station", '"?"']
    assert right.get_title(loc="left") == "As they leave (encoder.output)"


def test_gates_are_drawn_over_the_tokens() -> None:
    gates = {f"encoder.0.gates.{name}": [torch.rand(1, 3, 6)] for name in ("forget", "input", "output")}
    axes = dict.fromkeys(gates, axes_of(token=None, feature=None))
    trace = Trace(Stored(gates, axes, {}), Description("a b c", tokens={"encoder": [["a", "b", "c"]]}))
    figure = trace.plot.gates()
    assert [axes.get_title(loc="left") for axes in figure.axes[:3]] == ["forget gate", "input gate", "output gate"]
    assert sorted(images(figure)[0].T[1]) == pytest.approx(sorted(gates["encoder.0.gates.forget"][0][0, 1].tolist()))
    with pytest.raises(InputError, match="there is no layer 4: the encoder has 1"):
        trace.plot.gates(layer=4)


def test_patches_are_laid_over_the_image() -> None:
    weights = torch.zeros(1, 2, 5, 5)
    weights[0, :, 0, 1:] = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]])
    name = "encoder.0.self.weights"
    kept = Stored({name: [weights]}, {name: axes_of(head=2, token=None, key=None)}, {})
    trace = Trace(kept, Description(tokens={"encoder": [["class", "1,1", "1,2", "2,1", "2,2"]]}, shows="encoder.self"))
    assert images(trace.plot.patches(head=0))[0] == pytest.approx(np.array([[0.1, 0.2], [0.3, 0.4]]))
    assert images(trace.plot.patches())[0] == pytest.approx(np.full((2, 2), 0.25))  # the mean of heads
    over = images(trace.plot.patches(np.zeros((4, 4, 1), dtype=np.uint8), head=1))
    assert [each.shape for each in over[:3]] == [(4, 4), (4, 4), (2, 2)]
    coloured = images(trace.plot.patches(np.zeros((4, 4, 3), dtype=np.uint8), head=1))
    assert [each.shape for each in coloured[:3]] == [(4, 4, 3), (4, 4), (2, 2)]  # grey under the weights


def test_effects_are_a_map_of_points_and_positions() -> None:
    found = Effects(torch.tensor([[0.0, 1.0], [0.5, -0.5]]), ["encoder.0.after", "encoder.1.after"], ["a", "▁b/▁c"],
                    "positions", 1.0, 0.0)  # fmt: skip
    figure = found.figure()
    assert images(figure)[0].tolist() == found.effects.tolist()
    assert ticks(figure.axes[0].xaxis) == ["a", "·b/·c"]
    assert texts(figure) == ["1.00", "0.50", "-0.50"]


def test_attention_being_born_is_the_head_that_ends_the_sharpest_at_some_steps() -> None:
    early = cross()
    early["decoder.1.cross"][0, 0] = 1 / 3
    figure = born([(0, early), *((step, cross()) for step in range(100, 1200, 100))])
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")]
    assert (titles[0], titles[-1], len(titles)) == ("step 0", "step 1,100", 6)
    assert images(figure)[0] == pytest.approx(np.full((4, 3), 1 / 3))
    assert images(figure)[5].tolist() == cross()["decoder.1.cross"][0, 0].tolist()


@pytest.mark.parametrize("colours", [HEAT, TWO_SIDED])
def test_letters_can_be_read_on_every_colour_of_a_map(colours: str) -> None:
    """Their contrast is that of WCAG: (brighter + 0.05) / (darker + 0.05) of the relative luminances."""

    def luminance(colour: Any) -> float:
        parts = [each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4 for each in to_rgb(colour)]
        return float(np.dot(parts, (0.2126, 0.7152, 0.0722)))

    for ratio in np.linspace(0, 1, 101):
        places = [ratio] if colours == HEAT else [0.5 + ratio / 2, 0.5 - ratio / 2]
        for place in places:
            low, high = sorted(map(luminance, (colormaps[colours](place), ink_on(ratio))))
            assert (high + 0.05) / (low + 0.05) > 3.5, (ratio, place)
