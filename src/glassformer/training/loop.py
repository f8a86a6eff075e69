"""The training loop: batch → loss → gradient → step; an interrupted run resumes with identical results.

One step takes `accumulate` batches on every rank. The gradient of their summed loss is divided by the number of their
targets, so that every target has the same weight in any batch and on any rank. No step waits for the device: the loop
reads results from it only to log, to validate and to save. What it shows once a second is from before the last step, so
that the device has something to do meanwhile.
"""

from __future__ import annotations

import copy
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import astuple
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor, nn

from glassformer.data.planning import Shape, Stream
from glassformer.errors import ConfigurationError, Stopped, TrainingError
from glassformer.stopping import Interrupted, SignalListener
from glassformer.tasks.objective import Objective
from glassformer.tasks.protocol import Batch, Loss
from glassformer.training.ahead import Ahead
from glassformer.training.averaging import MovingAverage, RunningAverages
from glassformer.training.budget import BUDGET, Measured, Measuring, read_budget, write_budget
from glassformer.training.checkpoints import Checkpoints, Selection, load_weights, weights
from glassformer.training.devices import in_16_bits, memory, resolve
from glassformer.training.distribution import Distribution, whole
from glassformer.training.meter import Meter, Pace, Reading
from glassformer.training.optimisers import optimiser
from glassformer.training.protocols import Batches, Log, Look, Outcome, Reason, Validate
from glassformer.training.schedules import UNKNOWN, schedule
from glassformer.training.shaping import compiler_failed, compiles
from glassformer.training.stepping import (
    AnySteps,
    CapturedSteps,
    Counted,
    Setting,
    Steps,
    on_own_stream,
)
from glassformer.training.tuning import Unfreezing

if TYPE_CHECKING:
    from glassformer.recipe import Train

TRAIN_LOSS = "train_loss"  # which validation may measure of training examples, to compare its own loss with


SHOWN_EVERY = 1.0  # seconds


