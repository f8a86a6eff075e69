"""Run folders of Glassformer 0.1 open and do what they did; training on is refused with a sentence."""

import json
import tomllib
import warnings
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer.errors import RunError
from glassformer.interop.special_tokens import read_special_tokens, write_special_tokens
from glassformer.recipe.reading import toml_value
from glassformer.runs import load, train
from glassformer.runs.folder import read_run
from glassformer.tasks.translation import Translator
from glassformer.text import SpecialTokens
from tiny import IDLE, table

CLASSES = {"pre": "PreNorm", "post": "PostNorm", "layer": "LayerNorm", "rms": "RMSNorm", "gru": "GRU", "lstm": "LSTM",
           "additive": "AdditiveScore", "multiplicative": "MultiplicativeScore"}  # fmt: skip
FLAT: dict[str, Any] = {  # [model] of 0.1: all keys for every family
    "family": "transformer", "embeddings_learn": True, "width": 256, "heads": 4, "patch": 4, "layers": 3,
    "hidden": 1024, "dropout": 0.1, "attention_dropout": 0.0, "norm": "pre", "tie_source": True, "tie_output": True,
}  # fmt: skip
POST = {"model": {"residual": "post", "activation": "gelu", "decoder_layers": 2}}
GRU = {"model": {"family": "recurrent", "width": 16, "layers": 1, "dropout": 0.1, "cell": "gru"}}


def old_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a model as 0.1 wrote them: parts by their classes, positions that were not chosen as null."""
    found: dict[str, Any] = {}
    for key, value in arguments.items():
        if key in ("residual", "norm", "activation", "cell", "attention") and value is not None:
            found[key] = {"part": CLASSES.get(value, value)}
        elif key not in ("length", "key_value_heads", "gated"):  # which its families did not have
            found[key] = value
    more = {"positions": None, "attention_positions": None} if "positions" in found else {}
    return {**found, "linear": {"part": "Linear"}, **more} if "heads" in found else found


def made_old(new: Path, old: Path) -> Path:
    """A run folder as Glassformer 0.1 would have written it."""
    copytree(new, old)
    config = json.loads((new / "config.json").read_text(encoding="utf-8"))
    config["format"], config["model"]["arguments"] = 2, old_arguments(config["model"]["arguments"])
    (old / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    (old / "checksums.json").unlink()  # which 0.1 did not write
    sections = tomllib.loads((new / "recipe.toml").read_text(encoding="utf-8"))
    model, train_section = sections["model"], sections["train"]
    flat = FLAT | {key: value for key, value in model.items() if key in {*FLAT, "decoder_layers", "activation", "cell"}}
    flat["norm"] = model.get("residual", "pre")
    sections |= {
        "model": flat,
        "tune": {"mode": "full", "rank": 8, "every": 100},
        "train": train_section | {"decay": 0.2},
    }
    lines = [f"title = {toml_value(sections.pop('title', ''))}"]
    for name, section in sections.items():
        lines += ["", f"[{name}]", *(f"{key} = {toml_value(value)}" for key, value in section.items())]
    (old / "recipe.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return old


@pytest.mark.parametrize("changes", [{}, POST, GRU], ids=["transformer", "post", "gru"])
def test_a_run_of_0_1_opens_and_translates_without_a_warning(changes: dict[str, Any], tmp_path: Path) -> None:
    asked = table(IDLE, changes) if changes is not GRU else {**table(IDLE), **GRU}
    new = gf.train(asked, tmp_path / "new")
    assert isinstance(new, Translator)
    folder = made_old(tmp_path / "new", tmp_path / "old")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        old = load(folder, "cpu")
    assert isinstance(old, Translator)
    assert old.recipe.model == new.recipe.model
    assert all(map(torch.equal, old.model.state_dict().values(), new.model.state_dict().values()))
    texts = ["a b c", "h", "d e"]
    assert old.translate(texts, beam=2) == new.translate(texts, beam=2)
    assert old.loss(old.examples("test")) == new.loss(new.examples("test"))


def test_a_run_of_0_1_is_not_resumed_but_may_be_a_beginning(tmp_path: Path) -> None:
    new = gf.train(table(IDLE), tmp_path / "new")
    folder = made_old(tmp_path / "new", tmp_path / "old")
    assert read_run(folder).format == 2
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(
        RunError, match=r"old was begun by Glassformer 0\.1: resume it with that version, or train it ag"
    ):
        train(new.recipe, folder, resume=True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    asked = {"source": table(IDLE)["source"], "data": {"max_tokens": 64}, "train": table(IDLE)["train"]}
    begun = gf.train({**asked, "model": {"pretrained": str(folder)}}, tmp_path / "more")
    assert begun.model.blueprint.arguments["width"] == 16


def test_the_special_tokens_of_0_1_are_read(tmp_path: Path) -> None:
    special = SpecialTokens(2, 3, 0, suppressed=[1], source_prefix=[4], source_suffix=[5, 6], target_prefix=[7])
    write_special_tokens(tmp_path, special)
    (tmp_path / "special_tokens.json").unlink()
    old = {"start": 2, "end": 3, "pad": 0, "never": [1], "before": [4], "after": [5, 6], "lead": [7]}
    (tmp_path / "habits.json").write_text(json.dumps(old), encoding="utf-8")
    assert read_special_tokens(tmp_path) == special
    (tmp_path / "habits.json").write_text("[]", encoding="utf-8")
    with pytest.raises(RunError, match=r"habits\.json is damaged"):
        read_special_tokens(tmp_path)
