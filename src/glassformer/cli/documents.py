"""What is shown of runs that learned from documents: how they go on with texts, fill gaps, mend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glassformer.cli.showing import bar, next_commands, quoted, refuse, say
from glassformer.decoding import Sampler
from glassformer.run import Denoiser, Filler, LanguageModel
from glassformer.text import MASKS, on_a_line

Examples = Sequence[tuple[str, str]]
SAMPLES, WRITTEN = 3, 60  # texts that are shown, and how many tokens are written for each
BEGINNING = 12  # tokens of a text that are given
SAMPLER = Sampler(temperature=0.8, top_p=0.95, seed=0)


def went_on(run: LanguageModel, folder: Path, examples: Examples) -> None:
    """Show how a language model goes on with texts that it never saw, and how surprised it is by them."""
    few, tokenizer = min(BEGINNING, run.recipe.data.max_tokens // 4), run.tokenizer
    prompts = [tokenizer.decode(tokenizer.encode(text)[:few]) for text, _ in examples[:SAMPLES]]
    say("")
    for prompt, found in zip(prompts, run.generate(prompts, WRITTEN, SAMPLER), strict=True):
        say(f"  {_line(prompt)}  →  {_line(found.text[len(prompt) :])}")
    _scores(run, folder, examples)
    next_commands(
        folder,
        f"{{command}} generate --run {{run}} {quoted(_line(prompts[0]))} --temperature 0.8 --stream",
        "{command} evaluate --run {run}",
        "{command} recipes",
    )


def filled(run: Filler, folder: Path, examples: Examples) -> None:
    """Show what a model puts into gaps of texts that it never saw, and how often it is right."""
    room = run.recipe.data.max_tokens // 2
    texts = [text for text in map(_gapped, examples) if len(run.tokenizer.encode(text)) < room][:SAMPLES]
    say("")
    for text, found in zip(texts, run.fill(texts, 3), strict=True):
        likely = ", ".join(f"{on_a_line(word.word)} {word.probability:.0%}" for word in found.gaps[0])
        say(f"  {_line(text)}  →  {likely}")
    _scores(run, folder, examples)
    next_commands(
        folder,
        f"{{command}} fill --run {{run}} {quoted(_line(texts[0] if texts else MASKS[1]))}",
        "{command} evaluate --run {run}",
        "{command} recipes",
    )


def mended(run: Denoiser, folder: Path, examples: Examples) -> None:
    """Show what a model writes where stretches are missing, and what can begin with it."""
    texts = [run.corrupted(text) for text, _ in examples[:SAMPLES]]
    say("")
    for text, found in zip(texts, run.restore(texts), strict=True):
        say(f"  {_line(text)}  →  {_line(found)}")
    _scores(run, folder, examples)
    next_commands(
        folder,
        f"{{command}} fill --run {{run}} {quoted(_line(texts[0]))}",
        "{command} recipes summarise > my.toml",
        "{command} train my.toml --set model.pretrained={run}",
    )


def _gapped(example: tuple[str, str]) -> str:
    """The beginning of a text, a dozen words at most, with a gap in the middle."""
    words = example[0].split()[:12]
    words[len(words) // 2] = MASKS[1]
    return " ".join(words)


def _scores(run: Any, folder: Path, examples: Examples) -> None:
    say("")
    for line in document_report(run, examples)[1]:
        say(line)
    say(f"\nThe run is in {folder}, the picture of its loss is {folder / 'loss.png'}.")


def document_report(run: Any, examples: Examples, **options: Any) -> tuple[dict[str, Any], list[str]]:
    """How a run does on some texts."""
    refuse(run.path, options)
    with bar("evaluating", len(examples)) as progress:
        found = run.evaluate(examples, progress)
    facts, more = {"texts": len(examples), "loss": found.loss, "perplexity": found.perplexity}, []
    if isinstance(run, LanguageModel):
        facts |= {**found.facts(), "tokens": found.tokens, "words": found.words, "bytes": found.bytes}
        more = [f"perplexity     {found.word_perplexity:.3f} per word", f"bits per byte  {found.bits_per_byte:.4f}"]
    elif isinstance(run, Filler):
        facts |= {"accuracy": found.accuracy, "hidden": found.hidden}
        more = [f"accuracy       {found.accuracy:.2%} of {found.hidden:,} hidden tokens"]
    per_token = f"perplexity     {found.perplexity:.3f} per token   (loss {found.loss:.4f})"
    return facts, [f"{len(examples):,} texts", per_token, *more]


def _line(text: str) -> str:
    """A text on a line of its own, cut where it is long."""
    shown = " ".join(text.split())
    return shown if len(shown) < 100 else f"{shown[:99]}…"
