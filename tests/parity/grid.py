"""A grid of checkpoints: every key of the config classes of `transformers`, and keys of elsewhere, at other values.

Each case is built by `transformers` itself with random weights, saved, and loaded by both sides. A case ends as

equal        our logits are theirs
refused      one sentence says why it cannot be loaded
unusable     `transformers` cannot build or load it: nothing to be equal to, but we raise no other error either
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch import nn

from glassformer import interop
from glassformer.errors import InputError

VOCABULARY, TOLERANCE = 61, 1e-4
TEXT = {"vocab_size": VOCABULARY, "pad_token_id": 1, "bos_token_id": 3, "eos_token_id": 2}
BERT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 24,
}
BART = {
    **TEXT,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": 24,
    "decoder_start_token_id": 1,
}
GPT2 = {**TEXT, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 24}
LLAMA = {**TEXT, **BERT, "num_key_value_heads": 1}
T5 = {**TEXT, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
VIT = {**BERT, "image_size": 8, "patch_size": 4}
del VIT["max_position_embeddings"]
CAPTIONER = {
    "encoder": {"model_type": "vit", **VIT, "hidden_size": 8},
    "decoder": {"model_type": "gpt2", **GPT2, "is_decoder": True, "add_cross_attention": True},
}
BASES: dict[str, tuple[str, dict[str, Any]]] = {
    "BertForMaskedLM": ("BertConfig", {**TEXT, **BERT}),
    "BertForSequenceClassification": ("BertConfig", {**TEXT, **BERT}),
    "RobertaForMaskedLM": ("RobertaConfig", {**TEXT, **BERT}),
    "GPT2LMHeadModel": ("GPT2Config", GPT2),
    "LlamaForCausalLM": ("LlamaConfig", LLAMA),
    "T5ForConditionalGeneration": ("T5Config", T5),
    "BartForConditionalGeneration": ("BartConfig", BART),
    "MarianMTModel": ("MarianConfig", BART),
    "ViTForImageClassification": ("ViTConfig", VIT),
    "ViTModel": ("ViTConfig", VIT),
    "VisionEncoderDecoderModel": ("VisionEncoderDecoderConfig", CAPTIONER),
}
PARTS = {"encoder": "ViTConfig", "decoder": "GPT2Config"}  # of a captioner
ACTIVATIONS = ["relu", "gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_10", "quick_gelu", "silu", "tanh"]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 100.0}
VALUES: dict[str, list[Any]] = {
    "architectures": [["MistralForCausalLM"], []],
    "dtype": ["float64", "bfloat16"],
    "id2label": [{"0": "a", "1": "b", "2": "c"}],
    "label2id": [{"a": 0}],
    "problem_type": ["regression"],
    "image_size": [[8, 8], [8, 16], 16],
    "patch_size": [[4, 4], [4, 2], 2],
    "feed_forward_proj": [*ACTIVATIONS, *(f"gated-{name}" for name in ACTIVATIONS)],
    "rope_parameters": [
        {"rope_theta": 100.0},
        {"rope_type": "linear", "factor": 2.0},
        {"partial_rotary_factor": 0.5},
        YARN,
    ],
    "encoder": [None, {"model_type": "bert"}],
    "decoder": [None, {"model_type": "bert"}],
    "bad_words_ids": [[[5]]],
}
OTHER_MODELS = ("model_type", "architectures", "encoder", "decoder")  # with these, another model would be built
ELSEWHERE: dict[str, list[Any]] = {  # keys of older versions, of other families, and of nobody
    "model_type": ["mistral", "mbart", "xlm-roberta"],
    "num_labels": [2, 3],
    "rope_scaling": [{"type": "linear", "factor": 2.0}, {"type": "default", "rope_theta": 100.0}, YARN],
    "rope_theta": [100.0],
    "partial_rotary_factor": [0.5, 1.0],
    "sliding_window": [2, None],
    "layer_types": [["sliding_attention"]],
    "dense_act_fn": ["relu", "gelu_new", "silu", "mish"],
    "is_gated_act": [True],
    "scale_decoder_outputs": [False],
    "position_embedding_type": ["absolute", "relative_key"],
    "pruned_heads": [{}, {"0": [1]}],
    "tie_encoder_decoder": [False, True],
    "is_decoder": [True],
    "add_cross_attention": [True],
    "cross_attention_hidden_size": [8],
    "head_dim": [4],
    "head_width": [4],
    "num_key_value_heads": [1],
    "attention_bias": [True],
    "normalize_before": [True],
    "static_position_embeddings": [True, False],
    "attn_logit_softcapping": [5.0],
    "pretraining_tp": [2],
    "auto_map": [{"AutoModel": "modeling.Own"}],
    "quantization_config": [{"quant_method": "bitsandbytes", "load_in_8bit": True}],
    "torch_dtype": ["float16"],
    "gradient_checkpointing": [True],
    "per_layer_config": [{"0": {"intermediate_size": 8}}],
    "no_such_key": [3, "yes"],
}


class Case(NamedTuple):
    """A model class, the path of a key in its config, and a value for it.

    The model is built with the value; where it is only `written`, config.json has it beside what the model was built
    with.
    """

    model: str
    key: tuple[str, ...]
    value: Any
    written: bool = False

    def __str__(self) -> str:
        return f"{self.model}-{'.'.join(self.key)}={json.dumps(self.value)}{' (written)' * self.written}"

    def config(self) -> dict[str, Any]:
        """The keys of the config of its class, with the value at its place."""
        config = copy.deepcopy(BASES[self.model][1])
        _put(config, self.key, copy.deepcopy(self.value))
        return config


def _put(config: dict[str, Any], key: tuple[str, ...], value: Any) -> None:
    for part in key[:-1]:
        config = config[part]
    config[key[-1]] = value


def _values(key: str, present: Any) -> list[Any]:
    """Other values for a key that has one at present."""
    if key in VALUES:
        return VALUES[key]
    if key == "dense_act_fn" or present in ("gelu", "gelu_new", "silu"):
        return ACTIVATIONS
    if isinstance(present, bool):
        return [not present]
    if isinstance(present, int):
        return [present + 1, 2 * present]
    if isinstance(present, float):
        return [0.25, 1e-3]
    return [1, True, "other"] if present is None else ["other"]


def _keys(config_class: str, base: dict[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """Each key of a config class with each of its values: fields, aliases, and what other configs have."""
    kind = getattr(transformers, config_class)
    config = kind(**base)
    found = {each.name: _values(each.name, getattr(config, each.name)) for each in fields(kind)}
    found |= {alias: _values(alias, getattr(config, alias)) for alias in kind.attribute_map}
    for key, values in {**ELSEWHERE, **found}.items():
        for value in dict.fromkeys(map(json.dumps, [*values, *ELSEWHERE.get(key, [])])):
            if key not in OTHER_MODELS:
                yield key, json.loads(value), False
            if key in OTHER_MODELS or key in ELSEWHERE:
                yield key, json.loads(value), True


def cases() -> list[Case]:
    """The whole grid, in the order of the families."""
    found = []
    for model, (config_class, base) in BASES.items():
        found += [Case(model, (key,), *others) for key, *others in _keys(config_class, base)]
        if config_class == "VisionEncoderDecoderConfig":
            for part, part_class in PARTS.items():
                found += [Case(model, (part, key), *others) for key, *others in _keys(part_class, base[part])]
    return found


def _inputs(config: Any, model: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What both models read: ours by place, theirs by name."""
    tokens, target = torch.randint(5, VOCABULARY, (2, 9)), torch.randint(5, VOCABULARY, (2, 7))
    if "pixel" in getattr(transformers, model).main_input_name:
        encoder = getattr(config, "encoder", config)
        pixels = torch.randn(2, encoder.num_channels, *_pair(encoder.image_size))
        if model == "VisionEncoderDecoderModel":
            return (pixels, target), {"pixel_values": pixels, "decoder_input_ids": target}
        return (pixels,), {"pixel_values": pixels}
    if config.is_encoder_decoder and model.startswith(("T5", "Bart", "Marian")):
        return (tokens, target), {"input_ids": tokens, "decoder_input_ids": target}
    return (tokens,), {"input_ids": tokens}


