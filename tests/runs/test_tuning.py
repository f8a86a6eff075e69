"""Fine-tuning through a recipe: what learns, what stays, and what is written."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import glassformer as gf
from glassformer import interop
from glassformer.errors import ConfigurationError, InputError, RecipeError
from glassformer.models import EncoderOnly, bert
from glassformer.recipe import Tokenizer as Section
from glassformer.recipe import make_recipe
from glassformer.tasks.classification import Classifier
from glassformer.text import Tokenizer
from labels import examples, table, text_recipe
from stories import recipe, stories


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT that has never learned anything, as the ecosystem would write it."""
    folder = tmp_path_factory.mktemp("checkpoint") / "bert"
    tokenizer = Tokenizer.train([text for text, _ in examples(200)], Section(kind="word", vocabulary=60))
    tokenizer.add_frame()
    torch.manual_seed(0)
    interop.save(bert(tokenizer.size, 16, 2, 2, 32, length=32, pooler=True), folder)
    tokenizer.save(folder / "tokenizer.json")
    return folder


def tuned(checkpoint: Path, folder: Path, mode: str, **train: Any) -> Classifier:
    steps = {"steps": 4, "lr": 0.01, "warmup": 0, "validate_every": 4, **train}
    asked = text_recipe(
        table(folder / "t.tsv", examples(80)),
        model={"pretrained": str(checkpoint)},
        tune={"mode": mode, "rank": 2, "every": 2},
        train=steps,
    )
    made = gf.train(asked, folder / mode)
    assert isinstance(made, Classifier)
    return made


def moved(run: Classifier, checkpoint: Path) -> set[str]:
    """The parts of the encoder that are no longer the checkpoint's."""
    before = interop.load(checkpoint).state_dict()
    assert isinstance(run.model, EncoderOnly)
    after = run.model.state_dict()
    changed = [name for name in after if name in before and not torch.equal(after[name], before[name])]
    return {name.split(".")[2] if "blocks" in name else name.split(".")[1] for name in changed}


def test_each_mode_moves_what_it_names(checkpoint: Path, tmp_path: Path) -> None:
    assert moved(tuned(checkpoint, tmp_path, "full"), checkpoint) == {"0", "1", "embedding"}
    assert moved(tuned(checkpoint, tmp_path, "head"), checkpoint) == set()
    assert moved(tuned(checkpoint, tmp_path, "unfreeze"), checkpoint) == {"1"}  # the head, then the top block


def test_lora_writes_its_adapter_and_a_model_without_it(checkpoint: Path, tmp_path: Path) -> None:
    run = tuned(checkpoint, tmp_path, "lora")
    assert run.path is not None
    facts = json.loads((run.path / "adapter" / "adapter_config.json").read_text(encoding="utf-8"))
    assert (facts["peft_type"], facts["r"]) == ("LORA", 2)
    names = load_file(run.path / "adapter" / "adapter_model.safetensors").keys()
    assert sum("lora_A" in name for name in names) == 4
    assert not any("adapters" in name for name in load_file(run.path / "model.safetensors"))
    texts = [text for text, _ in run.examples("test")]
    again = gf.load(run.path).classify(texts)
    for one, other in zip(again, run.classify(texts), strict=True):
        assert one.probability == pytest.approx(other.probability, abs=1e-6)


def test_an_adapter_stands_over_any_run_with_its_base(checkpoint: Path, tmp_path: Path) -> None:
    run, base = tuned(checkpoint, tmp_path, "lora"), tuned(checkpoint, tmp_path, "head")
    assert run.path is not None
    assert base.path is not None
    texts = [text for text, _ in run.examples("test")]
    adapted = gf.load(base.path, adapter=run.path / "adapter")
    for one, other in zip(adapted.classify(texts), run.classify(texts), strict=True):
        assert one.probability == pytest.approx(other.probability, abs=1e-5)
    moved_on = tuned(checkpoint, tmp_path, "full")
    assert moved_on.path is not None
    with pytest.raises(InputError, match="was trained on another base model"):
        gf.load(moved_on.path, adapter=run.path / "adapter")
    another = gf.train(text_recipe(tmp_path / "t.tsv", train={"steps": 1}), tmp_path / "other")
    with pytest.raises(InputError, match="is no adapter for this model"):
        gf.load(str(another.path), adapter=run.path / "adapter")


