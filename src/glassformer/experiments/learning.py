"""Learning in an experiment: the library's own loop on batches that are drawn as they are needed.

B batch, T length, S source length
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.experiments.finding import Progress, silent
from glassformer.recipe import Train
from glassformer.tasks import Batch, Loss, PairBatch, TextBatch, WindowBatch
from glassformer.training import Trainer
from glassformer.training.objective import Objective

Dice = np.random.Generator
MODULUS, COUNTED = 11, 10  # of sequences that count: the numbers there are, and how many are read
Draw = Callable[[Dice], Any]  # a batch, drawn


class Drawn:
    """Batches without end, each drawn with dice of its own: number 7 is the same whoever asks for it."""

    epoch = 0

    def __init__(self, draw: Draw, seed: int) -> None:
        self.draw, self.seed, self.position, self.tokens = draw, seed, 0, 0

    def share(self, rank: int, ranks: int) -> Iterator[Batch]:
        """A rank's batches."""
        while True:
            self.position += ranks
            batch: Batch = self.draw(np.random.default_rng([self.seed, self.position - ranks + rank]))
            self.tokens += ranks * batch.tokens
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Which comes next."""
        return {"position": self.position, "tokens": self.tokens}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from there."""
        self.position, self.tokens = state["position"], state["tokens"]


def learn(
    model: nn.Module,
    draw: Draw,
    loss: Loss,
    steps: int,
    rate: float = 3e-3,
    seed: int = 0,
    progress: Progress = silent,
    name: str = "training",
    every: int = 10,
    clip: float = 1.0,
) -> list[tuple[int, float]]:
    """Train a model; its mean loss over each `every` steps, with the step at which it was measured.

    AdamW with a short warm-up and a linear fall of the rate; no dropout, no smoothing, on the CPU. A gradient longer
    than `clip` is shortened to it; 0: none is.
    """
    options = Train(
        steps=steps,
        lr=rate,
        schedule="linear",
        warmup=max(1, steps // 10),
        weight_decay=0.0,
        clip=clip,
        smoothing=0.0,
        log_every=every,
        save_every=steps,
        seed=seed,
        device="cpu",
    )
    losses: list[tuple[int, float]] = []
    with TemporaryDirectory() as folder:
        Trainer(
            model,
            Drawn(draw, seed),
            options,
            Path(folder),
            log=lambda record: losses.append((record["step"], record["loss"])),
            tick=lambda record: progress(name, record["step"], steps),
            loss=loss,
        ).run()
    return losses


@torch.no_grad()
def mean_loss(model: nn.Module, batch: Batch, loss: Loss) -> float:
    """The loss of a model on a batch, per answer."""
    model.eval()
    return Objective(model, loss=loss)(batch).item() / batch.answers  # type: ignore[no-any-return]


def held_out(draw: Draw, seed: int) -> Any:
    """A batch that training does not draw."""
    return draw(np.random.default_rng([seed, 1, 2**32]))


def windows(rows: Any, asked: Any = None) -> WindowBatch:
    """Rows of tokens (B, T + 1) as a batch: after each token the next is asked for, where `asked` (B, T) says so."""
    rows = torch.as_tensor(rows)
    text, right = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()  # (B, T)
    wanted = torch.ones_like(right, dtype=torch.bool) if asked is None else torch.as_tensor(asked)
    return WindowBatch(text, right, wanted, None, text.numel(), int(wanted.sum()))


def texts(rows: Any, right: Any) -> TextBatch:
    """Texts of one length (B, T), and the number of what is right for each (B)."""
    rows = torch.as_tensor(rows)
    return TextBatch(rows, torch.ones_like(rows, dtype=torch.bool), None, torch.as_tensor(right), rows.numel())


def pairs(source: Any, target: Any, start: int, end: int) -> PairBatch:
    """Sources (B, S) and targets (B, T), all of one length."""
    source, target = torch.as_tensor(source), torch.as_tensor(target)
    column = torch.ones_like(target[:, :1])
    target_in = torch.cat((start * column, target), dim=1)  # (B, T + 1)
    target_out = torch.cat((target, end * column), dim=1)  # (B, T + 1)
    return PairBatch(
        source=source,
        source_mask=torch.ones_like(source, dtype=torch.bool),
        target_in=target_in,
        target_out=target_out,
        target_mask=torch.ones_like(target_out, dtype=torch.bool),
        rows=torch.arange(len(source)),
        source_tokens=source.numel(),
        answers=target_out.numel(),
    )


def right_share(logits: Tensor, right: Tensor) -> float:
    """How often the highest score is the right one."""
    return (logits.argmax(dim=-1) == right).float().mean().item()


def counting(dice: Dice, count: int = 32) -> WindowBatch:
    """Sequences s, s + d, s + 2d, … modulo 11; what comes after the second number follows from the first two."""
    first, step = dice.integers(MODULUS, size=(count, 1)), dice.integers(1, MODULUS, size=(count, 1))
    rows = (first + step * np.arange(COUNTED + 1)) % MODULUS  # (B, T + 1)
    return windows(rows, np.arange(COUNTED) > np.zeros((count, 1)))