def _pair(size: Any) -> tuple[int, int]:
    return (size[0], size[1]) if isinstance(size, (list, tuple)) else (size, size)


@torch.no_grad()
def _shake(model: nn.Module) -> None:
    """Weights so large that every part matters; sinusoids, which are not trained, stay."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.add_(torch.randn_like(parameter), alpha=1.5 / math.sqrt(max(parameter.shape[-1], 8)))


def _theirs(case: Case, folder: Path) -> Any | None:
    """Write the checkpoint of a case and load it as `transformers` does; None: it cannot."""
    kind, config_class = getattr(transformers, case.model), getattr(transformers, BASES[case.model][0])
    base = BASES[case.model][1]
    try:
        model = kind(config_class(**(copy.deepcopy(base) if case.written else case.config())))
    except Exception:  # whatever their classes object to
        model = kind(config_class(**copy.deepcopy(base)))
    for name, buffer in model.named_buffers():
        if name == "final_logits_bias":
            buffer.normal_()
    _shake(model)
    try:
        model.save_pretrained(folder)
    except Exception:
        return None
    config = json.loads((folder / "config.json").read_text())
    _put(config, case.key, case.value)
    config.pop(config_class.attribute_map.get(case.key[0], ""), None)  # an alias stands alone
    (folder / "config.json").write_text(json.dumps(config))
    if case.key[-1] in OTHER_MODELS:
        return None
    try:
        loaded, report = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    except Exception:
        return None
    usable = not report["missing_keys"] and not report["mismatched_keys"]
    return loaded.eval() if usable else None


def outcome(case: Case, folder: Path) -> str:
    """How a case ends; an AssertionError where our logits are not theirs."""
    torch.manual_seed(0)
    theirs = _theirs(case, folder)
    try:
        ours = interop.load(folder)
    except InputError as error:
        return f"refused: {error}"
    if theirs is None:
        return "unusable"
    inputs, named = _inputs(theirs.config, case.model)
    with torch.inference_mode():
        try:
            output = theirs(**named, return_dict=True)
        except Exception:
            return "unusable"
        expected = output.logits if "logits" in output else output.last_hidden_state
        torch.testing.assert_close(ours(*inputs), expected, atol=TOLERANCE, rtol=0.0)
    return "equal"
