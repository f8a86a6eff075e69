"""The translator that ships, on a CPU: `glassformer translate` beside `generate` and CTranslate2, in one run.

The same weights and 150 sentences with translations of our own. Ours starts with texts, the others with tokens. Every
contender has a process of its own and writes all once a round; the median round counts. The last line is JSON.

    python benchmarks/translate_cpu.py
    python benchmarks/translate_cpu.py --contenders ctranslate2-int8,ours,ours-int8 --rounds 3
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from typing import Any

import torch

import glassformer as gf
from glassformer.evaluation import score
from peers import Worker, Write, processor, race
from translate import FILES, ROOT, generating, pegasus


def pairs() -> list[tuple[str, str]]:
    """The sentences and their translations."""
    lines = [line for file in FILES for line in (ROOT / file).read_text(encoding="utf-8").splitlines()]
    return [(source, target) for source, target, *_ in (line.split("\t") for line in lines)]


def shipped(early_stopping: str | None = None) -> Any:
    """The translator that ships, with another rule for the end of a search if one is given."""
    run: Any = gf.load("en-de", device="cpu")
    if early_stopping is not None:
        decode = run.recipe.decode.model_copy(update={"early_stopping": early_stopping})
        run.recipe = run.recipe.model_copy(update={"decode": decode})
    return run


def ours(sources: list[str], int8: bool, early_stopping: str | None = None) -> Write:
    """Glassformer, from texts to texts."""
    run = shipped(early_stopping)
    return lambda: [each.ids for each in run.translate(sources, int8=int8)]


def theirs(sources: list[str]) -> Write:
    """`generate` of `transformers`."""
    run = shipped()
    return generating(pegasus(run.model.float(), run.special), run, [run.read(text) for text in sources], "cpu")


def ctranslate2(sources: list[str], int8: bool, threads: int, workers: int = 1) -> Write:
    """CTranslate2; several workers share the threads."""
    import ctranslate2
    from ctranslate2.converters.transformers import PegasusLoader

    run = shipped()
    special, decode, limits = run.special, run.recipe.decode, run.limits
    model = pegasus(run.model.float(), special)
    model.config.normalize_before, model.config.normalize_embedding = True, False  # as Pegasus is, which it asks for
    spec = PegasusLoader().get_model_spec(model)
    words = [f"w{number}" for number in range(spec.encoder.embeddings[0].weight.shape[0])]
    words[special.pad], words[special.end], words[special.start] = "<pad>", "</s>", "<s>"
    words[-1] = "<unk>"  # a name that CTranslate2 asks for
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.bos_token = spec.config.decoder_start_token = words[special.start]
    spec.config.eos_token, spec.config.unk_token, spec.config.add_source_eos = "</s>", "<unk>", False
    with tempfile.TemporaryDirectory() as folder:
        spec.validate()
        spec.optimize(quantization="int8" if int8 else None)
        spec.save(folder)
        kind, shares = "int8" if int8 else "float32", {"inter_threads": workers, "intra_threads": threads // workers}
        translator = ctranslate2.Translator(folder, "cpu", compute_type=kind, **shares)
    numbers = {word: number for number, word in enumerate(words)}
    rows = [[words[token] for token in run.read(text)] for text in sources]
    settings = {
        "beam_size": decode.beam,
        "max_batch_size": decode.batch,
        "max_decoding_length": limits.max_length,
        "length_penalty": decode.length_penalty,
        "no_repeat_ngram_size": limits.no_repeat_ngram,
        "suppress_sequences": [[words[token]] for token in limits.suppress],
    }
    return lambda: [
        [numbers[word] for word in each.hypotheses[0]] for each in translator.translate_batch(rows, **settings)
    ]


CONTENDERS: dict[str, Callable[[list[str], int], Write]] = {
    "generate": lambda sources, threads: theirs(sources),
    "ctranslate2": lambda sources, threads: ctranslate2(sources, int8=False, threads=threads),
    "ctranslate2-int8": lambda sources, threads: ctranslate2(sources, int8=True, threads=threads),
    "ctranslate2-int8-workers": lambda sources, threads: ctranslate2(sources, True, threads, workers=threads),
    "ours": lambda sources, threads: ours(sources, int8=False),
    "ours-int8": lambda sources, threads: ours(sources, int8=True),
    "ours-int8-never": lambda sources, threads: ours(sources, int8=True, early_stopping="never"),
}


def contender(name: str, sources: list[str], threads: int) -> Write:
    """A contender by its name, made where it is to work."""
    return CONTENDERS[name](sources, threads)


def measure(names: list[str], rounds: int, threads: int) -> None:
    """Sentences a second, BLEU, and how many outputs are those of the first contender, preferably ours in float32."""
    sources, targets = zip(*pairs(), strict=True)
    workers = {name: Worker(threads, contender, name, [*sources], threads) for name in names}
    reference = "ours" if "ours" in names else names[0]
    seconds, outputs = race(workers, rounds)
    run = shipped()
    facts = {"device": "cpu", "cpu": processor(), "threads": threads, "rounds": rounds, "sentences": len(sources)}
    report: dict[str, Any] = {"benchmark": "translate", **facts}
    for name, took in seconds.items():
        texts = [run.target.decode(ids) for ids in outputs[name]]
        same = sum(one == other for one, other in zip(outputs[name], outputs[reference], strict=True)) / len(sources)
        row = {"sentences_per_s": round(len(sources) / took, 1), "bleu": round(score(texts, [*targets]).bleu, 2)}
        report[name] = row | {f"same_as_{reference}": round(same, 3)}
        print(f"{name:24} {row['sentences_per_s']:7.1f} sentences/s, BLEU {row['bleu']:.2f}, {same:.1%} as {reference}")
    print(json.dumps(report))


def main() -> None:
    """Measure, print a table for people and a line of JSON for programs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help="of: " + ", ".join(CONTENDERS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    measure(given.contenders.split(","), given.rounds, given.threads)


if __name__ == "__main__":
    main()
