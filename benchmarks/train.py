"""Training: Glassformer beside `transformers` MarianMTModel in a plain loop and `torch.nn.Transformer`, in one run.

The same sizes, batches (random tokens, lengths spread like real ones, bucketed by length), loss and optimiser for all;
Glassformer's steps also clip, watch for what is not finite, and keep count. Every contender trains on the same batches
once a round; the median round counts, in tokens a second without padding. The last line is JSON.

    python benchmarks/train.py --sizes tiny,small                          # on a CPU
    python benchmarks/train.py --sizes base --device cuda --tokens 32768   # on a GPU
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")  # contenders share the memory

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.models import transformer
from glassformer.parts import PostNorm
from glassformer.tasks.losses import sequence_loss
from glassformer.tasks.protocol import Learner
from glassformer.training import Trainer
from peers import FIRST, PAD, SIZES, Size, marian, processor

SMOOTHING = 0.1


@dataclass(frozen=True)
class Batch:
    """What everybody trains on."""

    source: Tensor
    source_mask: Tensor
    target_in: Tensor
    target_out: Tensor
    target_mask: Tensor
    tokens: int
    targets: int
    padding: float

    @property
    def padded_tokens(self) -> int:
        """With padding."""
        return self.source.numel() + self.target_out.numel()

    def fitted(self, grid: Any) -> Batch:
        """Its shape stays as it is."""
        return self

    def pin(self) -> Batch:
        """It is there already."""
        return self

    def to(self, device: torch.device) -> Batch:
        """The same on a device."""
        tensors = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return Batch(**vars(self) | tensors)


class Batches:
    """The same batches again and again."""

    def __init__(self, batches: list[Batch]) -> None:
        self.batches, self.epoch, self.tokens = batches, 0, 0

    def for_rank(self, rank: int, ranks: int) -> Any:
        """All of them, epoch after epoch."""
        return itertools.cycle(self.batches)

    def state_dict(self) -> dict[str, Any]:
        """Nothing is saved here."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing is loaded here."""


def make_batches(vocabulary: int, tokens: int, count: int, seed: int = 0) -> list[Batch]:
    """Batches of so many places, each of sentences of like length."""
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    sentences = 200_000 if tokens > 20_000 else 40_000
    lengths = sorted(max(3, min(80, int(draw.lognormvariate(2.95, 0.5)))) for _ in range(sentences))
    groups: list[list[int]] = [[]]
    for length in lengths:
        if groups[-1] and (len(groups[-1]) + 1) * length > tokens:
            groups.append([])
        groups[-1].append(length)
    groups.pop()  # the last is not full
    draw.shuffle(groups)
    made = []
    for group in groups[:count]:
        longest, real = max(group), torch.tensor(group)
        mask = torch.arange(longest) < real[:, None]
        source, target = (
            torch.randint(FIRST, vocabulary, (len(group), longest + extra), generator=generator) for extra in (0, 1)
        )
        source, out = source.where(mask, PAD), target[:, 1:].where(mask, PAD)
        inputs = target[:, :-1].where(mask, PAD)
        total = sum(group)
        made.append(Batch(source, mask, inputs, out, mask, 2 * total, total, 1 - total / mask.numel()))
    return made


Steps = Callable[[list[Batch]], None]


def translation_loss(learner: Learner, batch: Batch) -> Tensor:
    """The loss of the task translation, whose own module needs pydantic."""
    hidden = learner.hidden(batch.source, batch.target_in, batch.source_mask)
    words = batch.target_out, batch.target_mask, batch.targets
    return sequence_loss(hidden, *words, learner.head, learner.smoothing, learner.chunk)


def ours(size: Size, device: torch.device, bf16: bool, compiled: bool) -> Steps:
    """Glassformer's own training loop."""
    torch.manual_seed(0)
    model = transformer(size.vocabulary, size.width, size.heads, size.layers, size.hidden, residual=PostNorm)
    options: Any = SimpleNamespace(  # a recipe's [train], also where pydantic is not installed
        steps=10**9,
        accumulate=1,
        optimiser="adamw",
        lr=1e-4,
        betas=(0.9, 0.98),
        weight_decay=0.01,
        schedule="constant",
        warmup=0,
        decay=0.2,
        clip=1.0,
        smoothing=SMOOTHING,
        consistency=0.0,
        batch_tokens=32768,
        minutes=None,
        precision="bf16" if bf16 else "float32",
        compile=compiled,
        ema=0.0,
        average=0,
        keep=1,
        log_every=10**9,
        max_bad_steps=10,
        device=str(device),
    )
    trainer = Trainer(model, Batches([]), options, Path(tempfile.gettempdir()), translation_loss)

    def steps(batches: list[Batch]) -> None:
        stream = iter(batches)
        for _ in batches:
            trainer.advance(stream)

    return steps


