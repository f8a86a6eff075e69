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
from glassformer.models import FAMILIES, bart, bert, blueprint_of, gpt2, llama, marian, t5
from glassformer.parts import BatchNorm, PostNorm, RMSNorm, Sinusoidal, gelu, gelu_tanh, pack, quantise, relu, silu
from glassformer.parts.schemes import rotary

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


def test_every_family_that_others_have_is_tried() -> None:
    ours = {"transformer", "recurrent", "series_decoder", "series_encoder", "series_recurrent"}
    assert {*SMALL} == {*FAMILIES.names()} - ours


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    interop.save(gpt2(**SMALL["gpt2"]), tmp_path)
    return tmp_path


def change(folder: Path, **keys: Any) -> None:
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**config, **keys}))


@pytest.mark.parametrize("name", SMALL)
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
    with pytest.raises(
        InputError, match=r"index.json (is damaged|has no weight_map|cannot be read|holds no JSON object)"
    ):
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
    change(saved, architectures=["GPT2Model"])
    with pytest.raises(InputError, match=r"GPT2Model cannot be read; its family can be read as GPT2LMHeadModel: if it"):
        interop.load(saved)
    change(saved, architectures=["MistralForCausalLM"])
    with pytest.raises(InputError, match=r"MistralForCausalLM cannot be read; models of these types can be: bart, "):
        interop.load(saved)
    change(saved, architectures=None)
    with pytest.raises(InputError, match=r"names no architecture"):
        interop.load(saved)
    change(saved, architectures=["GPT2LMHeadModel"], activation_function="mish")
    with pytest.raises(InputError, match=r"config.json: activation_function is 'mish': these activations are"):
        interop.load(saved)
    change(saved, activation_function="gelu_new", scale_attn_weights=False)
    with pytest.raises(InputError, match=r"scale_attn_weights is False: only True is supported in a gpt2 model"):
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
    with pytest.raises(InputError, match=r"holds no JSON object"):
        interop.load(saved)
    (saved / CONFIG).unlink()
    with pytest.raises(InputError, match=r"holds no config.json"):
        interop.load(saved)
    with pytest.raises(InputError, match=r"there is no such folder"):
        interop.load(saved / "nowhere" / "at" / "all")


def test_rotary_positions_of_another_kind_are_refused(tmp_path: Path) -> None:
    interop.save(llama(**SMALL["llama"]), tmp_path)
    change(tmp_path, rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0})
    with pytest.raises(InputError, match=r"rope_type is 'yarn' in rope_parameters: only 'default' is supported"):
        interop.load(tmp_path)


@pytest.mark.parametrize("name", ["gpt2", "bart", "marian", "t5"])
def test_heads_are_counted_under_their_other_name(name: str, tmp_path: Path) -> None:
    key = {"gpt2": "n_head", "t5": "num_heads"}.get(name, "encoder_attention_heads")
    interop.save(FAMILIES[name](**SMALL[name]), tmp_path)
    config = json.loads((tmp_path / CONFIG).read_text())
    change(tmp_path, num_attention_heads=4)
    with pytest.raises(InputError, match=rf"{key} is 2, but num_attention_heads is 4, and both mean the same"):
        interop.load(tmp_path)
    del config[key]
    (tmp_path / CONFIG).write_text(json.dumps({**config, "num_attention_heads": 2}))
    loaded = interop.load(tmp_path)
    assert blueprint_of(loaded).arguments["heads"] == 2
    interop.save(loaded, tmp_path / "again")
    assert json.loads((tmp_path / "again" / CONFIG).read_text())[key] == 2


def test_the_older_key_of_rotary_positions_wins(tmp_path: Path) -> None:
    interop.save(llama(**SMALL["llama"]), tmp_path)
    change(tmp_path, rope_scaling={"type": "default", "rope_theta": 50.0})
    assert blueprint_of(interop.load(tmp_path)).arguments["base"] == 50.0
    change(tmp_path, rope_scaling={"type": "linear", "factor": 2.0})
    with pytest.raises(InputError, match=r"rope_type is 'linear' in rope_scaling"):
        interop.load(tmp_path)
    change(tmp_path, rope_scaling=None, partial_rotary_factor=0.5)
    with pytest.raises(InputError, match=r"partial_rotary_factor is 0.5"):
        interop.load(tmp_path)


