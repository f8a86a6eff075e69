"""Denoising: what is damaged, what is learned, and that nothing of the text is lost."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import glassformer as gf
from glassformer.recipe import Tokenizer as Section
from glassformer.runs import export_run, import_run
from glassformer.tasks.corruption import draw_spans
from glassformer.tasks.denoising import DenoisingTask, Restorer, infilled, permuted
from glassformer.text import Tokenizer
from stories import SAYS, recipe, stories

TEXTS = ["the cat says miaow . the dog says woof !", "and so on"]


@given(length=st.integers(2, 60), ratio=st.floats(0.05, 0.95), mean=st.floats(1, 6), seed=st.integers(0, 99))
def test_each_span_is_one_mask_and_all_else_stays_in_order(length: int, ratio: float, mean: float, seed: int) -> None:
    tokens, mask = list(range(100, 100 + length)), 7
    spans = draw_spans(length, ratio, mean, length, np.random.default_rng(seed))
    found = infilled(tokens, spans, mask)
    assert found.count(mask) == len(spans) >= 1
    kept = [token for token in found if token != mask]
    assert kept == sorted(kept)
    assert len(kept) == length - spans[:, 1].sum()


@given(st.lists(st.integers(0, 5), max_size=20), st.integers(0, 99))
def test_sentences_change_places_and_stay_whole(tokens: list[int], seed: int) -> None:
    found = permuted(tokens, {0}, np.random.default_rng(seed))
    assert Counter(found) == Counter(tokens)
    if tokens[-1:] == [0]:  # all sentences have an end
        one, other = ("".join(map(str, each)).split("0") for each in (found, tokens))
        assert Counter(one) == Counter(other)


def test_a_batch_has_the_whole_text_as_its_target() -> None:
    tokenizer = Tokenizer.train(TEXTS * 3, Section(kind="word", vocabulary=40))
    task = DenoisingTask(permute=True)
    task.add_special_tokens(tokenizer)
    ids = tokenizer.encode(TEXTS[0])
    seen = set()
    for seed in range(20):
        source, target = task.corruption(tokenizer)(ids, np.random.default_rng(seed))
        assert target == ids
        assert tokenizer.mask in source
        assert len(source) <= len(ids) + 1
        seen.add(tokenizer.tokens(source)[0])
    assert len(seen) > 1  # the second sentence comes first, too
    source, _ = DenoisingTask(permute=False, mask_ratio=0.01).corruption(tokenizer)(ids, np.random.default_rng(0))
    assert source.count(tokenizer.mask) == 1
    assert len(source) == len(ids)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Restorer:
    file = stories(tmp_path_factory.mktemp("stories") / "t.txt")
    asked = recipe(file, "denoising", train={"steps": 200}, task={"mean_span": 1.0, "permute": False})
    made = gf.train(asked, file.parent / "run")
    assert isinstance(made, Restorer)
    return made


def test_it_restores_what_the_rest_tells(run: Restorer) -> None:
    texts = [f"the old {animal} says <mask> .\nand" for animal in SAYS]
    found = run.restore(texts)
    right = sum(said in text for text, said in zip(found, SAYS.values(), strict=True))
    assert right >= 3
    assert [each.text for each in run.fill(texts)] == found
    assert run.evaluate(run.examples("test")).perplexity < 20
    assert "<mask>" in run.corrupted("the old cat says miaow .")
    with pytest.raises(gf.InputError, match="write <mask> where words are missing"):
        run.restore(["the old cat"])


def test_it_goes_to_transformers_and_back_and_on_to_pairs(run: Restorer, tmp_path: Path) -> None:
    assert export_run(run, tmp_path / "out") == "AutoModelForSeq2SeqLM and AutoTokenizer"
    assert import_run(tmp_path / "out", tmp_path / "again").can("translate")
    rows = "".join(f"the old {animal}\t{said}\n" for animal, said in SAYS.items())
    (tmp_path / "pairs.tsv").write_text(rows * 5, encoding="utf-8")
    table = {
        "source": {"kind": "tsv", "train": str(tmp_path / "pairs.tsv")},
        "data": {"duplicates": "keep", "max_tokens": 24},
        "model": {"pretrained": str(run.path)},
        "train": {"steps": 2, "validate_every": 2, "device": "cpu"},
        "decode": {"max_length": 20},
    }
    assert gf.train(table, tmp_path / "tuned").can("translate")
