"""The baseline: what counting words does, without any network. A classifier worth its weights does better.

Each text is a vector of its words, each weighed by how rare it is (TF-IDF); logistic regression draws the borders.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from glassformer.errors import ConfigurationError, InputError
from glassformer.evaluation.classes import ClassScores, class_scores

BASELINE = "TF-IDF + logistic regression"
WORDS = 50_000  # different words that are counted, the most frequent ones
LABELS = 200  # beyond which it takes longer than it is worth
Examples = Sequence[tuple[str, str]]


def baseline(train: Examples, test: Examples, labels: list[str]) -> ClassScores:
    """How the baseline, taught with some examples, does on others; where that cannot be told, an error says why."""
    if find_spec("sklearn") is None:
        raise ConfigurationError(f"{BASELINE} needs scikit-learn: pip install 'glassformer[tasks]'")
    if not train or not test:
        raise InputError(f"{BASELINE} has no texts to {'be measured with' if train else 'learn from'}")
    if len(labels) > LABELS:
        raise InputError(f"{BASELINE} would take too long with {len(labels):,} labels: {LABELS} are the most")
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    words = TfidfVectorizer(sublinear_tf=True, max_features=WORDS)
    model = make_pipeline(words, LogisticRegression(C=10.0, max_iter=1000))
    numbers = {label: number for number, label in enumerate(labels)}
    try:
        model.fit([text for text, _ in train], [numbers[label] for _, label in train])
    except ValueError:
        raise InputError(f"{BASELINE} has nothing to learn: no text has a word, or all have one label") from None
    said = model.predict([text for text, _ in test])
    return class_scores(said.tolist(), [numbers[label] for _, label in test], len(labels))
