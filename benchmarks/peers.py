"""What the benchmarks have in common: the sizes, the tokens, and the same Transformer in `transformers`."""

from __future__ import annotations

import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

PAD, END, START, FIRST = 1, 2, 3, 4  # FIRST: the first ordinary token


@dataclass(frozen=True)
class Size:
    """The numbers of a Transformer."""

    width: int
    hidden: int
    heads: int
    layers: int
    vocabulary: int


SIZES = {
    "tiny": Size(128, 512, 4, 2, 4000),
    "small": Size(256, 1024, 4, 3, 8000),
    "base": Size(512, 2048, 8, 6, 32000),
}


def marian(size: Size) -> Any:
    """MarianMTModel of `transformers`: sinusoidal, post-norm, everything tied."""
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=size.vocabulary,
        d_model=size.width,
        encoder_ffn_dim=size.hidden,
        decoder_ffn_dim=size.hidden,
        encoder_layers=size.layers,
        decoder_layers=size.layers,
        encoder_attention_heads=size.heads,
        decoder_attention_heads=size.heads,
        dropout=0.1,
        attention_dropout=0.0,
        activation_function="relu",
        pad_token_id=PAD,
        eos_token_id=END,
        bos_token_id=START,
        decoder_start_token_id=START,
        forced_eos_token_id=None,
        max_position_embeddings=4096,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
    )
    config._attn_implementation = "sdpa"
    return MarianMTModel(config)


def processor() -> str:
    """The name of this machine's processor."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


Write = Callable[[], list[list[int]]]  # outputs, as tokens
Clock = Callable[[], float]  # tells the seconds


class Worker:
    """A contender in a process of its own, so that none meets another's threads or memory."""

    def __init__(
        self, threads: int, make: Callable[..., Write], *arguments: Any, clock: Clock = time.perf_counter
    ) -> None:
        self._pipe, end = multiprocessing.Pipe()
        work = (end, threads, make, arguments, clock)
        self._process = multiprocessing.get_context("spawn").Process(target=_serve, args=work)
        self._process.start()
        self._pipe.recv()

    def write(self) -> tuple[float, list[list[int]]]:
        """Write everything once: the seconds, and the outputs."""
        self._pipe.send(None)
        seconds, outputs = self._pipe.recv()
        return seconds, outputs

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()


def _serve(
    pipe: Connection, threads: int, make: Callable[..., Write], arguments: tuple[Any, ...], clock: Clock
) -> None:
    """What a worker's process does: write whenever it is asked to."""
    torch.set_num_threads(threads)
    write = make(*arguments)
    write()  # to warm up
    pipe.send(None)
    while True:
        pipe.recv()
        start = clock()
        outputs = write()
        pipe.send((clock() - start, outputs))


def race(workers: dict[str, Worker], rounds: int) -> tuple[dict[str, float], dict[str, list[list[int]]]]:
    """Seconds of each contender, the median of some rounds in which each writes once; and their outputs."""
    seconds: dict[str, list[float]] = {name: [] for name in workers}
    outputs = {}
    for _ in range(rounds):
        for name, worker in workers.items():
            took, outputs[name] = worker.write()
            seconds[name].append(took)
    for worker in workers.values():
        worker.stop()
    return {name: statistics.median(each) for name, each in seconds.items()}, outputs
