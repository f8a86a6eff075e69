"""BERT's and RoBERTa's names."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from glassformer.models import Made, bert, roberta
from glassformer.pretrained.adapter import Adapter, Config, Number
from glassformer.pretrained.names import Line, Table, line

NUMBERS = [
    Number("vocab_size", "vocabulary", 30_522),
    Number("hidden_size", "width", 768),
    Number("num_attention_heads", "heads", 12),
    Number("num_hidden_layers", "layers", 12),
    Number("intermediate_size", "hidden", 3072),
    Number("max_position_embeddings", "length", 512),
    Number("hidden_dropout_prob", "dropout", 0.1),
    Number("attention_probs_dropout_prob", "attention_dropout", 0.1),
    Number("classifier_dropout", "head_dropout"),
    Number("hidden_act", "activation", "gelu"),
    Number("layer_norm_eps", "epsilon", 1e-12),
    Number("type_vocab_size", "segments", 2),
    Number("tie_word_embeddings", "tie_output", True),
]
EXPECTED = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
SKIP = 2  # RoBERTa's positions count from its padding token's number plus one


def _classes(config: Config, arguments: dict[str, Any]) -> None:
    arguments["classes"] = len(config["id2label"]) if config.get("id2label") else config.get("num_labels", 2)


def _refine_bert(config: Config, names: Collection[str], arguments: dict[str, Any]) -> None:
    _classes(config, arguments)
    arguments["pooler"] = arguments["answer"] == "vectors" and any("pooler." in name for name in names)


def _refine_roberta(config: Config, names: Collection[str], arguments: dict[str, Any]) -> None:
    _refine_bert(config, names, arguments)
    arguments["length"] -= SKIP


def _describe(arguments: dict[str, Any], config: Config) -> None:
    if arguments["answer"] in ("classes", "tags") and len(config.get("id2label") or {}) != arguments["classes"]:
        labels = {str(number): f"LABEL_{number}" for number in range(arguments["classes"])}
        config["id2label"], config["label2id"] = labels, {name: int(number) for number, name in labels.items()}


def _describe_roberta(arguments: dict[str, Any], config: Config) -> None:
    _describe(arguments, config)
    config["max_position_embeddings"] += SKIP
    config.setdefault("pad_token_id", SKIP - 1)


def _encoder(prefix: str) -> list[Line]:
    block, ours = f"{prefix}encoder.layer.*.", "encoder.blocks.*."
    return [
        line(f"{prefix}embeddings.word_embeddings", "encoder.embedding"),
        line(f"{prefix}embeddings.position_embeddings", "encoder.embedding.positions"),
        line(f"{prefix}embeddings.token_type_embeddings.weight", "encoder.embedding.segments"),
        line(f"{prefix}embeddings.LayerNorm", "encoder.embedding.norm"),
        *(line(f"{block}attention.self.{name}", f"{ours}attention.part.{name}") for name in ("query", "key", "value")),
        line(f"{block}attention.output.dense", f"{ours}attention.part.output"),
        line(f"{block}attention.output.LayerNorm", f"{ours}attention.norm"),
        line(f"{block}intermediate.dense", f"{ours}feed_forward.part.expand"),
        line(f"{block}output.dense", f"{ours}feed_forward.part.output"),
        line(f"{block}output.LayerNorm", f"{ours}feed_forward.norm"),
    ]


def _table(made: Made, name: str, words: list[Line], classes: list[Line], copies: dict[str, str]) -> Table:
    answer = made.arguments["answer"]
    prefix = "" if answer == "vectors" else f"{name}."
    heads = {
        "vectors": [line("pooler.dense", "pooler.transform.dense")],
        "words": words,
        "classes": classes,
        "tags": [line("classifier", "head.scores")],
        "span": [line("qa_outputs", "head")],
    }
    tied = answer == "words" and made.arguments["tie_output"]
    embeddings = f"{prefix}embeddings.word_embeddings.weight"
    same = {copy: embeddings if of == "words" else of for copy, of in copies.items()} if tied else {}
    lines = [*_encoder(prefix), *heads[answer]]
    if answer == "words" and not made.arguments["tie_output"]:
        lines.append(line(next(copy for copy, of in copies.items() if of == "words"), "head.1.weight"))
        same = {copy: of for copy, of in copies.items() if of != "words"}
    unused = [f"{prefix}embeddings.position_ids", f"{prefix}embeddings.token_type_ids"]
    pooled = ("vectors", "classes") if name == "bert" else ("vectors",)
    if answer not in pooled:  # these do not look at what some checkpoints carry along from their first training
        unused += [f"{prefix}pooler.dense", "cls.seq_relationship"]
    return Table(lines, same, unused, f"{name}.")


def _bert_table(made: Made) -> Table:
    words = [
        line("cls.predictions.transform.dense", "head.0.dense"),
        line("cls.predictions.transform.LayerNorm", "head.0.norm"),
        line("cls.predictions.bias", "head.1.bias"),
    ]
    classes = [line("bert.pooler.dense", "head.pool.transform.dense"), line("classifier", "head.scores")]
    copies = {"cls.predictions.decoder.weight": "words", "cls.predictions.decoder.bias": "cls.predictions.bias"}
    return _table(made, "bert", words, classes, copies)


def _roberta_table(made: Made) -> Table:
    words = [
        line("lm_head.dense", "head.0.dense"),
        line("lm_head.layer_norm", "head.0.norm"),
        line("lm_head.bias", "head.1.bias"),
    ]
    classes = [line("classifier.dense", "head.pool.2.dense"), line("classifier.out_proj", "head.scores")]
    copies = {"lm_head.decoder.weight": "words", "lm_head.decoder.bias": "lm_head.bias"}
    return _table(made, "roberta", words, classes, copies)


def _answers(name: str) -> dict[str, str]:
    return {
        f"{name}Model": "vectors",
        f"{name}ForMaskedLM": "words",
        f"{name}ForSequenceClassification": "classes",
        f"{name}ForTokenClassification": "tags",
        f"{name}ForQuestionAnswering": "span",
    }


BERT = Adapter("bert", bert, _answers("Bert"), NUMBERS, _bert_table, _refine_bert, _describe, EXPECTED)
ROBERTA = Adapter(
    "roberta",
    roberta,
    _answers("Roberta"),
    NUMBERS,
    _roberta_table,
    _refine_roberta,
    _describe_roberta,
    {**EXPECTED, "pad_token_id": SKIP - 1},
)
