"""The command that tags words, and what is shown of runs that do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.options import Adapter, AsJson, Device, RunFolder, TextFile

if TYPE_CHECKING:
    from glassformer.run import Tagger
    from glassformer.run.tagger import TagEvaluation

SHOWN = 10  # sentences at the end of a training
Examples = Sequence[tuple[str, str]]


def tag(
    run: RunFolder,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="texts with spaces between their words; none: lines of a file"),
    ] = None,
    file: TextFile = "-",
    as_json: AsJson = False,
    adapter: Adapter = None,
    device: Device = "auto",
) -> None:
    """Tag the words of texts: a line for each, its words, a tab and as many tags, in the same order.

    That is also how tagged texts are given to train; of an empty line, an empty one is written.

    - `glassformer tag --run runs/tags "they can fish"`
    - `glassformer tag --run runs/tags --json < sentences.txt`
    """
    from glassformer.cli.lines import Lines, given
    from glassformer.run import Tagger, load_as

    asked = given(texts, file)
    loaded = load_as(Tagger, "tag words", run, device, adapter)

    def words_of(text: str) -> list[str]:
        words: list[str] = loaded.check(text) if text.strip() else []
        return words

    def tagged(sentences: list[list[str]], progress: Any) -> list[dict[str, Any]]:
        answers = iter(loaded.tag_words([words for words in sentences if words], progress))
        nothing: dict[str, Any] = {"words": [], "tags": [], "probabilities": []}
        return [asdict(next(answers)) if words else nothing for words in sentences]

    Lines("tagging", "texts", words_of).write(asked, tagged, _plain, as_json)


def _plain(answer: dict[str, Any]) -> str:
    return f"{' '.join(answer['words'])}\t{' '.join(answer['tags'])}" if answer["words"] else ""


def tagged(run: Tagger, folder: Path, examples: Examples) -> None:
    """Show what a run makes of sentences that it never saw."""
    from glassformer.cli.showing import bar, next_commands, quoted, say

    with bar("testing", len(examples)) as progress:
        found = run.evaluate(examples, progress)
    say("")
    for (_, right), answer in list(zip(examples, found.answers, strict=True))[:SHOWN]:
        pairs = zip(answer.words, answer.tags, right.split(), strict=True)
        say("  " + " ".join(f"{word}/{said}" + (f"(right: {tag})" if said != tag else "") for word, said, tag in pairs))
    for line in ["", *_lines(found, run.labels)]:
        say(line)
    say(f"\nThe run is in {folder}, the picture of its loss is {folder / 'loss.png'}.")
    next_commands(
        folder,
        f"{{command}} tag --run {{run}} {quoted(min((text for text, _ in examples), key=len))}",
        "{command} evaluate --run {run}",
        "{command} recipes",
    )


def report(run: Tagger, examples: Examples, **options: Any) -> tuple[dict[str, Any], list[str]]:
    """How a run does on some tagged sentences."""
    from glassformer.cli.showing import bar, refuse

    refuse(run.path, options)
    with bar("evaluating", len(examples)) as progress:
        found = run.evaluate(examples, progress)
    facts = {
        "sentences": len(examples),
        "words": found.words,
        "loss": found.loss,
        "accuracy": found.scores.accuracy,
        "macro_f1": found.scores.macro_f1,
        "exact": found.exact,
        "f1": dict(zip(run.labels, found.scores.f1, strict=True)),
    }
    return facts, _lines(found, run.labels)


def _lines(found: TagEvaluation, labels: list[str]) -> list[str]:
    width = max(map(len, labels))
    scores = f"accuracy {found.scores.accuracy:.2%}, macro F1 {found.scores.macro_f1:.4f}"
    return [
        f"{found.words:,} words of {len(found.answers):,} sentences: {scores}",
        f"sentences without a mistake: {found.exact:.2%}",
        "F1 of each tag:",
        *(f"  {label:{width}}  {f1:.3f}" for label, f1 in zip(labels, found.scores.f1, strict=True)),
    ]
