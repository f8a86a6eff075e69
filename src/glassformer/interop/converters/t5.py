"""Converter of T5, versions 1.0 and 1.1."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from glassformer.interop.converter import Config, Converter, Key, activation, activation_name
from glassformer.interop.names import Table, line, lines
from glassformer.models import Blueprint, t5

KEYS = [
    Key("vocab_size", "vocabulary", 32_128),
    Key("d_model", "width", 512),
    Key("num_heads", "heads", 8),
    Key("num_layers", "layers", 6),
    Key("num_decoder_layers", "decoder_layers", fallback="layers"),
    Key("d_ff", "hidden", 2048),
    Key("d_kv", "head_width", 64),
    Key("dropout_rate", "dropout", 0.1),
    Key("relative_attention_num_buckets", "buckets", 32),
    Key("relative_attention_max_distance", "distance", 128),
    Key("layer_norm_epsilon", "epsilon", 1e-6),
    Key("tie_word_embeddings", "tie_output", True),
]
ALIASES = {"hidden_size": "d_model", "num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"}


def _refine(config: Config, names: Collection[str], arguments: dict[str, Any]) -> None:
    """Read the feed-forward parts: what dense_act_fn and is_gated_act say wins over what feed_forward_proj means."""
    kind = config.get("feed_forward_proj", "relu")
    name = "gelu_new" if kind == "gated-gelu" else kind.removeprefix("gated-")
    arguments["activation"] = activation(config.get("dense_act_fn", name), "dense_act_fn")
    arguments["gated"] = config.get("is_gated_act", kind.startswith("gated-"))
    arguments["scaled"] = bool(config.get("scale_decoder_outputs", arguments["tie_output"]))  # null is false
    arguments["tie_output"] = "lm_head.weight" not in names  # what the config says depends on the version


def _describe(arguments: dict[str, Any], config: Config) -> None:
    gated, given = arguments["gated"], arguments["activation"]
    name = activation_name(given) if given else "gelu_new" if gated else "relu"
    plain = {"gelu_new": "gelu"}.get(name, name) if gated else name  # they read gated-gelu as gelu_new
    config["feed_forward_proj"] = f"gated-{plain}" if gated else plain
    config["dense_act_fn"], config["is_gated_act"] = name, gated
    config["is_encoder_decoder"] = True
    scaled = arguments["scaled"]
    config["scale_decoder_outputs"] = arguments["tie_output"] if scaled is None else scaled
    config.setdefault("decoder_start_token_id", config.setdefault("pad_token_id", 0))
    config.setdefault("eos_token_id", 1)


def _table(made: Blueprint) -> Table:
    inner = {"wi_0": "gate", "wi_1": "expand"} if made.arguments["gated"] else {"wi": "expand"}
    attention = {"q": "query", "k": "key", "v": "value", "o": "output"}
    modules = {  # their name of a sublayer's module, and the names of the matrices in it
        "attention": ("SelfAttention", attention),
        "self_attention": ("SelfAttention", attention),
        "cross_attention": ("EncDecAttention", attention),
        "feed_forward": ("DenseReluDense", {**inner, "wo": "output"}),
    }
    table = [line("shared", "encoder.embedding")]
    for side, first, *others in (
        ("encoder", "attention", "feed_forward"),
        ("decoder", "self_attention", "cross_attention", "feed_forward"),
    ):
        for number, sublayer in enumerate((first, *others)):
            (module, names), theirs = modules[sublayer], f"{side}.block.*.layer.{number}."
            table.append(line(f"{theirs}layer_norm", f"{side}.blocks.*.{sublayer}.norm"))
            table += lines(f"{theirs}{module}.", f"{side}.blocks.*.{sublayer}.part.", names)
        bias = "layer.0.SelfAttention.relative_attention_bias"
        table.append(line(f"{side}.block.0.{bias}", f"{side}.blocks.0.{first}.part.positions"))
        table.append(line(f"{side}.final_layer_norm", f"{side}.norm.0"))
    copies = {f"{side}.embed_tokens.weight": "shared.weight" for side in ("encoder", "decoder")}
    unused = ["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias"]  # in the first releases
    if made.arguments["tie_output"]:
        return Table(table, {**copies, "lm_head.weight": "shared.weight"}, unused)
    return Table([*table, line("lm_head", "head")], copies, unused)


CONVERTER = Converter(
    "t5",
    t5,
    {"T5ForConditionalGeneration": ""},
    KEYS,
    _table,
    _refine,
    _describe,
    expressed={"gated", "activation", "scaled"},
    aliases={**ALIASES, "head_dim": "d_kv"},
    refined=["feed_forward_proj", "dense_act_fn", "is_gated_act", "scale_decoder_outputs"],
    fixed={"is_encoder_decoder": True, "is_decoder": False, "tie_encoder_decoder": False},
    ignored=["n_positions"],
)
