"""What is shown when a training has ended, and when a run is evaluated: each kind of run in its own words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.text import Text

from glassformer.cli.documents import document_report, filled, mended, went_on
from glassformer.cli.labelling import images_classified, texts_classified
from glassformer.cli.labelling import report as label_report
from glassformer.cli.showing import SCORED, bar, next_commands, out, quoted, refuse, say
from glassformer.cli.tagging import report as tag_report
from glassformer.cli.tagging import tagged
from glassformer.data import BETWEEN
from glassformer.errors import InputError
from glassformer.evaluation import Rouge
from glassformer.looking.figures import attention_figure, attention_text, loss_figure
from glassformer.run import Answerer, Classifier, Denoiser, Filler, ImageClassifier, LanguageModel, Run, Tagger
from glassformer.run.answerer import AnswerEvaluation
from glassformer.run.showing import Look, look
from glassformer.run.telling import read_metrics

SHOWN = 10  # outputs at the end of a training
Examples = Sequence[tuple[str, str]]
Report = tuple[dict[str, Any], list[str]]  # facts for programs, lines for people


def finish(run: Any, folder: Path) -> None:
    """Show what was learned: outputs, scores, pictures, what to try next."""
    loss_figure(read_metrics(folder), folder / "loss.png", run.recipe.title)
    try:
        examples = run.pairs("test")[:SCORED]
    except InputError:  # there are none
        say(f"\nThe run is in {folder}, the picture of its loss is {folder / 'loss.png'}.")
        return
    FINISH[type(run)](run, folder, examples)


def report(run: Any, examples: Examples, **options: Any) -> Report:
    """How a run does on some examples."""
    made: Report = REPORTS[type(run)](run, examples, **options)
    return made


def _translated(run: Run, folder: Path, pairs: Examples) -> None:
    with bar("testing", len(pairs)) as progress:
        found = run.evaluate(pairs, progress=progress)
    say("")
    for (source, reference), text in list(zip(pairs, found.outputs, strict=True))[:SHOWN]:
        shown = source if len(source) < 80 else f"{source[:79]}…"
        say(f"  {shown}  →  {text}" + ("" if text == reference else f"   (reference: {reference})"))
    scores = f"exact match {found.scores.exact:.1%}, BLEU {found.scores.bleu:.1f}, chrF {found.scores.chrf:.1f}"
    if found.rouge is not None:
        scores += ", " + ", ".join(f"{name} {value:.1f}" for name, value in _rouge(found.rouge))
    say(f"\n{len(pairs):,} test pairs that it never saw: {scores}")
    source = _example(run, [source for source, _ in pairs])
    pictures = _pictured(look(run, source), source, folder)
    say(f"\nThe run is in {folder}, {pictures}.")
    next_commands(
        folder,
        f"echo {quoted(source)} | {{command}} translate --run {{run}} --nbest 3",
        "{command} evaluate --run {run}",
        "{command} recipes",
    )


def _pictured(seen: Look, source: str, folder: Path) -> str:
    """Show where it looked, if it looks at all, and say which pictures there are."""
    if not len(seen.weights):
        return f"the picture of its loss is {folder / 'loss.png'}"
    title = f"{source} → {seen.translation.text}"
    attention_figure(seen.mean, seen.target, seen.source, folder / "attention.png", title)
    heat = attention_text(seen.mean, seen.target, seen.source)
    if max(Text.from_markup(line).cell_len for line in heat.splitlines()) <= out.width:
        say("\nWhere it looked: a line for each token written, a column for each read.\n")
        out.print(heat)
    return f"the pictures are {folder / 'attention.png'} and loss.png"


def _example(run: Run, sources: list[str]) -> str:
    """A text to look at: short enough for a terminal, and in letters that every terminal has, if there is one."""
    fitting = [source for source in sources if 4 <= len(run.encode(source)) <= 14] or [min(sources, key=len)]
    return next((source for source in fitting if source.isascii()), fitting[0])


def _rouge(scores: Rouge) -> list[tuple[str, float]]:
    return [("ROUGE-1", scores.rouge1), ("ROUGE-2", scores.rouge2), ("ROUGE-L", scores.rougeL)]


def _translation_report(
    run: Run, pairs: Examples, beam: int | None = None, int8: bool = False, rouge: bool = False
) -> Report:
    with bar("evaluating", len(pairs)) as progress:
        found = run.evaluate(pairs, beam=beam, int8=int8, progress=progress, with_rouge=rouge or None)
    scores, also = found.scores, [] if found.rouge is None else _rouge(found.rouge)
    facts = {"pairs": len(pairs), "loss": found.loss, "perplexity": found.perplexity, **asdict(scores)}
    facts |= {} if found.rouge is None else asdict(found.rouge)
    return facts, [
        f"{len(pairs):,} pairs",
        f"exact match  {scores.exact:.2%}",
        f"BLEU         {scores.bleu:.2f}   {scores.bleu_signature}",
        f"chrF         {scores.chrf:.2f}   {scores.chrf_signature}",
        *(f"{name}      {value:.2f}" for name, value in also),
        f"perplexity   {found.perplexity:.3f}   (loss {found.loss:.4f} per target token)",
    ]


def _answered(run: Answerer, folder: Path, examples: Examples) -> None:
    with bar("testing", len(examples)) as progress:
        found = run.evaluate(examples, progress)
    say("")
    for (source, target), answer in list(zip(examples, found.answers, strict=True))[:SHOWN]:
        right = [each["text"] for each in json.loads(target)] or ["nothing"]
        wrong = "" if answer.text in right else f"   (right: {' or '.join(dict.fromkeys(right))})"
        say(f"  {source.split(BETWEEN)[0]}  →  {answer.text or 'nothing'} {answer.score:.0%}{wrong}")
    say("")
    for line in _answer_lines(found):
        say(line)
    say(f"\nThe run is in {folder}, the picture of its loss is {folder / 'loss.png'}.")
    question = quoted(examples[0][0].split(BETWEEN)[0])
    next_commands(
        folder,
        f"{{command}} answer --run {{run}} --context FILE {question}",
        "{command} evaluate --run {run}",
        "{command} recipes",
    )


def _answer_report(run: Answerer, examples: Examples, **options: Any) -> Report:
    refuse(run.path, options)
    with bar("evaluating", len(examples)) as progress:
        found = run.evaluate(examples, progress)
    facts, lines = {"questions": len(examples), "loss": found.loss, **asdict(found.scores)}, _answer_lines(found)
    if run.task.unanswerable:
        facts["threshold"] = found.threshold
        if (threshold := _threshold(run)) is not None:
            best = found.at(threshold)
            facts["best_on_valid"] = {"threshold": threshold, **asdict(best.scores)}
            lines += [f"threshold {found.threshold:g}; the best on valid is {threshold:.4f}, and with that:"]
            lines += _answer_lines(best)
    return facts, lines


def _threshold(run: Answerer) -> float | None:
    """The threshold that is best for the questions of valid, if any were kept."""
    try:
        questions = run.pairs("valid")
    except InputError:
        return None
    with bar("finding the best threshold", len(questions)) as progress:
        return run.evaluate(questions, progress).best_threshold()


def _answer_lines(found: AnswerEvaluation) -> list[str]:
    scores = found.scores
    lines = [f"{len(found.answers):,} questions: exact match {scores.exact:.2%}, F1 {scores.f1:.2%}"]
    if scores.answerable_exact is not None and scores.unanswerable_exact is not None:
        lines += [
            f"{scores.answerable:,} with an answer: {scores.answerable_exact:.2%}, {scores.answerable_f1:.2%}",
            f"{scores.unanswerable:,} without one: {scores.unanswerable_exact:.2%} left unanswered",
        ]
    return lines


FINISH: dict[type, Any] = {
    Run: _translated,
    Classifier: texts_classified,
    Tagger: tagged,
    ImageClassifier: images_classified,
    Answerer: _answered,
    LanguageModel: went_on,
    Filler: filled,
    Denoiser: mended,
}
REPORTS: dict[type, Any] = {
    Run: _translation_report,
    Classifier: label_report,
    Tagger: tag_report,
    ImageClassifier: label_report,
    Answerer: _answer_report,
    LanguageModel: document_report,
    Filler: document_report,
    Denoiser: document_report,
}
