"""The baseline: a classifier that counts words, without a neural network. A useful model is better than it.

Each text is a vector of word counts, weighted by how rare each word is (TF-IDF); logistic regression classifies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from glassformer.errors import ConfigurationError, InputError
from glassformer.evaluation.classes import ClassScores, class_scores

BASELINE = "TF-IDF + logistic regression"
VOCABULARY = 50_000  # the most frequent words
MOST_LABELS = 200  # with more labels, fitting takes too long
Examples = Sequence[tuple[str, str]]


def baseline(train: Examples, test: Examples, labels: list[str]) -> ClassScores:
    """Fit the baseline on `train` and score it on `test`; an error says why if this is impossible."""
    if find_spec("sklearn") is None:
        raise ConfigurationError(f"{BASELINE} needs scikit-learn: pip install 'glassformer[tasks]'")
    if not train or not test:
        raise InputError(f"{BASELINE} has no {'test' if train else 'training'} texts")
    strange = next((label for _, label in train if label not in labels), None)
    if strange is not None:
        raise InputError(f"{BASELINE} cannot be fitted: {strange[:40]!r} is no label of the model")
    if len(labels) > MOST_LABELS:
        raise InputError(f"{BASELINE} takes too long with {len(labels):,} labels: the maximum is {MOST_LABELS}")
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    words = TfidfVectorizer(sublinear_tf=True, max_features=VOCABULARY)
    model = make_pipeline(words, LogisticRegression(C=10.0, max_iter=1000))
    numbers = {label: number for number, label in enumerate(labels)}
    try:
        model.fit([text for text, _ in train], [numbers[label] for _, label in train])
    except ValueError:
        raise InputError(f"{BASELINE} cannot be fitted: no text has a word, or all texts have the same label") from None
    predicted = model.predict([text for text, _ in test])
    return class_scores(predicted.tolist(), [numbers[label] for _, label in test], len(labels))
