"""Choosing: which of some continuations a language model finds the likeliest, so that it classifies untrained.

A continuation's score is log p of its tokens after the prompt. Longer ones have lower sums, so the choice is by the
mean of a token; both are given.

C choices, L tokens that all choices share
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import takewhile
from typing import Any

import torch

from glassformer.data import Report
from glassformer.errors import ConfigurationError, InputError
from glassformer.registry import SOURCES
from glassformer.tasks.labels import ClassEvaluation, classified, predictions
from glassformer.tasks.run import Progress, quoted

PLACE = "{}"  # of the text, in the pattern of a prompt
Row = tuple[list[int], int]  # the tokens of a prompt and a continuation, and how many of them are the prompt's


@dataclass(frozen=True)
class Scored:
    """A continuation, log p of all its tokens, and how many they are."""

    text: str
    log_probability: float
    tokens: int

    @property
    def per_token(self) -> float:
        """log p of a token, on average."""
        return self.log_probability / self.tokens


@dataclass(frozen=True)
class Chosen:
    """The continuation that a model chooses, by the mean of a token, and all of them, best first."""

    text: str
    choices: list[Scored]

    @property
    def likeliest(self) -> str:
        """The continuation with the highest sum."""
        return max(self.choices, key=lambda each: each.log_probability).text


def check_choices(choices: Sequence[str]) -> list[str]:
    """The choices, of which there are two or more, different and not empty."""
    found = list(choices)
    if len(found) < 2:
        raise InputError("there is nothing to choose from: give two choices or more")
    if blank := [each for each in found if not each.strip()]:
        raise InputError(f"a choice is empty: {blank[0]!r}")
    if len({*found}) < len(found):
        twice = next(each for each in found if found.count(each) > 1)
        raise InputError(f"the choice {quoted(twice)} is given twice")
    return found


def continuations(run: Any, prompt: str, choices: Sequence[str]) -> list[Row]:
    """The tokens of the prompt with each choice, and how many of them come before the first that differs or is new.

    There is a space between, unless the prompt ends with one or is empty, or the choice begins with one.
    """
    apart = not prompt or prompt[-1].isspace()
    wholes = [prompt + (choice if apart or choice[0].isspace() else f" {choice}") for choice in choices]
    rows = [run.read(whole) for whole in wholes]
    alike = takewhile(lambda column: len({*column}) == 1, zip(run.read(prompt), *rows, strict=False))
    shared = sum(1 for _ in alike)
    shared = min(shared, *(len(row) - 1 for row in rows))  # a choice has a token of its own
    if shared < 1:  # a model without a start token has nothing to predict the first token from
        raise InputError(f"the model needs something to go on from: {quoted(prompt)} shares no token with the choices")
    return [(row, shared) for row in rows]


@torch.inference_mode()
def choose(run: Any, prompts: Sequence[str], choices: Sequence[str], progress: Progress | None = None) -> list[Chosen]:
    """What a language model chooses for each prompt."""
    known, found = check_choices(choices), []
    for number, prompt in enumerate(prompts, start=1):
        rows = continuations(run, prompt, known)
        nats = run.nats([(ids, shared - 1) for ids, shared in rows])  # (C)
        scored = [
            Scored(text, -float(each), len(ids) - shared)
            for text, each, (ids, shared) in zip(known, nats, rows, strict=True)
        ]
        best = sorted(scored, key=lambda each: -each.per_token)
        found.append(Chosen(best[0].text, best))
        if progress is not None:
            progress(number, len(prompts))
    return found


def labelled(path: Any, base: Any, choices: Sequence[str]) -> list[tuple[str, str]]:
    """The texts and labels of a table: a text, a tab, its label, which is one of the choices."""
    report, found = Report(), list[tuple[str, str]]()
    source = SOURCES["tsv"](kind="tsv", train=str(path), columns=(0, 1))
    for example, place in source.read("train", base, report):
        text, label, *_ = example.cells
        check_label(label, choices, f"{place}: ")
        found.append((text, label))
    if report.examples:
        raise InputError(report.examples[0])
    if not found:
        raise InputError(f"{path}: holds no example")
    return found


def check_label(label: str, choices: Sequence[str], place: str = "") -> None:
    """Refuse a label that cannot be chosen; `place` is where it stands."""
    if label not in choices:
        near = get_close_matches(label, choices, n=1)
        known = f"did you mean {near[0]}?" if near else f"which are {', '.join(choices)}"
        raise InputError(f"{place}the label {quoted(label)} is not among the choices{':' if near else ','} {known}")


def evaluate_choices(
    run: Any,
    examples: Sequence[tuple[str, str]],
    choices: Sequence[str],
    pattern: str = PLACE,
    progress: Progress | None = None,
) -> ClassEvaluation:
    """How often the label of a text is chosen; `pattern` makes a prompt of the text, which stands for {}."""
    known = check_choices(choices)
    if PLACE not in pattern:
        raise ConfigurationError(f"the prompt {quoted(pattern)} has no place for the text: write {PLACE} there")
    for _, label in examples:
        check_label(label, known)
    chosen = choose(run, [pattern.replace(PLACE, text) for text, _ in examples], known, progress)
    scores = [{each.text: each.per_token for each in one.choices} for one in chosen]
    log_p = torch.tensor([[score[text] for text in known] for score in scores]).log_softmax(dim=1)  # (N, C)
    made = predictions([log_p], [[label] for _, label in examples], known)
    return ClassEvaluation(made, known, classified(log_p, known))
