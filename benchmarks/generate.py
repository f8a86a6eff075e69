"""Language models on this machine's CPU: Glassformer beside `generate` of `transformers`, in one run.

Random weights of about 15 million parameters, the same in both, greedy, a prompt and an output of fixed lengths. Each
contender has a process of its own and writes once a round; the median round counts. The last line is JSON.

    python benchmarks/generate.py
    python benchmarks/generate.py --families llama --batches 1
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

import glassformer as gf
import glassformer.pretrained as pretrained
from glassformer.models import gpt2, llama
from peers import processor

VOCABULARY, END = 16_000, 2
Write = Callable[[], list[list[int]]]


def model(family: str) -> Any:
    """A language model of about 15 million parameters."""
    torch.manual_seed(0)
    if family == "gpt2":
        made = gpt2(VOCABULARY, width=320, heads=5, layers=8, length=512, tie_output=True)
    else:
        made = llama(VOCABULARY, width=320, heads=5, layers=8, hidden=896, tie_output=True)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return made.eval()


def prompts(batch: int, length: int) -> torch.Tensor:
    """Random prompts."""
    return torch.randint(3, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(1))


def ours(family: str, tokens: torch.Tensor, length: int) -> Write:
    """Glassformer."""
    packed = gf.pack(model(family))
    limits = gf.Limits(start=None, end=END, max_length=length, min_length=length)
    return lambda: [each.tokens for each in gf.greedy(packed, tokens, limits=limits)]


def theirs(family: str, tokens: torch.Tensor, length: int) -> Write:
    """The same weights in `transformers`."""
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        pretrained.save(model(family), folder)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()

    @torch.inference_mode()
    def write() -> list[list[int]]:
        outputs = loaded.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=length,
            min_new_tokens=length,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=END,
        )
        written: list[list[int]] = outputs[:, tokens.shape[1] :].tolist()
        return written

    return write


CONTENDERS = {"generate": theirs, "ours": ours}


def serve(pipe: Connection, name: str, family: str, batch: int, options: dict[str, int]) -> None:
    """What a contender's process does: write whenever it is asked to."""
    torch.set_num_threads(options["threads"])
    write = CONTENDERS[name](family, prompts(batch, options["prompt"]), options["length"])
    write()  # to warm up
    pipe.send(None)
    while True:
        pipe.recv()
        start = time.perf_counter()
        outputs = write()
        pipe.send((time.perf_counter() - start, outputs))


def race(family: str, batch: int, options: dict[str, int]) -> tuple[dict[str, float], bool]:
    """Median seconds of each contender, and whether they wrote the same."""
    pipes, processes = {}, []
    for name in CONTENDERS:
        pipes[name], end = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(target=serve, args=(end, name, family, batch, options))
        process.start()
        processes.append(process)
        pipes[name].recv()
    seconds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    outputs: dict[str, list[list[int]]] = {}
    for _ in range(options["rounds"]):
        for name, pipe in pipes.items():
            pipe.send(None)
            took, outputs[name] = pipe.recv()
            seconds[name].append(took)
    for process in processes:
        process.terminate()
        process.join()
    return {name: statistics.median(each) for name, each in seconds.items()}, outputs["ours"] == outputs["generate"]


def main() -> None:
    """Measure, print a table for people and a line of JSON for programs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default="gpt2,llama")
    parser.add_argument("--batches", default="1,8", help="how many prompts at once")
    parser.add_argument("--prompt", type=int, default=16, help="tokens in a prompt")
    parser.add_argument("--length", type=int, default=64, help="tokens in every output")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    wish = parser.parse_args()
    options = {name: getattr(wish, name) for name in ("prompt", "length", "rounds", "threads")}
    report: dict[str, Any] = {"benchmark": "generate", "options": vars(wish), "cpu": processor()}
    for family in wish.families.split(","):
        size = sum(parameter.numel() for parameter in model(family).parameters())
        for batch in map(int, wish.batches.split(",")):
            seconds, same = race(family, batch, options)
            speeds = {name: batch * wish.length / took for name, took in seconds.items()}
            ratio = speeds["ours"] / speeds["generate"]
            print(
                f"{family} ({size / 1e6:.1f} M), batch {batch}: generate {speeds['generate']:.0f}, "
                f"ours {speeds['ours']:.0f} tokens/s: {ratio:.2f} x{'' if same else '; outputs differ'}",
                flush=True,
            )
            report[f"{family}/{batch}"] = {"tokens_per_s": speeds, "times_generate": round(ratio, 2), "same": same}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
