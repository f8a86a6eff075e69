"""BART's and Marian's names: the same, but for positions and the norm of the embeddings."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from glassformer.errors import ConfigurationError
from glassformer.models import Made, bart, marian
from glassformer.pretrained.adapter import Adapter, Config, Number
from glassformer.pretrained.names import Line, Table, line

NUMBERS = [
    Number("vocab_size", "vocabulary", 50_265),
    Number("d_model", "width", 1024),
    Number("encoder_attention_heads", "heads", 16),
    Number("encoder_layers", "layers", 12),
    Number("encoder_ffn_dim", "hidden", 4096),
    Number("dropout", "dropout", 0.1),
    Number("decoder_attention_heads", "decoder_heads", 16),
    Number("decoder_layers", "decoder_layers", 12),
    Number("decoder_ffn_dim", "decoder_hidden", 4096),
    Number("attention_dropout", "attention_dropout", 0.0),
    Number("activation_dropout", "inner_dropout", 0.0),
    Number("activation_function", "activation", "gelu"),
    Number("scale_embedding", "scaled", False),
]


def _describe(arguments: dict[str, Any], config: Config) -> None:
    for theirs, ours in (
        ("decoder_attention_heads", "heads"),
        ("decoder_layers", "layers"),
        ("decoder_ffn_dim", "hidden"),
    ):
        config[theirs] = arguments[ours] if config[theirs] is None else config[theirs]
    config["num_hidden_layers"], config["is_encoder_decoder"] = arguments["layers"], True


def _describe_marian(arguments: dict[str, Any], config: Config) -> None:
    _describe(arguments, config)
    config["decoder_vocab_size"], config["share_encoder_decoder_embeddings"] = arguments["vocabulary"], True
    config.setdefault("pad_token_id", arguments["vocabulary"] - 1)
    config.setdefault("decoder_start_token_id", config["pad_token_id"])


def _refine_marian(config: Config, names: Collection[str], arguments: dict[str, Any]) -> None:
    """Marian may keep tables apart for source and target, which this family does not."""
    apart = config.get("decoder_vocab_size") not in (None, config.get("vocab_size"))
    if apart or not config.get("share_encoder_decoder_embeddings", True):
        raise ConfigurationError("a Marian model with separate embeddings of source and target is not supported")


def _stack(side: str, attentions: dict[str, str]) -> list[Line]:
    block, ours = f"model.{side}.layers.*.", f"{side}.blocks.*."
    lines = []
    for theirs, own in attentions.items():
        lines.append(line(f"{block}{theirs}_layer_norm", f"{ours}{own}.norm"))
        names = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
        lines += [line(f"{block}{theirs}.{short}", f"{ours}{own}.part.{long}") for short, long in names.items()]
    return [
        *lines,
        line(f"{block}fc1", f"{ours}feed_forward.part.expand"),
        line(f"{block}fc2", f"{ours}feed_forward.part.output"),
        line(f"{block}final_layer_norm", f"{ours}feed_forward.norm"),
    ]


LINES = [
    line("model.shared", "encoder.embedding"),
    line("final_logits_bias", "head.bias", row=True),
    *_stack("encoder", {"self_attn": "attention"}),
    *_stack("decoder", {"self_attn": "self_attention", "encoder_attn": "cross_attention"}),
]
COPIES = dict.fromkeys(
    ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"), "model.shared.weight"
)


def _bart_table(made: Made) -> Table:
    own = [
        found
        for side in ("encoder", "decoder")
        for found in (
            line(f"model.{side}.embed_positions", f"{side}.embedding.positions"),
            line(f"model.{side}.layernorm_embedding", f"{side}.embedding.norm"),
        )
    ]
    return Table([*LINES, *own], COPIES)


def _marian_table(made: Made) -> Table:
    return Table(LINES, COPIES, [f"model.{side}.embed_positions" for side in ("encoder", "decoder")])


BART = Adapter(
    "bart",
    bart,
    {"BartForConditionalGeneration": ""},
    [*NUMBERS, Number("max_position_embeddings", "length", 1024)],
    _bart_table,
    describe=_describe,
)
MARIAN = Adapter("marian", marian, {"MarianMTModel": ""}, NUMBERS, _marian_table, _refine_marian, _describe_marian)
