"""Commands that find labels and answers: `classify`, `tag`, `answer`, `choose`."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from glassformer.cli.app import USE, app
from glassformer.cli.items import Item
from glassformer.cli.options import Adapter, AsJson, Checkpoint, Device, MeanName, RunFolders, count, path
from glassformer.cli.template import Template, reads_texts
from glassformer.errors import ConfigurationError, InputError


@reads_texts("classify")
def classify(
    run: Any,
    top: Annotated[int, count("the N likeliest labels of each")] = 1,
) -> Template[Any, Any]:
    """Classify texts, or images: a line for each with its label and the probability of that, in the same order.

    Of a run for images or series, each TEXT is the name of a file, an image or a CSV, of which the last steps are read.
    Two texts that are read together have a tab between.

    - `glassformer classify --run runs/sentiment "what a film!"`
    - `glassformer classify --run runs/topics --file news.txt --json`
    - `glassformer classify --run runs/digits one.png two.png`
    - `find pictures -name "*.jpg" | glassformer classify --run runs/pets`
    """

    def likely(found: Any) -> dict[str, float]:
        return dict(list(found.probabilities.items())[:top])

    def plain(item: Item, found: Any) -> str:
        labels = "\t".join(f"{label}\t{probability:.4f}" for label, probability in likely(found).items())
        return f"{item.text}\t{labels}" if run.reads_files else labels

    return Template(
        doing="classifying",
        things="images" if run.reads_images else "files" if run.reads_files else "texts",
        check=run.item,
        work=run.classify,
        plain=plain,
        output=lambda found: found.label,
        details=lambda found: {"probability": found.probability, "probabilities": likely(found)},
        blank=None if run.reads_files else {"output": None, "probability": None, "probabilities": {}},
        was_cut=lambda found: found.cut,
        limit=run.recipe.data.max_tokens,
    )


@app.command(rich_help_panel=USE)
def choose(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="the text that is continued")],
    choices: Annotated[list[str], typer.Argument(metavar="CHOICE", help="continuations, two or more")],
    run: RunFolders = None,
    as_json: AsJson = False,
    adapter: Adapter = None,
    checkpoint: Checkpoint = None,
    device: Device = "auto",
    mean: MeanName = None,
) -> None:
    """Choose the likeliest continuation of a text: a language model classifies without having been trained for it.

    A line for each choice, best first: the choice, its log-probability for each token, by which it is ranked, and the
    sum. A space stands between the prompt and a choice, unless one of them has it.

    - `glassformer choose --run runs/gpt "The film was wonderful. It was" good bad`
    - `glassformer choose --run runs/gpt "The capital of France is" Paris Rome Oslo --json`
    """
    from glassformer.cli.choosing import load_run
    from glassformer.tasks.choosing import check_choices

    check_choices(choices)
    loaded: Any = load_run(run, "choose", device, adapter, checkpoint, mean, several=True)
    (found,) = loaded.choose([prompt], choices)
    if as_json:
        scores = [{**vars(each), "per_token": each.per_token} for each in found.choices]
        facts = {"input": prompt, "output": found.text, "error": None, "choices": scores}
        sys.stdout.write(json.dumps(facts, ensure_ascii=False) + "\n")
        return
    for each in found.choices:
        sys.stdout.write(f"{each.text}\t{each.per_token:.4f}\t{each.log_probability:.4f}\n")


@reads_texts("tag")
def tag(run: Any) -> Template[list[str], Any]:
    """Tag the words of texts: a line for each text with its words, a tab, and as many tags, in the same order.

    Words are separated by spaces. Tagged texts for training have the same form. An empty line gives an empty line.

    - `glassformer tag --run runs/tags "they can fish"`
    - `glassformer tag --run runs/tags --json --file sentences.txt`
    """
    return Template(
        doing="tagging",
        check=run.check,
        work=run.tag_words,
        plain=lambda item, found: f"{' '.join(found.words)}\t{' '.join(found.tags)}",
        output=lambda found: found.tags,
        details=lambda found: {"words": found.words, "probabilities": found.probabilities},
        blank={"output": [], "words": [], "probabilities": []},
    )


@reads_texts("answer")
def answer(
    run: Any,
    context: Annotated[
        Path | None,
        path(metavar="FILE", meaning="the text that all questions are about; else each question has its own"),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="answer nothing where the logit of no answer is higher by more than X; the recipe's if not given; "
            "evaluate finds the best",
        ),
    ] = None,
) -> Template[tuple[str, str], Any]:
    """Answer questions with words of a text: a line for each question with the answer and its probability.

    - `glassformer answer --run runs/squad --context article.txt "Who wrote it?" "When?"`
    - `glassformer answer --run runs/squad --json --file questions.jsonl`
    - `glassformer answer --run runs/squad2 --threshold 1.5 --file questions.tsv`
    """
    if threshold is not None and math.isnan(threshold):
        raise ConfigurationError("--threshold is nan: it must be a number")
    if threshold is not None and not run.task.unanswerable:
        raise ConfigurationError(
            f"{run.path} was trained to answer every question: --threshold is for task.unanswerable"
        )
    from glassformer.tasks.answering.asking import question_of

    shared = None if context is None else _read(context)
    return Template(
        doing="answering",
        things="questions",
        check=lambda text: question_of(text, shared),
        work=lambda questions, progress: run.answer(questions, progress, threshold),
        plain=lambda item, found: f"{' '.join(found.text.split())}\t{found.score:.4f}",
        output=lambda found: found.text,
        details=lambda found: {"start": found.start, "end": found.end, "score": found.score},
    )


def _read(file: Path) -> str:
    """A file as it is, so that `start` and `end` count its characters."""
    try:
        return file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: is not UTF-8 text (byte {error.start})") from None
