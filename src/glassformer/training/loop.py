"""The loop: batch → loss → gradient → step, thousands of times, and nothing lost when it is interrupted.

One step takes `accumulate` batches on every rank. The gradient of their summed loss is divided by their real target
tokens, so that a token counts the same in whichever batch, on whichever rank it stands. Nothing in a step waits for
the device: it is looked at only to log, to validate and to save.
"""

from __future__ import annotations

import copy
import math
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from glassformer.errors import ConfigurationError, Stopped, TrainingError
from glassformer.tasks import Batch, Loss, translation_loss
from glassformer.training import randomness
from glassformer.training.averaging import MovingAverage, mean
from glassformer.training.checkpoints import Checkpoints, load_weights, weights
from glassformer.training.devices import check_bf16, memory, resolve
from glassformer.training.distribution import Distribution, whole
from glassformer.training.meter import Meter, Pace
from glassformer.training.objective import Objective
from glassformer.training.optimisers import optimiser
from glassformer.training.protocols import Batches, Chosen, Log, Outcome, Reason, Validate
from glassformer.training.schedules import schedule
from glassformer.training.signals import Listener
from glassformer.training.tuning import Unfreezing

if TYPE_CHECKING:
    from glassformer.recipe import Train


class Trainer:
    """Trains a model on batches as the options say, and keeps its state under `folder`.

    `validate` is handed the model, on rank 0; `log` gets a dictionary every `log_every` steps and after each
    validation, `tick` a small one every step; `loss` is the task's. With `unfreeze`, one more block learns every so
    many steps, from the top. After `run`, `model` has the weights to use.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Batches,
        options: Train,
        folder: Path,
        validate: Validate | None = None,
        log: Log | None = None,
        distribution: Distribution | None = None,
        tick: Log | None = None,
        loss: Loss = translation_loss,
        unfreeze: int = 0,
    ) -> None:
        self.batches, self.options, self.validate, self.log, self.tick = batches, options, validate, log, tick
        self.distribution = Distribution(resolve(options.device)) if distribution is None else distribution
        self.device = self.distribution.device
        if options.precision == "bf16":
            check_bf16(self.device)
        model.to(self.device).train()
        # What is validated and kept must be whole: where the model is sharded, that is a copy of it.
        self.model, self._trained = copy.deepcopy(model) if self.distribution.sharded else model, model
        objective = Objective(model, options.smoothing, loss)
        if options.compile:
            objective.compile_parts(whole=not self.distribution.sharded)
        self._objective = self.distribution.wrap(objective, objective.blocks)
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._optimiser, self._share = optimiser(model, options), schedule(options)
        self._unfreezing = Unfreezing(model, unfreeze) if unfreeze else None
        self._average = MovingAverage(model, options.ema) if options.ema else None
        self._checkpoints = Checkpoints(folder, max(options.keep, options.average))
        self._meter, self._pace, self._signals = Meter(self.device), Pace(), Listener()
        self.step = 0
        self._saved = 0  # the step of the newest checkpoint
        self._stale = 0  # validations without progress
        self._best: tuple[float, int] | None = None  # the best value so far, and its step

    def run(self, resume: bool = False) -> Outcome:
        """Train to the end, from the beginning or from the newest whole checkpoint."""
        options = self.options
        with self._signals:
            self._begin(resume)
            reason = self._reason()
            batches = self.batches.share(self.distribution.rank, self.distribution.world)
            while self.step < options.steps and reason == "steps":
                stop = self.advance(batches)
                if self._due(options.log_every):
                    self._report()
                if self.validate is not None and self._due(options.validate_every):
                    self._assess(self.validate)
                    reason = self._reason()
                if stop or self._due(options.save_every):
                    self._save()
                if stop:
                    raise Stopped(self._signals.heard or signal.SIGTERM, self.step)
            self._save()
            chosen = self._choose()
        return Outcome(self.step, self._best[0] if self._best else None, reason, chosen)

    def advance(self, batches: Iterator[Batch]) -> bool:
        """One optimiser step on this rank's batches; whether some rank was asked to stop meanwhile."""
        world, own = self.distribution.world, [self._move(batch) for batch in islice(batches, self.options.accumulate)]
        if not own:
            raise TrainingError("there is nothing to train on: the data makes no batch")
        answers, tokens, places, stop = self.distribution.count(
            sum(batch.answers for batch in own),
            sum(batch.tokens for batch in own),
            sum(batch.places for batch in own),
            self._signals.heard,
        )
        loss = self.distribution.sum(self._gradients(own))
        if self._unfreezing is not None:
            self._unfreezing.hold(self.step + 1)
        norm = self._norm() * (world / answers)  # gradients are the mean over the ranks
        bad = ~(norm + loss).isfinite()
        clip = norm.div(self.options.clip).clamp_min_(1.0) if self.options.clip else torch.ones_like(norm)
        self.step += 1
        self._optimiser.step(self._share(self.step), clip * (answers / world), bad)
        for parameter in self._parameters:
            parameter.grad = None
        if self._average is not None:
            self._average.update(self.step)
        self._meter.add(loss, answers, norm, bad)
        self._pace.add(tokens, places)
        if self.device.type == "cpu" or self._due(self.options.log_every):
            self._check_finite()
        if self.tick is not None and self.distribution.main:
            self.tick({"step": self.step, "steps": self.options.steps, "epoch": self.batches.epoch})
        return stop > 0

    def _gradients(self, own: list[Batch]) -> Tensor:
        """The summed loss of some batches; its gradient is added to the parameters'."""
        total = torch.zeros((), device=self.device)
        for number, batch in enumerate(own, start=1):
            with self.distribution.accumulating(self._objective, number == len(own)):
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.options.precision == "bf16"):
                    loss = self._objective(batch)
                loss.backward()
            total += loss.detach()
        return total

    def _move(self, batch: Batch) -> Batch:
        """The batch on the device; a GPU copies from page-locked memory without being waited for."""
        return (batch.pin() if self.device.type == "cuda" else batch).to(self.device)

    def _norm(self) -> Tensor:
        """The length of the whole gradient."""
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        return whole(nn.utils.get_total_norm(gradients))

    def _check_finite(self) -> None:
        """Stop where too many steps in a row could not be used."""
        worst = self._meter.read().worst
        if worst >= self.options.max_bad_steps:
            raise TrainingError(
                f"the loss or its gradient was not finite in {worst:.0f} steps in a row (train.max_bad_steps) at step "
                f"{self.step}; the weights are those before them: lower train.lr, lengthen train.warmup, lower "
                "train.clip, or set train.precision to float32"
            )

    def _reason(self) -> Reason:
        """Why training ends: for want of progress, or else when all steps are done."""
        return "patience" if 0 < self.options.patience <= self._stale else "steps"

    def _due(self, every: int) -> bool:
        """Whether this is an n-th step, or the last."""
        return self.step % every == 0 or self.step == self.options.steps

    def _report(self) -> None:
        """Log how it goes."""
        reading = self._meter.read()
        self._meter.reset()
        self._tell(
            {
                "step": self.step,
                "epoch": self.batches.epoch,
                "tokens": self.batches.tokens,
                "loss": reading.loss / reading.tokens if reading.tokens else math.nan,
                "lr": self.options.lr * self._share(self.step),
                "norm": reading.norm,
                "skipped": int(reading.skipped),
                **self._pace.report(self.step, self.options.steps),
                "memory": memory(self.device),
            }
        )

    def _tell(self, record: dict[str, Any]) -> None:
        if self.log is not None and self.distribution.main:
            self.log(record)

    def _assess(self, validate: Validate) -> None:
        """Validate, on rank 0, and save where it is better than ever."""
        with nullcontext() if self._average is None else self._average.applied():
            self._gather()
            metrics = self.distribution.alone(lambda: self._validated(validate))
        value = self.distribution.share(math.nan if metrics is None else metrics[self.options.watch])
        self._tell(
            {"step": self.step, "epoch": self.batches.epoch, **{f"valid_{k}": v for k, v in (metrics or {}).items()}}
        )
        self._stale += 1
        if self._better(value):
            self._best, self._stale = (value, self.step), 0
            self._save()

    def _validated(self, validate: Validate) -> dict[str, float]:
        self.model.eval()
        try:
            with torch.no_grad():
                metrics = validate(self.model)
        finally:
            self.model.train()
        if self.options.watch not in metrics:
            found = ", ".join(metrics)
            raise ConfigurationError(f'train.watch is "{self.options.watch}", but validation gives only {found}')
        return metrics

    def _better(self, value: float) -> bool:
        """Whether a value of what is watched is the best so far; what is no number never is."""
        if self._best is None or math.isnan(value):
            return not math.isnan(value)
        return value < self._best[0] if self.options.watch == "loss" else value > self._best[0]

    def _gather(self) -> None:
        """Bring the whole model up to date where the trained one is sharded."""
        if self.distribution.sharded:
            load_weights(self.model, weights(self._trained))

    def _begin(self, resume: bool) -> None:
        """Take up the newest whole checkpoint, or begin with step 1."""
        latest = self._checkpoints.latest_good() if resume else None
        if latest is None:
            if self._checkpoints.all():
                wish = "none of them is whole" if resume else "resume, or choose another folder"
                raise TrainingError(f"{self._checkpoints.folder} already holds checkpoints: {wish}")
            randomness.seed(self.options.seed, self.distribution)
        else:
            state = latest.state()
            self.step = self._saved = latest.step
            self._stale, self._best = state["stale"], tuple(state["best"]) if state["best"] else None
            self._pace.load(state["elapsed"], *state["pace"])
            self._meter.load(state["meter"])
            self.batches.load_state_dict(state["batches"])
            load_weights(self._trained, latest.tensors("model"))
            self._optimiser.load(latest.tensors("optimiser"))
            if self._average is not None:
                self._average.load(latest.tensors("average" if latest.has("average") else "model"))
            randomness.load(state["random"], self.options.seed, self.distribution)
        self._pace.start(self.step)

    def _save(self) -> None:
        """Write a checkpoint, unless this step has one."""
        if self._saved == self.step:
            return
        tensors = {"model": weights(self._trained), "optimiser": _whole(self._optimiser.state())}
        if self._average is not None:
            tensors["average"] = _whole(self._average.state())
        state = {
            "step": self.step,
            "epoch": self.batches.epoch,
            "batches": self.batches.state_dict(),
            "random": randomness.state(self.distribution),
            "meter": list(self._meter.read()),
            "pace": [self._pace.tokens, self._pace.places],
            "elapsed": self._pace.elapsed,
            "best": self._best,
            "stale": self._stale,
        }
        best = self._best[1] if self._best else None
        self.distribution.alone(lambda: self._checkpoints.save(self.step, tensors, state, best))
        self._saved = self.step

    def _choose(self) -> Chosen:
        """Give the model the weights to use: a mean, the best, the moving average or simply the last."""
        chosen: Chosen = "last" if self._average is None else "moving average"
        good = {checkpoint.step: checkpoint for checkpoint in self._checkpoints.good()}  # newest first
        best = self._best[1] if self._best else self.step
        saved = self._checkpoints.at(self.step).weights()
        if self.options.average > 1:
            chosen, last = "mean of checkpoints", list(good.values())[: self.options.average]
            saved = mean(checkpoint.tensors("model") for checkpoint in last)
        elif best != self.step and best in good:
            chosen, saved = "best", good[best].weights()
        load_weights(self.model, saved)
        self.model.eval()
        return chosen


def _whole(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: whole(tensor) for name, tensor in tensors.items()}
