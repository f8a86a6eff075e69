"""Results: what the recipes of known corpora reach, recorded from runs; documents are written from the records.

    python benchmarks/results.py record multi30k runs/multi30k --data "test 2017=flickr2017.tsv" --note "…"
    python benchmarks/results.py record g2p-ensemble runs/g2p-0 runs/g2p-1 runs/g2p-2   # an ensemble: one record
    python benchmarks/results.py write           # docs/results.md, and the table of the README
    python benchmarks/results.py write --check   # fail where a document is not what the records say

A record is a JSON file under benchmarks/results: the recipe and what was changed in it, the machine, the seconds of
training, and what `glassformer evaluate` says. Several seeds of a row are several records; several runs that write
together are one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RECORDS = HERE / "results"
DOCUMENT, README = HERE.parent / "docs" / "results.md", HERE.parent / "README.md"
BEGIN, END = "<!-- results: made by `make results` -->", "<!-- end of results -->"
SCORES = {  # how each is written
    "bleu": ("BLEU", 1.0, 1),
    "bleu_of_tokens": ("BLEU of the text's own tokens", 1.0, 1),
    "chrf": ("chrF", 1.0, 1),
    "exact": ("exact match", 100.0, 2),
    "edits": ("edits per 100 symbols", 1.0, 2),
    "accuracy": ("accuracy", 100.0, 2),
    "loss": ("nats a token", 1.0, 3),
    "perplexity": ("perplexity", 1.0, 1),
    "rouge1": ("ROUGE-1", 1.0, 1),
    "rougeL": ("ROUGE-L", 1.0, 1),
}


@dataclass(frozen=True)
class Row:
    """A row of the table: what it is, its scores, what is known from elsewhere, and its recipe."""

    title: str
    scores: tuple[str, ...]
    known: str = ""
    recipe: str = ""  # missing: the row's own name


BLEU, EXACT, ACCURACY, ROUGE = ("bleu", "chrf"), ("exact",), ("accuracy",), ("rouge1", "rougeL")
MINILM = "SST-2, MiniLM"
ROWS = {
    "multi30k": Row("Multi30k English → German, captions", BLEU, "41.0 BLEU, a Transformer of 2.6 M"),
    "multi30k-raw": Row("Multi30k, from raw text to raw text", BLEU, recipe="multi30k"),
    "multi30k-rnn": Row("Multi30k, by an LSTM with attention", BLEU, "33 to 34 BLEU"),
    "tatoeba": Row("Everyday English → German, Tatoeba", BLEU),
    "debian": Row("English → Italian, package descriptions", BLEU, "47.5 BLEU, a first try of ours"),
    "g2p": Row(
        "Spelling → phonemes, CMU dictionary", ("exact", "edits"), "77.9 % of words right, 5.2 % of phonemes wrong"
    ),
    "g2p-ensemble": Row(
        "Spelling → phonemes, three models together",
        ("exact", "edits"),
        "79.7 % of words right, 4.7 % of phonemes wrong, an ensemble",
        "g2p",
    ),
    "g2p-with-dev": Row("Spelling → phonemes, also learned from dev", ("exact", "edits"), recipe="g2p"),
    "g2p-with-dev-ensemble": Row(
        "Spelling → phonemes, also learned from dev, three models together", ("exact", "edits"), recipe="g2p"
    ),
    "scan": Row("SCAN, simple split", EXACT, "over 99 %"),
    "scan-length": Row("SCAN, length split", EXACT, "0 to 20 %", "scan"),
    "cogs": Row("COGS, sentences → logical forms", EXACT, "96 %"),
    "shakespeare-10m": Row("Shakespeare, letter by letter", ("loss",), "1.47 nats a letter, GPT of 10.65 M"),
    "wikitext": Row("WikiText-2, word by word, GPT-2's blocks", ("loss", "perplexity")),
    "wikitext-llama": Row("WikiText-2, Llama's blocks, as many parameters", ("loss", "perplexity")),
    "wikitext-rnn": Row("WikiText-2, an LSTM, as many parameters", ("loss", "perplexity")),
    "digits": Row("Handwritten digits, ViT", ACCURACY),
    "sst2-scratch": Row("SST-2, a Transformer from nothing", ACCURACY, "80 to 84 %"),
    "sst2-head": Row(f"{MINILM}, its head alone trained", ACCURACY, recipe="sst2"),
    "sst2-lora": Row(f"{MINILM}, LoRA", ACCURACY, recipe="sst2"),
    "sst2": Row(f"{MINILM}, all of it trained", ACCURACY, "92.7 %, BERT of 110 M"),
    "summaries": Row("Package descriptions → one line, T5 from nothing", ROUGE),
    "summaries-pretrained": Row(
        "Package descriptions → one line, T5 pretrained by span corruption", ROUGE, recipe="summaries"
    ),
}


def flat(table: dict[str, Any]) -> dict[str, Any]:
    """The keys of a recipe, such as train.steps, with their values."""
    sections = {name: values for name, values in table.items() if isinstance(values, dict)}
    return {f"{section}.{key}": value for section, values in sections.items() for key, value in values.items()}


def record(
    name: str,
    folders: list[Path],
    data: list[str],
    note: str,
    tokenised: bool = False,
    again: str = "",
    into: Path = RECORDS,
) -> None:
    """Evaluate a run, or several together, and write down what is known of it."""
    import glassformer as gf
    from glassformer.runs import examples_in

    run: Any = gf.load(folders)
    recipe = ROWS[name].recipe or name
    trained = [_trained(folder, recipe) for folder in folders]
    first = trained[0]
    if any({**each["changed"], "train.seed": 0} != {**first["changed"], "train.seed": 0} for each in trained):
        sys.exit(f"the runs {', '.join(map(str, folders))} differ in more than their seeds")
    seeds = [each["seed"] for each in trained]
    sets = {"test": run.examples("test")}
    sets |= {label: examples_in(Path(path), run) for label, path in (each.split("=", 1) for each in data)}
    embedding = {id(part.weight): part.weight.numel() for part in _embeddings(run.model)}
    total = sum(each.numel() for each in run.model.parameters())
    facts = {
        "row": name,
        "recipe": recipe,
        **first,
        "seconds": sum(each["seconds"] for each in trained),
        "note": note,
        "parameters": total,
        "beyond_embeddings": total - sum(embedding.values()),
        "scores": {label: _scores(run.evaluate(examples), tokenised) for label, examples in sets.items()},
    }
    if len(folders) > 1:
        facts |= {"seed": ", ".join(map(str, seeds)), "seeds": seeds, "mean": run.model.mean}
    into.mkdir(exist_ok=True)
    path = into / f"{name}-{'-'.join(map(str, seeds))}{again}.json"
    path.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(path, json.dumps(facts["scores"]))


def _trained(folder: Path, recipe: str) -> dict[str, Any]:
    """What a run's own files say of its training."""
    from glassformer.recipe import find_recipe, read_recipe, to_toml

    shipped = flat(tomllib.loads(to_toml(read_recipe(find_recipe(recipe)))))
    own = flat(tomllib.loads((folder / "recipe.toml").read_text(encoding="utf-8")))
    changed = {key: value for key, value in own.items() if shipped.get(key) != value}
    changed = {key: _anywhere(value) for key, value in changed.items() if not key.startswith("source.")}
    for key in ("source.train", "source.valid", "source.test"):  # another file is named, wherever it lies
        if isinstance(own.get(key), str) and Path(own[key]).name != Path(str(shipped.get(key))).name:
            changed[key] = Path(own[key]).name
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    return {
        "changed": changed,
        "seed": own["train.seed"],
        "steps": rows[-1]["step"],
        "seconds": max(row.get("elapsed", 0.0) for row in rows),
        "machine": environment["accelerator"] or f"{environment['processors']} processors",
        "torch": environment["packages"]["torch"],
    }


