"""Converters of ViT, and of a captioner made of a ViT and a GPT-2."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from glassformer.errors import ConfigurationError
from glassformer.interop.converter import Config, Converter, Key, activation_key, complete_labels, label_count, side
from glassformer.interop.converters import gpt2
from glassformer.interop.names import Line, Table, line
from glassformer.models import Blueprint, captioner, vit

IMAGE_KEYS = [
    Key("image_size", "image", 224, read=side),
    Key("patch_size", "patch", 16, read=side),
    Key("hidden_size", "width", 768),
    Key("num_attention_heads", "heads", 12),
    Key("num_hidden_layers", "layers", 12),
    Key("intermediate_size", "hidden", 3072),
    Key("hidden_dropout_prob", "dropout", 0.0),
    Key("num_channels", "colours", 3),
    Key("attention_probs_dropout_prob", "attention_dropout", 0.0),
    activation_key("hidden_act", "gelu"),
    Key("layer_norm_eps", "epsilon", 1e-12),
]
PART_NAMES = {  # a linear part of a block in files, and in the modules of `transformers` since its version 5
    "block": ("encoder.layer", "layers"),
    "attention.part.query": ("attention.attention.query", "attention.q_proj"),
    "attention.part.key": ("attention.attention.key", "attention.k_proj"),
    "attention.part.value": ("attention.attention.value", "attention.v_proj"),
    "attention.part.output": ("attention.output.dense", "attention.o_proj"),
    "feed_forward.part.expand": ("intermediate.dense", "mlp.fc1"),
    "feed_forward.part.output": ("output.dense", "mlp.fc2"),
}
FILE_NAMES, MODULE_NAMES = ({own: names[each] for own, names in PART_NAMES.items()} for each in (0, 1))
FIXED = {"qkv_bias": True, "pooler_act": "tanh", "is_encoder_decoder": False}


def _refine(config: Config, names: Collection[str], arguments: dict[str, Any]) -> None:
    vectors = config["architectures"][0] == "ViTModel"
    arguments["classes"] = None if vectors else label_count(config)
    arguments["pooler"] = vectors and any("pooler." in name for name in names)


def _describe(arguments: dict[str, Any], config: Config) -> None:
    classes = arguments["classes"]
    config["qkv_bias"] = True
    config["architectures"] = ["ViTModel" if classes is None else "ViTForImageClassification"]
    if classes is not None:
        complete_labels(config, classes)


def lines(prefix: str, names: Mapping[str, str]) -> list[Line]:
    """The lines of the encoder; `prefix` starts their names, `names` are those of a block's linear parts."""
    ours = "encoder.blocks.*."
    block = f"{prefix}{names['block']}.*."
    return [
        line(f"{prefix}embeddings.cls_token", "encoder.embedding.class_token"),
        line(f"{prefix}embeddings.position_embeddings", "encoder.embedding.positions"),
        line(f"{prefix}embeddings.patch_embeddings.projection", "encoder.embedding.projection"),
        line(f"{block}layernorm_before", f"{ours}attention.norm"),
        *(line(f"{block}{theirs}", f"{ours}{own}") for own, theirs in names.items() if own != "block"),
        line(f"{block}layernorm_after", f"{ours}feed_forward.norm"),
    ]


def _table(made: Blueprint, names: Mapping[str, str] = FILE_NAMES) -> Table:
    vectors = made.arguments["classes"] is None
    prefix = "" if vectors else "vit."
    head = line("pooler.dense", "pooler.transform.dense") if vectors else line("classifier", "head.scores")
    unused = [] if vectors else ["vit.pooler.dense"]
    norm = line(f"{prefix}layernorm", "encoder.norm")
    return Table([*lines(prefix, names), norm, head], unused=unused, prefix="vit.")


VIT = Converter(
    "vit",
    vit,
    {"ViTForImageClassification": "", "ViTModel": ""},
    IMAGE_KEYS,
    _table,
    _refine,
    _describe,
    partial(_table, names=MODULE_NAMES),
    fixed=FIXED,
    ignored=["encoder_stride", "pooler_output_size", "tie_word_embeddings"],
)


def _image_argument(name: str) -> str:
    """The captioner's name of an argument of the ViT: it starts with image_, except for three."""
    return name if name in ("image", "patch", "colours") else f"image_{name}"


PARTS = {"encoder": VIT, "decoder": replace(gpt2.CONVERTER, fixed={**gpt2.FIXED, "add_cross_attention": True})}
PART_KEYS = {
    "encoder": [replace(key, ours=_image_argument(key.ours), fallback=key.ours) for key in IMAGE_KEYS],
    "decoder": gpt2.KEYS,
}


def _refine_captioner(config: Config, names: Collection[str], arguments: dict[str, Any]) -> None:
    """Read the two configs within the config, each as the converter of its family does."""
    for part, converter in PARTS.items():
        if not isinstance(config.get(part), dict):
            raise ConfigurationError(f"{part} must be an object that describes a {converter.model_type} model")
        missing = {"model_type": "bert", "add_cross_attention": False} if part == "decoder" else {}  # what they assume
        try:
            _, found = converter.understood({**missing, **config[part]})
        except ConfigurationError as error:
            raise ConfigurationError(f"{part}: {error}") from None
        arguments.update({_image_argument(name) if part == "encoder" else name: each for name, each in found.items()})


def _describe_captioner(arguments: dict[str, Any], config: Config) -> None:
    fixed = {
        "encoder": {"model_type": "vit", "qkv_bias": True},
        "decoder": {"model_type": "gpt2", "is_decoder": True, "add_cross_attention": True},
    }
    for part, keys in PART_KEYS.items():
        described = {key.theirs: key.to_theirs(arguments) for key in keys}
        config[part] = {**config.get(part, {}), **described, **fixed[part]}
    config["is_encoder_decoder"], config["tie_word_embeddings"] = True, False


def _captioner_table(made: Blueprint, names: Mapping[str, str] = FILE_NAMES) -> Table:
    arguments = made.arguments
    projected = arguments["image_width"] not in (None, arguments["width"])
    both = [
        *lines("encoder.", names),
        line("encoder.layernorm", "encoder.norm.0" if projected else "encoder.norm"),
        *([line("enc_to_dec_proj", "encoder.norm.1")] if projected else []),
        *gpt2.lines("decoder.transformer."),
    ]
    unused = ["encoder.pooler.dense", *gpt2.unused("decoder.transformer.")]
    if arguments["tie_output"]:
        return Table(both, {"decoder.lm_head.weight": "decoder.transformer.wte.weight"}, unused)
    return Table([*both, line("decoder.lm_head", "head")], unused=unused)


CAPTIONER = Converter(
    "vision-encoder-decoder",
    captioner,
    {"VisionEncoderDecoderModel": ""},
    [],
    _captioner_table,
    _refine_captioner,
    _describe_captioner,
    module_table=partial(_captioner_table, names=MODULE_NAMES),
    expressed={key.ours for keys in PART_KEYS.values() for key in keys},
    refined=["encoder", "decoder"],
    fixed={"is_encoder_decoder": True},
    ignored=["tie_word_embeddings"],  # the decoder's own key ties its head
)
