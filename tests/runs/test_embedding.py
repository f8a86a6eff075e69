"""Word vectors as a model's input embedding: found, scaled, frozen or learning, in every family that reads text."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import glassformer as gf
from data.helpers import store
from glassformer.data import Assets
from glassformer.errors import ConfigurationError, DataError, RecipeError
from glassformer.parts import Embedding
from glassformer.recipe import RecipeWarning, make_recipe
from glassformer.recipe import Tokenizer as Section
from glassformer.recipe.model import families_for, section_of
from glassformer.recipe.reading import NO_FILE
from glassformer.registry import TASKS
from glassformer.runs import Listener, train
from glassformer.runs.building import build
from glassformer.runs.embedding import TABLES, fill
from glassformer.static import read_vectors, write_vectors
from glassformer.static.vectors import make_vectors
from glassformer.tasks.classification import Classifier
from glassformer.text import Tokenizer
from labels import examples, text_recipe
from labels import table as rows
from tiny import IDLE, table

WORDS = ["plum", "apple", "hammer", "saw"]
TOKENIZER = Tokenizer.train(["the Plum", "apple saw", "xylophone"], Section(kind="word", vocabulary=40))
SMALL: dict[str, Any] = {"width": 8, "heads": 2, "layers": 1, "hidden": 16}
ASSETS = Assets((TOKENIZER, TOKENIZER), ["one", "other"])
TEXT_FAMILIES = [
    (kind, each) for kind, task in TASKS.items() if 0 in task.text_sides() for each in families_for(task.answer)
]


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    path = tmp_path / "vectors.txt"
    write_vectors(make_vectors(WORDS, np.random.default_rng(0).normal(size=(4, 8)) * 3), path)
    return path


def embedding_of(model: torch.nn.Module) -> Embedding:
    return next(part for part in model.modules() if isinstance(part, Embedding))


def made(task: str, family: str, **model: Any) -> Any:
    source: dict[str, Any] = {"kind": "tsv", "train": "t"}
    source = {"answering": {"kind": "squad", "train": "t"}}.get(task, source)
    known = section_of(family, TASKS[task].answer).model_fields
    sizes = {key: size for key, size in SMALL.items() if key in known}
    return make_recipe({"task": {"kind": task}, "source": source, "model": sizes | {"family": family} | model})


@pytest.mark.parametrize(("task", "family"), TEXT_FAMILIES)
def test_every_family_that_reads_text_can_read_with_vectors(task: str, family: str, vectors: Path) -> None:
    recipe = made(task, family, embeddings=str(vectors), embeddings_learn=False)
    model = build(recipe, ASSETS)
    before = embedding_of(model).weight.detach().clone()
    filled = fill(model, recipe.model, TOKENIZER, None)  # type: ignore[arg-type]
    after = embedding_of(model).weight
    assert (filled.found, filled.of) == (3, TOKENIZER.size)
    spelled = TOKENIZER.tokens(range(TOKENIZER.size))
    known = [number for number, token in enumerate(spelled) if token.strip("▁").lower() in WORDS]
    others = [number for number in range(TOKENIZER.size) if number not in known]
    assert torch.equal(after[others], before[others])
    table = read_vectors(vectors)
    for number in known:
        expected = torch.from_numpy(table[spelled[number].strip("▁").lower()])
        assert float(torch.cosine_similarity(after[number], expected, dim=0)) == pytest.approx(1, abs=1e-6)
    sizes = [float(each.detach().square().sum(dim=1).mean().sqrt()) for each in (before, after[known])]
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-5)
    assert not after.requires_grad
    assert sum(not parameter.requires_grad for parameter in model.parameters()) == 1


def test_one_hot_and_tf_idf_are_tables_too(tmp_path: Path) -> None:
    assert set(TABLES) == set(NO_FILE)
    size = TOKENIZER.size
    recipe = made("classification", "bert", width=size + size % 2 + 2, embeddings="one-hot")
    model = build(recipe, ASSETS)
    pairs = store(tmp_path, [([4, 5, 5], [8]), ([4], [8]), ([6], [])])
    fill(model, recipe.model, TOKENIZER, pairs)
    weight = embedding_of(model).weight.detach()
    torch.testing.assert_close(weight / weight[0, 0], torch.eye(size, weight.shape[1]))
    fill(model, recipe.model.model_copy(update={"embeddings": "tf-idf"}), TOKENIZER, pairs)
    weights = embedding_of(model).weight.detach().diagonal().double()
    idf = {4: np.log(4 / 3) + 1, 5: np.log(4 / 2) + 1, 8: np.log(4) + 1}  # 8 is a target: nobody reads it
    for number, expected in idf.items():
        assert float(weights[number] / weights[6]) == pytest.approx(expected / idf[5], rel=1e-6)
    assert embedding_of(model).weight.requires_grad


@pytest.mark.parametrize("learns", [False, True])
def test_frozen_vectors_keep_their_bits_and_others_learn(vectors: Path, tmp_path: Path, learns: bool) -> None:
    source = rows(tmp_path / "t.tsv", examples(80))
    asked = text_recipe(
        source, model={**SMALL, "embeddings": "vectors.txt", "embeddings_learn": learns}, train={"steps": 4}
    )
    told: list[str] = []

    class Listening(Listener):
        def say(self, line: str) -> None:
            told.append(line)

    run = train(make_recipe(asked), tmp_path / "run", base=tmp_path, listener=Listening())
    assert isinstance(run, Classifier)
    torch.manual_seed(run.recipe.train.seed)
    fresh = build(run.recipe, run.assets)
    filled = fill(fresh, run.recipe.model, run.tokenizer, None)  # type: ignore[arg-type]
    assert told == [str(filled)]
    assert f"{filled.found:,} of {run.tokenizer.size:,} tokens have a vector of vectors.txt" in told[0]
    words = [number for number, token in enumerate(run.tokenizer.tokens(range(run.tokenizer.size))) if "plum" in token]
    begun, learned = (embedding_of(each).weight[words] for each in (fresh, run.model))
    assert torch.equal(begun, learned) is not learns
    weights = load_file(tmp_path / "run" / "model.safetensors")
    assert any(torch.equal(each, embedding_of(run.model).weight) for each in weights.values())
    vectors.unlink()  # a run needs them no more
    assert gf.load(tmp_path / "run").classify(["the plum"])


def test_a_frozen_run_resumes_to_the_same_weights(vectors: Path, tmp_path: Path) -> None:
    frozen: dict[str, dict[str, Any]] = {"model": {"embeddings": "one-hot", "embeddings_learn": False, "width": 32}}
    whole = train(make_recipe(table(IDLE, frozen)), tmp_path / "whole")
    train(make_recipe(table(IDLE, frozen, {"train": {"steps": 2}})), tmp_path / "parts")
    parts = train(make_recipe(table(IDLE, frozen)), tmp_path / "parts", resume=True)
    for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_what_does_not_fit_is_a_sentence(vectors: Path, tmp_path: Path) -> None:
    def fails(complaint: str, **model: Any) -> None:
        recipe = made("translation", "transformer", **model)
        built = build(recipe, ASSETS)
        with pytest.raises((ConfigurationError, DataError), match=complaint):
            fill(built, recipe.model, TOKENIZER, None)  # type: ignore[arg-type]

    fails("model.width is 16, but the vectors in .*vectors.txt have 8 numbers", embeddings=str(vectors), width=16)
    fails("model.width is 8, but one-hot vectors of 9 tokens need 9 places or more", embeddings="one-hot")
    fails("no.txt: cannot be read", embeddings=str(tmp_path / "no.txt"))
    write_vectors(make_vectors(["zebra"], np.ones((1, 8))), vectors)
    fails("none of the tokenizer's tokens has a vector", embeddings=str(vectors))
    write_vectors(make_vectors(["plum", "saw"], np.zeros((2, 8))), vectors)
    fails("all vectors in .*vectors.txt that the tokenizer knows are zero", embeddings=str(vectors))
    with pytest.raises(RecipeError, match=r"model\.embeddings names no vectors to keep"):
        made("translation", "transformer", embeddings_learn=False)
    with pytest.warns(RecipeWarning, match=r"model\.embeddings has no effect: model\.pretrained decides it"):
        made("translation", "transformer", embeddings="one-hot", pretrained="x")
    with pytest.raises(RecipeError, match=r"model\.embeddings is not a key"):
        make_recipe({"task": {"kind": "images"}, "source": {"kind": "digits"}, "model": {"embeddings": "one-hot"}})
