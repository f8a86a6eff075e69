"""static-vs-contextual: "bank" and "apple" have one vector in Word2Vec, and one for each sense in a contextual model.

A small language has four topics. "bank" is said of money and of rivers, "apple" of fruit and of computers; every other
noun and verb has one topic. Word2Vec (our skip-gram) and a small BERT learn from the same sentences, which nobody has
told about topics.

B sentences, T length, D model width, N occurrences
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from glassformer.experiments.batches import Rng
from glassformer.experiments.charts import MARKER, bars, note, panels
from glassformer.experiments.finding import Finding, Row, Rows, Spread
from glassformer.experiments.measures import mean_loss
from glassformer.experiments.trial import Trial, told_rates
from glassformer.looking.style import BLACK, BLUE, GREEN, ORANGE, PINK
from glassformer.models import EncoderOnly, bert
from glassformer.static import Vectors, skip_gram
from glassformer.static.skipgram import Settings
from glassformer.static.vectors import make_vectors
from glassformer.tasks.gathering import TokenBatch, token_loss
from glassformer.tasks.masked import chosen, hidden_at

CLAIM = '"bank" and "apple" have one vector in Word2Vec, and one for each of their senses in a contextual model.'
ORDER = 10  # in the story

NOUNS = {
    "money": ["loan", "cash", "credit", "deposit", "wallet", "salary"],
    "river": ["water", "boat", "bridge", "reed", "mud", "current"],
    "fruit": ["pear", "plum", "cherry", "orange", "juice", "pie"],
    "computers": ["phone", "laptop", "software", "screen", "chip", "keyboard"],
}
VERBS = {
    "money": ["pays", "lends", "owes", "saves"],
    "river": ["floats", "drifts", "flows", "swims"],
    "fruit": ["ripens", "tastes", "bakes", "peels"],
    "computers": ["runs", "updates", "launches", "connects"],
}
SENSES = {"bank": ("money", "river"), "apple": ("fruit", "computers")}
COLOURS = {"money": BLUE, "river": GREEN, "fruit": ORANGE, "computers": PINK}
MASK, THE, NEAR, WITH = "[MASK]", "the", "near", "with"
TOPIC = {word: topic for table in (NOUNS, VERBS) for topic, words in table.items() for word in words}
WORDS = [MASK, THE, NEAR, WITH, *SENSES, *TOPIC]
NUMBERS = {word: number for number, word in enumerate(WORDS)}
LENGTH, HIDDEN = 9, 0.2  # words of a sentence, and the ratio of them that is hidden from BERT
WIDTH, RATES = 64, (3e-3, 6e-3)
NEAREST = 3  # neighbours that are shown
Table = NDArray[np.float32]


def run(trial: Trial, steps: int = 450, sentences: int = 2000, count: int = 40) -> Finding:
    """Both learn; then the vectors of the two words are compared, in `count` new sentences for each sense."""
    work = partial(_contextual, steps=steps, sentences=sentences, count=count)
    tuned = trial.tuned("learning vectors", work, ["BERT"], RATES)["BERT"]
    found = [facts for facts, _ in tuned.results]
    rows = Rows(row for _, own in tuned.results for row in own)
    facts: dict[str, float] = {name: Spread(each[name] for each in found) for name in found[0]}
    seeds = [each.seed for each in trial.seeds()]
    shown = rows.where(seed=seeds[0])
    listed = {
        (row["word"], row.get("sense")): ", ".join(row["neighbours"].split()) for row in shown if "neighbours" in row
    }
    own = {word: [{topic: each[f"static {word} {topic}"] for topic in NOUNS} for each in found] for word in SENSES}
    between = all(
        {*sorted(NOUNS, key=likeness.__getitem__)[-2:]} == {*SENSES[word]} for word in SENSES for likeness in own[word]
    )
    neighbours = ", ".join(
        f"{facts[f'near {word} {topic}']:.0%} ({word}, {topic})" for word in SENSES for topic in SENSES[word]
    )
    return Finding(
        method=f"{sentences:,} sentences of {LENGTH} words were made from a grammar with four topics. `skip_gram` "
        f"learned vectors of 32 numbers from them; a BERT of 2 layers and width {WIDTH} learned for {steps} steps of "
        f"32 such sentences to guess hidden words, {told_rates(RATES)}. Then BERT read {count} new sentences of each "
        "sense of each word; its vector at the word's place is compared with those of the other sentences (whose is "
        "nearest?) and with the mean vectors of other words. Projections are on the first two principal components.",
        measured=f'In Word2Vec "bank" has one vector, between its senses: its mean cosine is '
        f"{facts['static bank money']:.2f} with words of money and {facts['static bank river']:.2f} with words of "
        f"rivers, and {facts['static bank fruit']:.2f} with words of fruit "
        f'("apple": {facts["static apple fruit"]:.2f} with fruit, {facts["static apple computers"]:.2f} with '
        f"computers, {facts['static apple money']:.2f} with money). In BERT it has one for each sentence, and the one "
        f"nearest to it has the same sense in {facts['told bank']:.0%} (apple: {facts['told apple']:.0%}). At seed "
        f'{seeds[0]}, near "bank" stand {listed["bank", "money"]} in sentences about money and '
        f'{listed["bank", "river"]} in those about rivers; near "apple" {listed["apple", "fruit"]} or '
        f"{listed['apple', 'computers']}. The cosine between the two senses is {facts['across bank']:.2f} and "
        f"{facts['across apple']:.2f}; between a word and itself in Word2Vec it is always 1. Of the {NEAREST} words "
        f"nearest to the mean vector of a sense, these have its topic: {neighbours}.",
        holds=all(min(each["told bank"], each["told apple"]) > 0.9 for each in found) and between,
        facts=facts,
        rows=rows,
        draw=lambda: _draw(shown, facts),
        seeds=seeds,
    )


def _contextual(
    trial: Trial, kind: str, rate: float, steps: int, sentences: int, count: int
) -> tuple[float, tuple[dict[str, float], list[Row]]]:
    """The validation loss of a BERT; what its vectors and those of Word2Vec are near, and where they stand."""
    rng = np.random.default_rng([trial.seed, 5])
    texts = [_sentence(rng, topic) for topic in rng.choice([*NOUNS], size=sentences)]
    static = skip_gram(texts, Settings(width=32, window=4, epochs=5, sample=0.01, seed=trial.seed))
    make = partial(bert, dropout=0.0, attention_dropout=0.0, answer="words")
    model: EncoderOnly = trial.begin(
        lambda: make(len(WORDS), WIDTH, heads=4, layers=2, hidden=2 * WIDTH, length=LENGTH)
    )
    trial.learn("", model, _masked, token_loss, steps, rate)
    seen = {(word, topic): _occurrences(model, rng, word, topic, count) for word in SENSES for topic in SENSES[word]}
    means = {f"{word}/{topic}": table.mean(axis=0) for (word, topic), table in seen.items()}
    means |= {word: _occurrences(model, rng, word, TOPIC[word], count).mean(axis=0) for word in TOPIC if word in static}
    contextual = make_vectors([*means], np.stack([*means.values()]))
    near = {(word, topic): _nearest(contextual, f"{word}/{topic}", NEAREST) for word, topic in seen}
    likeness = {
        (word, topic): float(np.mean([_cosine(static[word], static[noun]) for noun in NOUNS[topic]]))
        for word in SENSES
        for topic in NOUNS
    }
    facts: dict[str, float] = {
        **{f"told {word}": _told(*(seen[word, topic] for topic in SENSES[word])) for word in SENSES},
        **{f"across {word}": _cosine(*(means[f"{word}/{topic}"] for topic in SENSES[word])) for word in SENSES},
        **{
            f"near {word} {topic}": sum(TOPIC[each] == topic for each in words) / len(words)
            for (word, topic), words in near.items()
        },
        **{f"static {word} {topic}": alike for (word, topic), alike in likeness.items()},
    }
    rows: list[Row] = [
        {"vectors": "BERT", "word": word, "sense": topic, "neighbours": " ".join(words)}
        for (word, topic), words in near.items()
    ]
    nouns = [noun for topic in NOUNS for noun in NOUNS[topic]]
    rows += _plane("Word2Vec", [(word, TOPIC.get(word, ""), static[word][None]) for word in (*SENSES, *nouns)])
    for word in SENSES:  # each on a plane of its own
        rows += _plane("BERT", [(word, topic, seen[word, topic]) for topic in SENSES[word]])
    held = mean_loss(model, trial.held_out(_masked, count=500), token_loss)
    return held, (facts, [{**row, "seed": trial.seed} for row in rows])


def _sentence(rng: Rng, topic: str, must: str | None = None) -> list[str]:
    """A sentence about a topic: the boat floats near the bank with the reed; one that has the word it `must` have."""
    nouns = [*NOUNS[topic], *(word for word, topics in SENSES.items() if topic in topics)]
    first, second, third = rng.choice(nouns, size=3, replace=False).tolist()
    verb = str(rng.choice(VERBS[topic]))
    if must in VERBS[topic]:
        verb = must
    elif must is not None and must not in (second, third):
        first = must
    return [THE, first, verb, NEAR, THE, second, WITH, THE, third]


def _masked(rng: Rng, count: int = 32) -> TokenBatch:
    """Sentences about all topics, some of whose words are hidden."""
    drawn = [_sentence(rng, topic) for topic in rng.choice([*NOUNS], size=count)]
    text = np.array([[NUMBERS[word] for word in sentence] for sentence in drawn])  # (B, T)
    real = np.ones_like(text, dtype=np.bool_)
    asked = chosen(real, HIDDEN, rng)
    shown = hidden_at(text, asked, NUMBERS[MASK], len(WORDS), rng)
    hidden, mask, labels, label_mask = (torch.from_numpy(each) for each in (shown, real, text, asked))
    return TokenBatch(hidden, labels, label_mask, None, text.size, int(asked.sum()), mask)


@torch.no_grad()
def _occurrences(model: EncoderOnly, rng: Rng, word: str, topic: str, count: int) -> Table:
    """The vectors (N, D) of a word, verb or noun, in new sentences about a topic."""
    drawn = [_sentence(rng, topic, word) for _ in range(count)]
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


def _nearest(vectors: Vectors, word: str, count: int) -> list[str]:
    """The nearest words that have one topic only."""
    return [each.word for each in vectors.near(word, len(vectors) - 1) if each.word in TOPIC][:count]


def _plane(vectors: str, tables: list[tuple[str, str, Table]]) -> list[Row]:
    """Where the vectors (N, D) of words and their senses stand on the first two principal components of all."""
    table = np.concatenate([each for _, _, each in tables])
    centred = table - table.mean(axis=0)
    flat = np.asarray(centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T, np.float32)
    named = [(word, sense) for word, sense, each in tables for _ in each]
    return [
        {"vectors": vectors, "word": word, "sense": sense, "x": float(x), "y": float(y)}
        for (word, sense), (x, y) in zip(named, flat, strict=True)
    ]


def _draw(rows: Rows, facts: dict[str, float]) -> Figure:
    figure, (one, *others, alike) = panels(4, 13, 4.4, width_ratios=[1.3, 1, 1, 0.8])
    points = Rows(row for row in rows if "x" in row)
    for topic, colour in COLOURS.items():
        _scatter(one, points.where(vectors="Word2Vec", sense=topic), colour, topic)
    for row in points.where(vectors="Word2Vec", sense=""):
        one.scatter(row["x"], row["y"], color=BLACK, marker="*", s=150, zorder=3)
        note(one, row["word"], (row["x"], row["y"]), (8, 4), weight="bold")
    one.set(title="Word2Vec: one vector for each word", ylabel="second principal component")
    one.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=4, handletextpad=0.1, columnspacing=1)
    for axes, word in zip(others, SENSES, strict=True):
        for topic in SENSES[word]:
            neighbours = rows.where(vectors="BERT", word=word, sense=topic)[0]["neighbours"]
            own, label = points.where(vectors="BERT", word=word, sense=topic), ", ".join(neighbours.split())
            _scatter(axes, own, COLOURS[topic], f"near: {label}", alpha=0.6)
        axes.set_title(f'BERT: "{word}" in {len(points.where(vectors="BERT", word=word))} sentences')
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12))
    topics = {topic: [facts[f"static {word} {topic}"] for word in SENSES] for topic in NOUNS}
    bars(alike, [f'"{word}"' for word in SENSES], topics, COLOURS)
    alike.set(title="Word2Vec: all seeds", ylabel="mean cosine with the words of a topic")
    for axes in (one, *others):
        axes.set(xlabel="first principal component", xticks=[], yticks=[])
    return figure


def _scatter(axes: Axes, rows: Rows, colour: str, label: str, alpha: float = 1.0) -> None:
    axes.scatter(rows.column("x"), rows.column("y"), color=colour, marker=MARKER[colour], alpha=alpha, label=label)