class Trainer:
    """Trains a model on batches with the `[train]` options of a recipe, and writes checkpoints under `folder`.

    `validate` gets the model, on rank 0 only. `log` gets a dictionary every `log_every` steps and after each
    validation, `tick` a small one after every step, with the values of a log at most once a second. `loss` is the loss
    of the task. With `unfreeze`, one more block is trained every `unfreeze` steps, starting at the top. `look` gets the
    model and the step before the first step and then every `look_every` steps, on rank 0 only. `clock` tells the
    seconds. With a `shape`, that of `shape_for`, steps are captured, on batches that are planned for it. After `run`,
    `model` has the weights for use.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Batches,
        options: Train,
        folder: Path,
        loss: Loss,
        validate: Validate | None = None,
        log: Log | None = None,
        distribution: Distribution | None = None,
        tick: Log | None = None,
        unfreeze: int = 0,
        look: Look | None = None,
        look_every: int = 1,
        clock: Callable[[], float] = time.perf_counter,
        shape: Shape | None = None,
    ) -> None:
        self.batches, self.options, self.validate, self.log, self.tick = batches, options, validate, log, tick
        self.look, self._look_every = look, look_every
        self.distribution = Distribution(resolve(options.device)) if distribution is None else distribution
        self.device = self.distribution.device
        bf16 = in_16_bits(options.precision, self.device)
        model.to(self.device).train()
        # A sharded model cannot be validated or kept: `model` is then an unsharded copy of it.
        self.model, self._trained = copy.deepcopy(model) if self.distribution.sharded else model, model
        objective = Objective(model, loss, options.smoothing, options.consistency)
        captured, stream = shape is not None, isinstance(shape, Stream)
        compiled = compiles(options, captured)
        if compiled:
            objective.compile_parts(self.device.type == "cpu" and not self.distribution.sharded, dynamic=not stream)
        wrapped = self.distribution.wrap(objective, objective.blocks)  # which may replace the parameters
        self._optimiser = optimiser(model, options)
        self._unfreezing = Unfreezing(model, unfreeze) if unfreeze else None
        self._average = MovingAverage(model, options.ema) if options.ema else None
        self._running = RunningAverages(model)
        self._folder, self._checkpoints = folder, Checkpoints(folder, max(options.keep, options.average))
        self._meter, self._pace, self._signals, self._clock = Meter(self.device), Pace(clock), SignalListener(), clock
        setting = Setting(
            wrapped,
            [parameter for parameter in model.parameters() if parameter.requires_grad],
            self._optimiser,
            self.distribution,
            self._meter,
            bf16,
            options.clip,
            self._running,
        )
        self._steps: AnySteps
        if captured:
            self._steps = CapturedSteps(setting, lone=stream and options.accumulate == 1)
        else:
            self._steps = Steps(setting, self._drop_frozen_gradients)
        if self.device.type == "cuda":
            self.batches = Ahead(batches, lambda batch: Counted.of(batch, shape).pin())
        self._shape, self._captured = shape, captured
        self.step = 0
        self.steps = options.steps if options.minutes is None else None  # which is unknown until `_fix_steps`
        self._lr_factor = schedule(options, 0 if options.minutes is None else UNKNOWN)
        self._measured: Measured | None = None  # what the number of steps follows from
        self._measuring = Measuring(options, self._pace, compiled or captured)
        self._before: tuple[dict[str, Any], list[Tensor]] = {}, []  # the place and random numbers before what goes on
        self._saving = 0.0  # seconds that the last checkpoint took
        self._shown = -math.inf  # when the values of a log were last shown
        self._saved = 0  # the step of the newest checkpoint
        self._between = False  # whether that is only there because of a stop
        self._validated = 0  # the step of the last validation
        self._stale = 0  # validations since the best one
        self._best: tuple[float, int] | None = None  # the best value so far, and its step

    def run(self, resume: bool = False) -> Outcome:
        """Train to the end, from step 1 or from the newest undamaged checkpoint."""
        with self._signals, on_own_stream(self.device) if self._captured else nullcontext():
            try:
                return self._run(resume)
            except Interrupted:  # wherever it was heard, in the midst of a library's own code, too
                raise self._undo_and_save(self._signals.received) from None
            except RuntimeError as error:
                if not compiler_failed(error):
                    raise
                told = str(error).strip().split("\n", 1)[0]
                raise TrainingError(
                    f"PyTorch cannot compile the model ({told}): set train.compile = false, and go on with --resume"
                ) from error

    def _run(self, resume: bool) -> Outcome:
        self._load_or_seed(resume)
        if self.validate is not None and self._validated < self.step and self._validation_due():
            self._validate_and_save(self.validate)  # which a signal had interrupted
        if self.step == 0:
            self._look()
        if self.steps == 0 and not self._checkpoints.all():
            self._score_untrained()
        reason = self._reason()
        place = self.distribution
        with closing(self.batches.for_rank(place.rank, place.world)) as batches:  # type: ignore[type-var]
            reason = self._train(batches, reason)
        self._save()
        chosen = self._load_final_weights()
        if sum(self.distribution.count(self._signals.received)):
            self._stop()
        return Outcome(self.step, self._best[0] if self._best else None, reason, chosen)

    def _train(self, batches: Iterator[Batch], reason: Reason) -> Reason:
        """Step by step, to the last step or until it gets no better: why it ends."""
        options = self.options
        while (self.steps is None or self.step < self.steps) and reason == "steps":
            stop = self.advance(batches)
            fixing, began = self.steps is None and self._measured_enough(), self._clock()
            if self._due(self._look_every):
                self._look()  # before anything is saved: what a checkpoint has behind it was looked at
            if self._due(options.log_every):
                self._report()
            if self.validate is not None and (fixing or self._validation_due()):
                self._validate_and_save(self.validate)
                reason = self._reason()
            if stop or fixing or self._save_due():
                self._save(between=not (fixing or self._save_due()))
            if fixing:
                self._fix_steps(began)
            self._measuring.aside += self._clock() - began
            if stop:
                self._stop()
        return reason

    def _score_untrained(self) -> None:
        """Validate and save the model as it is: no step will be taken."""
        self._saved = -1  # there is no checkpoint yet
        if self.validate is not None:
            self._validate_and_save(self.validate)

    def advance(self, batches: Iterator[Batch]) -> bool:
        """Do one optimiser step on the batches of this rank; return whether any rank received a signal to stop."""
        with self._interruptible():
            counted = self._gradients(batches)
            targets, tokens, padded_tokens, stop = self.distribution.count(*counted, self._signals.received)
            finish = self._steps.prepare(targets)
        self.step += 1
        finish(self._lr_factor(self.step))
        self._meter.mark()
        if self._average is not None:
            self._average.update(self.step)
        self._pace.add(tokens, padded_tokens)
        if self.device.type == "cpu" or self._due(self.options.log_every):
            self._check_finite()
        if self.tick is not None and self.distribution.main:
            self.tick({"steps": self.steps, "minutes": self.options.minutes, **self._live()})
        return stop > 0

    def _live(self) -> dict[str, Any]:
        """The step, with the values of a log if a second has passed since they were shown."""
        if (now := self._clock()) - self._shown < SHOWN_EVERY:
            return {"step": self.step, "epoch": self.batches.epoch}
        self._shown = now
        return self._values(self._meter.earlier())

    def _measured_enough(self) -> bool:
        """Whether it is time to fix the number of steps, as rank 0 finds."""
        ends = self._measuring.ends(self.step, self._due(self.options.validate_every), self._meter.read)
        enough = bool(self.distribution.broadcast(ends))
        if enough:
            self._meter.read()  # which waits for the device
        return enough

    def _fix_steps(self, began: float) -> None:
        """Fix the number of steps, after a validation and a checkpoint that have `began` at a time."""
        step, *seconds = astuple(self._measuring.result(self.step, began, self._saving))
        measured = Measured(step, *map(self.distribution.broadcast, seconds))
        self.distribution.alone(lambda: write_budget(self._folder, measured))
        self._use(measured)

    def _use(self, measured: Measured) -> None:
        """Train as many steps as follow from what was measured, with their learning rates."""
        self._measured, self.steps = measured, measured.steps(self.options)
        self._lr_factor = schedule(self.options.model_copy(update={"steps": self.steps}), measured.step)

    def _fixed_now(self) -> bool:
        """Whether this is the step after which the number of steps was fixed, if it is taken again after a resume."""
        return self._measured is not None and self.step == self._measured.step

    def _save_due(self) -> bool:
        return self._due(self.options.save_every) or self._fixed_now()

    def _validation_due(self) -> bool:
        return self._due(self.options.validate_every) or self._fixed_now()

    def _gradients(self, batches: Iterator[Batch]) -> tuple[int, int, int]:
        """Add up the gradients of a step; how many targets, tokens, and tokens with padding it has."""
        number = targets = tokens = padded_tokens = 0
        self._steps.begin()
        taken = (Counted.of(batch, self._shape) for batch in islice(batches, self.options.accumulate))
        for number, batch in enumerate(taken, start=1):
            self._steps.add(batch.form, number == self.options.accumulate)
            targets, tokens = targets + batch.targets, tokens + batch.tokens
            padded_tokens += batch.padded_tokens
        if not number:
            raise TrainingError("there is nothing to train on: the data gives no batch")
        return targets, tokens, padded_tokens

    def _drop_frozen_gradients(self) -> None:
        if self._unfreezing is not None:
            self._unfreezing.drop_frozen_gradients(self.step + 1)

    @contextmanager
    def _interruptible(self, weights_kept: bool = True) -> Iterator[None]:
        """While this context is open, a signal ends the training with the state from before it: see `run`.

        With several ranks it ends later, since the others wait for this one; and unless the weights are kept as they
        are, only when Python hears the signal.
        """
        if self.distribution.world > 1:
            yield
            return
        self._before = self.batches.state_dict(), self.distribution.own_random_state()
        with self._signals.interrupting(self._undo_and_save if weights_kept else None):
            yield

    def _undo_and_save(self, number: int) -> Stopped:
        """Save the state from before what a signal has interrupted."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # whose streams do not wait for that of another thread
        place, random = self._before
        self.batches.load_state_dict(place)
        self.distribution.set_random_state(random)
        self._save(between=not self._save_due())
        return Stopped(number, self.step)

    def _stop(self) -> NoReturn:
        """End the training because of a signal."""
        raise Stopped(self._signals.received or signal.SIGTERM, self.step)

    def _check_finite(self) -> None:
        """Stop after too many consecutive steps without a finite loss and gradient."""
        worst = self._meter.read().worst
        if worst >= self.options.max_bad_steps:
            raise TrainingError(
                f"the loss or its gradient was not finite in {worst:.0f} steps in a row (train.max_bad_steps) at step "
                f"{self.step}; these steps did not change the weights: lower train.lr, raise train.warmup, lower "
                "train.clip, or set train.precision to float32"
            )

    def _reason(self) -> Reason:
        """Why training ends: too many validations without progress, or all steps done."""
        return "patience" if 0 < self.options.patience <= self._stale else "steps"

    def _due(self, every: int) -> bool:
        """Whether the step is a multiple of `every`, or the last."""
        return self.step % every == 0 or self.step == self.steps

    def _report(self) -> None:
        """Log the values since the last report."""
        self._log(self._values(self._meter.read()))
        self._meter.reset()
        self._pace.reset()

    def _values(self, reading: Reading) -> dict[str, Any]:
        """Loss, learning rate, gradient norm and speed since the last report."""
        left = 60 * (self.options.minutes or 0) - self._pace.elapsed
        return {
            "step": self.step,
            "epoch": self.batches.epoch,
            "tokens": self.batches.tokens,
            "loss": reading.loss / reading.tokens if reading.tokens else math.nan,
            "lr": self.options.lr * self._lr_factor(self.step),
            "norm": reading.norm,
            "skipped": int(reading.skipped),
            **self._pace.speed(),
            "eta": max(0.0, left) if self.steps is None else self._pace.eta(self.step, self.steps),
            "memory": memory(self.device),
        }

    def _log(self, record: dict[str, Any]) -> None:
        if self.log is not None and self.distribution.main:
            self.log(record)

    def _validate_and_save(self, validate: Validate) -> None:
        """Validate on rank 0, and save a checkpoint if the watched value is the best so far.

        A signal interrupts it, unless other ranks are waiting: what is saved then knows that it is to be done again.
        """
        averaged = nullcontext() if self._average is None else self._average.applied()
        with averaged, self._interruptible(weights_kept=self._average is None):
            self._gather()
            metrics = self.distribution.alone(lambda: self._call_validate(validate))
        self._validated = self.step
        value = self.distribution.broadcast(math.nan if metrics is None else metrics[self.options.watch])
        named = {name if name == TRAIN_LOSS else f"valid_{name}": value for name, value in (metrics or {}).items()}
        self._log({"step": self.step, "epoch": self.batches.epoch, **named})
        self._stale += 1
        if self._better(value):
            self._best, self._stale = (value, self.step), 0
            self._save()

    def _look(self) -> None:
        """Look at the model on rank 0, with the weights that validation sees."""
        if self.look is None:
            return
        look = self.look
        with nullcontext() if self._average is None else self._average.applied():
            self._gather()
            self.distribution.alone(lambda: self._evaluating(lambda: look(self.model, self.step)))

    def _evaluating(self, work: Callable[[], Any]) -> Any:
        """Do something with the model as it is in use: without dropout and gradients."""
        self.model.eval()
        try:
            with torch.no_grad():
                return work()
        finally:
            self.model.train()

    def _call_validate(self, validate: Validate) -> dict[str, float]:
        metrics: dict[str, float] = self._evaluating(lambda: validate(self.model))
        if self.options.watch not in metrics:
            found = ", ".join(metrics)
            raise ConfigurationError(f'train.watch is "{self.options.watch}", but validation returns only {found}')
        return metrics

    def _better(self, value: float) -> bool:
        """Whether a watched value is the best so far; nan never is."""
        if self._best is None or math.isnan(value):
            return not math.isnan(value)
        return value < self._best[0] if self.options.watch == "loss" else value > self._best[0]

    def _gather(self) -> None:
        """Copy the weights into the unsharded model, if the trained one is sharded."""
        if self.distribution.sharded:
            load_weights(self.model, weights(self._trained))

    def _load_or_seed(self, resume: bool) -> None:
        """Load the newest undamaged checkpoint, or begin with step 1."""
        latest = self._checkpoints.latest_good() if resume else None
        if latest is None:
            if self._checkpoints.all():
                if resume:
                    raise TrainingError(f"{self._checkpoints.folder} holds only damaged checkpoints")
                raise TrainingError(
                    f"{self._checkpoints.folder} already holds checkpoints: resume, or choose another folder"
                )
            self.distribution.seed(self.options.seed)
        else:
            state = latest.state()
            self.step = self._saved = latest.step
            self._between = latest.between
            self._validated = state.get("validated", latest.step)
            self._stale, self._best = state["stale"], tuple(state["best"]) if state["best"] else None
            self._pace.load(state["elapsed"], *state["pace"])
            self._meter.load(state["meter"])
            self.batches.load_state_dict(state["batches"])
            load_weights(self._trained, latest.tensors("model"))
            self._running.keep()
            self._optimiser.load(latest.tensors("optimiser"))
            if self._average is not None:
                self._average.load(latest.tensors("average" if latest.has("average") else "model"))
            self.distribution.load_random_state(state["random"], self.options.seed)
        self._pace.start(self.step)
        self._measuring.start()
        if self.options.minutes is not None and resume and (measured := read_budget(self._folder)) is not None:
            self._use(measured)
        elif self.distribution.main:
            (self._folder / BUDGET).unlink(missing_ok=True)  # of another training

    def _save(self, between: bool = False) -> None:
        """Write a checkpoint, unless there is one of this step; `between`: only a stop is the reason for it."""
        best = self._best[1] if self._best else None
        if self._saved == self.step and (between or not self._between):
            if self.distribution.main:
                self._checkpoints.prune(best)  # before which an earlier process may have been killed
            return
        began = self._clock()
        tensors = {"model": weights(self._trained) | self._running.kept, "optimiser": _whole(self._optimiser.state())}
        if self._average is not None:
            tensors["average"] = _whole(self._average.state())
        state = {
            "step": self.step,
            "steps": self.steps,
            "epoch": self.batches.epoch,
            "batches": self.batches.state_dict(),
            "random": self.distribution.random_state(),
            "meter": list(self._meter.read()),
            "pace": [self._pace.tokens, self._pace.padded_tokens],
            "elapsed": self._pace.elapsed,
            "best": self._best,
            "stale": self._stale,
            "validated": self._validated,
            "between": between,
        }
        self.distribution.alone(lambda: self._checkpoints.save(self.step, tensors, state, best))
        self._saved, self._between, self._saving = self.step, between, self._clock() - began

    def _load_final_weights(self) -> Selection:
        """Load the weights for use."""
        chosen = self._checkpoints.for_use(self.options.average, self._best[1] if self._best else None)
        load_weights(self.model, chosen.weights())
        self.model.eval()
        return chosen


def _whole(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: whole(tensor) for name, tensor in tensors.items()}
