"""Training on a GPU as users have it: `glassformer train` as a command, measured by the lines of its metrics.jsonl.

    python benchmarks/gpu_train.py base-32k base-8k multi30k --data carry/data
    python benchmarks/gpu_train.py all --device cpu --toy     # tries the script itself

multi30k    the recipe without R-Drop, 600 steps
base-32k    Transformer base on Tatoeba, batches of 32,768 tokens: captured, and captured and compiled
base-8k     the same, batches of 8,192 tokens
start       seconds from typing the command to the first step: with nothing cached, and again with what that left
resume      a training that is stopped by SIGTERM half way and resumed, against one that is not, bit by bit
minute      Multi30k from typing the command to BLEU on the test set
pilot       the tries of `minute` side by side: what each scores; their seconds mean nothing
profile     which kernels ten captured and compiled steps of base size run, and how long the device waits

Data: DATA/multi30k/tok.{train,val,test_2016_flickr}.lc.norm.tok.{en,de}.gz and DATA/tatoeba-eng-deu/deu.txt.xz. A case
that fails shows the end of its output, and the others go on. The last line is JSON.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import lzma
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LANGUAGES = ("en", "de")
SPLITS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
NEVER = 10**9
SHOWN = 15  # lines of the output of what failed
Settings = dict[str, Any]
WAYS: dict[str, bool | str] = {"captured": "auto", "compiled": True}  # train.compile, by what it makes of a step

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
    "r-drop": {"train.steps": 3800, "train.warmup": 800, "train.lr": 5e-3, "train.consistency": 2.0},
    "plain": {"train.steps": 5000, "train.warmup": 1000, "train.lr": 5e-3, "train.consistency": 0.0},
    "muon": {
        "train.steps": 3300,
        "train.warmup": 300,
        "train.optimiser": "muon",
        "train.lr": 4e-3,
        "train.muon_lr": 0.02,
        "train.consistency": 2.0,
    },
    "bpe": {
        "train.steps": 3800,
        "train.warmup": 800,
        "train.lr": 5e-3,
        "train.consistency": 2.0,
        "tokenizer.kind": "bpe",
    },
}
TOY: Settings = {
    "model.width": 32,
    "model.heads": 2,
    "model.layers": 1,
    "model.hidden": 32,
    "train.steps": 12,
    "train.warmup": 4,
    "train.batch_tokens": 256,
    "train.log_every": 2,
    "train.precision": "float32",
    "tokenizer.vocabulary": 300,
    "decode.max_length": 8,
}


class CommandError(Exception):
    """A command ended badly: the end of what it printed."""


@dataclass
class Command:
    """One `glassformer train` under way, with its output in a file."""

    process: subprocess.Popen[bytes]
    folder: Path
    log: Path
    began: float
    first: float | None = None  # seconds until the first line of metrics.jsonl

    @property
    def seconds(self) -> float:
        """Seconds since the command was typed."""
        return time.perf_counter() - self.began

    @property
    def output(self) -> str:
        """All that it has printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def rows(self) -> list[dict[str, Any]]:
        """The measurements of training so far."""
        path = self.folder / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        read = [json.loads(line) for line in lines if line.endswith("\n")]
        return [row for row in read if "tokens_per_s" in row]

    def wait(self, step: int | None = None) -> None:
        """Wait for its end, or for the line of a step, after which it is told to stop."""
        told = False
        while self.process.poll() is None:
            if (not told and step is not None) or self.first is None:
                rows = self.rows()
                if rows and self.first is None:
                    self.first = self.seconds
                if rows and step is not None and rows[-1]["step"] >= step and not told:
                    told = True
                    self.process.send_signal(signal.SIGTERM)
            time.sleep(0.02)
        if self.process.returncode and not told:
            raise CommandError(
                f"exit status {self.process.returncode}\n" + "\n".join(self.output.splitlines()[-SHOWN:])
            )


