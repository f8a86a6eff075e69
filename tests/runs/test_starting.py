"""Text-to-text runs that begin with a checkpoint keep its special tokens in everything they do; other families too."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import processors

import glassformer as gf
import tiny
from glassformer import interop
from glassformer.data.encoding import Encoded, PairEncoder, _with_special
from glassformer.interop.special_tokens import read_special_tokens
from glassformer.models import bart, bert, gpt2, marian, t5
from glassformer.recipe import Tokenizer as Section
from glassformer.recipe import make_recipe
from glassformer.runs import import_run, train
from glassformer.text import SpecialTokens, Tokenizer, framed_special_tokens, own_special_tokens

WEIGHTS = Path(__file__).parents[3] / "shared" / "weights" / "misaki-bart-g2p-us"
WORDS = ["red", "blue", "green", "brown", "two", "five", "nine", "ten"]
SMALL: dict[str, Any] = {"width": 16, "heads": 2, "layers": 1, "hidden": 32}


def pairs(path: Path, count: int = 120) -> Path:
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(1, 5))) for _ in range(count)]
    path.write_text("".join(f"{text}\t{text}\n" for text in texts), encoding="utf-8")
    return path


def checkpoint(folder: Path, family: Any, **more: Any) -> Path:
    """A small random checkpoint as others publish them: `</s>` is BART's first, T5's and Marian's is the padding."""
    torch.manual_seed(0)
    tokenizer = Tokenizer.train(WORDS * 9, Section(kind="bpe", vocabulary=300))
    interop.save(family(tokenizer.size + 5, **SMALL, **more), folder)
    engine, end = Engine.from_str(tokenizer.to_json()), ("<end>", tokenizer.end)
    frame = "<start> $A <end>" if family is bart else "$A <end>"
    special = [("<start>", tokenizer.start), end] if family is bart else [end]
    engine.post_processor = processors.TemplateProcessing(single=frame, special_tokens=special)
    engine.save(str(folder / "tokenizer.json"))
    told = json.loads((folder / "config.json").read_text())
    start = tokenizer.end if family is bart else tokenizer.pad
    told |= {"pad_token_id": tokenizer.pad, "eos_token_id": tokenizer.end, "decoder_start_token_id": start}
    (folder / "config.json").write_text(json.dumps(told))
    return folder


def recipe(file: Path, begin: Path | None, **changes: dict[str, Any]) -> dict[str, Any]:
    table: dict[str, dict[str, Any]] = {
        "source": {"kind": "tsv", "train": str(file)},
        "data": {"valid": 0.2, "test": 0.2, "max_tokens": 24},
        "model": {"pretrained": str(begin), "dropout": 0.0} if begin else SMALL,
        "train": {"steps": 1, "lr": 1e-12, "batch_tokens": 256, "validate_sentences": 4, "device": "cpu"},
        "decode": {"beam": 1, "max_length": 12},
    }
    return {name: {**table.get(name, {}), **changes.get(name, {})} for name in {**table, **changes}}


@pytest.mark.parametrize(("family", "more"), [(bart, {"length": 40}), (t5, {"head_width": 8}), (marian, {})])
def test_a_run_begins_where_its_checkpoint_ended(family: Any, more: dict[str, Any], tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "from", family, **more)
    imported: Any = import_run(folder, tmp_path / "imported")
    run: Any = gf.train(recipe(pairs(tmp_path / "t.tsv"), folder), tmp_path / "run")
    assert run.special == imported.special == read_special_tokens(tmp_path / "run")
    texts = ["red blue", "ten", "nine five brown green"]
    loaded: Any = gf.load(tmp_path / "run", "cpu")
    expected = [each.ids[:12] for each in imported.translate(texts, beam=1)]
    for each in (run, loaded):
        assert [found.ids for found in each.translate(texts, beam=1)] == expected
    examples = run.examples("test")
    assert loaded.loss(examples) == pytest.approx(imported.loss(examples), rel=1e-5)


def test_the_loss_of_a_step_is_that_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = checkpoint(tmp_path / "from", bart, length=40)
    run: Any = gf.train(recipe(pairs(tmp_path / "t.tsv"), folder), tmp_path / "run")
    theirs = transformers.BartForConditionalGeneration.from_pretrained(folder).eval()
    source, target = "red blue", "nine five brown"
    inputs, labels = (torch.tensor([run.tokenizer.framed(text)]) for text in (source, target))
    with torch.inference_mode():
        expected = theirs(input_ids=inputs, labels=labels).loss
    assert run.special.target_prefix == [run.tokenizer.start]
    assert run.loss([(source, target)]) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("family", ["t5", "bart", "marian"])
def test_every_family_trains_from_nothing_and_reloads(family: str, tmp_path: Path) -> None:
    fast = {"steps": 60, "lr": 1e-2, "warmup": 5, "smoothing": 0.0}
    asked = recipe(
        pairs(tmp_path / "t.tsv", 200),
        None,
        model={"family": family},
        tokenizer={"kind": "word", "vocabulary": 40},
        train=fast,
    )
    run: Any = gf.train(asked, tmp_path / "run")
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert run.loss(run.examples("test")) < 2.5  # evenly over the vocabulary it would be 3.0
    assert records
    texts = ["red blue", "ten"]
    again = gf.load(tmp_path / "run", "cpu")
    assert [each.ids for each in again.translate(texts)] == [each.ids for each in run.translate(texts)]


