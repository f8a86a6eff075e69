"""How cost grows with one number: speed and memory of Glassformer beside `transformers`, in one run.

Each study changes one number of one kind of work, and keeps the others:

    length       training: tokens of a text, source and target alike; all batches have as many tokens
    width        training: D, with heads of 64 and feed-forward parts of 4 D
    vocabulary   training: how many tokens there are
    batch        greedy decoding: sentences at once
    beams        beam search: beams of each sentence

What is measured is the tokens a second, without what was needed to begin, and the most memory: on a CPU that of the
process beyond what it had before its model was made, each measurement in a process of its own; on a GPU what was
allocated. Decoding writes the same outputs again in every round; training has new batches. The last line is JSON.

    python benchmarks/growth.py                                     # all studies on this CPU
    python benchmarks/growth.py --studies length --figures figures
    python benchmarks/growth.py --threads 1 --processor-time        # on a machine that does other work as well
    python benchmarks/growth.py --device cuda --size base --tokens 32768
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import decode
import train
from peers import FIRST, SIZES, Size, processor

CONTENDERS = ("ours", "transformers")
Work = Callable[[int], Any]  # does the work of a round, of which it is told the number


@dataclass(frozen=True)
class Setting:
    """What is done, and how it is measured: all numbers but the one of the study."""

    size: Size
    device: str
    tokens: int  # of one side of a batch in training
    rounds: int
    threads: int
    processor_time: bool
    length: int = 64
    batch: int = 16
    beams: int = 1
    written: int = 25  # tokens of each output in decoding

    @property
    def on_gpu(self) -> bool:
        """Whether it is measured on a GPU."""
        return self.device != "cpu"


@dataclass(frozen=True)
class Study:
    """One number that grows."""

    work: Callable[[str, Setting], tuple[Work, int]]  # and the tokens of a round
    label: str
    values: tuple[int, ...]
    change: Callable[[Setting, int], Setting]


def training(name: str, setting: Setting) -> tuple[Work, int]:
    """Forward, backward and update, with texts of one length."""
    device, rows = torch.device(setting.device), max(1, setting.tokens // setting.length)
    maker = train.ours if name == "ours" else train.hf_marian
    steps = maker(setting.size, device, setting.on_gpu, False)

    def work(number: int) -> None:
        generator = torch.Generator().manual_seed(number)
        shape = (rows, setting.length + 1)
        source, target = (torch.randint(FIRST, setting.size.vocabulary, shape, generator=generator) for _ in range(2))
        mask, count = torch.ones(rows, setting.length, dtype=torch.bool), rows * setting.length
        batch = train.Batch(source[:, 1:], mask, target[:, :-1], target[:, 1:], mask, 2 * count, count, 0.0)
        steps([batch.to(device)])

    return work, 2 * rows * setting.length


def decoding(name: str, setting: Setting) -> tuple[Work, int]:
    """Outputs of a fixed length."""
    sources = decode.sentences(setting.batch, setting.size.vocabulary)
    if setting.on_gpu:
        from on_gpu import searches

        writers = searches(setting.size, sources, setting.beams, setting.written)
        write = writers["ours" if name == "ours" else "generate"]
    else:
        job = decode.Job(sources, setting.beams, setting.written, setting.batch, setting.threads)
        write = (decode.ours if name == "ours" else decode.generate)(setting.size, job)
    return lambda number: write(), setting.batch * setting.written


def _wide(setting: Setting, width: int) -> Setting:
    return replace(setting, size=replace(setting.size, width=width, hidden=4 * width, heads=max(1, width // 64)))


STUDIES = {
    "length": Study(training, "tokens in a text", (16, 64, 256, 1024, 4096), lambda each, n: replace(each, length=n)),
    "width": Study(training, "width", (64, 128, 256, 512, 1024), _wide),
    "vocabulary": Study(
        training,
        "tokens in the vocabulary",
        (1_000, 4_000, 16_000, 64_000, 256_000),
        lambda each, n: replace(each, size=replace(each.size, vocabulary=n)),
    ),
    "batch": Study(decoding, "sentences at once", (1, 4, 16, 64, 256), lambda each, n: replace(each, batch=n)),
    "beams": Study(decoding, "beams", (1, 2, 4, 8, 16, 32), lambda each, n: replace(each, beams=n)),
}


def measured(study: str, name: str, setting: Setting) -> dict[str, float]:
    """Tokens a second, the median of the rounds, and the most memory in MB."""
    if setting.on_gpu:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    else:
        torch.set_num_threads(setting.threads)
    before = held(setting)
    clock = time.process_time if setting.processor_time else time.perf_counter
    work, tokens = STUDIES[study].work(name, setting)
    work(0)
    seconds = []
    for number in range(setting.rounds):
        _wait(setting)
        start = clock()
        work(number + 1)
        _wait(setting)
        seconds.append(clock() - start)
    return {"tokens_per_s": round(tokens / statistics.median(seconds), 1), "mb": round(held(setting) - before, 1)}


def held(setting: Setting) -> float:
    """The most MB that were in use so far."""
    if setting.on_gpu:
        return torch.cuda.max_memory_allocated() / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def _wait(setting: Setting) -> None:
    if setting.on_gpu:
        torch.cuda.synchronize()


def alone(study: str, name: str, setting: Setting) -> dict[str, float]:
    """The same in a process of its own on a CPU, whose memory nobody else has touched."""
    if setting.on_gpu:
        return measured(study, name, setting)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_imported, study, name, setting).result()


def _imported(study: str, name: str, setting: Setting) -> dict[str, float]:
    """Measured after all libraries were loaded, so that they do not count as memory of the work."""
    small = replace(SIZES["tiny"], vocabulary=100)
    STUDIES[study].work(name, replace(setting, size=small, tokens=64, length=16, batch=1))[0](0)
    return measured(study, name, setting)


def draw(study: str, rows: dict[int, dict[str, dict[str, float]]], path: Path) -> None:
    """Speed and memory over the number that grows."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    from glassformer.experiments.charts import legend_below, line, log_ticks, panels
    from glassformer.looking.style import BLUE, ORANGE, chart_style, save

    colours = {"ours": BLUE, "transformers": ORANGE}
    with chart_style():
        figure, (left, right) = panels(2, 7.2, 3.0)
        for axes, key, title in ((left, "tokens_per_s", "Tokens a second"), (right, "mb", "Memory, MB")):
            for name, colour in colours.items():
                own = {value: max(1.0, found[name][key]) for value, found in rows.items() if name in found}
                line(axes, [*own], [*own.values()], colour, "Glassformer" if name == "ours" else name)
            log_ticks(axes, [*rows], [f"{value:,}" for value in rows])
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            axes.set_ylim(low / 1.5, 1.5 * high)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.set_title(title)
            axes.set_xlabel(STUDIES[study].label)
        legend_below(figure, left, 2)
        save(figure, path)


