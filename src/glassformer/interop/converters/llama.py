"""Converter of Llama."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from glassformer.errors import ConfigurationError
from glassformer.interop.converter import Config, Converter, Key, activation_key
from glassformer.interop.names import Table, line, lines
from glassformer.models import Blueprint, llama

KEYS = [
    Key("vocab_size", "vocabulary", 32_000),
    Key("hidden_size", "width", 4096),
    Key("num_attention_heads", "heads", 32),
    Key("num_hidden_layers", "layers", 32),
    Key("intermediate_size", "hidden", 11_008),
    Key("max_position_embeddings", "length", 2048),
    Key("num_key_value_heads", "key_value_heads", fallback="heads"),
    Key("head_dim", "head_width"),
    Key("attention_dropout", "attention_dropout", 0.0),
    activation_key("hidden_act", "silu"),
    Key("rms_norm_eps", "epsilon", 1e-6),
    Key("attention_bias", "attention_bias", False),
    Key("mlp_bias", "feed_forward_bias", False),
    Key("tie_word_embeddings", "tie_output", False),
]
BLOCK, OURS = "model.layers.*.", "decoder.blocks.*."
PROJECTIONS = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "output"}
NORMS = {"input_layernorm": "self_attention.norm", "post_attention_layernorm": "feed_forward.norm"}
LINES = [
    *lines("model.", "decoder.", {"embed_tokens": "embedding", "norm": "norm"}),
    *lines(BLOCK, OURS, NORMS),
    *lines(f"{BLOCK}self_attn.", f"{OURS}self_attention.part.", PROJECTIONS),
    *lines(
        f"{BLOCK}mlp.", f"{OURS}feed_forward.part.", {"gate_proj": "gate", "up_proj": "expand", "down_proj": "output"}
    ),
]


def _refine(config: Config, names: Collection[str], arguments: dict[str, Any]) -> None:
    """Read the base of the rotary positions, whose key differs between versions of `transformers`: the older wins."""
    place = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    rotary = {"rope_theta": config.get("rope_theta", 10_000.0), **(config.get(place) or {})}
    rotary.setdefault("rope_type", rotary.get("type", "default"))
    for key, only in {"rope_type": "default", "partial_rotary_factor": 1.0}.items():
        if (value := rotary.get(key, config.get(key, only))) != only:
            raise ConfigurationError(f"{key} is {value!r} in {place}: only {only!r} is supported in a llama model")
    if unknown := rotary.keys() - {"rope_type", "type", "rope_theta", "partial_rotary_factor"}:
        raise ConfigurationError(f"{min(unknown)} in {place} is not known: only default rotary positions are supported")
    arguments["base"] = float(rotary["rope_theta"])


def _describe(arguments: dict[str, Any], config: Config) -> None:
    config["rope_parameters"] = {"rope_theta": arguments["base"], "rope_type": "default"}
    config["rope_theta"] = arguments["base"]  # the key of older versions
    config.pop("rope_scaling", None)
    config["head_dim"] = arguments["head_width"] or arguments["width"] // arguments["heads"]


def _table(made: Blueprint) -> Table:
    unused = [f"{BLOCK}self_attn.rotary_emb.inv_freq"]
    if made.arguments["tie_output"]:
        return Table(LINES, {"lm_head.weight": "model.embed_tokens.weight"}, unused)
    return Table([*LINES, line("lm_head", "head")], unused=unused)


CONVERTER = Converter(
    "llama",
    llama,
    {"LlamaForCausalLM": ""},
    KEYS,
    _table,
    _refine,
    _describe,
    expressed={"base"},
    refined=["rope_theta", "rope_parameters", "rope_scaling", "partial_rotary_factor"],
    fixed={"is_encoder_decoder": False},
    ignored=["pretraining_tp", "is_llama_config"],
)
