"""Evaluation: how good outputs are, by the field's own libraries, so that numbers can be compared."""

from glassformer.evaluation.answers import AnswerScores, answer_scores, best_threshold
from glassformer.evaluation.baseline import BASELINE, baseline
from glassformer.evaluation.bootstrap import Estimate, paired_bleu, paired_means
from glassformer.evaluation.classes import ClassScores, class_scores
from glassformer.evaluation.metrics import Scores, perplexity, score
from glassformer.evaluation.rouge import Rouge, check_rouge, rouge

__all__ = [
    "BASELINE",
    "AnswerScores",
    "ClassScores",
    "Estimate",
    "Rouge",
    "Scores",
    "answer_scores",
    "baseline",
    "best_threshold",
    "check_rouge",
    "class_scores",
    "paired_bleu",
    "paired_means",
    "perplexity",
    "rouge",
    "score",
]