def _anywhere(value: Any) -> Any:
    """A value without the place of a folder on this machine: runs/NAME."""
    return f"runs/{Path(value).name}" if isinstance(value, str) and Path(value).is_absolute() else value


def _scores(found: Any, tokenised: bool) -> dict[str, Any]:
    return {**found.facts(), **(_of_tokens(found) if tokenised else {}), "intervals": found.intervals}


def _of_tokens(found: Any) -> dict[str, Any]:
    """BLEU of texts that are tokenised already, as multi-bleu.perl counts it."""
    from sacrebleu.metrics.bleu import BLEU as Metric  # noqa: N811

    metric = Metric(tokenize="none")
    score = metric.corpus_score(found.outputs, [[some[0] for some in found.references]]).score
    return {"bleu_of_tokens": score, "bleu_of_tokens_signature": str(metric.get_signature())}


def _embeddings(model: Any) -> Iterator[Any]:
    from glassformer.parts.embeddings import Embedding

    return (part for part in model.modules() if isinstance(part, Embedding))


def records() -> dict[str, list[dict[str, Any]]]:
    """The records of each row, by seed."""
    found: dict[str, list[dict[str, Any]]] = {row: [] for row in ROWS}
    for path in sorted(RECORDS.glob("*.json")):
        facts = json.loads(path.read_text(encoding="utf-8"))
        if facts.get("row") in found:
            found[facts["row"]].append(facts)
    return {row: each for row, each in found.items() if each}


