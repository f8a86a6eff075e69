"""static-vs-contextual: "bank" and "apple" have one vector in Word2Vec, and one for each sense in a contextual model.

A small language has four topics. "bank" is said of money and of rivers, "apple" of fruit and of computers; every other
noun and verb has one topic. Word2Vec (our skip-gram) and a small BERT learn from the same sentences, which nobody has
told about topics.

B sentences, T length, D model width, V words, N occurrences
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from glassformer.experiments.finding import Finding, Progress, Row, silent
from glassformer.experiments.learning import Dice, learn
from glassformer.looking.style import BLACK, BLUE, GREEN, ORANGE, PINK
from glassformer.models import EncoderOnly, bert
from glassformer.static import Vectors, skip_gram
from glassformer.static.skipgram import Settings
from glassformer.static.vectors import make_vectors
from glassformer.tasks import MaskedBatch, masked_loss
from glassformer.tasks.masking import chosen, hidden_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NOUNS = {
    "money": "loan cash credit deposit wallet salary",
    "river": "water boat bridge reed mud current",
    "fruit": "pear plum cherry orange juice pie",
    "computers": "phone laptop software screen chip keyboard",
}
VERBS = {
    "money": "pays lends owes saves",
    "river": "floats drifts flows swims",
    "fruit": "ripens tastes bakes peels",
    "computers": "runs updates launches connects",
}
SENSES = {"bank": ("money", "river"), "apple": ("fruit", "computers")}
LOOKS = {"money": (BLUE, "o"), "river": (GREEN, "^"), "fruit": (ORANGE, "s"), "computers": (PINK, "D")}
MASK, THE, NEAR, WITH = "[MASK]", "the", "near", "with"
WORDS = [MASK, THE, NEAR, WITH, *SENSES, *" ".join([*NOUNS.values(), *VERBS.values()]).split()]
NUMBERS = {word: number for number, word in enumerate(WORDS)}
TOPIC = {word: topic for table in (NOUNS, VERBS) for topic, words in table.items() for word in words.split()}
LENGTH, HIDDEN = 9, 0.2  # words of a sentence, and the share of them that is hidden from BERT
WIDTH, RATE = 64, 3e-3
NEAREST = 3  # neighbours that are shown
Table = NDArray[np.float32]


def run(
    seed: int = 0, progress: Progress = silent, steps: int = 300, sentences: int = 3000, count: int = 40
) -> Finding:
    """Both learn; then the vectors of the two words are compared, in `count` new sentences for each sense."""
    dice = np.random.default_rng([seed, 5])
    texts = [_sentence(dice, topic) for topic in dice.choice([*NOUNS], size=sentences)]
    static = skip_gram(
        texts,
        Settings(width=32, window=4, epochs=5, sample=0.01, seed=seed),
        progress=lambda done, total: progress("Word2Vec", done, total),
    )
    model = bert(
        len(WORDS),
        WIDTH,
        heads=4,
        layers=2,
        hidden=2 * WIDTH,
        length=LENGTH,
        dropout=0.0,
        attention_dropout=0.0,
        answer="words",
    )
    learn(model, partial(_masked, share=HIDDEN), masked_loss, steps, RATE, seed, progress, "BERT")
    seen = {(word, topic): _occurrences(model, dice, word, topic, count) for word in SENSES for topic in SENSES[word]}
    others = {
        word: _occurrences(model, dice, word, TOPIC[word], count).mean(axis=0) for word in TOPIC if word in static
    }
    contextual = make_vectors(
        [*(f"{word}/{topic}" for word, topic in seen), *others],
        np.stack([*(each.mean(axis=0) for each in seen.values()), *others.values()]),
    )
    near = {(word, topic): _nearest(contextual, f"{word}/{topic}") for word, topic in seen}
    around = {word: _nearest(static, word, 2 * NEAREST) for word in SENSES}
    facts: dict[str, float] = {
        **{f"told {word}": _told(*(seen[word, topic] for topic in SENSES[word])) for word in SENSES},
        **{f"across {word}": _cosine(*(seen[word, topic].mean(axis=0) for topic in SENSES[word])) for word in SENSES},
        **{f"near {word} {topic}": _share(near[word, topic], topic) for word, topic in seen},
        **{f"static {word} {topic}": _likeness(static, word, topic) for word in SENSES for topic in NOUNS},
    }
    rows: list[Row] = [
        *({"vectors": "Word2Vec", "word": word, "neighbours": " ".join(around[word])} for word in SENSES),
        *(
            {"vectors": "BERT", "word": word, "sense": topic, "neighbours": " ".join(near[word, topic])}
            for word, topic in seen
        ),
    ]
    flat_static, flat_seen = _plane(static, rows), _spread(seen, rows)
    listed = {key: ", ".join(words) for key, words in near.items()}
    return Finding(
        method=f"{sentences:,} sentences of {LENGTH} words were made from a grammar with four topics. `skip_gram` "
        f"learned vectors of 32 numbers from them; a BERT of 2 layers and width {WIDTH} learned for {steps} steps of "
        f"32 such sentences to guess hidden words. Then BERT read {count} new sentences of each sense of each word; "
        "its vector at the word's place is compared with those of the other sentences (whose is nearest?) and with the "
        "mean vectors of the other words. Projections are on the first two principal components.",
        measured=f'In Word2Vec "bank" has one vector, between its senses: its mean cosine is '
        f"{facts['static bank money']:.2f} with words of money and {facts['static bank river']:.2f} with words of "
        f'rivers ("apple": {facts["static apple fruit"]:.2f} with fruit, {facts["static apple computers"]:.2f} with '
        f"computers), its nearest words are {', '.join(around['bank'])}. In BERT it "
        f"has one for each sentence, and the one nearest to it has the same sense in {facts['told bank']:.0%} (apple: "
        f'{facts["told apple"]:.0%}). Near "bank" stand {listed["bank", "money"]} in sentences about money and '
        f'{listed["bank", "river"]} in those about rivers; near "apple" {listed["apple", "fruit"]} or '
        f"{listed['apple', 'computers']}. The cosine between the two senses is {facts['across bank']:.2f} and "
        f"{facts['across apple']:.2f}; between a word and itself in Word2Vec it is always 1.",
        holds=min(facts["told bank"], facts["told apple"]) > 0.9
        and min(facts[f"near {word} {topic}"] for word, topic in seen) > 0.6
        and all(_mixed(facts, word) for word in SENSES),
        facts=facts,
        rows=rows,
        draw=lambda: _draw(flat_static, flat_seen, near),
    )


def _sentence(dice: Dice, topic: str, must: str | None = None) -> list[str]:
    """A sentence about a topic: the boat floats near the bank with the reed; one that has the word it `must` have."""
    nouns = [*NOUNS[topic].split(), *(word for word, topics in SENSES.items() if topic in topics)]
    first, second, third = dice.choice(nouns, size=3, replace=False).tolist()
    verb = str(dice.choice(VERBS[topic].split()))
    if must in VERBS[topic].split():
        verb = must
    elif must is not None and must not in (second, third):
        first = must
    return [THE, first, verb, NEAR, THE, second, WITH, THE, third]


def _masked(dice: Dice, share: float, count: int = 32) -> MaskedBatch:
    """Sentences about all topics, some of whose words are hidden."""
    drawn = [_sentence(dice, topic) for topic in dice.choice([*NOUNS], size=count)]
    text = np.array([[NUMBERS[word] for word in sentence] for sentence in drawn])  # (B, T)
    real = np.ones_like(text, dtype=np.bool_)
    asked = chosen(real, share, dice)
    shown = hidden_at(text, asked, NUMBERS[MASK], len(WORDS), dice)
    shown_, real_, text_, asked_ = (torch.from_numpy(each) for each in (shown, real, text, asked))
    return MaskedBatch(shown_, real_, text_, asked_, tokens=text.size, answers=int(asked.sum()))


@torch.no_grad()
def _occurrences(model: EncoderOnly, dice: Dice, word: str, topic: str, count: int) -> Table:
    """The vectors (N, D) of a word, verb or noun, in new sentences about a topic."""
    drawn = [_sentence(dice, topic, word) for _ in range(count)]
    text = torch.tensor([[NUMBERS[each] for each in sentence] for sentence in drawn])  # (N, T)
    vectors = model.eval().hidden(text)  # (N, T, D)
    return vectors[torch.arange(count), [sentence.index(word) for sentence in drawn]].numpy()


def _told(one: Table, other: Table) -> float:
    """How often the vector nearest to a vector has the same sense."""
    both = np.concatenate((one, other))
    units = both / np.linalg.norm(both, axis=1, keepdims=True)
    alike = units @ units.T - 2 * np.eye(len(both))
    sense = np.arange(len(both)) < len(one)
    return float((sense[alike.argmax(axis=1)] == sense).mean())


def _cosine(one: Table, other: Table) -> float:
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))


def _likeness(vectors: Vectors, word: str, topic: str) -> float:
    """The mean cosine between a word and the nouns of a topic."""
    return float(np.mean([_cosine(vectors[word], vectors[noun]) for noun in NOUNS[topic].split()]))


def _mixed(facts: dict[str, float], word: str) -> bool:
    """Whether a word's one vector stands nearer to both of its topics than to any other."""
    likeness = {topic: facts[f"static {word} {topic}"] for topic in NOUNS}
    return min(likeness[topic] for topic in SENSES[word]) > max(
        value for topic, value in likeness.items() if topic not in SENSES[word]
    )