def main() -> None:
    """Measure, print a line for each value, draw, and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", default=",".join(STUDIES), help="of: " + ", ".join(STUDIES))
    parser.add_argument("--size", default="tiny", choices=[*SIZES], help="the numbers that do not grow")
    parser.add_argument("--tokens", type=int, default=4096, help="of one side of a batch in training")
    parser.add_argument("--most", type=int, default=sys.maxsize, help="leave out values above this one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--processor-time", action="store_true", help="count seconds of the process")
    parser.add_argument("--figures", type=Path, help="a folder for a figure of each study")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    wish = parser.parse_args()
    setting = Setting(SIZES[wish.size], wish.device, wish.tokens, wish.rounds, wish.threads, wish.processor_time)
    report: dict[str, Any] = {
        "benchmark": "growth",
        "options": {key: value for key, value in vars(wish).items() if key != "figures"},
        "machine": processor() if wish.device == "cpu" else torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }
    for study in wish.studies.split(","):
        print(f"{study}: {STUDIES[study].label}", flush=True)
        rows: dict[int, dict[str, dict[str, float]]] = {}
        for value in (each for each in STUDIES[study].values if each <= wish.most):
            rows[value] = found = {}
            for name in CONTENDERS:
                try:
                    found[name] = alone(study, name, STUDIES[study].change(setting, value))
                except (torch.OutOfMemoryError, MemoryError) as error:
                    print(f"  {value:>8,}  {name}: {error}", flush=True)
            told = [f"{name} {own['tokens_per_s']:,.0f} tokens/s, {own['mb']:,.0f} MB" for name, own in found.items()]
            print(f"  {value:>8,}  {';  '.join(told)}", flush=True)
        report[study] = rows
        if wish.figures:
            wish.figures.mkdir(parents=True, exist_ok=True)
            draw(study, rows, wish.figures / f"growth-{study}.svg")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
