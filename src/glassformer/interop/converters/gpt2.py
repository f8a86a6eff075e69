"""Converter of GPT-2, whose files hold matrices transposed, and query, key and value as one matrix."""

from __future__ import annotations

from glassformer.interop.converter import Converter, Key, activation_key
from glassformer.interop.names import Line, Table, line
from glassformer.models import Blueprint, gpt2

KEYS = [
    Key("vocab_size", "vocabulary", 50_257),
    Key("n_embd", "width", 768),
    Key("n_head", "heads", 12),
    Key("n_layer", "layers", 12),
    Key("n_inner", "hidden"),
    Key("n_positions", "length", 1024),
    Key("resid_pdrop", "dropout", 0.1),
    Key("embd_pdrop", "embedding_dropout", 0.1, fallback="dropout"),
    Key("attn_pdrop", "attention_dropout", 0.1),
    activation_key("activation_function", "gelu_new"),
    Key("layer_norm_epsilon", "epsilon", 1e-5),
    Key("tie_word_embeddings", "tie_output", True),
]
ALIASES = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
}
FIXED = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "is_encoder_decoder": False,
}
IGNORED = [
    "n_ctx",
    "is_decoder",
    "predict_special_tokens",
    "reorder_and_upcast_attn",  # the same sums in another order
    *(f"summary_{name}" for name in ("type", "use_proj", "activation", "proj_to_labels", "first_dropout")),
]


def lines(prefix: str = "transformer.") -> list[Line]:
    """The lines of the decoder; `prefix` starts their names."""
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
    """Masks that old checkpoints hold."""
    kinds = ("attn", "crossattention")
    return [f"{prefix}h.*.{kind}.{name}" for kind in kinds for name in ("bias", "masked_bias")]


def _table(made: Blueprint) -> Table:
    if made.arguments["tie_output"]:
        return Table(lines(), {"lm_head.weight": "transformer.wte.weight"}, unused(), "transformer.")
    return Table([*lines(), line("lm_head", "head")], unused=unused(), prefix="transformer.")


CONVERTER = Converter(
    "gpt2", gpt2, {"GPT2LMHeadModel": ""}, KEYS, _table, aliases=ALIASES, fixed=FIXED, ignored=IGNORED
)