def _nearest(vectors: Vectors, word: str, count: int = NEAREST) -> list[str]:
    """The nearest words that have one topic only."""
    return [each.word for each in vectors.near(word, len(vectors) - 1) if each.word in TOPIC][:count]


def _share(words: list[str], topic: str) -> float:
    return sum(TOPIC[word] == topic for word in words) / len(words)


def _flat(table: Table) -> Table:
    """Vectors (N, D) on their first two principal components, (N, 2)."""
    centred = table - table.mean(axis=0)
    return np.asarray(centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T, np.float32)


def _plane(static: Vectors, rows: list[Row]) -> dict[str, Table]:
    """Where the nouns stand in Word2Vec; for the data too."""
    words = [*SENSES, *" ".join(NOUNS.values()).split()]
    places = dict(zip(words, _flat(np.stack([static[word] for word in words])), strict=True))
    rows += [
        {"vectors": "Word2Vec", "word": word, "sense": TOPIC.get(word, ""), "x": float(x), "y": float(y)}
        for word, (x, y) in places.items()
    ]
    return places


def _spread(seen: dict[tuple[str, str], Table], rows: list[Row]) -> dict[tuple[str, str], Table]:
    """Where the occurrences of each word stand in BERT, each word on a plane of its own."""
    places: dict[tuple[str, str], Table] = {}
    for word, (one, other) in SENSES.items():
        flat = _flat(np.concatenate((seen[word, one], seen[word, other])))
        cut = len(seen[word, one])
        places[word, one], places[word, other] = flat[:cut], flat[cut:]
    rows += [
        {"vectors": "BERT", "word": word, "sense": topic, "x": float(x), "y": float(y)}
        for (word, topic), points in places.items()
        for x, y in points
    ]
    return places


