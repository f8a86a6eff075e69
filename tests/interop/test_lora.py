"""Files of adapters without `peft`: back to the bit, small, and sentences for all that does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from glassformer import interop
from glassformer.errors import ConfigurationError, InputError, TrainingError
from glassformer.interop.peft import BASE, CONFIG, PICKLED, WEIGHTS
from glassformer.models import FAMILIES, bert, gpt2, transformer
from glassformer.parts import adapt, adapters, merged, use
from glassformer.parts.lora import lora_parts

TOKENS = torch.tensor([[5, 6, 7, 8], [9, 4, 3, 2]])
SMALL: dict[str, Any] = {"vocabulary": 30, "width": 8, "heads": 2, "layers": 2, "dropout": 0.0}
BLOCK = "transformer.h.0.attn.c_attn"


def model(seed: int = 0, **changes: Any) -> nn.Module:
    torch.manual_seed(seed)
    return gpt2(**SMALL | {"length": 10} | changes).eval()


def stirred(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for part in lora_parts(model).values():
            for low in part.adapters.values():
                nn.init.normal_(low.up, std=0.3)  # type: ignore[arg-type]
    return model


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    interop.save_lora(stirred(adapt(model(), rank=2, targets=["query", "value"])), tmp_path)
    return tmp_path


def change(folder: Path, **keys: Any) -> None:
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**config, **keys}))


def test_an_adapter_is_small_and_read_back_over_the_same_base(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"width": 128, "heads": 4, "hidden": 256, "layers": 2}
    whole = FAMILIES["bert"](vocabulary=9000, answer="classes", **sizes).eval()
    weights = {name: tensor.clone() for name, tensor in whole.state_dict().items()}
    stirred(adapt(whole, rank=8, targets=["query", "value"]))
    interop.save_lora(whole, tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 40_000
    assert sorted(path.name for path in tmp_path.iterdir()) == [CONFIG, WEIGHTS, BASE]
    again = FAMILIES["bert"](vocabulary=9000, answer="classes", **sizes).eval()
    again.load_state_dict(weights)
    interop.load_lora(again, tmp_path)
    assert torch.equal(again(TOKENS), whole(TOKENS))
    assert {name for name, each in again.named_parameters() if each.requires_grad} == {
        name for name, _ in again.named_parameters() if ".adapters." in name
    }


@pytest.mark.parametrize("tied", [True, False])
def test_our_own_family_goes_by_our_own_names(tied: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    ours = transformer(**SMALL, hidden=12, tie_output=tied).eval()
    weights = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    stirred(adapt(ours, rank=2, targets=["encoder.*.query", "head"]))
    ours.encoder.norm.requires_grad_(True)
    with torch.no_grad():
        ours.encoder.get_parameter("norm.weight").add_(1.0)
    interop.save_lora(ours, tmp_path)
    names = load_file(tmp_path / WEIGHTS).keys()
    assert "base_model.model.encoder.blocks.0.attention.part.query.lora_A.weight" in names
    assert "base_model.model.encoder.norm.bias" in names
    again = transformer(**SMALL, hidden=12, tie_output=tied).eval()
    again.load_state_dict(weights)
    interop.load_lora(again, tmp_path)
    assert torch.equal(again(TOKENS, TOKENS), ours(TOKENS, TOKENS))


def test_adapters_are_saved_by_name_and_loaded_side_by_side(tmp_path: Path) -> None:
    one = adapt(model(), rank=2, targets=["query"], name="one")
    stirred(adapt(one, rank=3, targets=["expand"], name="two"))
    second = one(TOKENS)
    for name in ("one", "two"):
        interop.save_lora(one, tmp_path / name, name)
    use(one, "one")
    first = one(TOKENS)
    other = model()
    for name in ("one", "two"):
        interop.load_lora(other, tmp_path / name, name)
    assert adapters(other) == ["one", "two"]
    for name, expected in (("one", first), ("two", second)):
        use(other, name)
        torch.testing.assert_close(other(TOKENS), expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(ConfigurationError, match='already has an adapter named "one"'):
        interop.load_lora(other, tmp_path / "two", "one")
    use(one, None)
    with pytest.raises(ConfigurationError, match="no adapter is in use"):
        interop.save_lora(one, tmp_path / "none")
    with pytest.raises(ConfigurationError, match='no adapter of this model is named "three"'):
        interop.save_lora(one, tmp_path / "none", "three")
    assert not (tmp_path / "none").exists()


def test_what_else_goes_along_can_be_told_by_name(tmp_path: Path) -> None:
    classifier = adapt(bert(**SMALL, hidden=12, length=10, answer="classes").eval(), targets=["query"])
    interop.save_lora(classifier, tmp_path, also=["head.scores.*"])
    assert json.loads((tmp_path / CONFIG).read_text())["modules_to_save"] == ["classifier"]
    assert torch.equal(load_file(tmp_path / WEIGHTS)["base_model.model.classifier.bias"], classifier.head.scores.bias)  # type: ignore[union-attr, arg-type]
    with pytest.raises(ConfigurationError, match=r"query.weight is trained too, and has an adapter"):
        interop.save_lora(classifier, tmp_path, also=["*.query.weight"])
    with pytest.raises(ConfigurationError, match=r"encoder.embedding.segments is trained too, but is no module"):
        interop.save_lora(classifier, tmp_path, also=["*.segments"])


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        ({"layers": 1}, ["surplus: transformer.h.1.attn.c_attn"]),
        ({"layers": 3}, ["missing: transformer.h.2.attn.c_attn.lora_A.weight, transformer.h.2.attn.c_attn.lora_B"]),
        (
            {"width": 12},
            [f"{BLOCK}.lora_A.weight has the wrong shape: (4, 8), expected (4, 12)", "(24, 4), expected (36, 4)"],
        ),
    ],
)
def test_an_adapter_for_another_base_is_refused_by_name_and_changes_nothing(
    changes: dict[str, Any], sentences: list[str], saved: Path
) -> None:
    other = model(**changes)
    with pytest.raises(InputError, match="is no adapter for this model") as caught:
        interop.load_lora(other, saved)
    for sentence in sentences:
        assert sentence in str(caught.value)
    assert not lora_parts(other)
    assert all(parameter.requires_grad for parameter in other.parameters())


def test_an_adapter_of_another_family_is_refused_by_name(saved: Path) -> None:
    with pytest.raises(InputError, match=r"surplus: transformer.h.0.attn.c_attn, transformer.h.1.attn.c_attn"):
        interop.load_lora(bert(**SMALL, hidden=12), saved)


def test_a_head_for_other_classes_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    classifier = adapt(bert(**SMALL, hidden=12, length=10, answer="classes", classes=3), targets=["query"])
    interop.save_lora(classifier, tmp_path, also=["head.*"])
    other = bert(**SMALL, hidden=12, length=10, answer="classes", classes=2)
    with pytest.raises(InputError, match=r"classifier.weight \(for head.scores.weight\) has the wrong shape"):
        interop.load_lora(other, tmp_path)
    assert not lora_parts(other)
    with pytest.raises(InputError, match=r"surplus: .*classifier.bias"):
        interop.load_lora(bert(**SMALL, hidden=12, length=10), tmp_path)


def test_a_stack_without_its_prefix_is_found(tmp_path: Path) -> None:
    """As `peft` writes an adapter of a BertModel, which is then put under a head."""
    numbers: dict[str, Any] = {**SMALL, "hidden": 12, "length": 10}
    torch.manual_seed(0)
    interop.save_lora(stirred(adapt(bert(**numbers), rank=2, targets=["query"])), tmp_path)
    assert not any("model.bert." in name for name in load_file(tmp_path / WEIGHTS))
    torch.manual_seed(0)
    assert len(lora_parts(interop.load_lora(bert(**numbers, answer="classes"), tmp_path))) == 2


def test_another_base_of_the_same_shape_is_refused(tmp_path: Path) -> None:
    numbers: dict[str, Any] = {**SMALL, "hidden": 12, "length": 10}
    one = adapt(bert(**numbers), rank=2, targets=["query"])
    interop.save_lora(one, tmp_path)
    with pytest.raises(InputError, match=r"trained on another base model: encoder.blocks.0.attention.part.query"):
        interop.load_lora(bert(**numbers), tmp_path)
    interop.load_lora(one, tmp_path, name="again")
    rounded = merged(one).bfloat16()
    interop.load_lora(rounded, tmp_path)  # 16 bits are the same base still
    (tmp_path / BASE).write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match=r"base.json is damaged"):
        interop.load_lora(merged(one), tmp_path)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"peft_type": "IA3"}, "an adapter of the kind IA3: only LORA"),
        ({"peft_type": None}, "an adapter of the kind None"),
        ({"use_dora": True}, "asks for use_dora: only plain LoRA"),
        ({"no_such_key": 3}, "asks for no_such_key: only plain LoRA .*; delete the key if"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights was 'pissa_niter_4', which changes the base model"),
        (
            {"init_lora_weights": "olora"},
            "init_lora_weights was 'olora', which changes the base model: with peft, conv",
        ),
        ({"bias": "all"}, "biases were trained"),
        ({"lora_alpha": "much"}, "adapter_config.json is damaged"),
        ({"lora_alpha": 0}, "alpha must be a number above 0"),
        ({"r": 2.5}, "rank must be a whole number"),
        ({"rank_pattern": {"(": 2}}, "adapter_config.json is damaged"),
        ({"rank_pattern": [1]}, "adapter_config.json is damaged"),
        ({"target_modules": "("}, "adapter_config.json is damaged"),
        ({"target_modules": 3}, "adapter_config.json is damaged"),
        (
            {"target_modules": "(.|.)*!"},
            r"adapter_config.json is damaged: its pattern '\(\.\|\.\)\*!' repeats a group with",
        ),
        ({"rank_pattern": {"(.*)*!": 2}}, "adapter_config.json is damaged: its pattern .* repeats a group with"),
        (
            {"alpha_pattern": {".*" * 9 + "!": 2}},
            "adapter_config.json is damaged: its pattern .* more than 5 repetitions",
        ),
        ({"r": 5}, r"c_attn.lora_A.weight has the wrong shape: \(4, 8\), expected \(5, 8\)"),
    ],
)
def test_a_config_that_is_not_plain_lora_is_a_sentence(keys: dict[str, Any], sentence: str, saved: Path) -> None:
    change(saved, **keys)
    other = model()
    with pytest.raises(InputError, match=sentence):
        interop.load_lora(other, saved)
    assert not lora_parts(other)


def test_every_key_of_peft_at_its_default_is_plain_lora(saved: Path) -> None:
    defaults = pytest.importorskip("peft").LoraConfig().to_dict()
    change(saved, **defaults | json.loads((saved / CONFIG).read_text()))
    assert lora_parts(interop.load_lora(model(), saved))


def test_files_that_are_not_there_damaged_or_pickled_are_a_sentence(saved: Path, tmp_path: Path) -> None:
    tensors = load_file(saved / WEIGHTS)
    lost = f"base_model.model.{BLOCK}.lora_B.weight"
    save_file({name: tensor for name, tensor in tensors.items() if name != lost}, saved / WEIGHTS)
    with pytest.raises(InputError, match=rf"missing: {BLOCK}.lora_B.weight"):
        interop.load_lora(model(), saved)
    save_file({}, saved / WEIGHTS)
    change(saved, target_modules="all-linear")
    with pytest.raises(InputError, match="it holds no A and B"):
        interop.load_lora(model(), saved)
    (saved / WEIGHTS).write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"adapter_model.safetensors is damaged"):
        interop.load_lora(model(), saved)
    (saved / WEIGHTS).unlink()
    with pytest.raises(InputError, match=r"holds no adapter_model.safetensors: it is no adapter"):
        interop.load_lora(model(), saved)
    (saved / PICKLED).write_bytes(b"cos\nsystem\n")
    with pytest.raises(InputError, match=r"its adapter_model.bin is a pickle"):
        interop.load_lora(model(), saved)
    (saved / CONFIG).unlink()
    with pytest.raises(InputError, match=r"holds no adapter_config.json: it is no adapter in peft's layout"):
        interop.load_lora(model(), saved)
    with pytest.raises(InputError, match=r"there is no such folder"):
        interop.load_lora(model(), tmp_path / "not" / "at" / "all")
    (tmp_path / "file").write_text("taken")
    with pytest.raises(TrainingError, match=r"cannot be written"):
        interop.save_lora(adapt(model()), tmp_path / "file")


def test_the_head_that_peft_keeps_beside_its_adapter_must_be_the_models(tmp_path: Path) -> None:
    interop.save_lora(stirred(adapt(model(), targets=["head"])), tmp_path)
    base = model()
    tensors = load_file(tmp_path / WEIGHTS)
    tensors["base_model.model.lm_head.base_layer.weight"] = base.head.embedding.weight.detach().clone()  # type: ignore[union-attr, operator]
    save_file(tensors, tmp_path / WEIGHTS)
    interop.load_lora(base, tmp_path)
    with pytest.raises(InputError, match="lm_head has other weights in these files than in this model"):
        interop.load_lora(model(seed=1), tmp_path)


def test_a_tied_head_with_an_adapter_is_written_as_one_of_its_own_or_refused(tmp_path: Path) -> None:
    interop.save(stirred(adapt(model(), targets=["head"])), tmp_path / "gpt2")
    assert json.loads((tmp_path / "gpt2" / "config.json").read_text())["tie_word_embeddings"] is False
    always_tied = FAMILIES["bart"](**SMALL, hidden=12, length=10)
    with pytest.raises(ConfigurationError, match=r"head.weight has no name in that format"):
        interop.save(stirred(adapt(always_tied, targets=["head"])), tmp_path / "bart")
    assert not (tmp_path / "bart").exists()
