"""Beam search on this machine: Glassformer beside `transformers` generate and CTranslate2, in one run.

Random weights, the same sizes, sources and output length for all. Every contender has a process of its own and decodes
once a round, one after the other; the median round counts. The last line is JSON.

    python benchmarks/decode.py                        # small and base
    python benchmarks/decode.py --sizes small --rounds 3 --contenders generate,ours,ours-int8
    python benchmarks/decode.py --device cuda          # base, bfloat16, 16, 64 and 256 sentences, beside `generate`
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import glassformer as gf
from glassformer.parts import PostNorm
from peers import END, FIRST, PAD, SIZES, START, Size, Worker, Write, marian, processor, race


@dataclass(frozen=True)
class Job:
    """What everybody decodes."""

    sources: list[list[int]]
    beams: int
    length: int
    batch: int
    threads: int

    @property
    def tokens(self) -> int:
        """How many tokens that gives."""
        return len(self.sources) * self.length

    @property
    def batches(self) -> list[list[list[int]]]:
        """The sources, a batch at a time."""
        return [self.sources[first : first + self.batch] for first in range(0, len(self.sources), self.batch)]


def sentences(count: int, vocabulary: int) -> list[list[int]]:
    """Random sentences whose lengths are spread like real ones, sorted by length."""
    draw = random.Random(1)
    lengths = sorted(max(5, min(60, int(draw.lognormvariate(2.95, 0.5)))) for _ in range(count))
    return [[draw.randrange(FIRST, vocabulary) for _ in range(length)] for length in lengths]


def ours(size: Size, job: Job, int8: bool = False) -> Write:
    """Glassformer's beam search."""
    torch.manual_seed(0)
    # A head of its own, as costly as a tied one: with random tied weights the likeliest token is the one just read.
    model = gf.transformer(
        size.vocabulary, size.width, size.heads, size.layers, size.hidden, residual=PostNorm, tie_output=False
    ).eval()
    model = gf.quantise(model) if int8 else gf.pack(model)
    limits = gf.Limits(start=START, end=END, max_length=job.length, min_length=job.length)

    def decode() -> list[list[int]]:
        outputs = (gf.beam_search(model, *gf.pad(batch, PAD), limits=limits, width=job.beams) for batch in job.batches)
        return [best.tokens for answers in outputs for best, *_ in answers]

    return decode


def generate(size: Size, job: Job) -> Write:
    """The beam search of `transformers`."""
    model = marian(size).eval()

    @torch.inference_mode()
    def decode() -> list[list[int]]:
        outputs = []
        for batch in job.batches:
            tokens, keep = gf.pad(batch, PAD)
            written = model.generate(
                input_ids=tokens,
                attention_mask=keep,
                num_beams=job.beams,
                min_new_tokens=job.length,
                max_new_tokens=job.length,
                do_sample=False,
            )
            outputs += written[:, 1:].tolist()
        return outputs

    return decode


