"""Llama's names."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from glassformer.errors import ConfigurationError
from glassformer.models import Made, llama
from glassformer.pretrained.adapter import Adapter, Config, Number
from glassformer.pretrained.names import Table, line

NUMBERS = [
    Number("vocab_size", "vocabulary", 32_000),
    Number("hidden_size", "width", 4096),
    Number("num_attention_heads", "heads", 32),
    Number("num_hidden_layers", "layers", 32),
    Number("intermediate_size", "hidden", 11_008),
    Number("max_position_embeddings", "length", 2048),
    Number("num_key_value_heads", "key_value_heads"),
    Number("head_dim", "head_width"),
    Number("attention_dropout", "attention_dropout", 0.0),
    Number("hidden_act", "activation", "silu"),
    Number("rms_norm_eps", "epsilon", 1e-6),
    Number("attention_bias", "attention_bias", False),
    Number("mlp_bias", "feed_forward_bias", False),
    Number("tie_word_embeddings", "tie_output", False),
]


def _refine(config: Config, names: Collection[str], arguments: dict[str, Any]) -> None:
    """The base of the rotary positions, which has moved within the config over the years."""
    rotary = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rotary.get("rope_type", rotary.get("type", "default"))
    if kind != "default":
        raise ConfigurationError(f"rotary positions of the kind {kind!r} in config.json: only 'default' is supported")
    arguments["base"] = float(rotary.get("rope_theta") or config.get("rope_theta") or 10_000.0)


def _describe(arguments: dict[str, Any], config: Config) -> None:
    config["rope_parameters"] = {"rope_theta": arguments["base"], "rope_type": "default"}
    config["rope_theta"] = arguments["base"]  # where older versions look
    config.pop("rope_scaling", None)
    for key, value in (
        ("num_key_value_heads", arguments["heads"]),
        ("head_dim", arguments["width"] // arguments["heads"]),
    ):
        config[key] = value if config[key] is None else config[key]


def _table(made: Made) -> Table:
    block, ours = "model.layers.*.", "decoder.blocks.*."
    attention, forward = f"{ours}self_attention.part.", f"{ours}feed_forward.part."
    lines = [
        line("model.embed_tokens", "decoder.embedding"),
        line(f"{block}input_layernorm", f"{ours}self_attention.norm"),
        line(f"{block}self_attn.q_proj", f"{attention}query"),
        line(f"{block}self_attn.k_proj", f"{attention}key"),
        line(f"{block}self_attn.v_proj", f"{attention}value"),
        line(f"{block}self_attn.o_proj", f"{attention}output"),
        line(f"{block}post_attention_layernorm", f"{ours}feed_forward.norm"),
        line(f"{block}mlp.gate_proj", f"{forward}gate"),
        line(f"{block}mlp.up_proj", f"{forward}expand"),
        line(f"{block}mlp.down_proj", f"{forward}output"),
        line("model.norm", "decoder.norm"),
    ]
    unused = [f"{block}self_attn.rotary_emb.inv_freq"]
    if made.arguments["tie_output"]:
        return Table(lines, {"lm_head.weight": "model.embed_tokens.weight"}, unused)
    return Table([*lines, line("lm_head", "head")], unused=unused)


ADAPTER = Adapter(
    "llama", llama, {"LlamaForCausalLM": ""}, NUMBERS, _table, _refine, _describe, expected={"pretraining_tp": 1}
)
