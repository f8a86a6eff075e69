"""Training on a GPU as users have it: `glassformer train` as a command, measured by the lines of its metrics.jsonl.

    python benchmarks/gpu_train.py base-32k base-8k multi30k --data carry/data
    python benchmarks/gpu_train.py all --device cpu --toy     # tries the script itself

multi30k    the recipe without R-Drop, 600 steps
base-32k    Transformer base on Tatoeba, batches of 32,768 tokens: captured, and captured and compiled
base-8k     the same, batches of 8,192 tokens
start       seconds from typing the command to the first step: with nothing cached, and again with what that left
lora        adapters of a model of 300 steps on multi30k: captured, and captured and compiled
long        base size on documents of 4,096 tokens on each side, batches of 32,768: what the model needs of the memory
resume      a training that is stopped by SIGTERM half way and resumed, against one that is not, bit by bit
minute      Multi30k from typing the command to BLEU on the test set
pilot       the tries of `minute` side by side: what each scores; their seconds mean nothing
profile     which kernels ten captured and compiled steps of base size run, and how long the device waits

Data: DATA/multi30k/tok.{train,val,test_2016_flickr}.lc.norm.tok.{en,de}.gz and DATA/tatoeba-eng-deu/deu.txt.xz. A case
that fails shows the end of its output, and the others go on. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from commands import ROOT, TOY, WAYS, Bench, Command, CommandError, Settings, folder, small, speed

LANGUAGES = ("en", "de")
SPLITS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
NEVER = 10**9
DOCUMENT = 4_096  # tokens
QUIET: Settings = {"train.validate_every": NEVER, "train.save_every": NEVER, "train.validate_sentences": 1}
BASE: Settings = {
    "model.width": 512,
    "model.heads": 8,
    "model.layers": 6,
    "model.decoder_layers": 6,
    "model.hidden": 2048,
    "model.dropout": 0.1,
    "train.optimiser": "adamw",
    "train.lr": 1e-3,
    "tokenizer.dropout": 0.0,
    "data.views": 1,
    **QUIET,
}
# No validation but the one at the end, no checkpoint but the last: the rate falls to 0 instead of an average of
# checkpoints, of which each would take a fifth of a second.
MINUTE: Settings = {
    "train.schedule": "linear",
    "train.average": 0,
    "train.log_every": 100,
    "decode.batch": 256,
    **QUIET,
}
TRIES: dict[str, Settings] = {
    "r-drop": {"train.steps": 2800, "train.warmup": 600, "train.lr": 5e-3, "train.consistency": 2.0},
    "plain": {"train.steps": 5000, "train.warmup": 1000, "train.lr": 5e-3, "train.consistency": 0.0},
    "muon r-drop": {
        "train.steps": 2600,
        "train.warmup": 300,
        "train.optimiser": "muon",
        "train.lr": 4e-3,
        "train.muon_lr": 0.02,
        "train.consistency": 2.0,
    },
    "muon": {
        "train.steps": 4500,
        "train.warmup": 300,
        "train.optimiser": "muon",
        "train.lr": 4e-3,
        "train.muon_lr": 0.02,
        "train.consistency": 0.0,
    },
}


def captions(bench: Bench) -> Settings:
    """Where the captions are."""
    folder = bench.data / "multi30k"
    return {
        f"source.{split}": [str(folder / f"tok.{name}.lc.norm.tok.{language}.gz") for language in LANGUAGES]
        for split, name in SPLITS.items()
    }


def base_on_tatoeba(bench: Bench, tokens: int, steps: int, compiled: bool | str = "auto") -> Settings:
    """Transformer base on Tatoeba."""
    return {
        "source.train": str(bench.data / "tatoeba-eng-deu" / "deu.txt.xz"),
        "tokenizer.vocabulary": bench.vocabulary,
        **BASE,
        "train.batch_tokens": tokens,
        "train.steps": steps,
        "train.compile": compiled,
    }


def measured(bench: Bench, recipe: str, settings: Settings, steps: int, warm: int) -> dict[str, Any]:
    """The speed of a training of so many steps; nothing after its last step is waited for."""
    command = bench.start(recipe, settings, {"train.steps": steps})
    command.wait(12 if bench.toy else steps)
    return speed(command, 4 if bench.toy else warm)


def multi30k(bench: Bench) -> Iterator[tuple[str, Any]]:
    """The recipe's model, a pass for each batch."""
    settings = {**captions(bench), "train.consistency": 0.0, **QUIET}
    yield "captured", measured(bench, "multi30k", settings, 600, 200)


