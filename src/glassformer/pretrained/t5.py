"""T5's names, of version 1.0 and 1.1."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from glassformer.errors import ConfigurationError
from glassformer.models import Made, t5
from glassformer.pretrained.adapter import Adapter, Config, Number
from glassformer.pretrained.names import Line, Table, line

NUMBERS = [
    Number("vocab_size", "vocabulary", 32_128),
    Number("d_model", "width", 512),
    Number("num_heads", "heads", 8),
    Number("num_layers", "layers", 6),
    Number("num_decoder_layers", "decoder_layers"),
    Number("d_ff", "hidden", 2048),
    Number("d_kv", "head_width", 64),
    Number("dropout_rate", "dropout", 0.1),
    Number("relative_attention_num_buckets", "buckets", 32),
    Number("relative_attention_max_distance", "distance", 128),
    Number("layer_norm_epsilon", "epsilon", 1e-6),
    Number("tie_word_embeddings", "tie_output", True),
]
KINDS = {"relu": False, "gated-gelu": True}


def _refine(config: Config, names: Collection[str], arguments: dict[str, Any]) -> None:
    kind = config.get("feed_forward_proj", "relu")
    if kind not in KINDS:
        raise ConfigurationError(f"feed_forward_proj is {kind!r} in config.json: expected {' or '.join(KINDS)}")
    arguments["gated"] = KINDS[kind]
    arguments["scaled"] = config.get("scale_decoder_outputs", arguments["tie_output"])
    arguments["tie_output"] = "lm_head.weight" not in names  # what the config says of it depends on the version


def _describe(arguments: dict[str, Any], config: Config) -> None:
    gated = arguments["gated"]
    config["feed_forward_proj"] = "gated-gelu" if gated else "relu"
    config["dense_act_fn"], config["is_gated_act"] = "gelu_new" if gated else "relu", gated
    config["num_decoder_layers"] = arguments["decoder_layers"] or arguments["layers"]
    scaled = arguments["scaled"]
    config["is_encoder_decoder"] = True
    config["scale_decoder_outputs"] = arguments["tie_output"] if scaled is None else scaled
    config.setdefault("decoder_start_token_id", config.setdefault("pad_token_id", 0))
    config.setdefault("eos_token_id", 1)


def _attention(theirs: str, ours: str) -> list[Line]:
    names = {"q": "query", "k": "key", "v": "value", "o": "output"}
    return [line(f"{theirs}.{short}", f"{ours}.part.{long}") for short, long in names.items()]


def _feed_forward(theirs: str, ours: str, gated: bool) -> list[Line]:
    inner = {"wi_0": "gate", "wi_1": "expand"} if gated else {"wi": "expand"}
    names = {**inner, "wo": "output"}
    return [line(f"{theirs}.DenseReluDense.{short}", f"{ours}.part.{long}") for short, long in names.items()]


def _table(made: Made) -> Table:
    gated, lines = made.arguments["gated"], [line("shared", "encoder.embedding")]
    for side, sublayers in (
        ("encoder", ("attention", "feed_forward")),
        ("decoder", ("self_attention", "cross_attention", "feed_forward")),
    ):
        for number, sublayer in enumerate(sublayers):
            theirs, ours = f"{side}.block.*.layer.{number}", f"{side}.blocks.*.{sublayer}"
            lines.append(line(f"{theirs}.layer_norm", f"{ours}.norm"))
            if sublayer == "feed_forward":
                lines += _feed_forward(theirs, ours, gated)
            else:
                kind = "EncDecAttention" if sublayer == "cross_attention" else "SelfAttention"
                lines += _attention(f"{theirs}.{kind}", ours)
        bias = "layer.0.SelfAttention.relative_attention_bias"
        lines.append(line(f"{side}.block.0.{bias}", f"{side}.blocks.0.{sublayers[0]}.part.positions"))
        lines.append(line(f"{side}.final_layer_norm", f"{side}.norm.0"))
    copies = {f"{side}.embed_tokens.weight": "shared.weight" for side in ("encoder", "decoder")}
    unused = ["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias"]  # of the first releases
    if made.arguments["tie_output"]:
        return Table(lines, {**copies, "lm_head.weight": "shared.weight"}, unused)
    return Table([*lines, line("lm_head", "head")], copies, unused)


ADAPTER = Adapter("t5", t5, {"T5ForConditionalGeneration": ""}, NUMBERS, _table, _refine, _describe)
