"""The loss and the scores of a run, against computations that share nothing with it."""

import math
from functools import partial
from typing import Any

import pytest
import sacrebleu
import torch
import torch.nn.functional as F

from glassformer.errors import InputError
from glassformer.parts import quantise
from glassformer.tasks.translation import Translator, translator
from glassformer.tasks.writing import Output

PAIRS = [("a b c", "a b c"), ("d", "d e f g"), ("h g f e d", "h"), ("b b", "c c c c")]


@torch.inference_mode()
def one_by_one(run: Translator, pairs: list[tuple[str, str]]) -> float:
    """The same by PyTorch's own cross entropy, a pair at a time: no padding, no masks."""
    total, count = 0.0, 0
    for source, target in pairs:
        wanted = torch.tensor([*run.target.encode(target), run.target.end])
        read = torch.tensor([[run.target.start, *wanted[:-1].tolist()]])
        logits = run.model(torch.tensor([run.tokenizer.encode(source)]), read)
        total += float(F.cross_entropy(logits[0], wanted, reduction="sum"))
        count += len(wanted)
    return total / count


@pytest.mark.parametrize("size", [1, 2, 64])
def test_loss_is_cross_entropy_per_target_token_whatever_the_batches(trained: Translator, size: int) -> None:
    assert trained.loss(PAIRS, size=size) == pytest.approx(one_by_one(trained, PAIRS), rel=1e-4)


def test_loss_does_not_depend_on_the_order(trained: Translator) -> None:
    assert trained.loss(PAIRS[::-1], size=3) == pytest.approx(trained.loss(PAIRS, size=3), rel=1e-4)


def test_long_targets_are_cut_and_many_pairs_do_not_take_more_than_training(trained: Translator) -> None:
    most, budget = trained.recipe.data.max_tokens, trained.recipe.train.batch_tokens
    long = ("a b", " ".join("a" * 5000))
    cut = ("a b", " ".join("a" * most))
    shapes: list[tuple[int, int]] = []
    watch = trained.model.decoder.register_forward_hook(lambda _, inputs, __: shapes.append(tuple(inputs[0].shape[:2])))
    try:
        assert trained.loss([long] * 40 + PAIRS) == pytest.approx(trained.loss([cut] * 40 + PAIRS))
    finally:
        watch.remove()
    assert max(rows * length for rows, length in shapes) <= budget


def test_the_loss_in_8_bits_is_that_of_the_model_in_8_bits(
    trained: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translator, "quantise", partial(quantise, least=0))  # the model is small: all of it
    rounded = trained.with_model(quantise(trained.model, least=0))
    assert trained.loss(PAIRS, int8=True) == pytest.approx(one_by_one(rounded, PAIRS), rel=1e-4)
    assert trained.loss(PAIRS, int8=True) != pytest.approx(trained.loss(PAIRS), rel=1e-4)


def test_what_it_learned_is_likelier_than_what_it_did_not(trained: Translator) -> None:
    assert trained.loss([("a b c", "a b c")]) < 0.3
    assert trained.loss([("a b c", "c b a")]) > 1


def test_evaluation_is_translation_and_sacrebleu(trained: Translator) -> None:
    pairs = trained.examples("valid")[:40]
    told: list[int] = []
    found = trained.evaluate(pairs, beam=2, progress=lambda done, of: told.append(done))
    references = [target for _, target in pairs]
    assert found.outputs == [each.text for each in trained.translate([source for source, _ in pairs], beam=2)]
    assert found.scores.bleu == pytest.approx(sacrebleu.corpus_bleu(found.outputs, [references]).score)
    assert found.loss == pytest.approx(one_by_one(trained, pairs), rel=1e-3)
    assert found.perplexity == pytest.approx(math.exp(found.loss))
    assert told[-1] == 40


def test_the_pairs_that_were_kept_out_of_training_are_there(trained: Translator) -> None:
    assert len(trained.examples("valid")) > 100
    assert not set(trained.examples("valid")) & set(trained.examples("test"))
    with pytest.raises(InputError, match="valid and test examples, not 'train'"):
        trained.examples("train")


def test_pairs_with_the_same_source_are_one_source_with_several_references(trained: Translator) -> None:
    pairs = [("a b c", "c b a"), ("d e", "d e"), ("a b c", "a b c"), ("a b c", "a b c")]
    found = trained.evaluate(pairs)
    assert (found.sources, found.references) == (["a b c", "d e"], [["c b a", "a b c"], ["d e"]])
    assert found.outputs == ["a b c", "d e"]
    assert (found.scores.exact, found.scores.edits) == (1, 0)
    assert found.loss == pytest.approx(one_by_one(trained, pairs), rel=1e-4)  # of all pairs
    assert found.lines()[0] == "4 pairs, 2 sources, 1 to 2 references each"
    facts = found.facts()
    assert (facts["pairs"], facts["sources"], facts["references"]) == (4, 2, [1, 2])
    assert "nrefs:var" in facts["bleu_signature"]
    assert trained.evaluate(pairs[:2]).lines()[0] == "2 pairs"
    assert "   (reference" not in "".join(trained.shown(pairs, found))


def test_every_score_of_an_evaluation_has_an_interval_around_it(trained: Translator) -> None:
    found = trained.evaluate([*trained.examples("test")[:20], ("a b", "b a"), ("c d e f", "f"), ("g", "h h")])
    assert found.intervals.keys() == found.summary().keys()
    for name, value in found.summary().items():
        low, high = found.intervals[name]
        assert low <= value <= high
        assert low < high
    low, high = found.intervals["bleu"]
    assert f"BLEU         {found.scores.bleu:.2f}  [{low:.2f}, {high:.2f}]   nrefs:1|" in "\n".join(found.lines())


def test_validation_decodes_pairs_of_all_lengths_and_takes_the_loss_of_all(
    trained: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [(" ".join("a" * size), "a") for size in (1, 2, 3, 4, 5, 6, 7, 8) for _ in range(4)]
    read, translate = list[str](), trained.translate

    def watched(texts: list[str], *more: Any, **named: Any) -> list[Output]:
        read.extend(texts)
        return translate(texts, *more, **named)

    monkeypatch.setattr(trained, "translate", watched)
    found = trained.measure(pairs, 16)
    assert len(read) == len({*read}) == 4  # each source once, with its four references
    assert max(map(len, read)) > 7
    assert found["loss"] == pytest.approx(trained.loss(pairs))
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))


def test_the_example_that_is_looked_at_is_of_middle_length(trained: Translator) -> None:
    sources = [" ".join("ab"[:1] * size) for size in (1, 4, 5, 6, 7, 8, 9, 10, 13, 40)]
    assert len(trained.example_of(sources).split()) == 8
    assert trained.example_of(["a", "b b"]) == "a"  # there is none of middle length
