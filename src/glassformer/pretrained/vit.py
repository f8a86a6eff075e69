"""ViT's names, and those of a captioner made of a ViT and a GPT-2."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from glassformer.errors import ConfigurationError
from glassformer.models import Made, captioner, vit
from glassformer.pretrained import gpt2
from glassformer.pretrained.adapter import Adapter, Config, Number, here, there
from glassformer.pretrained.names import Line, Table, line

IMAGE_NUMBERS = [
    Number("image_size", "image", 224),
    Number("patch_size", "patch", 16),
    Number("hidden_size", "width", 768),
    Number("num_attention_heads", "heads", 12),
    Number("num_hidden_layers", "layers", 12),
    Number("intermediate_size", "hidden", 3072),
    Number("hidden_dropout_prob", "dropout", 0.0),
    Number("num_channels", "colours", 3),
    Number("attention_probs_dropout_prob", "attention_dropout", 0.0),
    Number("hidden_act", "activation", "gelu"),
    Number("layer_norm_eps", "epsilon", 1e-12),
]
# What a block's linear parts are called in files, and since version 5 of `transformers` in its modules.
FILED = {
    "block": "encoder.layer",
    "attention.part.query": "attention.attention.query",
    "attention.part.key": "attention.attention.key",
    "attention.part.value": "attention.attention.value",
    "attention.part.output": "attention.output.dense",
    "feed_forward.part.expand": "intermediate.dense",
    "feed_forward.part.output": "output.dense",
}
ALIVE = {
    "block": "layers",
    "attention.part.query": "attention.q_proj",
    "attention.part.key": "attention.k_proj",
    "attention.part.value": "attention.v_proj",
    "attention.part.output": "attention.o_proj",
    "feed_forward.part.expand": "mlp.fc1",
    "feed_forward.part.output": "mlp.fc2",
}
EXPECTED = {"qkv_bias": True, "pooler_act": "tanh"}


def _refine(config: Config, names: Collection[str], arguments: dict[str, Any]) -> None:
    labels = config.get("id2label")
    classes = len(labels) if labels else config.get("num_labels", 2)
    vectors = config["architectures"][0] == "ViTModel"
    arguments["classes"] = None if vectors else classes
    arguments["pooler"] = vectors and any("pooler." in name for name in names)


def _describe(arguments: dict[str, Any], config: Config) -> None:
    classes = arguments["classes"]
    config["qkv_bias"] = True
    config["architectures"] = ["ViTModel" if classes is None else "ViTForImageClassification"]
    if classes is not None and len(config.get("id2label") or {}) != classes:
        config["id2label"] = {str(number): f"LABEL_{number}" for number in range(classes)}
        config["label2id"] = {name: int(number) for number, name in config["id2label"].items()}


def lines(prefix: str, names: Mapping[str, str]) -> list[Line]:
    """The lines of the stack, under a prefix of theirs; `names` are those of a block's linear parts."""
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


def _table(made: Made, names: Mapping[str, str] = FILED) -> Table:
    vectors = made.arguments["classes"] is None
    prefix = "" if vectors else "vit."
    own = line("pooler.dense", "pooler.transform.dense") if vectors else line("classifier", "head.scores")
    unused = [] if vectors else ["vit.pooler.dense"]
    return Table([*lines(prefix, names), line(f"{prefix}layernorm", "encoder.norm"), own], unused=unused, base="vit.")


VIT = Adapter(
    "vit",
    vit,
    {"ViTForImageClassification": "", "ViTModel": ""},
    IMAGE_NUMBERS,
    _table,
    _refine,
    _describe,
    EXPECTED,
    partial(_table, names=ALIVE),
)

SHARED = ("image", "patch", "colours")  # what a captioner says of its images without the word image_


def _own(name: str) -> str:
    return name if name in SHARED else f"image_{name}"


def _refine_captioner(config: Config, names: Collection[str], arguments: dict[str, Any]) -> None:
    """The two configs within the config."""
    sides = {"encoder": "vit", "decoder": "gpt2"}
    for side, kind in sides.items():
        found = config.get(side, {}).get("model_type")
        if found != kind:
            raise ConfigurationError(f"a captioner's {side} must be a {kind}, not a {found}")
    for number in IMAGE_NUMBERS:
        arguments[_own(number.ours)] = here(number, config["encoder"].get(number.theirs, number.default))
    for number in gpt2.NUMBERS:
        arguments[number.ours] = here(number, config["decoder"].get(number.theirs, number.default))


def _describe_captioner(arguments: dict[str, Any], config: Config) -> None:
    image = {number.ours: number for number in IMAGE_NUMBERS}
    seen = {
        number.theirs: there(number, arguments[_own(ours)] if arguments[_own(ours)] is not None else arguments[ours])
        for ours, number in image.items()
    }
    told = {number.theirs: there(number, arguments[number.ours]) for number in gpt2.NUMBERS}
    config["encoder"] = {**config.get("encoder", {}), **seen, "model_type": "vit", "qkv_bias": True}
    config["decoder"] = {
        **config.get("decoder", {}),
        **told,
        "model_type": "gpt2",
        "is_decoder": True,
        "add_cross_attention": True,
    }
    gpt2.describe(arguments, config["decoder"])
    config["is_encoder_decoder"], config["tie_word_embeddings"] = True, False


def _captioner_table(made: Made, names: Mapping[str, str] = FILED) -> Table:
    arguments = made.arguments
    projected = arguments["image_width"] not in (None, arguments["width"])
    own = [
        *lines("encoder.", names),
        line("encoder.layernorm", "encoder.norm.0" if projected else "encoder.norm"),
        *([line("enc_to_dec_proj", "encoder.norm.1")] if projected else []),
        *gpt2.lines("decoder.transformer."),
    ]
    unused = ["encoder.pooler.dense", *gpt2.unused("decoder.transformer.")]
    if arguments["tie_output"]:
        return Table(own, {"decoder.lm_head.weight": "decoder.transformer.wte.weight"}, unused)
    return Table([*own, line("decoder.lm_head", "head")], unused=unused)


CAPTIONER = Adapter(
    "vision-encoder-decoder",
    captioner,
    {"VisionEncoderDecoderModel": ""},
    [],
    _captioner_table,
    _refine_captioner,
    _describe_captioner,
    alive=partial(_captioner_table, names=ALIVE),
)
