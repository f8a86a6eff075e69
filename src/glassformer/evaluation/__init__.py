"""Evaluation: how good outputs are, by the field's own libraries, so that numbers can be compared."""

from glassformer.evaluation.classes import ClassScores, class_scores
from glassformer.evaluation.metrics import Scores, perplexity, score

__all__ = ["ClassScores", "Scores", "class_scores", "perplexity", "score"]