def ctranslate2(size: Size, job: Job, int8: bool = False, workers: int = 1) -> Write:
    """CTranslate2's beam search, from the weights of `marian`; several workers share the threads, with a batch each."""
    import ctranslate2
    from ctranslate2.converters.transformers import MarianMTLoader

    spec = MarianMTLoader().get_model_spec(marian(size).eval())
    words = [f"w{number}" for number in range(spec.encoder.embeddings[0].weight.shape[0])]
    words[0], words[PAD], words[END], words[START] = "<unk>", "<pad>", "</s>", "<s>"
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.bos_token = spec.config.decoder_start_token = words[START]
    spec.config.eos_token, spec.config.unk_token, spec.config.add_source_eos = words[END], words[0], False
    folder = tempfile.TemporaryDirectory()
    spec.validate()
    spec.optimize(quantization="int8" if int8 else None)
    spec.save(folder.name)
    kind = "int8" if int8 else "float32"
    threads = {"inter_threads": workers, "intra_threads": job.threads // workers}
    translator = ctranslate2.Translator(folder.name, "cpu", compute_type=kind, **threads)
    folder.cleanup()
    numbers = {word: number for number, word in enumerate(words)}
    sources = [[words[token] for token in source] for source in job.sources]

    def decode() -> list[list[int]]:
        limits = {"min_decoding_length": job.length, "max_decoding_length": job.length}
        results = translator.translate_batch(sources, beam_size=job.beams, max_batch_size=job.batch, **limits)
        return [[numbers[word] for word in result.hypotheses[0]] for result in results]

    return decode


CONTENDERS: dict[str, Callable[[Size, Job], Write]] = {
    "generate": generate,
    "ctranslate2": ctranslate2,
    "ctranslate2-int8": lambda size, job: ctranslate2(size, job, int8=True),
    "ctranslate2-int8-workers": lambda size, job: ctranslate2(size, job, int8=True, workers=job.threads),
    "ours": ours,
    "ours-int8": lambda size, job: ours(size, job, int8=True),
}


def contender(name: str, size: Size, job: Job) -> Write:
    """A contender by its name, made where it is to work."""
    return CONTENDERS[name](size, job)


def changed(reference: list[list[int]], outputs: list[list[int]]) -> float:
    """The share of output tokens that differ, place by place."""
    pairs = [pair for one, other in zip(reference, outputs, strict=True) for pair in zip(one, other, strict=True)]
    return sum(one != other for one, other in pairs) / len(pairs)


def on_gpu(options: argparse.Namespace) -> None:
    """The same on a GPU, beam search and greedy."""
    from on_gpu import compared, profiled, searches

    report: dict[str, Any] = {"benchmark": "decode", "device": torch.cuda.get_device_name(), "torch": torch.__version__}
    for beams in (options.beams, 1):
        for count in (16, 64, 256):
            contenders = searches(SIZES["base"], sentences(count, SIZES["base"].vocabulary), beams, options.length)
            what = f"base/beam {beams}/{count} sentences"
            report[what] = compared(what, contenders, count * options.length)
            if options.profile and beams > 1 and count != 64:
                profiled(contenders["ours"])
    print(json.dumps(report))


def main() -> None:
    """Measure, print a table for people and a line of JSON for programs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="small,base", help="of: tiny, small, base")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help="of: " + ", ".join(CONTENDERS))
    parser.add_argument("--sentences", type=int, default=32)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--beams", type=int, default=5)
    parser.add_argument("--length", type=int, default=25, help="tokens in every output")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--profile", action="store_true", help="print where the time goes (cuda)")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options = parser.parse_args()
    if options.device == "cuda":
        on_gpu(options)
        return
    report: dict[str, Any] = {"benchmark": "decode", "options": vars(options), "cpu": processor(), "sizes": {}}
    for name in options.sizes.split(","):
        size = SIZES[name]
        job = Job(
            sentences(options.sentences, size.vocabulary), options.beams, options.length, options.batch, options.threads
        )
        names = options.contenders.split(",")
        workers = {each: Worker(options.threads, contender, each, size, job) for each in names}
        seconds, outputs = race(workers, options.rounds)
        rows = {each: {"tokens_per_s": round(job.tokens / took, 1)} for each, took in seconds.items()}
        print(f"\n{name}: {size}, beam {options.beams}, batch {options.batch}, {options.threads} threads")
        for each, took in seconds.items():
            line = f"  {each:24} {job.tokens / took:9.1f} tokens/s"
            if "generate" in seconds:
                rows[each]["times_generate"] = round(seconds["generate"] / took, 2)
                line += f"  {rows[each]['times_generate']:6.2f} x generate"
            print(line)
        if {"ours", "ours-int8"} <= outputs.keys():
            share = changed(outputs["ours"], outputs["ours-int8"])
            rows["ours-int8"]["changed_tokens"] = round(share, 4)
            print(f"  int8 changes {share:.1%} of the output tokens of these random (so: undecided) weights")
        report["sizes"][name] = rows
    print(json.dumps(report))


if __name__ == "__main__":
    main()
