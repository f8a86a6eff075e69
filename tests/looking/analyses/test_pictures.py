"""Every result of an analysis has a picture, and the picture shows its numbers."""

from typing import Any, get_type_hints

import pytest
import torch
from matplotlib.figure import Figure

from glassformer import models
from glassformer.errors import InputError
from glassformer.looking import analyses
from glassformer.looking.analyses import PCA, Additions, Alignment, Attribution, Gates, Grid, Neighbours
from glassformer.parts.schemes import alibi
from looking.analyses.making import Reader

RESULTS = [
    each
    for each in vars(analyses).values()
    if isinstance(each, type) and each.__name__ not in ("Gold", "Output")  # what is given, and what is asked
]


def texts(figure: Figure) -> list[str]:
    """What stands in the cells of the first map."""
    return [each.get_text() for each in figure.axes[0].texts]


def images(figure: Figure) -> list[Any]:
    return [each.get_array().tolist() for axes in figure.axes for each in axes.get_images()]  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", RESULTS, ids=lambda kind: kind.__name__)
def test_every_result_has_a_figure(kind: type) -> None:
    assert len(RESULTS) == 14
    assert "return" in get_type_hints(kind.figure, {"Figure": Figure})  # type: ignore[attr-defined]


def test_neighbours_are_named_with_their_text_and_cosine() -> None:
    found = Neighbours(["encoder.embedding", "encoder.0.after"], "▁bank", [["▁bank", "▁on"], ["▁on", "▁bank"]],
                       [[(1, 2), (0, 2)], [(0, 2), (1, 2)]], torch.tensor([[1.0, 0.25], [0.5, -0.5]]))  # fmt: skip
    figure = found.figure()
    assert texts(figure) == ["·bank (1) 1.00", "·on (0) 0.25", "·on (0) 0.50", "·bank (1) -0.50"]
    assert [each.get_fontweight() for each in figure.axes[0].texts] == ["bold", "normal", "normal", "bold"]
    assert images(figure)[0] == [[1.0, 0.25], [0.5, 0.0]]
    assert '"·bank"' in figure.get_suptitle()


def test_what_is_added_has_a_size_and_a_direction() -> None:
    rows, tokens = ["encoder.0.self.output", "encoder.0.ff.output"], ["a", "▁b"]
    norm, ratio, cosine = (Grid(torch.tensor(each), rows, tokens) for each in (
        [[3.0, 4.0], [1.0, 1.0]], [[0.5, 2.0], [1.0, 0.5]], [[0.5, -1.0], [0.0, 1.0]]
    ))  # fmt: skip
    figure = Additions(norm, ratio, cosine).figure()
    assert images(figure)[:2] == [ratio.values.tolist(), cosine.values.tolist()]
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == ["encoder.0.self", "encoder.0.ff"]
    assert figure.axes[1].get_images()[0].get_clim() == (-1.0, 1.0)


def test_gates_are_maps_with_a_line_for_the_mean() -> None:
    values = torch.tensor([[[0.0, 1.0], [0.5, 1.0]], [[0.2, 0.4], [1.0, 1.0]]])
    figure = Gates(values, ["reset", "update"], ["a", "b"]).figure()
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")]
    assert titles == ["reset gate", "update gate"]
    assert images(figure)[0] == [[1.0, 1.0], [0.0, 0.5]]  # a row for each unit, the most open above
    lines = [axes.lines[0].get_ydata() for axes in figure.axes if axes.lines]
    assert [list(map(float, each)) for each in lines] == [pytest.approx([0.5, 0.75]), pytest.approx([0.3, 1.0])]  # type: ignore[arg-type]


def test_an_alignment_has_a_line_for_each_link() -> None:
    weights = torch.tensor([[0.9, 0.1], [0.6, 0.4]])
    links, words = frozenset({(0, 0), (0, 1), (1, 1)}), (["das", "Haus"], ["the", "house"])
    found = Alignment(links, weights, *words, "decoder.0.cross.weights", 2)
    figure = found.figure()
    assert texts(figure) == ["the", "house", "das", "Haus"]
    assert [line.get_linewidth() for line in figure.axes[0].lines] == pytest.approx([3.3, 2.4, 1.8])
    assert figure.get_suptitle() == "Alignment by decoder.0.cross, head 2; orange: less than half of the weight"


def test_an_order_is_a_line_by_distance_or_one_for_each_head() -> None:
    (added,) = analyses.position_schemes(models.transformer(20, width=16, heads=2, layers=1, hidden=8), "encoder", 6)
    (line,) = added.figure().axes[0].lines
    assert list(map(float, line.get_ydata())) == pytest.approx(added.by_distance.tolist())  # type: ignore[arg-type]
    biased = models.transformer(20, width=16, heads=2, layers=1, hidden=8, positions=alibi)
    (scheme,) = analyses.position_schemes(biased, "encoder", 6)
    figure = scheme.figure()
    assert [each.get_text() for each in figure.axes[0].get_legend().get_texts()] == ["head 0", "head 1"]  # type: ignore[union-attr]
    assert "ahead" in figure.axes[0].get_xlabel()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("occlusion", "how much the logit loses without it"),
        ("input_x_gradient", "input × gradient: part of the logit"),
        ("integrated_gradients", "integrated gradients: part of the logit"),
    ],
)
def test_a_picture_says_by_which_method_it_was_made(name: str, words: str) -> None:
    run = Reader("bert-classes")
    found: Attribution = getattr(analyses, name)(run, "")
    assert found.method == name
    assert found.figure().axes[0].get_xlabel() == words
    several = getattr(analyses, name)(Reader("bert"), "")
    (label,) = [axes.get_ylabel() for axes in several.figure().axes if "logit" in axes.get_ylabel()]
    assert label == ("lost logit" if name == "occlusion" else "part of the logit")


def test_names_of_points_cover_no_point_and_have_its_colour() -> None:
    values = torch.tensor(
        [[[0.0, 0.0], [1.0, 0.02], [10.0, 10.0]]]
    )  # the second is where the first one's name would be
    figure = PCA(values, ["encoder.embedding"], ["▁one", "▁two", "."], [0, 1, 1], torch.tensor([[0.9, 0.1]])).figure()
    first, second, third = figure.axes[0].texts
    assert [each.get_text() for each in (first, second, third)] == ["·one", "·two", '"."']  # which would be a point
    assert first.get_position() != second.get_position()  # (4, 4) is the nearest place
    assert first.get_color() != second.get_color() == third.get_color()


def test_a_table_of_too_many_tokens_is_refused() -> None:
    names = [f"t{number}" for number in range(90)]
    grid = Grid(torch.ones(2, 90), ["encoder.0.self.output", "encoder.0.ff.output"], names)
    with pytest.raises(InputError, match="there are 90 tokens, and a plot with names has room for 80"):
        Additions(grid, grid, grid).figure()
    with pytest.raises(InputError, match="there are 90 tokens"):
        Gates(torch.ones(1, 90, 2), ["reset"], names).figure()