@pytest.mark.parametrize("given", [None, gelu, silu])
@pytest.mark.parametrize("gated", [False, True])
def test_t5_keeps_its_activation(given: Any, gated: bool, tmp_path: Path) -> None:
    model = t5(**SMALL["t5"], gated=gated, activation=given)
    interop.save(model, tmp_path)
    assert blueprint_of(interop.load(tmp_path)).arguments["activation"] is (given or (gelu_tanh if gated else relu))
    change(tmp_path, dense_act_fn="gelu_new")
    assert blueprint_of(interop.load(tmp_path)).arguments["activation"] is gelu_tanh


def test_t5_without_a_scale_of_outputs_has_none(tmp_path: Path) -> None:
    interop.save(t5(**SMALL["t5"]), tmp_path)
    assert blueprint_of(interop.load(tmp_path)).arguments["scaled"] is True
    change(tmp_path, scale_decoder_outputs=None)
    assert blueprint_of(interop.load(tmp_path)).arguments["scaled"] is False


def test_marian_tables_must_be_sinusoids(tmp_path: Path) -> None:
    interop.save(marian(**SMALL["marian"]), tmp_path)
    tensors, waves = load_file(tmp_path / WEIGHTS), Sinusoidal(8, interleaved=False)(torch.zeros(1, 20, 8))[0]
    for table in (waves, waves.half(), waves.bfloat16()):
        save_file({**tensors, "model.encoder.embed_positions.weight": table.clone()}, tmp_path / WEIGHTS)
        interop.load(tmp_path)
    for wrong in (waves + 0.001, waves.roll(1, dims=0), waves[:, :4].clone()):
        save_file({**tensors, "model.decoder.embed_positions.weight": wrong.contiguous()}, tmp_path / WEIGHTS)
        with pytest.raises(InputError, match=r"decoder.embed_positions.weight holds other numbers than the table"):
            interop.load(tmp_path)


def test_the_bias_of_bart_is_zero_where_it_is_missing(tmp_path: Path) -> None:
    interop.save(bart(**SMALL["bart"]), tmp_path)
    tensors = load_file(tmp_path / WEIGHTS)
    del tensors["final_logits_bias"]
    save_file(tensors, tmp_path / WEIGHTS)
    head = interop.load(tmp_path).head
    assert not head.bias.any()  # type: ignore[union-attr, operator]