def figure(score: str, runs: list[dict[str, Any]], label: str = "test") -> str:
    """A score of a row: of one run with its interval, or the mean of several with their range."""
    name, factor, digits = SCORES[score]
    values = [factor * each["scores"][label][score] for each in runs]
    text = f"{name} **{statistics.mean(values):.{digits}f}**"
    if len(values) > 1:
        return f"{text} ({min(values):.{digits}f} to {max(values):.{digits}f}, {len(values)} runs)"
    interval = runs[0]["scores"][label].get("intervals", {}).get(score)
    return (
        text if interval is None else f"{text} [{factor * interval[0]:.{digits}f}, {factor * interval[1]:.{digits}f}]"
    )


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """A line for each row."""
    lines = ["| what | recipe | on the test set | elsewhere | trained in |", "| --- | --- | --- | --- | --- |"]
    for row, runs in found.items():
        here = ROWS[row]
        seconds = statistics.mean(each["seconds"] for each in runs)
        scored = "; ".join(figure(score, runs) for score in here.scores)
        machine = f"{seconds:,.0f} s, {runs[0]['machine']}"
        lines.append(f"| {here.title} | `{runs[0]['recipe']}` | {scored} | {here.known} | {machine} |")
    return "\n".join(lines)


def commands(facts: dict[str, Any], changes: str) -> list[str]:
    """What was typed for a record: the training, and of an ensemble each training and the evaluation of all."""
    if "seeds" not in facts:
        return [f"`glassformer train {facts['recipe']}{changes}`"]
    runs = {seed: f"runs/{facts['recipe']}-{seed}" for seed in facts["seeds"]}
    typed = [
        f"glassformer train {facts['recipe']}{changes} --set train.seed={seed} --out {run}"
        for seed, run in runs.items()
    ]
    typed.append(f"glassformer evaluate {' '.join(f'--run {run}' for run in runs.values())}")
    return [f"    {line}" for line in typed]


def details(row: str, runs: list[dict[str, Any]]) -> str:
    """All that is known of a row."""
    first, lines = runs[0], [f"## {ROWS[row].title}", ""]
    changes = "".join(
        f" --set {key}={json.dumps(value)}" for key, value in first["changed"].items() if key != "train.seed"
    )
    lines += [*commands(first, changes), ""]
    sizes = f"{first['parameters']:,} parameters, {first['beyond_embeddings']:,} beyond embeddings"
    lines.append(f"{sizes}; {first['steps']:,} steps; {first['machine']}, torch {first['torch']}.")
    lines += [first["note"], ""] if first["note"] else [""]
    lines += ["| set | seed | scores |", "| --- | --- | --- |"]
    for each in runs:
        for label in each["scores"]:
            wanted = [score for score in SCORES if score in (*ROWS[row].scores, "bleu_of_tokens")]
            scored = "; ".join(figure(score, [each], label) for score in wanted if score in each["scores"][label])
            lines.append(f"| {label} | {each['seed']} | {scored} |")
    signatures = {
        value
        for each in runs
        for facts in each["scores"].values()
        for key, value in facts.items()
        if "signature" in key
    }
    lines += ["", *(f"`{signature}`" for signature in sorted(signatures))]
    return "\n".join(lines).rstrip()


def documents() -> dict[Path, str]:
    """What the documents say, by the records."""
    found = records()
    head = (
        "# Results\n\nWhat the recipes of known corpora reach; each row is one command. This page is written by "
        "`make results` from the records under benchmarks/results, which `benchmarks/results.py record` makes of runs. "
        "Brackets are 95 % intervals by bootstrap; edits are insertions, deletions and replacements."
    )
    page = "\n\n".join([head, table(found), *(details(row, runs) for row, runs in found.items())]) + "\n"
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return {DOCUMENT: page, README: f"{before}{BEGIN}\n{table(found)}\n{END}{after}"}


def main() -> None:
    """Record, or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record", help="evaluate a run and write its record")
    recording.add_argument("row", choices=list(ROWS))
    recording.add_argument("run", type=Path, nargs="+", help="a run; several: what they write together")
    recording.add_argument("--data", action="append", default=[], metavar="LABEL=FILE", help="another test set")
    recording.add_argument("--tokenised", action="store_true", help="BLEU of the text's own tokens, too")
    recording.add_argument("--again", default="", help="for the file's name, where this seed has been recorded before")
    recording.add_argument("--into", type=Path, default=RECORDS, metavar="DIR", help="where the record is written")
    recording.add_argument("--note", default="", help="what else should be known")
    writing = verbs.add_parser("write", help="write the documents")
    writing.add_argument("--check", action="store_true", help="only compare")
    given = parser.parse_args()
    if given.verb == "record":
        record(given.row, given.run, given.data, given.note, given.tokenised, given.again, given.into)
        return
    wrong = [
        path for path, text in documents().items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if given.check and wrong:
        sys.exit(f"{', '.join(path.name for path in wrong)}: not what the records say; run make results")
    for path, text in documents().items():
        if path in wrong:
            path.write_text(text, encoding="utf-8")
            print(f"{path} is written")


if __name__ == "__main__":
    main()
