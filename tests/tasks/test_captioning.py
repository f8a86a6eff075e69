"""Captioning: images and films become rows and batches, a captioner is trained, used, scored, looked at, passed on."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

import glassformer as gf
from captions import SIZE, caption_recipe, written
from glassformer.data.examples import Captioned, from_line, to_line
from glassformer.errors import ConfigurationError, InputError, RecipeError
from glassformer.evaluation import score
from glassformer.models import captioner
from glassformer.recipe import make_recipe
from glassformer.runs import examples_in, export_run, import_run
from glassformer.tasks.captioning import (
    CaptionBatch,
    CaptionCollator,
    CaptionedImage,
    CaptionedRows,
    Captioner,
    CaptioningTask,
    caption_loss,
)
from glassformer.tasks.captioning.films import film_of, inputs_of, token_names
from glassformer.tasks.objective import Objective
from glassformer.text import own_special_tokens

from .contexts import context

TASK = CaptioningTask(size=SIZE, frames=3)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("captions"))


@pytest.fixture(scope="module")
def run(file: Path, tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Captioner:
    made = gf.train(caption_recipe(file), tmp_path_factory.mktemp("run") / "run")
    assert isinstance(made, Captioner)
    return made


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> tuple[Captioner, Path]:
    file = written(tmp_path_factory.mktemp("films"), 24, films=True)
    made: Any = gf.train(caption_recipe(file, task={"frames": 3}), tmp_path_factory.mktemp("run") / "run")
    return made, file


# --- from images to rows and batches


def examples(count: int = 4) -> list[CaptionedImage]:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (count, 3, SIZE, SIZE, 3), np.uint8)
    captions = [("a b", "b a c"), ("c",), ("a a a", "b", "c"), ("b c",)]
    return [CaptionedImage(tuple(film), captions[n % 4], f"{n}.gif") for n, film in enumerate(pixels)]


@pytest.fixture(scope="module")
def collator(trained: Any) -> CaptionCollator:
    tokenizer, made = trained.tokenizer, context((trained.tokenizer, trained.tokenizer), 8, [])
    special = own_special_tokens(tokenizer, tokenizer)
    rows = TASK.encode(examples(), made).rows()
    return CaptionCollator(CaptionedRows(rows, special.end), TASK, special)


def test_an_example_is_a_line_and_comes_back() -> None:
    for example in examples():
        back = from_line(CaptionedImage, to_line(example))
        assert all(map(np.array_equal, back.frames, example.frames))
        assert back[1:] == example[1:]


def test_rows_hold_the_pixels_and_all_captions(collator: CaptionCollator, trained: Any) -> None:
    for row, example in enumerate(examples()):
        assert np.array_equal(collator.pairs.films([row], TASK.shape)[0], np.stack(example.frames))
        found = collator.pairs.captions(row)
        assert [trained.tokenizer.decode(ids[:-1]) for ids in found] == list(example.captions)
        assert all(ids[-1] == collator.special.end for ids in found)
    assert collator.pairs.lengths.tolist() == [[1, 0]] * 4


def test_a_batch_draws_one_caption_of_each_image_and_every_one_in_turn(collator: CaptionCollator) -> None:
    rows, drawn = np.arange(4), set()
    for seed in range(20):
        batch = collator(rows, np.random.default_rng(seed))
        assert batch.pixels.shape == (4, 3, 3, SIZE, SIZE)
        assert batch.targets == int(batch.target_mask.sum())
        assert torch.equal(batch.target_in[:, 1:], batch.target_out[:, :-1])
        assert (batch.target_in[:, 0] == collator.special.start).all()
        drawn.add(tuple(batch.target_out[0][batch.target_mask[0]].tolist()))
    assert len(drawn) == 2
    whole = CaptionCollator(collator.pairs, TASK, collator.special, every=True)(rows, np.random.default_rng(0))
    assert len(whole.pixels) == whole.tokens == 7
    assert torch.equal(whole.pixels[0], whole.pixels[1])


def test_all_frames_of_a_film_are_moved_alike(collator: CaptionCollator) -> None:
    task = TASK.model_copy(update={"shift": 3})
    still = CaptionCollator(collator.pairs, TASK, collator.special)(np.arange(4), np.random.default_rng(1)).pixels
    moved = CaptionCollator(collator.pairs, task, collator.special)(np.arange(4), np.random.default_rng(1)).pixels
    assert not torch.equal(still, moved)
    inner = (slice(None), slice(4, -4), slice(4, -4))

    def fits(down: int, right: int) -> bool:
        pairs = zip(torch.roll(still[0], (down, right), (2, 3)), moved[0], strict=True)
        return all(torch.equal(before[inner], after[inner]) for before, after in pairs)

    assert sum(fits(down, right) for down in range(-3, 4) for right in range(-3, 4)) == 1


def test_the_loss_is_cross_entropy_of_the_words(collator: CaptionCollator, trained: Any) -> None:
    size = trained.tokenizer.size
    model = captioner(size, SIZE, 8, 8, 2, 1, 16, 20, 0.0, frames=3, attention_dropout=0.0)
    batch = collator(np.arange(4), np.random.default_rng(0))
    logits = model(batch.pixels, batch.target_in)
    kept = batch.target_mask
    expected = F.cross_entropy(logits[kept], batch.target_out[kept], reduction="sum")
    objective = Objective(model, caption_loss, 0.0)
    assert float(caption_loss(objective, batch)) == pytest.approx(float(expected), rel=1e-5)
    assert isinstance(batch, CaptionBatch)


# --- images and films


def frames(count: int) -> list[Image.Image]:
    return [Image.new("RGB", (SIZE, SIZE), (10 * number, 0, 0)) for number in range(count)]


@pytest.mark.parametrize(("count", "expected"), [(1, [0, 0, 0]), (2, [0, 0, 1]), (3, [0, 1, 2]), (5, [0, 2, 4])])
def test_films_are_shown_longer_or_shorter(count: int, expected: list[int], tmp_path: Path) -> None:
    seen = film_of(frames(count), TASK)
    assert seen.shape == TASK.shape
    assert [int(each[0, 0, 0]) // 10 for each in seen] == expected
    folder = tmp_path / "frames"
    folder.mkdir()
    for number, each in enumerate(frames(count)):
        each.save(folder / f"{number}.png")
    assert np.array_equal(film_of(str(folder), TASK), seen)
    first, *others = frames(count)
    first.save(tmp_path / "film.png", save_all=True, append_images=others)
    assert np.array_equal(film_of(tmp_path / "film.png", TASK), seen)
    assert np.array_equal(film_of(np.stack([np.asarray(each) for each in frames(count)]), TASK), seen)


def test_what_is_no_film_is_told(tmp_path: Path) -> None:
    one = CaptioningTask(size=SIZE)
    with pytest.raises(InputError, match=r"a film of 2 images is given, but task\.frames is 1"):
        film_of(frames(4), one)
    with pytest.raises(InputError, match="is a folder without images"):
        film_of(tmp_path, TASK)
    with pytest.raises(InputError, match="a film without images"):
        film_of([], TASK)
    (tmp_path / "x.gif").write_bytes(b"GIF89a")
    with pytest.raises(InputError, match=r"x\.gif: "):
        film_of(tmp_path / "x.gif", TASK)


def test_tokens_of_images_and_films_have_names() -> None:
    assert token_names(CaptioningTask(size=16), 8) == ["class", "1,1", "1,2", "2,1", "2,2"]
    names = token_names(CaptioningTask(size=16, frames=2), 8)
    assert names[:2] == ["1: class", "1: 1,1"]
    assert (names[5], len(names)) == ("2: class", 10)


def test_without_positions_of_frames_their_order_is_lost() -> None:
    given: dict[str, Any] = {"image": 8, "patch": 4, "width": 8, "heads": 2, "layers": 1, "hidden": 16, "frames": 3}
    from glassformer.parts.schemes import learned, unordered

    pixels, words = torch.randn(2, 3, 3, 8, 8), torch.randint(0, 20, (2, 5))
    for positions, blind in ((unordered, True), (learned, False)):
        model = captioner(20, **given, frame_positions=positions).eval()
        same = torch.allclose(model(pixels, words), model(pixels.flip(1), words), atol=1e-5)
        assert same is blind


def test_a_model_of_films_refuses_images() -> None:
    model = captioner(20, 8, 4, 8, 2, 1, 16, frames=3)
    with pytest.raises(InputError, match=r"the source must be films \(batch, 3 frames"):
        model(torch.randn(2, 3, 8, 8), torch.zeros(2, 1, dtype=torch.long))
    with pytest.raises(ConfigurationError, match="must be at least 1, not 0"):
        captioner(20, 8, 4, 8, 2, 1, 16, frames=0)


# --- in use


def test_captions_do_not_depend_on_company(run: Captioner, file: Path) -> None:
    images = sorted((file.parent / "seen").iterdir())[:5]
    together = run.caption(images, beam=2)
    alone = [run.caption([str(image)], beam=2)[0] for image in images]
    assert [each.ids for each in together] == [each.ids for each in alone]
    assert together[0].text == "".join(run.stream(images[0])) or run.recipe.decode.beam == 1
    with pytest.raises(InputError, match="caption takes a list"):
        run.caption("a.png")


def test_scores_are_of_all_captions(run: Captioner, file: Path) -> None:
    kept = run.examples("test")
    found = run.evaluate(kept)
    outputs = [each.text for each in run.caption([each.frames for each in kept])]
    expected = score(outputs, [list(each.captions) for each in kept])
    assert found.scores == expected
    facts = found.facts()
    assert (facts["images"], facts["captions"]) == (len(kept), 2 * len(kept))
    assert (found.accuracy, facts["unreadable"]) == (None, 0)
    assert found.lines()[0].startswith(f"{2 * len(kept)} captions, {len(kept)} images, 2 references each")
    own = examples_in(file, run)
    assert isinstance(own[0], Captioned)
    assert run.evaluate(own[:3]).facts()["images"] == 3


def test_the_loss_of_evaluation_is_that_of_training(run: Captioner) -> None:
    kept = run.examples("test")
    total = count = 0.0
    for frames_, captions, _ in kept:
        for text in captions:
            ids = [run.special.start, *run.target.encode(text), run.special.end]
            pixels = inputs_of(np.stack(frames_)[None], run.task)
            logits = run.model(pixels, torch.tensor([ids[:-1]]))[0]
            total += float(F.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum").detach())
            count += len(ids) - 1
    assert run.evaluate(kept).loss == pytest.approx(total / count, rel=1e-4)


def test_a_source_that_can_parse_gives_accuracy(tmp_path: Path) -> None:
    source = {"kind": "scenes", "count": 20, "size": SIZE, "things": 1, "grammars": ["phrase", "existence"]}
    recipe = make_recipe(caption_recipe(Path(), source=source) | {"source": source})
    run = Captioner(recipe, torch.nn.Module(), None)  # type: ignore[arg-type]
    references = [["a red circle", "there is a red circle"], ["a blue cross", "there is a blue cross"]]
    assert run._right(["there is a red circle", "a blue square"], references) == [True, False]
    assert run._right(["a red circle", "nothing of the kind"], references) == [True, False]
    assert run._right(["a", "b"], [["a dog"], ["a cat"]]) is None


def test_unreadable_images_are_left_out_if_asked(run: Captioner, tmp_path: Path) -> None:
    (tmp_path / "b.png").write_text("not a picture", encoding="utf-8")
    kept = run.examples("test")[0]
    rows = [Captioned((tmp_path / "b.png",), ("x",), "b.png"), kept]
    with pytest.raises(InputError, match="no image of a known format"):
        run.evaluate(rows)
    said: list[str] = []
    found = run.evaluate(rows, complain=said.append)
    assert (len(said), found.facts()["unreadable"]) == (1, 1)
    assert found.lines()[-1] == "1 of the images could not be read, and are left out"


def test_where_each_word_looked(run: Captioner, films: tuple[Captioner, Path], tmp_path: Path) -> None:
    for made, frames_ in ((run, 1), (films[0], 3)):
        film = made.see(made.examples("test")[0].frames)
        seen = made.look(film, beam=2)
        words = len(seen.tokens("written")[0])
        assert seen["decoder.0.cross"].shape[2:] == (words, 5 * frames_)
        assert torch.allclose(seen["decoder.0.cross"].sum(dim=-1), torch.ones(1, 2, words), atol=1e-5)
        figure = seen.plot.patches(film)
        drawn = [axes for axes in figure.axes if axes.get_images()]
        assert len(drawn) == words + 1  # and what is shown
        assert drawn[0].get_title(loc="left") == "what is shown"
        assert len([axes for axes in seen.plot.patches().axes if axes.get_images()]) == words
        picture = made.attention_picture(made.examples("test"))
        assert picture.name == "attention"
        kept = made.examples("test")
        strips = {each.pixels.shape for each in made.samples(kept, made.evaluate(kept)) if each.pixels is not None}
        assert strips == {(SIZE, SIZE * frames_, 3)}


def test_a_captioner_goes_out_and_comes_back(run: Captioner, file: Path, tmp_path: Path) -> None:
    assert export_run(run, tmp_path / "out").startswith("VisionEncoderDecoderModel")
    back: Any = import_run(tmp_path / "out", tmp_path / "back")
    assert isinstance(back, Captioner)
    assert (back.task.size, back.task.mean, back.task.deviation) == (SIZE, 0.5, 0.5)
    images = sorted((file.parent / "seen").iterdir())[:6]
    ours, theirs = run.caption(images, beam=1), back.caption(images, beam=1)
    assert [each.ids for each in ours] == [each.ids for each in theirs]
    with pytest.raises(InputError, match="does not translate"):
        back.translate(["x"])
    assert export_run(back, tmp_path / "again")
    for name in ("config.json", "generation_config.json", "preprocessor_config.json"):
        assert json.loads((tmp_path / "again" / name).read_text()) == json.loads((tmp_path / "out" / name).read_text())
    transformers = pytest.importorskip("transformers")
    model = transformers.VisionEncoderDecoderModel.from_pretrained(tmp_path / "out").eval()
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "out")
    pixels = processor(images=[Image.open(each) for each in images], return_tensors="pt").pixel_values
    with torch.no_grad():
        found = model.generate(pixel_values=pixels, max_new_tokens=12, num_beams=1, do_sample=False)
    for row, one in zip(found.tolist(), ours, strict=True):
        assert row[1 : len(one.ids) + 1] == one.ids


@pytest.mark.parametrize(
    ("key", "value"),
    [("image_mean", [0.1, 0.2, 0.3]), ("resample", 3), ("size", {"shortest_edge": 8}), ("image_std", 0)],
)
def test_images_that_would_be_read_otherwise_are_refused(
    run: Captioner, tmp_path: Path, key: str, value: object
) -> None:
    export_run(run, tmp_path / "out")
    path = tmp_path / "out" / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}), encoding="utf-8")
    with pytest.raises(InputError, match=key):
        import_run(tmp_path / "out", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_a_model_of_films_is_not_exported(films: tuple[Captioner, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"task\.frames is 3"):
        export_run(films[0], tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"train": {"watch": "accuracy"}}, "source.kind 'captions' cannot tell what a caption says"),
        ({"task": {"size": 9}}, "task.size 9 does not divide into model.patch 8"),
        ({"task": {"size": 4000}}, "task.size 4000 makes 250,000 patches of model.patch 8: at most 65,536 can be read"),
        ({"task": {"frames": 65}}, r"task.frames is 65: .*less than or equal to 64"),
        ({"model": {"frame_positions": "none"}}, r"model.frame_positions has no effect: it needs task.frames above 1"),
        ({"model": {"frame_positions": "rotary"}, "task": {"frames": 2}}, "model.frame_positions"),
        ({"source": {"kind": "scenes", "films": True}}, r"source.films needs task.frames above 1"),
        ({"model": {"family": "vit"}}, "model.family is 'vit': for this task it is one of captioner"),
    ],
)
def test_recipes_that_cannot_be_are_told(changes: dict[str, Any], sentence: str) -> None:
    table = caption_recipe(Path("nowhere"), **changes)
    if "source" in changes:
        table["source"] = changes["source"]
    with pytest.raises(RecipeError, match=sentence):
        make_recipe(table)
