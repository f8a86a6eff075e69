"""Converters of BERT and RoBERTa, with each of their heads."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

from glassformer.interop.converter import Config, Converter, Key, activation_key, complete_labels, label_count
from glassformer.interop.names import Table, line, lines
from glassformer.models import Blueprint, bert, roberta

KEYS = [
    Key("vocab_size", "vocabulary", 30_522),
    Key("hidden_size", "width", 768),
    Key("num_attention_heads", "heads", 12),
    Key("num_hidden_layers", "layers", 12),
    Key("intermediate_size", "hidden", 3072),
    Key("max_position_embeddings", "length", 512),
    Key("hidden_dropout_prob", "dropout", 0.1),
    Key("attention_probs_dropout_prob", "attention_dropout", 0.1),
    Key("classifier_dropout", "head_dropout"),
    activation_key("hidden_act", "gelu"),
    Key("layer_norm_eps", "epsilon", 1e-12),
    Key("type_vocab_size", "segments", 2),
    Key("tie_word_embeddings", "tie_output", True),
]
FIXED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "is_encoder_decoder": False,
    "add_cross_attention": False,
}
POOLER = (
    "fc_size",
    "num_attention_heads",
    "num_fc_layers",
    "size_per_head",
    "type",
)  # left by the first multilingual BERT
IGNORED = ["directionality", *(f"pooler_{name}" for name in POOLER)]
FIRST_POSITION = 2  # RoBERTa's positions start after the id of its padding token, 1
WORD_HEADS = {  # their names of the head that predicts words, of its dense part and of its norm
    "bert": ("cls.predictions", "transform.dense", "transform.LayerNorm"),
    "roberta": ("lm_head", "dense", "layer_norm"),
}
CLASS_HEADS = {
    "bert": [line("bert.pooler.dense", "head.pool.transform.dense"), line("classifier", "head.scores")],
    "roberta": [line("classifier.dense", "head.pool.2.dense"), line("classifier.out_proj", "head.scores")],
}


def _refine_bert(config: Config, names: Collection[str], arguments: dict[str, Any]) -> None:
    if arguments["answer"] in ("classes", "tags"):
        arguments["classes"] = label_count(config)
    arguments["pooler"] = arguments["answer"] == "vectors" and any("pooler." in name for name in names)


def _refine_roberta(config: Config, names: Collection[str], arguments: dict[str, Any]) -> None:
    _refine_bert(config, names, arguments)
    arguments["length"] -= FIRST_POSITION


def _describe(arguments: dict[str, Any], config: Config) -> None:
    if arguments["answer"] in ("classes", "tags"):
        complete_labels(config, arguments["classes"])


def _describe_roberta(arguments: dict[str, Any], config: Config) -> None:
    _describe(arguments, config)
    config["max_position_embeddings"] += FIRST_POSITION
    config.setdefault("pad_token_id", FIRST_POSITION - 1)


EMBEDDINGS = {
    "word_embeddings": "",
    "position_embeddings": ".positions",
    "token_type_embeddings.weight": ".segments",
    "LayerNorm": ".norm",
}
BLOCK = {
    **{f"attention.self.{name}": f"attention.part.{name}" for name in ("query", "key", "value")},
    "attention.output.dense": "attention.part.output",
    "attention.output.LayerNorm": "attention.norm",
    "intermediate.dense": "feed_forward.part.expand",
    "output.dense": "feed_forward.part.output",
    "output.LayerNorm": "feed_forward.norm",
}


def _table(made: Blueprint, name: str) -> Table:
    """The table of a model: the encoder, then its head."""
    answer, (head, dense, norm) = made.arguments["answer"], WORD_HEADS[name]
    prefix = "" if answer == "vectors" else f"{name}."
    words = {dense: "0.dense", norm: "0.norm", "bias": "1.bias"}
    heads = {
        "vectors": [line("pooler.dense", "pooler.transform.dense")],
        "words": lines(f"{head}.", "head.", words),
        "classes": CLASS_HEADS[name],
        "tags": [line("classifier", "head.scores")],
        "span": [line("qa_outputs", "head")],
    }
    encoder = lines(f"{prefix}embeddings.", "encoder.embedding", EMBEDDINGS)
    encoder += lines(f"{prefix}encoder.layer.*.", "encoder.blocks.*.", BLOCK)
    table, copies = [*encoder, *heads[answer]], {}
    if answer == "words":
        copies[f"{head}.decoder.bias"] = f"{head}.bias"
        if made.arguments["tie_output"]:
            copies[f"{head}.decoder.weight"] = f"{prefix}embeddings.word_embeddings.weight"
        else:
            table.append(line(f"{head}.decoder.weight", "head.1.weight"))
    unused = [f"{prefix}embeddings.position_ids", f"{prefix}embeddings.token_type_ids"]
    if answer != "vectors" and not (name == "bert" and answer == "classes"):
        unused += [f"{prefix}pooler.dense", "cls.seq_relationship"]  # from pretraining
    return Table(table, copies, unused, f"{name}.")


def _answers(name: str) -> dict[str, str]:
    return {
        f"{name}Model": "vectors",
        f"{name}ForMaskedLM": "words",
        f"{name}ForSequenceClassification": "classes",
        f"{name}ForTokenClassification": "tags",
        f"{name}ForQuestionAnswering": "span",
    }


BERT = Converter(
    "bert",
    bert,
    _answers("Bert"),
    KEYS,
    partial(_table, name="bert"),
    _refine_bert,
    _describe,
    fixed=FIXED,
    ignored=IGNORED,
)
ROBERTA = Converter(
    "roberta",
    roberta,
    _answers("Roberta"),
    KEYS,
    partial(_table, name="roberta"),
    _refine_roberta,
    _describe_roberta,
    fixed={**FIXED, "pad_token_id": FIRST_POSITION - 1},
    ignored=IGNORED,
)
