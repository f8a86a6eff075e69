"""GPT-2's names. They keep matrices transposed, and query, key and value as one."""

from __future__ import annotations

from typing import Any

from glassformer.models import Made, gpt2
from glassformer.pretrained.adapter import Adapter, Config, Number
from glassformer.pretrained.names import Line, Table, line

NUMBERS = [
    Number("vocab_size", "vocabulary", 50_257),
    Number("n_embd", "width", 768),
    Number("n_head", "heads", 12),
    Number("n_layer", "layers", 12),
    Number("n_inner", "hidden"),
    Number("n_positions", "length", 1024),
    Number("resid_pdrop", "dropout", 0.1),
    Number("embd_pdrop", "embedding_dropout", 0.1),
    Number("attn_pdrop", "attention_dropout", 0.1),
    Number("activation_function", "activation", "gelu_new"),
    Number("layer_norm_epsilon", "epsilon", 1e-5),
    Number("tie_word_embeddings", "tie_output", True),
]
EXPECTED = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False}


def lines(prefix: str = "transformer.") -> list[Line]:
    """The lines of the stack, under a prefix of theirs."""
    block, ours = f"{prefix}h.*.", "decoder.blocks.*."
    attention, cross = f"{ours}self_attention.part.", f"{ours}cross_attention.part."
    return [
        line(f"{prefix}wte", "decoder.embedding"),
        line(f"{prefix}wpe", "decoder.embedding.positions"),
        line(f"{block}ln_1", f"{ours}self_attention.norm"),
        line(f"{block}attn.c_attn", f"{attention}query", f"{attention}key", f"{attention}value", transposed=True),
        line(f"{block}attn.c_proj", f"{attention}output", transposed=True),
        line(f"{block}ln_cross_attn", f"{ours}cross_attention.norm"),
        line(f"{block}crossattention.q_attn", f"{cross}query", transposed=True),
        line(f"{block}crossattention.c_attn", f"{cross}key", f"{cross}value", transposed=True),
        line(f"{block}crossattention.c_proj", f"{cross}output", transposed=True),
        line(f"{block}ln_2", f"{ours}feed_forward.norm"),
        line(f"{block}mlp.c_fc", f"{ours}feed_forward.part.expand", transposed=True),
        line(f"{block}mlp.c_proj", f"{ours}feed_forward.part.output", transposed=True),
        line(f"{prefix}ln_f", "decoder.norm"),
    ]


def unused(prefix: str = "transformer.") -> list[str]:
    """Masks that old checkpoints carry along."""
    kinds = ("attn", "crossattention")
    return [f"{prefix}h.*.{kind}.{name}" for kind in kinds for name in ("bias", "masked_bias")]


def describe(arguments: dict[str, Any], config: Config) -> None:
    """What their config has to say, where ours says nothing."""
    if config["embd_pdrop"] is None:
        config["embd_pdrop"] = arguments["dropout"]


def _table(made: Made) -> Table:
    if made.arguments["tie_output"]:
        return Table(lines(), {"lm_head.weight": "transformer.wte.weight"}, unused(), "transformer.")
    return Table([*lines(), line("lm_head", "head")], unused=unused(), base="transformer.")


ADAPTER = Adapter("gpt2", gpt2, {"GPT2LMHeadModel": ""}, NUMBERS, _table, describe=describe, expected=EXPECTED)
