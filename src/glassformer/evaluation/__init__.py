"""Evaluation: metrics by the standard libraries, so that their values can be compared with other work."""

from glassformer.evaluation.answers import AnswerScores as AnswerScores
from glassformer.evaluation.answers import answer_scores as answer_scores
from glassformer.evaluation.answers import best_threshold as best_threshold
from glassformer.evaluation.baseline import BASELINE as BASELINE
from glassformer.evaluation.baseline import baseline as baseline
from glassformer.evaluation.choosing import drawn as drawn
from glassformer.evaluation.classes import ClassScores as ClassScores
from glassformer.evaluation.classes import class_scores as class_scores
from glassformer.evaluation.metrics import Rouge as Rouge
from glassformer.evaluation.metrics import Scores as Scores
from glassformer.evaluation.metrics import check_rouge as check_rouge
from glassformer.evaluation.metrics import perplexity as perplexity
from glassformer.evaluation.metrics import rouge as rouge
from glassformer.evaluation.metrics import score as score