def plain_loop(logits: Any, model: nn.Module, device: torch.device, bf16: bool, compiled: bool) -> Steps:
    """A loop as in a tutorial: forward, cross entropy, backward, fused AdamW."""
    model.to(device).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def loss_of(source: Tensor, mask: Tensor, target: Tensor, out: Tensor) -> Tensor:
        scores = logits(source, mask, target).flatten(0, 1).float()
        return F.cross_entropy(scores, out.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING)

    loss_of = torch.compile(loss_of, dynamic=True) if compiled else loss_of

    def steps(batches: list[Batch]) -> None:
        for batch in batches:
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                loss = loss_of(batch.source, batch.source_mask, batch.target_in, batch.target_out)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

    return steps


def hf_marian(size: Size, device: torch.device, bf16: bool, compiled: bool) -> Steps:
    """MarianMTModel of `transformers`."""
    model = marian(size)

    def logits(source: Tensor, mask: Tensor, target: Tensor) -> Any:
        return model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits

    return plain_loop(logits, model, device, bf16, compiled)


class TorchTransformer(nn.Module):
    """`torch.nn.Transformer` with embeddings and a tied head."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size.vocabulary, size.width, padding_idx=PAD)
        self.positions = nn.Embedding(512, size.width)
        self.inner = nn.Transformer(
            size.width, size.heads, size.layers, size.layers, size.hidden, dropout=0.1, batch_first=True
        )

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        """Logits."""
        read, written = (self.embedding(x) + self.positions.weight[: x.shape[1]] for x in (source, target))
        future = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        padding = {"src_key_padding_mask": ~mask, "memory_key_padding_mask": ~mask}
        hidden = self.inner(read, written, tgt_mask=future, tgt_is_causal=True, **padding)
        return F.linear(hidden, self.embedding.weight)


def torch_nn(size: Size, device: torch.device, bf16: bool, compiled: bool) -> Steps:
    """`torch.nn.Transformer`."""
    torch.manual_seed(0)
    model = TorchTransformer(size)
    return plain_loop(model, model, device, bf16, compiled)


MAKERS = {"ours": ours, "hf-marian": hf_marian, "torch-nn": torch_nn}
DEFAULT = {
    "cpu": "ours,hf-marian,torch-nn",
    "cuda": "ours+bf16,ours+bf16+compile,hf-marian+bf16,hf-marian+bf16+compile,torch-nn+bf16",
}


def race(size: Size, names: list[str], tokens: int, rounds: int, steps: int, device: torch.device) -> dict[str, float]:
    """The median tokens a second of every contender."""
    batches = [batch.to(device) for batch in make_batches(size.vocabulary, tokens, rounds * steps)]
    warm_up = batches if device.type == "cuda" else batches[:3]  # a GPU's memory and compiler must have seen all shapes
    padding = statistics.mean(batch.padding for batch in batches)
    print(f"  {len(batches)} batches of {tokens} places, {padding:.1%} padding", flush=True)
    contenders = {}
    for name in names:
        kind, *extras = name.split("+")
        contenders[name] = MAKERS[kind](size, device, "bf16" in extras, "compile" in extras)
        start = time.perf_counter()
        contenders[name](warm_up)
        _wait(device)
        print(f"  {name}: warm after {time.perf_counter() - start:.1f} s", flush=True)
    speeds: dict[str, list[float]] = {name: [] for name in names}
    for now in _groups(batches, steps):
        real = sum(batch.tokens for batch in now)
        for name, run in contenders.items():
            _wait(device)
            start = time.perf_counter()
            run(now)
            _wait(device)
            speeds[name].append(real / (time.perf_counter() - start))
    for name, values in speeds.items():
        print(f"  {name:28} {statistics.median(values):12,.0f} tokens/s  ({min(values):,.0f} to {max(values):,.0f})")
    return {name: round(statistics.median(values), 1) for name, values in speeds.items()}


def _groups(batches: list[Batch], size: int) -> list[list[Batch]]:
    return [batches[first : first + size] for first in range(0, len(batches), size)]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def ratios(speeds: dict[str, float]) -> dict[str, float]:
    """Our best against each peer, and against the fastest."""
    best = max((speed for name, speed in speeds.items() if name.startswith("ours")), default=0.0)
    peers = {name: speed for name, speed in speeds.items() if not name.startswith("ours")}
    result = {name: round(best / speed, 3) for name, speed in peers.items()}
    return result | {"fastest peer": min(result.values())} if result else result


def main() -> None:
    """Parse, race, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", "--size", default="tiny,small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, help="places in a batch, of one side (2048; on cuda 32768)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=6, help="steps a round")
    parser.add_argument("--contenders", help="comma-separated: ours, hf-marian, torch-nn, each with +bf16, +compile")
    wish = parser.parse_args()
    device = torch.device(wish.device)
    tokens = wish.tokens or (32_768 if device.type == "cuda" else 2_048)
    names = (wish.contenders or DEFAULT[device.type]).split(",")
    machine = torch.cuda.get_device_name() if device.type == "cuda" else processor()
    report: dict[str, Any] = {"torch": torch.__version__, "machine": machine, "threads": torch.get_num_threads()}
    for name in wish.sizes.split(","):
        print(f"{name}:", flush=True)
        speeds = race(SIZES[name], names, tokens, wish.rounds, wish.steps, device)
        report[name] = {"tokens_per_s": speeds, "ratios": ratios(speeds)}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