def _draw(static: dict[str, Table], seen: dict[tuple[str, str], Table], near: dict[tuple[str, str], Any]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.4), layout="constrained")
    one, *others = figure.subplots(1, 3, width_ratios=[1.3, 1, 1])
    for topic, (colour, marker) in LOOKS.items():
        points = np.stack([static[word] for word in NOUNS[topic].split()])
        one.scatter(*points.T, color=colour, marker=marker, label=topic)
    for word in SENSES:
        one.scatter(*static[word], color=BLACK, marker="*", s=150, zorder=3)
        one.annotate(word, static[word], xytext=(8, 4), textcoords="offset points", weight="bold")
    one.set_title("Word2Vec: one vector for each word")
    axes: Axes
    for axes, word in zip(others, SENSES, strict=True):
        for topic in SENSES[word]:
            colour, marker = LOOKS[topic]
            label = f"near: {', '.join(near[word, topic])}"
            axes.scatter(*seen[word, topic].T, color=colour, marker=marker, alpha=0.6, label=label)
        axes.set_title(f'BERT: "{word}" in {sum(len(seen[word, topic]) for topic in SENSES[word])} sentences')
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12))
    for axes in (one, *others):
        axes.set(xlabel="first principal component", xticks=[], yticks=[])
    one.set_ylabel("second principal component")
    one.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=4, handletextpad=0.1, columnspacing=1)
    return figure