@dataclass
class Bench:
    """Where data, runs and caches are, and what all commands have in common."""

    data: Path
    work: Path
    device: str
    toy: bool
    vocabulary: int
    changes: list[str]
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def start(self, recipe: str, *settings: Settings, resume: Path | None = None, caches: str = "caches") -> Command:
        """Type a command; later settings count more than earlier ones, and those of the command line most."""
        given: Settings = {"train.device": self.device}
        for some in (*settings, {**TOY, "model.decoder_layers": None} if self.toy else {}):
            given |= some
        folder = self.work / f"run{next(self.numbers)}" if resume is None else resume
        typed = [sys.executable, "-m", "glassformer", "train", recipe, "--out", str(folder)]
        typed += ["--resume"] if resume is not None else []
        texts = [f"{key}={json.dumps(value)}" for key, value in given.items() if value is not None]
        typed += [part for text in (*texts, *self.changes) for part in ("--set", text)]
        log = folder.with_suffix(".resumed.log" if resume is not None else ".log")
        began = time.perf_counter()
        with log.open("wb") as output:
            process = subprocess.Popen(typed, stdout=output, stderr=output, env=self.environment(caches), cwd=self.work)  # noqa: S603
        return Command(process, folder, log, began)

    def environment(self, caches: str) -> dict[str, str]:
        """With this repository's package, and with everything that is kept between starts in a folder of this name."""
        here = self.work / caches
        paths = [str(ROOT / "src"), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        return os.environ | {
            "PYTHONPATH": os.pathsep.join(str(Path(path).resolve()) for path in paths),
            "GLASSFORMER_CACHE": str(self.work / "prepared"),
            "TORCHINDUCTOR_CACHE_DIR": str(here / "inductor"),
            "TRITON_CACHE_DIR": str(here / "triton"),
            "COLUMNS": "200",
        }

    def multi30k(self) -> Settings:
        """Where the captions are."""
        folder = self.data / "multi30k"
        return {
            f"source.{split}": [str(folder / f"tok.{name}.lc.norm.tok.{language}.gz") for language in LANGUAGES]
            for split, name in SPLITS.items()
        }

    def base(self, tokens: int, steps: int, compiled: bool | str = "auto") -> Settings:
        """Transformer base on Tatoeba."""
        return {
            "source.train": str(self.data / "tatoeba-eng-deu" / "deu.txt.xz"),
            "tokenizer.vocabulary": self.vocabulary,
            **BASE,
            "train.batch_tokens": tokens,
            "train.steps": steps,
            "train.compile": compiled,
        }


def speed(command: Command, warm: int) -> dict[str, Any]:
    """What the lines of a run say about steps after the first `warm`."""
    rows = command.rows()
    rates, seconds, tokens = [], 0.0, 0.0
    for before, row in itertools.pairwise(rows):
        if row["step"] > warm:
            took = row["elapsed"] - before["elapsed"]
            rates.append(row["tokens_per_s"])
            seconds, tokens = seconds + took, tokens + took * row["tokens_per_s"]
    return {
        "tokens_per_s": round(tokens / seconds) if seconds else None,
        "median": round(statistics.median(rates)) if rates else None,
        "best": round(max(rates)) if rates else None,
        "padding": round(statistics.mean(row["padding"] for row in rows), 4),
        "first_steps": rows[0]["step"],
        "first_steps_s": round(rows[0]["elapsed"], 2),  # since the training began
        "typed_to_first_steps_s": round(command.first or 0.0, 2),
        "steps": rows[-1]["step"],
        "loss": round(rows[-1]["loss"], 4),
        "memory_gb": round(rows[-1]["memory"] / 1e9, 2),
    }


def measured(bench: Bench, recipe: str, settings: Settings, steps: int, warm: int) -> dict[str, Any]:
    """The speed of a training of so many steps; nothing after its last step is waited for."""
    command = bench.start(recipe, settings, {"train.steps": steps})
    command.wait(12 if bench.toy else steps)
    return speed(command, 4 if bench.toy else warm)


def multi30k(bench: Bench) -> Iterator[tuple[str, Any]]:
    """The recipe's model, a pass for each batch."""
    settings = {**bench.multi30k(), "train.consistency": 0.0, **QUIET}
    yield "captured", measured(bench, "multi30k", settings, 600, 200)


def base(tokens: int, steps: int, ways: Mapping[str, bool | str]) -> Callable[[Bench], Iterator[tuple[str, Any]]]:
    """Base size, with each way of `train.compile`."""

    def run(bench: Bench) -> Iterator[tuple[str, Any]]:
        for name, compiled in ways.items():
            yield name, measured(bench, "tatoeba", bench.base(tokens, steps, compiled), steps, steps // 2)

    return run


def start(bench: Bench) -> Iterator[tuple[str, Any]]:
    """The first steps, each with a line of its own; the data is prepared before."""
    settings = bench.base(32_768, 3) | {"train.log_every": 1}
    bench.start("tatoeba", settings).wait()
    for name, compiled in WAYS.items():
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
    """Twice without a stop, to know what chance does; once with one."""
    import torch
    from safetensors.torch import load_file

    steps = 12 if bench.toy else 400
    settings = {**bench.multi30k(), **QUIET, "train.consistency": 0.0, "train.log_every": steps // 20 or 1}
    more: Settings = {"train.steps": steps, "decode.beam": 1, "decode.max_length": 10}
    whole = bench.start("multi30k", settings, more)
    whole.wait()
    again = bench.start("multi30k", settings, more)
    stopped = bench.start("multi30k", settings, more)
    stopped.wait(steps // 2)
    saved = [int(found) for found in re.findall(r"step ([\d,]+)", stopped.output.replace(",", ""))]
    bench.start("multi30k", settings, more, resume=stopped.folder).wait()
    again.wait()
    one, two, three = (load_file(each.folder / "model.safetensors") for each in (whole, again, stopped))

    def differ(others: dict[str, torch.Tensor]) -> dict[str, Any]:
        wrong = [name for name in one if not torch.equal(one[name], others[name])]
        most = max(((one[name].float() - others[name].float()).abs().max().item() for name in wrong), default=0.0)
        return {"identical": not wrong, "tensors_that_differ": len(wrong), "of": len(one), "largest_difference": most}

    yield "the same again", differ(two)
    yield f"stopped at step {saved[-1] if saved else '?'} of {steps}", differ(three)


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
    command = bench.start("multi30k", bench.multi30k(), MINUTE, TRIES[name], caches=f"caches-{time.time_ns()}")
    command.wait()
    yield name, scores(command)


def pilot(bench: Bench) -> Iterator[tuple[str, Any]]:
    """All tries at once."""
    tries = {name: bench.start("multi30k", bench.multi30k(), MINUTE, each) for name, each in TRIES.items()}
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

    for name, compiled in WAYS.items():
        settings = {**bench.base(32_768, 400, compiled), "train.device": bench.device, **(TOY if bench.toy else {})}
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
    "base-32k": base(32_768, 300, WAYS),
    "multi30k": multi30k,
    "base-8k": base(8_192, 600, WAYS),
    "profile": profile,
    "start": start,
    "resume": resume,
    "pilot": pilot,
    "minute": minute,
}


@contextmanager
def folder(kept: Path | None) -> Iterator[Path]:
    """A folder to work in: the one that was named, or one that is removed in the end."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        yield Path(made)


def small(data: Path, place: Path, rows: int = 300) -> Path:
    """The beginning of all files, in another folder."""
    for path in [*data.glob("multi30k/tok.*.gz"), *data.glob("tatoeba-eng-deu/*.xz")]:
        copy = place / "data" / path.relative_to(data)
        copy.parent.mkdir(parents=True, exist_ok=True)
        opened: Any = gzip.open if path.suffix == ".gz" else lzma.open
        with opened(path, "rt", encoding="utf-8") as source, opened(copy, "wt", encoding="utf-8") as target:
            target.writelines(itertools.islice(source, rows))
    return place / "data"


def main() -> None:
    """Run the cases that were named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", metavar="CASE", help=f"all, {', '.join(CASES)}, or minute=TRY")
    parser.add_argument("--data", type=Path, default=ROOT / "carry" / "data")
    parser.add_argument("--work", type=Path, help="a folder for runs and caches, kept; temporary if not given")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--toy", action="store_true", help="tiny models and the first rows of the data")
    parser.add_argument("--vocabulary", type=int, default=32_000, help="of base size")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all commands")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    with folder(given.work) as work:
        data = small(given.data.resolve(), work) if given.toy else given.data.resolve()
        bench = Bench(data, work, given.device, given.toy, given.vocabulary, given.set)
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
