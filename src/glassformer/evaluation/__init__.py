"""Evaluation: how good outputs are, by the field's own libraries, so that numbers can be compared."""

from glassformer.evaluation.answers import AnswerScores, answer_scores
from glassformer.evaluation.classes import ClassScores, class_scores
from glassformer.evaluation.metrics import Scores, perplexity, score

__all__ = ["AnswerScores", "ClassScores", "Scores", "answer_scores", "class_scores", "perplexity", "score"]
