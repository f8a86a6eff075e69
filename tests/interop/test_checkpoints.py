"""Checkpoints in and out without `transformers`; what does not fit is said by name."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from glassformer import interop
from glassformer.errors import ConfigurationError, GlassformerError, InputError, TrainingError
from glassformer.interop.checkpoints import CONFIG, INDEX, WEIGHTS
from glassformer.models import FAMILIES, gpt2, llama
from glassformer.parts import pack, quantise

SMALL: dict[str, dict[str, Any]] = {
    "bart": {"vocabulary": 30, "width": 8, "heads": 2, "layers": 1, "hidden": 12, "length": 10},
    "bert": {"vocabulary": 30, "width": 8, "heads": 2, "layers": 1, "hidden": 12, "length": 10, "answer": "words"},
    "captioner": {"vocabulary": 30, "image": 4, "patch": 2, "width": 8, "heads": 2, "layers": 1, "hidden": 12},
    "gpt2": {"vocabulary": 30, "width": 8, "heads": 2, "layers": 2, "length": 10},
    "llama": {"vocabulary": 30, "width": 8, "heads": 2, "layers": 2, "hidden": 12},
    "marian": {"vocabulary": 30, "width": 8, "heads": 2, "layers": 1, "hidden": 12},
    "roberta": {"vocabulary": 30, "width": 8, "heads": 2, "layers": 1, "hidden": 12, "answer": "classes"},
    "t5": {"vocabulary": 30, "width": 8, "heads": 2, "layers": 1, "hidden": 12, "head_width": 4},
    "vit": {"classes": 3, "image": 4, "patch": 2, "width": 8, "heads": 2, "layers": 1, "hidden": 12},
}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    interop.save(gpt2(**SMALL["gpt2"]), tmp_path)
    return tmp_path


def change(folder: Path, **keys: Any) -> None:
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**config, **keys}))


@pytest.mark.parametrize("name", sorted({*FAMILIES.names()} - {"transformer", "recurrent"}))  # nobody else has these
def test_what_is_saved_is_loaded(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = FAMILIES[name](**SMALL[name])
    interop.save(model, tmp_path)
    loaded = interop.load(tmp_path)
    assert not loaded.training
    assert type(loaded) is type(model)
    for (ours, tensor), (theirs, other) in zip(model.named_parameters(), loaded.named_parameters(), strict=True):
        assert ours == theirs
        assert torch.equal(tensor, other)
    interop.save(loaded, tmp_path / "again")
    assert json.loads((tmp_path / "again" / CONFIG).read_text()) == json.loads((tmp_path / CONFIG).read_text())


def test_shards_are_read_together(saved: Path) -> None:
    expected, tensors = interop.load(saved), load_file(saved / WEIGHTS)
    names = sorted(tensors)
    for number, part in enumerate((names[::2], names[1::2])):
        save_file({name: tensors[name] for name in part}, saved / f"part-{number}.safetensors")
    (saved / WEIGHTS).unlink()
    places = {name: f"part-{place % 2}.safetensors" for place, name in enumerate(names)}
    (saved / INDEX).write_text(json.dumps({"weight_map": places}))
    loaded = interop.load(saved)
    assert all(torch.equal(one, other) for one, other in zip(expected.parameters(), loaded.parameters(), strict=True))
    (saved / "part-1.safetensors").unlink()
    with pytest.raises(InputError, match=r"names part-1.safetensors, which is not there"):
        interop.load(saved)
    (saved / INDEX).write_text("{}")
    with pytest.raises(InputError, match=r"index.json is damaged"):
        interop.load(saved)


def test_missing_surplus_and_misshaped_tensors_are_listed_by_name(saved: Path) -> None:
    tensors = load_file(saved / WEIGHTS)
    del tensors["transformer.h.1.ln_2.bias"]
    tensors["transformer.h.0.extra.weight"] = torch.zeros(2)
    tensors["transformer.wpe.weight"] = torch.zeros(3, 8)
    save_file(tensors, saved / WEIGHTS)
    with pytest.raises(InputError) as caught:
        interop.load(saved)
    message = str(caught.value)
    assert "missing: transformer.h.1.ln_2.bias" in message
    assert "surplus: transformer.h.0.extra.weight" in message
    assert "transformer.wpe.weight (for decoder.embedding.positions.weight) has the wrong shape: (3, 8)" in message


def test_a_tied_weight_may_be_saved_twice_but_not_differ(saved: Path) -> None:
    tensors = load_file(saved / WEIGHTS)
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"].clone()
    save_file(tensors, saved / WEIGHTS)
    interop.load(saved)
    tensors["lm_head.weight"] += 1
    save_file(tensors, saved / WEIGHTS)
    with pytest.raises(InputError, match=r"lm_head.weight differs from transformer.wte.weight, with which it is tied"):
        interop.load(saved)


def test_what_cannot_be_read_is_a_sentence(saved: Path) -> None:
    change(saved, architectures=["GPT2LMHeadModell"])
    with pytest.raises(InputError, match=r"GPT2LMHeadModell is not among .*; the nearest is GPT2LMHeadModel"):
        interop.load(saved)
    change(saved, architectures=None)
    with pytest.raises(InputError, match=r"names no architecture"):
        interop.load(saved)
    change(saved, architectures=["GPT2LMHeadModel"], activation_function="mish")
    with pytest.raises(ConfigurationError, match=r"activation_function is 'mish'"):
        interop.load(saved)
    change(saved, activation_function="gelu_new", scale_attn_weights=False)
    with pytest.raises(
        ConfigurationError, match=r"scale_attn_weights is False in config.json: only True is supported in a gpt2 model"
    ):
        interop.load(saved)
    (saved / WEIGHTS).write_bytes(b"nothing")
    change(saved, scale_attn_weights=True)
    with pytest.raises(InputError, match=r"model.safetensors is damaged"):
        interop.load(saved)
    (saved / WEIGHTS).unlink()
    with pytest.raises(InputError, match=r"holds no model.safetensors"):
        interop.load(saved)
    (saved / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    with pytest.raises(InputError, match=r"only as pytorch_model.bin, a pickle"):
        interop.load(saved)
    (saved / CONFIG).write_text("[]")
    with pytest.raises(InputError, match=r"must hold an object"):
        interop.load(saved)
    (saved / CONFIG).unlink()
    with pytest.raises(InputError, match=r"holds no config.json"):
        interop.load(saved)
    with pytest.raises(InputError, match=r"there is no such folder"):
        interop.load(saved / "nowhere" / "at" / "all")


def test_rotary_positions_of_another_kind_are_refused(tmp_path: Path) -> None:
    interop.save(llama(**SMALL["llama"]), tmp_path)
    change(tmp_path, rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0})
    with pytest.raises(ConfigurationError, match=r"rotary positions of the kind 'yarn'"):
        interop.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "base"), [("bert", "bert."), ("roberta", "roberta."), ("gpt2", "transformer."), ("vit", "vit.")]
)
def test_old_spellings_are_read(name: str, base: str, tmp_path: Path) -> None:
    """As the first checkpoints of BERT and GPT-2 have them: gamma and beta, no prefix, more than is needed."""
    torch.manual_seed(0)
    model = FAMILIES[name](**SMALL[name])
    interop.save(model, tmp_path)
    tensors = load_file(tmp_path / WEIGHTS)
    old = {
        key.removeprefix(base).replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): tensor
        for key, tensor in tensors.items()
    }
    more = ["cls.seq_relationship.bias", "pooler.dense.weight"] if "bert" in name else [f"{base}pooler.dense.bias"]
    more = ["h.0.attn.bias", "h.1.attn.masked_bias"] if name == "gpt2" else more
    save_file({**old, **{key: torch.zeros(2) for key in more}}, tmp_path / WEIGHTS)
    loaded = interop.load(tmp_path)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), loaded.parameters(), strict=True))
    first = next(key.removeprefix(base) for key in tensors if key.startswith(base) and "Norm" not in key)
    save_file({**old, base + first: old[first].clone()}, tmp_path / WEIGHTS)
    with pytest.raises(InputError, match=rf"surplus: {first}"):
        interop.load(tmp_path)


def test_a_stack_is_found_in_a_checkpoint_with_a_prefix_and_keeps_its_pooler(tmp_path: Path) -> None:
    numbers = SMALL["vit"] | {"classes": None, "pooler": True}
    model = FAMILIES["vit"](**numbers)
    interop.save(model, tmp_path)
    save_file({f"vit.{key}": tensor for key, tensor in load_file(tmp_path / WEIGHTS).items()}, tmp_path / WEIGHTS)
    loaded, pixels = interop.load(tmp_path), torch.randn(2, 3, 4, 4)
    assert torch.equal(loaded.pooler(loaded(pixels)), model.pooler(model(pixels)))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("name", "keys", "sentence"),
    [
        ("gpt2", {"resid_pdrop": None}, r"config.json does not describe a gpt2 model"),
        ("captioner", {"encoder": None}, r"config.json does not describe a vision-encoder-decoder model"),
        ("llama", {"rope_parameters": {"rope_theta": "much"}}, r"config.json does not describe a llama model"),
        ("roberta", {"pad_token_id": 0}, r"pad_token_id is 0 in config.json: only 1 is supported in a roberta model"),
        ("vit", {"architectures": ["ViTModel"]}, r"surplus: classifier"),
    ],
)
def test_a_config_that_does_not_fit_is_a_sentence(
    name: str, keys: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    interop.save(FAMILIES[name](**SMALL[name]), tmp_path)
    change(tmp_path, **keys)
    with pytest.raises((ConfigurationError, InputError), match=sentence):
        interop.load(tmp_path)


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("taken")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(TrainingError, match=r"cannot be written"):
            interop.save(gpt2(**SMALL["gpt2"]), place)


def test_half_precision_is_read_as_float32_and_written_so(saved: Path) -> None:
    expected = interop.load(saved)
    save_file({key: tensor.bfloat16() for key, tensor in load_file(saved / WEIGHTS).items()}, saved / WEIGHTS)
    change(saved, torch_dtype="bfloat16")
    loaded = interop.load(saved)
    for one, other in zip(expected.parameters(), loaded.parameters(), strict=True):
        assert other.dtype == torch.float32
        assert torch.equal(one.bfloat16().float(), other)
    interop.save(loaded, saved / "again")
    assert "torch_dtype" not in json.loads((saved / "again" / CONFIG).read_text())


def test_interop_is_there_without_an_import_of_its_own() -> None:
    code = "import glassformer as gf, sys; assert 'glassformer.interop' not in sys.modules; gf.interop.load"
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603


def test_only_models_of_a_family_with_a_counterpart_are_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no family function has made"):
        interop.save(nn.Linear(2, 2), tmp_path)
    plain = FAMILIES["transformer"](30, width=8, heads=2, layers=1, hidden=12)
    with pytest.raises(
        ConfigurationError, match=r'the family "transformer" has no counterpart in transformers: these have: bart, bert'
    ):
        interop.save(plain, tmp_path)


@pytest.mark.parametrize("change", [pack, quantise])
def test_what_was_packed_or_quantised_is_not_written(change: Callable[[nn.Module], nn.Module], tmp_path: Path) -> None:
    model = gpt2(30, width=512, heads=2, layers=1, length=10).eval()
    with pytest.raises(GlassformerError, match=r"cannot be saved: save the original"):
        interop.save(change(model), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["nowhere", "./no/where", "/no/where", "~/nowhere", "a/b/c", "of /one", "nowhere/"])
def test_the_hub_is_not_asked_for_what_is_no_name_there(name: str) -> None:
    with pytest.raises(InputError, match=r"there is no such folder"):
        interop.load(name)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(InputError, match=r"model\.safetensors is a file: name the folder that it is in"):
        interop.load(tmp_path / "model.safetensors")


def test_the_hub_is_asked_for_a_name_and_silence_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        InputError, match=r"nobody/nothing-like-it is no folder on this machine, and the hub cannot be reached"
    ):
        interop.load("nobody/nothing-like-it")
