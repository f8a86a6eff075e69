"""Converters of BART and Marian, which differ only in positions and in the norm of the embeddings."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import ConfigurationError
from glassformer.interop.converter import Config, Converter, Key, activation_key
from glassformer.interop.names import Line, Table, line, lines
from glassformer.models import Blueprint, bart, marian
from glassformer.parts import Sinusoidal

KEYS = [
    Key("vocab_size", "vocabulary", 50_265),
    Key("d_model", "width", 1024),
    Key("encoder_attention_heads", "heads", 16),
    Key("encoder_layers", "layers", 12),
    Key("encoder_ffn_dim", "hidden", 4096),
    Key("dropout", "dropout", 0.1),
    Key("decoder_attention_heads", "decoder_heads", 16, fallback="heads"),
    Key("decoder_layers", "decoder_layers", 12, fallback="layers"),
    Key("decoder_ffn_dim", "decoder_hidden", 4096, fallback="hidden"),
    Key("attention_dropout", "attention_dropout", 0.0),
    Key("activation_dropout", "inner_dropout", 0.0),
    activation_key("activation_function", "gelu"),
    Key("scale_embedding", "scaled", False),
]
ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
}
FIXED = {
    "is_encoder_decoder": True,
    "is_decoder": False,
    "tie_word_embeddings": True,
    "tie_encoder_decoder": False,
    "normalize_before": False,
    "add_final_layer_norm": False,
    "add_bias_logits": False,
}


def _describe(arguments: dict[str, Any], config: Config) -> None:
    config["num_hidden_layers"], config["is_encoder_decoder"] = arguments["layers"], True


def _describe_marian(arguments: dict[str, Any], config: Config) -> None:
    _describe(arguments, config)
    config["decoder_vocab_size"], config["share_encoder_decoder_embeddings"] = arguments["vocabulary"], True
    config.setdefault("pad_token_id", arguments["vocabulary"] - 1)
    config.setdefault("decoder_start_token_id", config["pad_token_id"])


def _refine_marian(config: Config, names: Collection[str], arguments: dict[str, Any]) -> None:
    """Refuse models with one embedding for the source and another for the target: this family shares one."""
    separate = config.get("decoder_vocab_size") not in (None, arguments["vocabulary"])
    if separate or not config.get("share_encoder_decoder_embeddings", True):
        raise ConfigurationError("a Marian model with separate embeddings of source and target is not supported")


def _stack(side: str, attentions: dict[str, str]) -> list[Line]:
    """The lines of the encoder or the decoder; `attentions` maps their names of its attentions to ours."""
    block, ours = f"model.{side}.layers.*.", f"{side}.blocks.*."
    names = {"fc1": "part.expand", "fc2": "part.output", "final_layer_norm": "norm"}
    found = lines(block, f"{ours}feed_forward.", names)
    projections = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
    for theirs, own in attentions.items():
        found.append(line(f"{block}{theirs}_layer_norm", f"{ours}{own}.norm"))
        found += lines(f"{block}{theirs}.", f"{ours}{own}.part.", projections)
    return found


LINES = [
    line("model.shared", "encoder.embedding"),
    line("final_logits_bias", "head.bias", row=True),
    *_stack("encoder", {"self_attn": "attention"}),
    *_stack("decoder", {"self_attn": "self_attention", "encoder_attn": "cross_attention"}),
]
COPIES = dict.fromkeys(
    ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"), "model.shared.weight"
)
ZEROS = ["head.bias"]  # final_logits_bias is all zeros in most checkpoints, and some leave it out


def _bart_table(made: Blueprint) -> Table:
    names = {"embed_positions": "positions", "layernorm_embedding": "norm"}
    encoder, decoder = (lines(f"model.{side}.", f"{side}.embedding.", names) for side in ("encoder", "decoder"))
    return Table([*LINES, *encoder, *decoder], COPIES, zeros=ZEROS)


def _marian_table(made: Blueprint) -> Table:
    width = made.arguments["width"]

    def waves(rows: int) -> Tensor:
        table: Tensor = Sinusoidal(width, interleaved=False)(torch.zeros(1, rows, width))[0]
        return table

    tables = {f"model.{side}.embed_positions.weight": waves for side in ("encoder", "decoder")}
    return Table(LINES, COPIES, computed=tables, zeros=ZEROS)


BART = Converter(
    "bart",
    bart,
    {"BartForConditionalGeneration": ""},
    [*KEYS, Key("max_position_embeddings", "length", 1024)],
    _bart_table,
    describe=_describe,
    aliases=ALIASES,
    fixed={**FIXED, "normalize_embedding": True, "static_position_embeddings": False},
    ignored=["extra_pos_embeddings"],
)
MARIAN = Converter(
    "marian",
    marian,
    {"MarianMTModel": ""},
    KEYS,
    _marian_table,
    _refine_marian,
    _describe_marian,
    aliases=ALIASES,
    refined=["decoder_vocab_size", "share_encoder_decoder_embeddings"],
    fixed={**FIXED, "normalize_embedding": False, "static_position_embeddings": True},
    ignored=["extra_pos_embeddings", "max_position_embeddings"],  # sinusoids know no limit
)
