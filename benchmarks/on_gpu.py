"""The benchmarks of decoding on a GPU: Glassformer beside `generate` of `transformers`, in one process and one run.

Random weights of the same sizes, the same sources and output lengths for all, in bfloat16. Every contender writes once
before it is measured; the best of a few rounds counts, in which all take turns. (The same batch is decoded in each
round: captured steps are used again, as by all batches of a file but the first few; `first` is what the first decoding
took, capturing included.)
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

import glassformer as gf
from glassformer import interop
from glassformer.decoding import capturing
from glassformer.parts.guard import usable, use_triton
from peers import END, PAD, START, Size, marian

Outputs = list[list[int]]


def timed(write: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what was written."""
    _wait()
    begin = time.perf_counter()
    outputs = write()
    _wait()
    return time.perf_counter() - begin, outputs


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def turns(contenders: dict[str, Callable[[], Any]], rounds: int) -> dict[str, dict[str, Any]]:
    """The seconds of each contender's first decoding and of its best one, and its outputs."""
    found = {name: {"first": timed(write)[0], "best": float("inf")} for name, write in contenders.items()}
    for _ in range(rounds):
        for name, write in contenders.items():
            seconds, outputs = timed(write)
            found[name] |= {"best": min(found[name]["best"], seconds), "outputs": outputs}
    return found


def eagerly(write: Callable[[], Any]) -> Callable[[], Any]:
    """The same without captured steps."""

    def without() -> Any:
        supports, capturing.supports = capturing.supports, lambda device: False
        try:
            return write()
        finally:
            capturing.supports = supports

    return without


@functools.cache
def translators(size: Size) -> tuple[Any, Any]:
    """Translators of one size: that of `transformers`, and ours."""
    theirs = marian(size).eval().cuda().bfloat16()
    torch.manual_seed(0)
    own = gf.transformer(size.vocabulary, size.width, size.heads, size.layers, size.hidden, tie_output=False)
    return theirs, gf.pack(own.eval().cuda().bfloat16())


def without_triton(write: Callable[[], Any]) -> Callable[[], Any]:
    """The same with PyTorch's own kernels; what was captured with others is put aside meanwhile."""
    own: dict[Any, Any] = {}

    def without() -> Any:
        kept = dict(capturing.stores)
        capturing.stores.clear()
        capturing.stores.update(own)
        use_triton(False)
        try:
            return write()
        finally:
            use_triton(True)
            own.update(capturing.stores)
            capturing.stores.clear()
            capturing.stores.update(kept)

    return without


def searches(size: Size, sources: Outputs, beams: int, length: int) -> dict[str, Callable[[], Any]]:
    """Translators of one size: `generate`, ours, and ours without captured steps."""
    theirs, model = translators(size)
    tokens, keep = (x.cuda() for x in gf.pad(sources, PAD))
    limits = gf.Limits(start=START, end=END, max_length=length, min_length=length)
    options: dict[str, Any] = {"num_beams": beams, "min_new_tokens": length, "max_new_tokens": length}

    @torch.inference_mode()
    def generate() -> Any:
        return theirs.generate(input_ids=tokens, attention_mask=keep.long(), do_sample=False, **options).tolist()

    def ours() -> Outputs:
        if beams == 1:
            return [each.tokens for each in gf.greedy(model, tokens, keep, limits=limits)]
        return [best.tokens for best, *_ in gf.beam_search(model, tokens, keep, limits=limits, width=beams)]

    return {"generate": generate, "ours": ours, "ours-eager": eagerly(ours), "ours-no-triton": without_triton(ours)}


def language_models(made: Any) -> tuple[Any, Any]:
    """Language models with the same weights: that of `transformers`, and ours."""
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        interop.save(made, folder)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(folder).eval().cuda().bfloat16()
    return loaded, gf.pack(made.cuda().bfloat16())


def writers(models: tuple[Any, Any], tokens: torch.Tensor, length: int, sampled: bool) -> dict[str, Callable[[], Any]]:
    """`generate`, ours, and ours without captured steps."""
    (loaded, model), prompts = models, tokens.cuda()
    limits = gf.Limits(start=None, end=END, max_length=length, min_length=length)
    options: dict[str, Any] = {"do_sample": True, "top_k": 50} if sampled else {"do_sample": False}
    options |= {"max_new_tokens": length, "min_new_tokens": length, "pad_token_id": 0, "eos_token_id": END}

    @torch.inference_mode()
    def generate() -> Any:
        written = loaded.generate(prompts, attention_mask=torch.ones_like(prompts), **options)
        return written[:, prompts.shape[1] :].tolist()

    def ours() -> Outputs:
        if sampled:
            return [each.tokens for each in gf.sample(model, prompts, limits=limits, top_k=50)]
        return [each.tokens for each in gf.greedy(model, prompts, limits=limits)]

    return {"generate": generate, "ours": ours, "ours-eager": eagerly(ours)}


def compared(what: str, contenders: dict[str, Callable[[], Any]], tokens: int, rounds: int = 3) -> dict[str, Any]:
    """Measure, print a line, and return it."""
    found = turns(contenders, rounds)
    row: dict[str, Any] = {name: round(tokens / each["best"]) for name, each in found.items()}
    row |= {"times_generate": round(found["generate"]["best"] / found["ours"]["best"], 2)}
    row |= {"first_ms": round(1e3 * found["ours"]["first"]), "ms": round(1e3 * found["ours"]["best"], 1)}
    pairs = zip(found["ours"]["outputs"], found["ours-eager"]["outputs"], strict=True)
    row["same_as_eager"] = sum(one == other for one, other in pairs) / len(found["ours"]["outputs"])
    row["triton"] = usable()
    print(what, row, flush=True)
    return row


def profiled(write: Callable[[], Any]) -> None:
    """Print which kernels one decoding runs, and what the host does meanwhile."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        timed(write)
    kernels = [each for each in found.key_averages() if each.self_device_time_total > 0]
    total = sum(each.self_device_time_total for each in kernels)
    count = sum(each.count for each in kernels)
    print(f"  device {total / 1e3:.2f} ms in {count} kernels")
    for each in sorted(kernels, key=lambda each: -each.self_device_time_total)[:14]:
        print(f"  {each.self_device_time_total / 1e3:8.3f} ms {each.count:6} x {each.key[:110]}")
    host = sorted(found.key_averages(), key=lambda each: -each.self_cpu_time_total)[:8]
    print(
        "  host:", ", ".join(f"{each.key[:40]} {each.self_cpu_time_total / 1e3:.1f} ms ({each.count})" for each in host)
    )
