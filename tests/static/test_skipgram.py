"""Skip-gram: its arithmetic, and that it finds neighbours that were planted."""

import math
import random
from pathlib import Path

import pytest
import torch

import glassformer.static.skipgram as module
from glassformer.errors import ConfigurationError, InputError
from glassformer.static import gensim_vectors, skip_gram
from glassformer.static.skipgram import Settings, SkipGram, counted, keep_probability, pairs

GROUPS = [[f"{letter}{number}" for number in range(6)] for letter in "abcd"]


def planted(count: int = 1500) -> list[list[str]]:
    """Sentences about one of four topics each; all have the same small words between."""
    draw = random.Random(0)
    return [
        [word for topic in [draw.choice(GROUPS)] for _ in range(6) for word in (draw.choice(topic), "the")]
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", [0, 1])
def test_it_finds_planted_neighbours(seed: int) -> None:
    vectors = skip_gram(planted(), Settings(width=16, window=3, epochs=5, sample=1e-2, seed=seed))
    for group in GROUPS:
        for word in group:
            assert {each.word for each in vectors.near(word, 5)} == set(group) - {word}


def test_gensim_finds_them_too() -> None:
    pytest.importorskip("gensim", reason="the extra `vectors` is not installed")
    vectors = gensim_vectors(planted(), Settings(width=16, window=3, epochs=10, sample=1e-2))
    right = [{each.word for each in vectors.near(word, 5)} == set(group) - {word} for group in GROUPS for word in group]
    assert sum(right) >= 22  # of 24


def test_a_word_of_two_senses_is_tilted_towards_the_more_frequent_one() -> None:
    (fruit, phones, *_), draw = GROUPS, random.Random(1)
    sentences = [[draw.choice(phones if number % 2 else fruit) for _ in range(6)] for number in range(1500)]
    for number, sentence in enumerate(sentences):
        if draw.random() < (0.05 if number % 2 else 0.45):  # nine of ten times it is a fruit
            sentence.insert(3, "apple")
    near = {each.word: each.similarity for each in skip_gram(sentences, Settings(width=16, window=3)).near("apple", 12)}
    assert sum(near[word] for word in fruit) > 2 * sum(near[word] for word in phones)


def test_the_same_seed_gives_the_same_vectors_and_another_does_not() -> None:
    some, settings = planted(50), Settings(width=4, epochs=1, least=1)
    before = torch.get_rng_state()
    one, two = skip_gram(some, settings), skip_gram(some, settings)
    assert one.table.tobytes() == two.table.tobytes()
    assert one.table.tobytes() != skip_gram(some, Settings(width=4, epochs=1, least=1, seed=1)).table.tobytes()
    assert torch.equal(before, torch.get_rng_state())


def test_the_loss_is_the_formula() -> None:
    model = SkipGram(5, 3)
    torch.nn.init.normal_(model.neighbours.weight)
    u, v = model.neighbours.weight.tolist(), model.words.weight.tolist()

    def log_sigmoid(one: list[float], other: list[float], sign: float) -> float:
        return -math.log1p(math.exp(-sign * sum(x * y for x, y in zip(one, other, strict=True))))

    expected = -(log_sigmoid(u[2], v[1], 1) + log_sigmoid(u[3], v[1], -1) + log_sigmoid(u[4], v[1], -1))
    found = model(torch.tensor([1]), torch.tensor([2]), torch.tensor([[3, 4]]))
    assert float(found.detach()) == pytest.approx(expected, abs=1e-6)


def test_pairs_stay_in_their_sentence_and_window() -> None:
    tokens, places = torch.arange(8), torch.tensor([0, 0, 0, 0, 0, 1, 1, 1])
    centres, near = pairs(tokens, places, 2, torch.Generator().manual_seed(0))
    found = set(zip(centres.tolist(), near.tolist(), strict=True))
    within = {(a, b) for a in range(8) for b in range(8) if 0 < abs(a - b) <= 2 and places[a] == places[b]}
    assert {pair for pair in within if abs(pair[0] - pair[1]) == 1} <= found <= within


def test_few_words_have_few_neighbours() -> None:
    for count in range(4):  # fewer than the window is wide
        for window in (5, 2**31 - 1):
            centres, near = pairs(torch.arange(count), torch.zeros(count), window, torch.Generator().manual_seed(0))
            assert centres.shape == near.shape
            assert len(centres) >= 2 * max(count - 1, 0)


def test_frequent_words_are_kept_as_the_paper_says() -> None:
    kept = keep_probability(torch.tensor([900.0, 100.0]), 0.09)
    assert kept.tolist() == pytest.approx([0.1**0.5 + 0.1, 1.0], abs=1e-6)
    assert keep_probability(torch.tensor([900.0, 100.0]), 0).tolist() == [1, 1]


def test_what_cannot_be_learned_is_a_sentence() -> None:
    with pytest.raises(InputError, match="fewer than two words occur 5 times or more"):
        skip_gram([["a", "b"]])
    with pytest.raises(InputError, match="no sentence has two words that occur 2 times or more"):
        skip_gram([["a"], ["b"]] * 2, Settings(least=2))
    with pytest.raises(InputError, match="too little to learn from"):
        skip_gram([["a", "b"]], Settings(least=1, epochs=1))  # frequent words are skipped: of 2, usually both
    with pytest.raises(ConfigurationError, match="window must be at least 1, not 0"):
        Settings(window=0)
    assert counted([["b", "a", "b"]], 1) == (["b", "a"], [2, 1])


def test_it_is_short_enough_to_read() -> None:
    assert len(Path(module.__file__).read_text(encoding="utf-8").splitlines()) < 150


def test_a_small_text_gets_enough_steps_to_find_its_groups() -> None:
    """6,000 words in batches of 1,024 pairs were a few dozen steps, after which all cosines were about 0.9."""
    kinds = {
        "animal": "cat dog cow hen fox",
        "food": "bread milk corn meat rice",
        "driver": "man woman boy girl queen",
        "car": "car bus truck van train",
        "city": "rome paris oslo lima cairo",
    }
    frames = [("animal", "eats likes", "food"), ("driver", "drives takes", "car"), ("driver", "visits leaves", "city")]
    draw, sentences = random.Random(1), []
    for _ in range(1000):
        who, verbs, what = draw.choice(frames)
        words = [draw.choice(some.split()) for some in (kinds[who], verbs, kinds[what], "today now again")]
        sentences.append(["the", *words[:2], "the", *words[2:]])
    vectors = skip_gram(sentences, Settings(width=24))
    groups = [kind.split() for kind in kinds.values()]
    near = [each.word in kind for kind in groups for word in kind for each in vectors.near(word, 4)]
    assert sum(near) / len(near) > 0.75
    farthest = [vectors.near(word, len(vectors) - 1)[-1].similarity for kind in groups for word in kind]
    assert sum(farthest) / len(farthest) < 0.5


def test_a_fraction_to_sample_by_is_a_fraction() -> None:
    with pytest.raises(ConfigurationError, match=r"sample must be from 0 to 1, not 2"):
        Settings(sample=2)
    with pytest.raises(ConfigurationError, match=r"sample must be from 0 to 1, not nan"):
        Settings(sample=math.nan)
