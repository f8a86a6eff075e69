"""Make a shipped translator of a run: round its weights to 8 bits, score it, write its card.

    python benchmarks/ship.py RUN src/glassformer/assets/en-de

Everything on the card is measured here: BLEU, chrF and exact match on the whole test set before and after rounding, by
length, with all references of a sentence; names that are copied right; outputs for a thousand odd inputs that are
empty or repeat themselves; the sentences of check.tsv, which a test translates again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import glassformer as gf
from glassformer.runs.shipping import ship

TEMPLATE = Path(__file__).with_name("card.md")
NAMES = re.findall(
    r"\w+",
    """
Aaliyah Abdullah Adebayo Agnieszka Aiko Alejandro Anastasia Aoife Arjun Astrid Bartholomew Beatriz Bogdan Brunhilde
Camila Chidi Chukwuemeka Cosima Dagny Dmitri Eszter Fatima Fiorella Gbenga Giuseppe Gwendolyn Hamza Hiroshi Hyun
Ifeoma Ingeborg Isandro Jakub Jasmine Joaquin Kaveh Keiko Kwame Lakshmi Leilani Liesbeth Ljubica Magnus Mahmoud
Marisol Mehmet Mireille Mwangi Nadezhda Ngozi Nikolai Noor Olumide Oskar Padma Pascal Petra Priya Qiang Quentin
Rafael Rania Rosalind Ruben Saoirse Sebastian Shanice Siobhan Sunita Svetlana Tadeusz Takeshi Tamika Tenzin Thandiwe
Theodora Tobias Uchenna Ulrike Valentina Vikram Wanjiru Wolfram Xiomara Yannick Yesenia Yusuf Zainab Zbigniew Zoltan
Kowalski Nguyen Okonkwo Petrov Schwarzkopf Takahashi Vandenberg Whitfield Yamamoto Zimmerling
""",
)
LENGTHS = [(1, 4), (5, 7), (8, 10), (11, 15), (16, 10**6)]  # words of a source
FRAMES = [  # none of them is in the corpus with these names
    "{} is my best friend.",
    "I met {} yesterday.",
    "Do you know {}?",
    "{} and I are going to the cinema tonight.",
    "This book belongs to {}.",
    "Yesterday {} called me at five o'clock.",
    "I don't think {} will come.",
    "My neighbour's name is {}.",
    "Please give this letter to {}.",
    "Where did {} learn German?",
]
HARD = [
    ["The cat that the dog chased ran up the tree.", "Die Katze, die der Hund jagte, lief den Baum hinauf."],
    ["I live in Munich.", "Ich wohne in München."],
    ["Yesterday Abdullah called me at five o'clock.", "Gestern hat mich Abdullah um fünf Uhr angerufen."],
    ["Camila and I are going to the cinema tonight.", "Camila und ich gehen heute Abend ins Kino."],
    ["The bank raised its interest rates.", "Die Bank hat ihre Zinsen erhöht."],
    ["the weather is nice", "das Wetter ist schön"],
    ["He kicked the bucket.", "Er hat den Löffel abgegeben."],
    [
        "The minister denied that the law had been changed.",
        "Der Minister bestritt, dass das Gesetz geändert worden sei.",
    ],
]
LETTERS = [
    "aeioubcdfglmnrst",
    "αβγδεζηθικλμνξοπρστυφχψω",
    "абвгдежзиклмнопрстуфхцчшщ",
    "あいうえおかきくけこ",
    "的一是不了人我在有",
]
EMOJI = ["😀", "👍🏽", "🇩🇪", "❤️", "👩‍👩‍👧", "🤷"]
WORDS = [
    "the",
    "a",
    "dog",
    "house",
    "I",
    "you",
    "seen",
    "to",
    "go",
    "and",
    "but",
    "red",
    "never",
    "why",
    "17",
    "Berlin",
]


def odd_inputs(count: int, seed: int = 0) -> list[str]:
    """Inputs that nobody trained it for: addresses, emoji, other letters, very long texts, single letters."""
    rng = random.Random(seed)

    def word(letters: str) -> str:
        return "".join(rng.choices(letters, k=rng.randint(1, 9)))

    kinds = [
        lambda: rng.choice("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789?!.,"),
        lambda: (
            f"https://{word(LETTERS[0])}.{rng.choice(['com', 'org', 'de'])}/{word(LETTERS[0])}?q={rng.randint(0, 999)}"
        ),
        lambda: f"{word(LETTERS[0])}@{word(LETTERS[0])}.com",
        lambda: "".join(rng.choices(EMOJI, k=rng.randint(1, 6))),
        lambda: " ".join(word(rng.choice(LETTERS[1:])) for _ in range(rng.randint(1, 8))),
        lambda: " ".join(rng.choices(WORDS, k=500)),
        lambda: " ".join(rng.choices(WORDS, k=rng.randint(2, 12))),
        lambda: " ".join(word(LETTERS[0]) for _ in range(rng.randint(1, 6))).upper(),
        lambda: rng.choice(["", " "]) + str(rng.randint(0, 10**12)) + rng.choice(["", "%", " €", "."]),
        lambda: rng.choice(["?!?!", "...", "- - -", '"', "(", "#hashtag", "<b>bold</b>", "a\tb", "x = y + 1;"]),
    ]
    return [rng.choice(kinds)() or "?" for _ in range(count)]


def loops(text: str, times: int = 6) -> bool:
    """Whether the same one to four words stand six times in a row, where the input does not repeat them so."""
    words = text.split()
    return any(
        words[at : at + size] * times == words[at : at + size * times]
        for size in range(1, 5)
        for at in range(len(words) - size * times + 1)
    )


def by_length(found: Any) -> dict[str, Any]:
    """The scores of an evaluation for sources of so many words."""
    scored: dict[str, Any] = {}
    for least, most in LENGTHS:
        rows = [row for row, source in enumerate(found.sources) if least <= len(source.split()) <= most]
        columns = {name: [getattr(found, name)[row] for row in rows] for name in ("sources", "outputs", "references")}
        pairs = sum(len(each) for each in columns["references"])
        if rows:
            part = replace(found, **columns, pairs=pairs, losses=found.losses[:, rows])
            scored[f"{least} to {most}"] = part.facts()
    return scored


def measured(run: Any, original: Any, folder: Path) -> dict[str, Any]:
    """What the card says of a shipped run; `original` is the same with the weights as they were trained."""
    examples = original.examples("test")
    shipped = run.evaluate(examples)
    found: dict[str, Any] = {"test": shipped.facts(), "before_rounding": original.evaluate(examples).facts()}
    found["by_length"] = by_length(shipped)
    framed = [(name, frame.format(name)) for name in NAMES for frame in FRAMES]
    outputs = run.translate([text for _, text in framed])
    wrong = [(text, each.text) for (name, text), each in zip(framed, outputs, strict=True) if name not in each.text]
    found["names"] = {"percent": 100 - 100 * len(wrong) / len(framed), "of": len(framed), "wrong": wrong[:10]}
    odd = odd_inputs(1000)
    texts = [each.text for each in run.translate(odd)]
    empty = [source for source, text in zip(odd, texts, strict=True) if not text.strip()]
    looping = [source for source, text in zip(odd, texts, strict=True) if loops(text) and not loops(source)]
    found["odd"] = {"of": len(odd), "empty": empty[:10], "looping": [each[:80] for each in looping[:10]]}
    found["odd"] |= {"empty_count": len(empty), "looping_count": len(looping)}
    pairs = [line.split("\t") for line in (folder / "check.tsv").read_text(encoding="utf-8").splitlines()]
    kind = original.task.Example
    found["check"] = run.evaluate([kind(source, target) for source, target in pairs]).facts()
    return found


def examples_of(run: Any, folder: Path) -> list[dict[str, str]]:
    """Twenty sentences of ours: twelve of check.tsv, and eight that are hard."""
    pairs = [line.split("\t") for line in (folder / "check.tsv").read_text(encoding="utf-8").splitlines()][::4][:12]
    pairs += HARD
    outputs = run.translate([source for source, _ in pairs])
    return [
        {"source": source, "output": each.text, "reference": target}
        for (source, target), each in zip(pairs, outputs, strict=True)
    ]


def card(facts: dict[str, Any], template: str) -> str:
    """The model card: the template with the figures in their places."""
    lengths = [
        "| {} | {pairs:,} | {bleu:.1f} | {chrf:.1f} |".format(length.replace(f" to {10**6}", " and more"), **each)
        for length, each in facts["by_length"].items()
    ]
    samples = [f"| {each['source']} | {each['output']} | {each['reference']} |" for each in facts["examples"]]
    return template.format(**facts | {"lengths": "\n".join(lengths), "samples": "\n".join(samples)})


def main() -> None:
    """Ship a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--facts", type=Path, default=Path("benchmarks/results/en-de.json"), help="where the figures go"
    )
    given = parser.parse_args()
    original = gf.load(given.run, "cpu")
    ship(original, given.folder)
    facts = measured(gf.load(given.folder, "cpu"), original, given.folder)
    weights = given.folder / "model.safetensors"
    facts["sha256"] = hashlib.sha256(weights.read_bytes()).hexdigest()
    facts["bytes"] = sum(path.stat().st_size for path in given.folder.iterdir() if path.name != "card.md")
    rows = [json.loads(line) for line in (given.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    environment = json.loads((given.run / "environment.json").read_text(encoding="utf-8"))
    facts |= {"seed": original.recipe.train.seed, "steps": rows[-1]["step"], "machine": environment["accelerator"]}
    facts["seconds"] = max(row.get("elapsed", 0.0) for row in rows)
    facts["parameters"] = sum(each.numel() for each in original.model.parameters())
    facts["examples"] = examples_of(gf.load(given.folder, "cpu"), given.folder)
    (given.folder / "card.md").write_text(card(facts, TEMPLATE.read_text(encoding="utf-8")), encoding="utf-8")
    given.facts.parent.mkdir(parents=True, exist_ok=True)
    given.facts.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps(facts, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