def test_the_number_of_labels_wins_over_their_names(tmp_path: Path) -> None:
    interop.save(bert(**SMALL["bert"] | {"answer": "classes", "classes": 3}), tmp_path)
    change(tmp_path, num_labels=3, id2label={"0": "no", "1": "yes"})
    loaded = interop.load(tmp_path)
    assert blueprint_of(loaded).arguments["classes"] == 3
    interop.save(loaded, tmp_path / "again")
    config = json.loads((tmp_path / "again" / CONFIG).read_text())
    assert (len(config["id2label"]), "num_labels" in config) == (3, False)


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("vit", {"image_size": [4, 4], "patch_size": [2, 2]}),
        ("gpt2", {"activation_function": "gelu_fast"}),
        ("bert", {"hidden_act": "gelu_python"}),
        ("llama", {"pretraining_tp": 2}),
        ("gpt2", {"no_such_key": None, "nor_such": False, "nor_this": {}}),
    ],
)
def test_what_changes_nothing_is_accepted(name: str, keys: dict[str, Any], tmp_path: Path) -> None:
    interop.save(FAMILIES[name](**SMALL[name]), tmp_path)
    expected = blueprint_of(interop.load(tmp_path)).arguments
    change(tmp_path, **keys)
    assert blueprint_of(interop.load(tmp_path)).arguments == expected


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
        ("gpt2", {"resid_pdrop": None}, r"config.json: resid_pdrop is None: expected a number"),
        ("gpt2", {"layer_norm_epsilon": "1e-5"}, r"layer_norm_epsilon is '1e-5': expected a number"),
        ("gpt2", {"tie_word_embeddings": "false"}, r"tie_word_embeddings is 'false': expected true or false"),
        ("gpt2", {"n_head": 2.0}, r"n_head is 2.0: expected a whole number"),
        ("captioner", {"encoder": None}, r"config.json: encoder must be an object that describes a vit model"),
        ("llama", {"rope_parameters": {"rope_theta": "much"}}, r"config.json: this does not describe a llama model"),
        ("llama", {"model_type": "mistral"}, r"model_type is 'mistral': only 'llama' is supported"),
        (
            "llama",
            {"sliding_window": 4},
            r"sliding_window is 4, a key that is not known in a llama model: delete it if",
        ),
        ("bart", {"auto_map": {"AutoModel": "own.Model"}}, r"auto_map is .*, a key that is not known in a bart model"),
        ("roberta", {"pad_token_id": 0}, r"pad_token_id is 0: only 1 is supported in a roberta model"),
        ("vit", {"image_size": [4, 8]}, r"image_size is \[4, 8\]: only squares are supported"),
        ("vit", {"architectures": ["ViTModel"]}, r"surplus: classifier"),
        ("vit", {"id2label": {}}, r"id2label names no label: expected one or more"),
        ("roberta", {"num_labels": 0}, r"num_labels names no label"),
        ("marian", {"decoder_layers": 0}, r"decoder_layers is 0: expected a whole number from 1"),
        ("t5", {"num_decoder_layers": 0}, r"num_decoder_layers is 0: expected a whole number from 1 or null"),
    ],
)
def test_a_config_that_does_not_fit_is_a_sentence(
    name: str, keys: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    interop.save(FAMILIES[name](**SMALL[name]), tmp_path)
    change(tmp_path, **keys)
    with pytest.raises(InputError, match=sentence):
        interop.load(tmp_path)


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("decoder", "scale_attn_weights", False),
        ("decoder", "scale_attn_by_inverse_layer_idx", True),
        ("decoder", "add_cross_attention", False),
        ("decoder", "model_type", "bert"),
        ("encoder", "qkv_bias", False),
    ],
)
def test_the_parts_of_a_captioner_are_checked_like_models_of_their_own(
    part: str, key: str, value: Any, tmp_path: Path
) -> None:
    interop.save(FAMILIES["captioner"](**SMALL["captioner"]), tmp_path)
    config = json.loads((tmp_path / CONFIG).read_text())
    change(tmp_path, **{part: {**config[part], key: value}})
    with pytest.raises(InputError, match=rf"config.json: {part}: {key} is {value!r}: only"):
        interop.load(tmp_path)


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("taken")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(TrainingError, match=r"cannot be written"):
            interop.save(gpt2(**SMALL["gpt2"]), place)


def test_whole_numbers_are_no_weights(saved: Path) -> None:
    tensors = load_file(saved / WEIGHTS)
    tensors["transformer.wpe.weight"] = tensors["transformer.wpe.weight"].to(torch.int8)
    save_file(tensors, saved / WEIGHTS)
    with pytest.raises(InputError, match=r"wpe.weight holds whole numbers \(torch.int8\): quantised weights are not"):
        interop.load(saved)


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
    plain = FAMILIES["recurrent"](30, width=8, layers=1)
    with pytest.raises(
        ConfigurationError, match=r'the family "recurrent" has no counterpart in transformers: these have: bart, bert'
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


@pytest.mark.parametrize(
    ("name", "key", "value", "shown", "instead"),
    [
        ("bart", "key_value_heads", 1, "1", "without model.key_value_heads"),
        ("marian", "key_value_heads", 1, "1", "without model.key_value_heads"),
        ("t5", "key_value_heads", 1, "1", "without model.key_value_heads"),
        ("t5", "residual", PostNorm, "post", "with model.residual = pre"),
        ("vit", "positions", rotary, "rotary", "with model.positions = learned"),
        ("vit", "norm", BatchNorm, "batch", "with model.norm = layer"),
        ("captioner", "positions", rotary, "rotary", "with model.positions = learned"),
        ("captioner", "norm", RMSNorm, "rms", "with model.norm = layer"),
        ("captioner", "gated", True, "True", "with model.gated = False"),
    ],
)
def test_a_choice_that_transformers_does_not_have_is_not_written(
    name: str, key: str, value: Any, shown: str, instead: str, tmp_path: Path
) -> None:
    model = FAMILIES[name](**SMALL[name], **{key: value})
    sentence = f"a {name} with {key} = {shown} has no counterpart in transformers: train one {instead}"
    with pytest.raises(ConfigurationError, match=sentence):
        interop.save(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()