def test_checkpoints_that_do_not_fit_are_told(tmp_path: Path) -> None:
    data = pairs(tmp_path / "t.tsv")
    folder = checkpoint(tmp_path / "bart", bart, length=20)
    with pytest.raises(gf.ConfigurationError, match=r"data\.max_tokens is 24, .* reads 19 tokens at most"):
        gf.train(recipe(data, folder), tmp_path / "run")
    for name, model in (("bert", bert(400, **SMALL)), ("gpt2", gpt2(400, width=16, heads=2, layers=1))):
        interop.save(model, tmp_path / name)
        Tokenizer.train(WORDS * 9, Section(kind="bpe", vocabulary=300)).save(tmp_path / name / "tokenizer.json")
        with pytest.raises(gf.ConfigurationError, match=f"model.pretrained is a {name}: translation takes one of"):
            gf.train(recipe(data, tmp_path / name), tmp_path / "run")
    with pytest.raises(gf.InputError, match=r"^model\.pretrained: nowhere: there is no such folder; .* is OWNER/NAME$"):
        gf.train(recipe(data, Path("nowhere")), tmp_path / "run")
    with pytest.raises(gf.GlassformerError, match=r"model\.family bart needs tokenizer\.joint"):
        gf.train(recipe(data, None, model={"family": "bart"}, tokenizer={"joint": False}), tmp_path / "run")


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=6), st.data())
def test_special_tokens_stand_around_sources_and_before_targets(sizes: list[tuple[int, int]], data: Any) -> None:
    before, after, lead = (data.draw(st.lists(st.integers(1000, 1009), max_size=2)) for _ in range(3))
    lengths = np.array(sizes, np.int64).reshape(-1, 2)
    flat = np.arange(lengths.sum(), dtype=np.uint32)
    rows = _with_special(Encoded(flat, lengths), SpecialTokens(0, 1, 2, [], before, after, lead))
    expected, at = list[int](), 0
    for source, target in sizes:
        expected += [*before, *range(at, at + source), *after, *lead, *range(at + source, at + source + target)]
        at += source + target
    assert rows.flat.tolist() == expected
    assert rows.lengths.tolist() == [[s + len(before) + len(after), t + len(lead)] for s, t in sizes]


def test_long_texts_are_cut_inside_their_frame() -> None:
    tokenizer = Tokenizer.train([], Section(kind="byte"))
    tokenizer.add_frame()
    special_tokens = SpecialTokens(tokenizer.end, tokenizer.end, tokenizer.pad)
    special_tokens = framed_special_tokens(special_tokens, tokenizer, tokenizer)
    start, end, a = tokenizer.start, tokenizer.end, tokenizer.encode("a")[0]
    assert (special_tokens.source_prefix, special_tokens.source_suffix, special_tokens.target_prefix) == (
        [start],
        [end],
        [start],
    )
    rows = PairEncoder(tokenizer, tokenizer, 6, "truncate", False, special_tokens)([("a" * 9, "a" * 9)])
    assert rows.flat.tolist() == [start, a, a, a, a, end, start, a, a, a, a]
    assert own_special_tokens(tokenizer, tokenizer).room(6) == 6


@pytest.mark.skipif(not WEIGHTS.is_dir(), reason="the weights are not here")
def test_american_phonemes_are_the_beginning_of_british_ones(tmp_path: Path) -> None:
    rows = [("colour", "kˈʌlə"), ("better", "bˈɛtə"), ("winter", "wˈɪntə"), ("number", "nˈʌmbə"), ("river", "ɹˈɪvə")]
    data = tmp_path / "t.tsv"
    data.write_text("".join(f"{word}\t{sound}\n" for word, sound in rows), encoding="utf-8")
    imported: Any = import_run(WEIGHTS, tmp_path / "imported")
    plain = {"normalise": "none", "strip": False, "valid": 0.0, "test": 0.0, "max_tokens": 60}
    asked = recipe(data, WEIGHTS, data=plain, decode={"max_length": 60})
    words = ["hello", "transformer", "glass", "better"]
    before = [each.text for each in imported.translate(words, beam=1)]
    assert [each.text for each in gf.train(asked, tmp_path / "still").translate(words)] == before
    learning = {"steps": 30, "lr": 1e-3, "warmup": 3, "smoothing": 0.0}
    run: Any = gf.train({**asked, "train": {**asked["train"], **learning}}, tmp_path / "run")
    assert run.loss(rows) < imported.loss(rows) / 2
    assert gf.load(tmp_path / "run", "cpu").translate(["better"])[0].text == "bˈɛtə"


def test_no_step_scores_a_checkpoint_as_it_is_and_a_resume_goes_on_from_it(tmp_path: Path) -> None:
    first = gf.train(tiny.recipe(tiny.IDLE), tmp_path / "first")
    table = {**tiny.table(tiny.IDLE), "model": {"pretrained": str(tmp_path / "first")}, "decode": {"beam": 1}}
    table["train"] = {**table["train"], "steps": 0}
    del table["tokenizer"]
    run = gf.train(table, tmp_path / "run")
    assert all(map(torch.equal, run.model.parameters(), first.model.parameters()))
    (logged,) = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert logged["step"] == 0
    assert logged["valid_loss"] == pytest.approx(run.evaluate(run.examples("valid")).loss, rel=1e-5)
    assert all(map(torch.equal, gf.load(tmp_path / "run").model.parameters(), first.model.parameters()))
    again = train(make_recipe(table), tmp_path / "run", resume=True)
    assert all(map(torch.equal, again.model.parameters(), first.model.parameters()))
    table["train"]["steps"] = 2
    more = train(make_recipe(table), tmp_path / "run", resume=True)
    assert not all(map(torch.equal, more.model.parameters(), first.model.parameters()))
