"""Language models on this machine: Glassformer beside `generate` of `transformers`, in one run.

Random weights of about 15 million parameters, the same in both, greedy, a prompt and an output of fixed lengths. Each
contender has a process of its own and writes once a round; the median round counts. The last line is JSON.

    python benchmarks/generate.py
    python benchmarks/generate.py --families llama --batches 1
    python benchmarks/generate.py --device cuda        # bfloat16, greedy and sampling, 1 and 64 prompts
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from typing import Any

import torch

import glassformer as gf
from glassformer import interop
from glassformer.models import gpt2, llama
from peers import Worker, Write, processor, race

VOCABULARY, END = 16_000, 2


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


def ours(family: str, tokens: torch.Tensor, length: int, int8: bool = False) -> Write:
    """Glassformer."""
    packed = gf.quantise(model(family)) if int8 else gf.pack(model(family))
    limits = gf.Limits(start=None, end=END, max_length=length, min_length=length)
    return lambda: [each.tokens for each in gf.greedy(packed, tokens, limits=limits)]


def theirs(family: str, tokens: torch.Tensor, length: int) -> Write:
    """The same weights in `transformers`."""
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        interop.save(model(family), folder)
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


CONTENDERS: dict[str, Callable[..., Write]] = {
    "generate": theirs,
    "ours": ours,
    "ours-int8": lambda family, tokens, length: ours(family, tokens, length, int8=True),
}


def contender(name: str, *job: Any) -> Write:
    """A contender by its name, made where it is to work."""
    return CONTENDERS[name](*job)


def on_gpu(wish: argparse.Namespace) -> None:
    """The same on a GPU, greedy and sampling."""
    from on_gpu import compared, language_models, writers

    report: dict[str, Any] = {"benchmark": "generate", "device": torch.cuda.get_device_name()}
    for family in wish.families.split(","):
        models = language_models(model(family))
        for batch in (1, 64):
            for sampled in (False, True):
                what = f"{family}/{'sampling' if sampled else 'greedy'}/{batch}"
                contenders = writers(models, prompts(batch, wish.prompt), wish.length, sampled)
                report[what] = compared(what, contenders, batch * wish.length)
    print(json.dumps(report))


def main() -> None:
    """Measure, print a table for people and a line of JSON for programs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default="gpt2,llama")
    parser.add_argument("--batches", default="1,8", help="how many prompts at once")
    parser.add_argument("--prompt", type=int, default=16, help="tokens in a prompt")
    parser.add_argument("--length", type=int, default=64, help="tokens in every output")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    wish = parser.parse_args()
    if wish.device == "cuda":
        on_gpu(wish)
        return
    report: dict[str, Any] = {"benchmark": "generate", "options": vars(wish), "cpu": processor()}
    for family in wish.families.split(","):
        size = sum(parameter.numel() for parameter in model(family).parameters())
        for batch in map(int, wish.batches.split(",")):
            job = (family, prompts(batch, wish.prompt), wish.length)
            workers = {name: Worker(wish.threads, contender, name, *job) for name in CONTENDERS}
            seconds, outputs = race(workers, wish.rounds)
            same = outputs["ours"] == outputs["generate"]
            speeds = {name: batch * wish.length / took for name, took in seconds.items()}
            ratios = {name: round(speeds[name] / speeds["generate"], 2) for name in ("ours", "ours-int8")}
            print(
                f"{family} ({size / 1e6:.1f} M), batch {batch}: generate {speeds['generate']:.0f} tokens/s, "
                + ", ".join(f"{name} {speeds[name]:.0f} ({ratio:.2f} x)" for name, ratio in ratios.items())
                + ("" if same else "; outputs in float32 differ"),
                flush=True,
            )
            report[f"{family}/{batch}"] = {"tokens_per_s": speeds, "times_generate": ratios, "same": same}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