def base(tokens: int, steps: int) -> Callable[[Bench], Iterator[tuple[str, Any]]]:
    """Base size, with each way of `train.compile`."""

    def run(bench: Bench) -> Iterator[tuple[str, Any]]:
        for name, compiled in bench.ways.items():
            yield name, measured(bench, "tatoeba", base_on_tatoeba(bench, tokens, steps, compiled), steps, steps // 2)

    return run


def lora(bench: Bench) -> Iterator[tuple[str, Any]]:
    """Adapters: what is frozen has no gradient."""
    settings = {**captions(bench), "train.consistency": 0.0, "decode.beam": 1, **QUIET}
    trained = bench.start("multi30k", settings, {"train.steps": 12 if bench.toy else 300})
    trained.wait()
    settings |= {"model.pretrained": str(trained.folder), "tune.mode": "lora", "tune.rank": 8}
    for name, compiled in bench.ways.items():
        yield name, measured(bench, "multi30k", {**settings, "train.compile": compiled}, 400, 200)


def long(bench: Bench) -> Iterator[tuple[str, Any]]:
    """Documents of random words, which one GPU holds; what is learned of them means nothing."""
    (words, known), path = (64, 250) if bench.toy else (DOCUMENT, bench.vocabulary - 100), bench.work / "documents.tsv"
    draw = random.Random(0)
    texts = [" ".join(f"w{draw.randrange(known)}" for _ in range(words - 2)) for _ in range(400)]
    path.write_text("".join(f"{one}\t{two}\n" for one, two in pairwise(texts)), encoding="utf-8")
    whole: Settings = {
        "source.train": str(path),
        "tokenizer.kind": "word",
        "tokenizer.vocabulary": bench.vocabulary,
        "data.max_tokens": words,
        "data.max_characters": 10 * DOCUMENT,
        "task.swap_names": 0.0,
        "task.name_words": [],
        "task.informal": 0.0,
        "train.batch_tokens": 8 * DOCUMENT,
        "train.log_every": 10,
    }
    for name, compiled in bench.ways.items():
        yield name, measured(bench, "tatoeba", {**base_on_tatoeba(bench, 0, 60, compiled), **whole}, 60, 30)


def start(bench: Bench) -> Iterator[tuple[str, Any]]:
    """The first steps, each with a line of its own; the data is prepared before."""
    settings = base_on_tatoeba(bench, 32_768, 3) | {"train.log_every": 1}
    bench.start("tatoeba", settings).wait()
    for name, compiled in bench.ways.items():
        for state in ("cold", "warm"):
            command = bench.start("tatoeba", settings, {"train.compile": compiled}, caches=f"caches-{name}")
            command.wait(3 if not bench.toy else 12)
            rows = command.rows()
            yield (
                f"{name} {state}",
                {
                    "typed_to_first_step_s": round(command.first or 0.0, 2),
                    "first_step_s": round(rows[0]["elapsed"], 2),
                    "third_step_s": round(rows[-1]["elapsed"], 2),
                },
            )


def resume(bench: Bench) -> Iterator[tuple[str, Any]]:
    """Twice without a stop, to know what chance does; once with one; in each way of `train.compile`."""
    import torch
    from safetensors.torch import load_file

    steps = 12 if bench.toy else 400
    settings = {**captions(bench), **QUIET, "train.consistency": 0.0, "train.log_every": steps // 20 or 1}

    def differ(one: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> dict[str, Any]:
        wrong = [name for name in one if not torch.equal(one[name], others[name])]
        most = max(((one[name].float() - others[name].float()).abs().max().item() for name in wrong), default=0.0)
        return {"identical": not wrong, "tensors_that_differ": len(wrong), "of": len(one), "largest_difference": most}

    for name, compiled in bench.ways.items():
        more: Settings = {
            "train.steps": steps,
            "train.compile": compiled,
            "decode.beam": 1,
            "decode.max_length": 10,
        }
        whole = bench.start("multi30k", settings, more)
        whole.wait()
        again = bench.start("multi30k", settings, more)
        stopped = bench.start("multi30k", settings, more)
        stopped.wait(steps // 2)
        saved = [int(found) for found in re.findall(r"step ([\d,]+)", stopped.output.replace(",", ""))]
        bench.start("multi30k", settings, more, resume=stopped.folder).wait()
        again.wait()
        one, two, three = (load_file(each.folder / "model.safetensors") for each in (whole, again, stopped))
        yield f"{name}, the same again", differ(one, two)
        yield f"{name}, stopped at step {saved[-1] if saved else '?'} of {steps}", differ(one, three)


def scores(command: Command) -> dict[str, Any]:
    """What the command printed about the test set, and when."""
    rows, seconds = command.rows(), command.seconds
    before = (command.first or 0.0) - rows[0]["elapsed"]
    found = re.search(r"BLEU\D{0,20}?(\d+\.\d+)", command.output)
    return {
        "bleu": float(found[1]) if found else None,
        "seconds": round(seconds, 1),
        "before_training_s": round(before, 1),
        "training_s": round(rows[-1]["elapsed"], 1),
        "after_training_s": round(seconds - before - rows[-1]["elapsed"], 1),
        "tokens_per_s": round(statistics.median(row["tokens_per_s"] for row in rows)),
        "steps": rows[-1]["step"],
        "loss": round(rows[-1]["loss"], 4),
    }


def minute(bench: Bench, name: str = "r-drop") -> Iterator[tuple[str, Any]]:
    """One command, nothing prepared before it: what it scores, and after how many seconds it ends."""
    shutil.rmtree(bench.work / "prepared", ignore_errors=True)
    command = bench.start("multi30k", captions(bench), MINUTE, TRIES[name], caches=f"caches-{time.time_ns()}")
    command.wait()
    yield name, scores(command)


def pilot(bench: Bench) -> Iterator[tuple[str, Any]]:
    """All tries at once."""
    tries = {name: bench.start("multi30k", captions(bench), MINUTE, each) for name, each in TRIES.items()}
    for name, command in tries.items():
        try:
            command.wait()
            yield name, scores(command)
        except CommandError as error:
            yield name, {"failed": str(error)}


def profile(bench: Bench) -> Iterator[tuple[str, Any]]:
    """Ten steps of a training in this process, after so many that their shapes have been captured."""
    os.environ |= bench.environment("caches")
    from torch.profiler import ProfilerActivity, profile

    from glassformer import runs
    from glassformer.recipe import base_of, find_recipe, read_recipe
    from glassformer.runs.training import Listener

    first, last = (4, 10) if bench.toy else (170, 180)
    kinds = [ProfilerActivity.CPU if bench.device == "cpu" else ProfilerActivity.CUDA]

    class Profiling(Listener):
        def tick(self, record: dict[str, Any]) -> None:
            if record["step"] == first:
                self.profile = profile(activities=kinds)
                self.profile.start()
            elif record["step"] == last:
                if bench.device != "cpu":
                    import torch

                    torch.cuda.synchronize()
                self.profile.stop()
                raise KeyboardInterrupt

    for name, compiled in bench.ways.items():
        settings = {
            **base_on_tatoeba(bench, 32_768, 400, compiled),
            "train.device": bench.device,
            **(TOY if bench.toy else {}),
        }
        path, listener = find_recipe("tatoeba"), Profiling()
        texts = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
        with suppress(KeyboardInterrupt):
            runs.train(read_recipe(path, texts), bench.work / f"profile-{name}", base_of(path), listener=listener)
        trace = bench.work / f"{name}.json"
        listener.profile.export_chrome_trace(str(trace))
        yield name, kernels(json.loads(trace.read_text(encoding="utf-8"))["traceEvents"], last - first)


def kernels(events: list[dict[str, Any]], steps: int, shown: int = 32) -> dict[str, Any]:
    """Milliseconds of each kernel in a step, and how much of the time none ran."""
    ran = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    if not ran:
        return {"kernels": 0}
    times: dict[str, list[float]] = {}
    busy, end = 0.0, min(event["ts"] for event in ran)
    begin = end
    for event in sorted(ran, key=lambda event: float(event["ts"])):
        times.setdefault(event["name"], []).append(event["dur"])
        until = event["ts"] + event["dur"]
        busy, end = busy + max(0.0, until - max(end, event["ts"])), max(end, until)
    for name, each in sorted(times.items(), key=lambda item: -sum(item[1]))[:shown]:
        print(f"  {sum(each) / steps / 1e3:8.3f} ms {len(each) / steps:7.1f} x  {name[:150]}")
    groups: dict[str, float] = {}
    for name, each in times.items():
        groups[group(name)] = groups.get(group(name), 0.0) + sum(each) / steps / 1e3
    return {
        "ms_a_step": round((end - begin) / steps / 1e3, 2),
        "busy_ms": round(busy / steps / 1e3, 2),
        "idle": round(1 - busy / (end - begin), 4),
        "kernels_a_step": round(len(ran) / steps),
        "ms": {name: round(value, 2) for name, value in sorted(groups.items(), key=lambda item: -item[1])},
    }


def group(name: str) -> str:
    """What a kernel is for, by its name."""
    found = {
        "products": r"gemm|nvjet|cutlass|cublas|splitK",
        "attention": r"^_?(forward|backward|attend|queries|keys)|short|fmha|flash",
        "loss": r"smoothed|consistent|log_softmax",
        "compiled": r"^triton_",
        "optimiser": r"adam|multi_tensor|foreach",
        "embedding": r"embedding|index|sort|radix|scan",
        "dropout": r"dropout",
        "norm": r"layer_norm|LayerNorm|GammaBeta",
        "reduction": r"reduce",
        "copies": r"copy|Memcpy|cat|Memset|fill",
        "elementwise": r"elementwise",
    }
    return next((kind for kind, pattern in found.items() if re.search(pattern, name)), "other")


CASES: dict[str, Callable[[Bench], Iterator[tuple[str, Any]]]] = {
    "base-32k": base(32_768, 300),
    "multi30k": multi30k,
    "base-8k": base(8_192, 600),
    "profile": profile,
    "start": start,
    "lora": lora,
    "long": long,
    "resume": resume,
    "pilot": pilot,
    "minute": minute,
}


def main() -> None:
    """Run the cases that were named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", metavar="CASE", help=f"all, {', '.join(CASES)}, or minute=TRY")
    parser.add_argument("--data", type=Path, default=ROOT / "carry" / "data")
    parser.add_argument("--work", type=Path, help="a folder for runs and caches, kept; temporary if not given")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--toy", action="store_true", help="tiny models and the first rows of the data")
    parser.add_argument("--ways", default=",".join(WAYS), help="of base size: captured, compiled, or both")
    parser.add_argument("--vocabulary", type=int, default=32_000, help="of base size")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all commands")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    with folder(given.work) as work:
        data = small(given.data.resolve(), work) if given.toy else given.data.resolve()
        ways = {name: WAYS[name] for name in given.ways.split(",")}
        bench = Bench(data, work, given.device, given.toy, given.vocabulary, given.set, ways)
        for case in [*CASES] if given.cases == ["all"] else given.cases:
            began = time.perf_counter()
            name, _, which = case.partition("=")
            found[case] = {}
            try:
                for label, result in minute(bench, which) if which else CASES[name](bench):
                    found[case][label] = result
                    print(f"{case}, {label}: {json.dumps(result)}", flush=True)
            except CommandError as error:
                print(f"{case} FAILED: {error}", flush=True)
                found[case]["failed"] = str(error).splitlines()[0]
            except Exception as error:
                traceback.print_exc(file=sys.stdout)
                found[case]["failed"] = repr(error)
            print(f"({case}: {time.perf_counter() - began:.0f} s)", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
