"""Suggestions: from the files that a user has and the minutes that there are to a recipe.

The files tell the source and the task (`recognising`), the machine tells how fast models of several sizes train on
them (`speed`), and a sweep of trainings that we have run tells which size gets furthest in that time (`sizes`).
"""

from glassformer.suggest.recognising import Recognised as Recognised
from glassformer.suggest.recognising import recognise as recognise
from glassformer.suggest.suggesting import Suggestion as Suggestion
from glassformer.suggest.suggesting import suggest as suggest
