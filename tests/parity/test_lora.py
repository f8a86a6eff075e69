"""Adapters against `peft`: it reads ours and we read its, to the same logits; merged models against `transformers`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from glassformer import interop
from glassformer.models import transformer
from glassformer.parts import LoRALinear, adapt, adapters, merge, use
from glassformer.parts.lora import lora_parts

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
TOKENS, OTHERS = torch.tensor([[5, 6, 7, 8], [9, 4, 3, 2]]), torch.tensor([[3, 9, 8], [3, 7, 6]])
Made = tuple[Any, tuple[Tensor, ...], dict[str, Tensor]]  # a model of theirs, and inputs for ours and for theirs
ONE: tuple[tuple[Tensor, ...], dict[str, Tensor]] = (TOKENS,), {"input_ids": TOKENS}
TWO: tuple[tuple[Tensor, ...], dict[str, Tensor]] = (
    (TOKENS, OTHERS),
    {"input_ids": TOKENS, "decoder_input_ids": OTHERS},
)


def bert(name: str = "BertForSequenceClassification") -> Made:
    kind = transformers.BertConfig if name.startswith("Bert") else transformers.RobertaConfig
    config = kind(
        vocab_size=61,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=20,
        num_labels=3,
        pad_token_id=1,
        initializer_range=0.5,
    )
    return getattr(transformers, name)(config), *ONE


def bart() -> Made:
    sizes = {f"{side}_{key}": 2 for side in ("encoder", "decoder") for key in ("layers", "attention_heads")}
    config = transformers.BartConfig(
        vocab_size=61, d_model=8, encoder_ffn_dim=12, decoder_ffn_dim=12, max_position_embeddings=20, **sizes
    )
    return transformers.BartForConditionalGeneration(config), *TWO


def t5(gated: bool = False) -> Made:
    config = transformers.T5Config(
        vocab_size=61,
        d_model=8,
        d_kv=4,
        d_ff=12,
        num_layers=2,
        num_heads=2,
        feed_forward_proj="gated-gelu" if gated else "relu",
    )
    return transformers.T5ForConditionalGeneration(config), *TWO


def llama(tied: bool = False) -> Made:
    config = transformers.LlamaConfig(
        vocab_size=61,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=12,
        tie_word_embeddings=tied,
    )
    return transformers.LlamaForCausalLM(config), *ONE


def gpt2() -> Made:
    config = transformers.GPT2Config(vocab_size=61, n_embd=8, n_layer=2, n_head=2, n_positions=20)
    return transformers.GPT2LMHeadModel(config), *ONE


def vit(name: str = "ViTForImageClassification") -> Made:
    config = transformers.ViTConfig(
        image_size=8,
        patch_size=4,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        num_labels=3,
        initializer_range=0.5,
    )
    pixels = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return getattr(transformers, name)(config), (pixels,), {"pixel_values": pixels}


CASES: list[tuple[Callable[[], Made], list[str], list[str]]] = [  # a model, our targets, theirs
    (bert, ["query", "value"], ["query", "value"]),
    (bert, ["encoder.*.part.*"], ["query", "key", "value", "attention.output.dense", "intermediate.dense"]),
    (lambda: bert("RobertaForMaskedLM"), ["query", "head.0.dense", "head.1"], ["value", "lm_head.dense"]),
    (lambda: bert("BertModel"), ["query"], ["key", "encoder.layer.1.output.dense"]),
    (bart, ["query", "value", "expand"], ["q_proj", "v_proj", "fc2"]),
    (bart, ["head", "decoder.blocks.1.*.query"], ["lm_head", "q_proj"]),
    (t5, ["query", "value"], ["q", "v", "wo"]),
    (lambda: t5(gated=True), ["*.part.*", "head"], ["q", "k", "v", "o", "wi_0", "wi_1", "wo", "lm_head"]),
    (llama, ["query", "key", "gate", "head"], ["q_proj", "down_proj", "lm_head"]),
    (lambda: llama(tied=True), ["query", "value"], ["o_proj", "lm_head"]),
    (gpt2, ["query", "value"], ["c_attn"]),
    (gpt2, ["*.part.*"], ["c_attn", "c_proj", "c_fc"]),
    (gpt2, ["decoder.blocks.1.*.key", "expand"], ["c_fc", "lm_head"]),
    (vit, ["query", "value"], ["q_proj", "v_proj"]),
    (vit, ["encoder.*.part.*", "head.scores"], ["q_proj", "k_proj", "o_proj", "fc1", "fc2", "classifier"]),
    (lambda: vit("ViTModel"), ["blocks.1.*.output"], ["layers.1.mlp.fc2", "v_proj"]),
]


def first(answer: Any) -> Tensor:
    """Their logits, or the vectors of a model without a head."""
    return answer.logits if hasattr(answer, "logits") else answer.last_hidden_state  # type: ignore[no-any-return]


def same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-5)


def stirred(model: nn.Module) -> None:
    with torch.no_grad():
        for part in lora_parts(model).values():
            for low in part.adapters.values():
                nn.init.normal_(low.up, std=0.1)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("make", "ours", "_"), CASES)
def test_peft_reads_our_adapters(make: Callable[[], Made], ours: list[str], _: list[str], tmp_path: Path) -> None:
    theirs, own_inputs, inputs = make()
    theirs.eval().save_pretrained(tmp_path / "base")
    model = interop.load(tmp_path / "base")
    base = model(*own_inputs)
    adapt(model, rank=3, alpha=4.5, targets=ours)
    stirred(model)
    expected = model(*own_inputs)
    assert not torch.allclose(expected, base, atol=1e-3)
    interop.save_lora(model, tmp_path / "adapter")
    same(first(peft.PeftModel.from_pretrained(theirs, tmp_path / "adapter").eval()(**inputs)), expected)
    again = interop.load_lora(interop.load(tmp_path / "base"), tmp_path / "adapter")
    same(again(*own_inputs), expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("stabilised", [False, True])
@pytest.mark.parametrize(("make", "_", "targets"), CASES)
def test_we_read_the_adapters_of_peft(
    make: Callable[[], Made], _: list[str], targets: list[str], stabilised: bool, tmp_path: Path
) -> None:
    theirs, own_inputs, inputs = make()
    theirs.eval().save_pretrained(tmp_path / "base")
    model = interop.load(tmp_path / "base")
    base = model(*own_inputs)
    config = peft.LoraConfig(
        r=3, lora_alpha=5, target_modules=targets, init_lora_weights=False, use_rslora=stabilised, lora_dropout=0.1
    )
    adapted = peft.get_peft_model(theirs, config).eval()
    adapted.save_pretrained(tmp_path / "adapter")
    interop.load_lora(model, tmp_path / "adapter", name="theirs")
    assert adapters(model) == ["theirs"]
    expected = first(adapted(**inputs))
    assert not torch.allclose(expected, base, atol=1e-3)
    same(model(*own_inputs), expected)
    interop.save_lora(model, tmp_path / "back")  # and back: what was one there is one again
    before, after = (load_file(tmp_path / each / "adapter_model.safetensors") for each in ("adapter", "back"))
    assert {key for key in before if "base_layer" not in key} == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in after)


@pytest.mark.filterwarnings("ignore")
def test_a_trained_head_goes_along_both_ways(tmp_path: Path) -> None:
    theirs, own_inputs, inputs = bert()
    theirs.eval().save_pretrained(tmp_path / "base")
    model = adapt(interop.load(tmp_path / "base"), rank=2, targets=["query"])
    model.head.requires_grad_(True)
    stirred(model)
    with torch.no_grad():
        for parameter in model.head.parameters():  # type: ignore[union-attr]
            parameter.normal_()
    interop.save_lora(model, tmp_path / "ours")
    config = json.loads((tmp_path / "ours" / "adapter_config.json").read_text())
    assert config["modules_to_save"] == ["bert.pooler.dense", "classifier"]
    loaded = peft.PeftModel.from_pretrained(theirs, tmp_path / "ours").eval()
    same(first(loaded(**inputs)), model(*own_inputs))
    again = interop.load_lora(interop.load(tmp_path / "base"), tmp_path / "ours")
    assert torch.equal(again(*own_inputs), model(*own_inputs))
    assert again.head.scores.weight.requires_grad  # type: ignore[union-attr]

    theirs = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "base")
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["value"], init_lora_weights=False)
    adapted = peft.get_peft_model(theirs, config).eval()
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "modules_to_save" in name:
                parameter.normal_()
    adapted.save_pretrained(tmp_path / "theirs")
    model = interop.load_lora(interop.load(tmp_path / "base"), tmp_path / "theirs")
    same(model(*own_inputs), first(adapted(**inputs)))


@pytest.mark.filterwarnings("ignore")
def test_adapters_of_a_vit_by_its_names_before_are_read(tmp_path: Path) -> None:
    theirs, own_inputs, inputs = vit()
    theirs.eval().save_pretrained(tmp_path / "base")
    config = peft.LoraConfig(
        r=2, target_modules=["q_proj", "fc2"], modules_to_save=["classifier"], init_lora_weights=False
    )
    adapted = peft.get_peft_model(theirs, config).eval()
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "modules_to_save" in name:
                parameter.normal_()
    adapted.save_pretrained(tmp_path / "now")
    before = {"layers": "encoder.layer", "attention.q_proj": "attention.attention.query", "mlp.fc2": "output.dense"}
    tensors, told = {}, json.loads((tmp_path / "now" / "adapter_config.json").read_text())
    for key, tensor in load_file(tmp_path / "now" / "adapter_model.safetensors").items():
        for new, old in before.items():
            key = key.replace(f".{new}.", f".{old}.")
        tensors[key] = tensor
    (tmp_path / "once").mkdir()
    save_file(tensors, tmp_path / "once" / "adapter_model.safetensors")
    told["target_modules"] = r".*(query|\d\.output\.dense)"
    (tmp_path / "once" / "adapter_config.json").write_text(json.dumps(told))
    once = interop.load_lora(interop.load(tmp_path / "base"), tmp_path / "once")
    same(once(*own_inputs), first(adapted(**inputs)))
    now = interop.load_lora(interop.load(tmp_path / "base"), tmp_path / "now")
    same(now(*own_inputs), first(adapted(**inputs)))


@pytest.mark.filterwarnings("ignore")
def test_patterns_of_ranks_and_alphas_are_read(tmp_path: Path) -> None:
    theirs, own_inputs, inputs = llama()
    theirs.eval().save_pretrained(tmp_path / "base")
    config = peft.LoraConfig(
        r=2,
        lora_alpha=3,
        target_modules=["q_proj", "v_proj"],
        rank_pattern={"q_proj": 4, r"layers\.1\.self_attn\.v_proj": 1},
        alpha_pattern={"model.layers.0.self_attn.q_proj": 7},
        init_lora_weights=False,
    )
    adapted = peft.get_peft_model(theirs, config).eval()
    adapted.save_pretrained(tmp_path / "adapter")
    model = interop.load_lora(interop.load(tmp_path / "base"), tmp_path / "adapter")
    same(model(*own_inputs), first(adapted(**inputs)))
    interop.save_lora(model, tmp_path / "again")
    again = interop.load_lora(interop.load(tmp_path / "base"), tmp_path / "again")
    assert torch.equal(again(*own_inputs), model(*own_inputs))


@pytest.mark.filterwarnings("ignore")
def test_our_own_family_goes_by_our_names_and_peft_reads_that_too(tmp_path: Path) -> None:
    plain = transformer(30, width=8, heads=2, layers=1, hidden=12, dropout=0.0, tie_output=False).eval()
    weights = {name: tensor.clone() for name, tensor in plain.state_dict().items()}
    model = adapt(plain, rank=2, targets=["query", "output"])
    stirred(model)
    expected = model(TOKENS, OTHERS)
    interop.save_lora(model, tmp_path)
    base = transformer(30, width=8, heads=2, layers=1, hidden=12, dropout=0.0, tie_output=False).eval()
    base.load_state_dict(weights)
    same(peft.PeftModel.from_pretrained(base, tmp_path)(TOKENS, OTHERS), expected)


@pytest.mark.parametrize("make", [gpt2, llama, t5, lambda: t5(gated=True), lambda: bert("BertForMaskedLM"), bert])
@pytest.mark.parametrize("targets", [["query"], ["*"]])
def test_a_merged_model_is_written_for_transformers(
    make: Callable[[], Made], targets: list[str], tmp_path: Path
) -> None:
    theirs, own_inputs, inputs = make()
    theirs.save_pretrained(tmp_path / "base")
    model = adapt(interop.load(tmp_path / "base"), rank=2, targets=targets)
    stirred(model)
    expected = model(*own_inputs)
    merge(model)
    interop.save(model, tmp_path / "whole")
    again = type(theirs).from_pretrained(tmp_path / "whole").eval()
    same(first(again(**inputs)), expected)
    same(interop.load(tmp_path / "whole")(*own_inputs), expected)
    use(model, None)
    interop.save(model, tmp_path / "bare")
    same(first(type(theirs).from_pretrained(tmp_path / "bare").eval()(**inputs)), model(*own_inputs))
    assert any(isinstance(part, LoRALinear) for part in model.modules())