def test_a_resumed_lora_is_the_one_that_went_straight_on(checkpoint: Path, tmp_path: Path) -> None:
    straight = tuned(checkpoint, tmp_path, "lora", steps=6, save_every=3, validate_every=3)
    (tmp_path / "half").mkdir()
    tuned(checkpoint, tmp_path / "half", "lora", steps=3, save_every=3, validate_every=3)
    asked = text_recipe(
        tmp_path / "half" / "t.tsv",
        model={"pretrained": str(checkpoint)},
        tune={"mode": "lora", "rank": 2, "every": 2},
        train={"steps": 6, "lr": 0.01, "warmup": 0, "validate_every": 3, "save_every": 3},
    )
    resumed = gf.train(asked, tmp_path / "half" / "lora", resume=True)
    assert all(map(torch.equal, straight.model.parameters(), resumed.model.parameters()))


def test_tuning_needs_something_to_begin_with() -> None:
    with pytest.raises(RecipeError, match=r"tune\.mode is 'lora', but model\.pretrained names no checkpoint to tune"):
        make_recipe({"source": {"kind": "copy"}, "tune": {"mode": "lora"}})


@pytest.mark.parametrize("family", ["gpt2", "t5", "transformer", "bert"])
def test_a_tied_head_that_has_learned_is_one_of_its_own_in_the_folder(family: str, tmp_path: Path) -> None:
    """Merged, it is no longer the embedding: what the folder says of the model must be what its weights are of."""
    file = stories(tmp_path / "t.txt")
    task = {"gpt2": "language-modelling", "bert": "masked-language-modelling"}.get(family, "span-corruption")
    few = {"steps": 2, "lr": 0.05, "warmup": 0}
    gf.train(recipe(file, task, model={"family": family}, train=few), tmp_path / "base")
    asked = recipe(
        file,
        task,
        model={"pretrained": str(tmp_path / "base")},
        tune={"mode": "lora", "rank": 2, "targets": ["query", "head*"]},
        train=few,
    )
    run = gf.train(asked, tmp_path / "run")
    again = gf.load(tmp_path / "run")
    assert all(map(torch.equal, again.model.parameters(), run.model.parameters()))
    with pytest.warns(UserWarning, match="using its newest checkpoint, step 2 of 2"):
        early = gf.load(tmp_path / "run", checkpoint="last")  # whose adapters are not merged yet
    assert all(map(torch.equal, early.model.parameters(), run.model.parameters()))
    assert again.evaluate(run.examples("test")).loss == pytest.approx(run.evaluate(run.examples("test")).loss, rel=1e-6)
    over = gf.load(tmp_path / "base", adapter=tmp_path / "run" / "adapter")
    assert over.evaluate(run.examples("test")).loss == pytest.approx(
        again.evaluate(run.examples("test")).loss, rel=1e-5
    )


def test_a_head_that_is_always_tied_has_no_adapter(tmp_path: Path) -> None:
    source = {"kind": "copy", "count": 200}
    model = {"family": "bart", "width": 16, "heads": 2, "layers": 1, "hidden": 32}
    few = {"steps": 1, "device": "cpu"}
    gf.train({"source": source, "model": model, "train": few}, tmp_path / "base")
    asked = {"source": source, "model": {"pretrained": str(tmp_path / "base")}, "train": few}
    with pytest.raises(ConfigurationError, match=r"head of a bart is always tied to its embedding.*tune\.targets"):
        gf.train({**asked, "tune": {"mode": "lora", "targets": ["head"]}}, tmp_path / "run")
    assert not (tmp_path / "run").exists()
