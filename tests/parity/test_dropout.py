"""Dropout falls where it falls in `transformers`, with the shares that a checkpoint's config names."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import glassformer as gf
from glassformer.parts import MultiHeadAttention, attention
from glassformer.parts.dropout import Dropout

transformers = pytest.importorskip("transformers")
BERT = {
    "vocab_size": 31,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 12,
    "hidden_dropout_prob": 0.2,
    "attention_probs_dropout_prob": 0.3,
}
GPT2 = {"n_embd": 8, "n_layer": 2, "n_head": 2, "embd_pdrop": 0.2, "resid_pdrop": 0.3, "attn_pdrop": 0.4}
BART = {
    "vocab_size": 31,
    "d_model": 8,
    **{f"{side}_layers": 1 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 2 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 12 for side in ("encoder", "decoder")},
    "dropout": 0.2,
    "attention_dropout": 0.3,
    "activation_dropout": 0.4,
    "pad_token_id": 1,
    "decoder_start_token_id": 1,
}
LLAMA = {"vocab_size": 31, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
T5 = {"vocab_size": 31, "d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 2, "num_heads": 2, "dropout_rate": 0.2}
VIT = {key: value for key, value in BERT.items() if key not in ("vocab_size", "max_position_embeddings")}
VIT |= {"image_size": 4, "patch_size": 2}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "BertForMaskedLM": ("BertConfig", BERT),
    "BertForSequenceClassification": ("BertConfig", {**BERT, "classifier_dropout": 0.5}),
    "RobertaForSequenceClassification": ("RobertaConfig", BERT),
    "GPT2LMHeadModel": ("GPT2Config", {"vocab_size": 31, "n_positions": 12, **GPT2}),
    "LlamaForCausalLM": ("LlamaConfig", {**LLAMA, "attention_dropout": 0.3}),
    "T5ForConditionalGeneration": ("T5Config", T5),
    "BartForConditionalGeneration": ("BartConfig", BART),
    "MarianMTModel": ("MarianConfig", BART),
    "ViTForImageClassification": ("ViTConfig", VIT),
    "VisionEncoderDecoderModel": ("VisionEncoderDecoderConfig", {}),
}


def theirs_of(name: str) -> Any:
    kind, numbers = MODELS[name]
    if name == "VisionEncoderDecoderModel":
        decoder = transformers.GPT2Config(vocab_size=31, add_cross_attention=True, is_decoder=True, **GPT2)
        sides = transformers.ViTConfig(**VIT), decoder
        config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(*sides)
    else:
        config = getattr(transformers, kind)(**numbers)
    config._attn_implementation = "eager"
    return getattr(transformers, name)(config)


def telling(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In the place of dropout: something as unmistakable, but the same each time."""
    return x * (1 + p) if training else x


@pytest.mark.parametrize("name", MODELS)
def test_dropout_falls_where_theirs_does(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    theirs = theirs_of(name)
    theirs.save_pretrained(tmp_path)
    ours = gf.interop.load(tmp_path).train()
    monkeypatch.setattr(torch.nn.functional, "dropout", telling)
    monkeypatch.setattr(Dropout, "forward", lambda self, x: telling(x, self.rate, self.training))
    tokens, pixels = torch.randint(3, 31, (2, 5)), torch.randn(2, 3, 4, 4)
    inputs: dict[str, Tensor] = {"input_ids": tokens}
    if theirs.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens.flip(0)
    if "Vi" in name[:2]:
        inputs = {"pixel_values": pixels, **{key: x for key, x in inputs.items() if key != "input_ids"}}
    module = sys.modules[MultiHeadAttention.__module__]  # in the open: fused kernels have a dropout of their own
    monkeypatch.setattr(module, "fused_attention", lambda *inputs: attention(*inputs)[0])
    with torch.no_grad():
        torch.testing.assert_close(ours(*inputs.values()), theirs.train()(**inputs).logits, atol=1e-5, rtol=1e-5)
