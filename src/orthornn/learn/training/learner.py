"""A model, its optimizer and its updates on a problem: all the state that training has."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from ..._recording import recording
from ...errors import ArgumentError, NonFiniteError
from ...kernels import denormals_as_zero
from ..systems import SequenceModel
from ..tasks import Batch, Objective, Problem
from . import guards
from .batch_splitting import split_batch, to_device
from .config import RunConfig
from .optimizer import make_optimizer
from .penalized import penalized_loss
from .processes import Processes
from .schedule import make_scheduler, rates_after


class Learner:
    """A model, its optimizer and the number of updates done: all the state that training has.

    The data are functions of (seed, step), so `state_dict` and `load_state_dict` are enough to resume from any step.
    What dropout draws continues torch's random numbers as they are when it is made.

    smaller_updates: How the caller gets them, as a sentence, for errors.
    """

    def __init__(
        self,
        problem: Problem,
        objective: Objective,
        model: SequenceModel,
        config: RunConfig,
        processes: Processes | None = None,
        smaller_updates: str = guards.SMALLER_UPDATES,
    ) -> None:
        self.problem, self.objective, self.model, self.config = problem, objective, model, config
        self.processes = processes or Processes()
        check_parts(objective, config, self.processes)
        self._smaller_updates = smaller_updates
        self.stop = self.step = 0
        self._carried: Any = None  # the state from which the sequences of the next batch go on
        self._after: Any = None  # the state after the last forward pass
        self._device = torch.device(config.device)
        model.to(self._device)
        self.optimizer = make_optimizer(model, config.optimizer)
        self._scheduler = make_scheduler(self.optimizer, config.schedule, config.steps, objective.higher_is_better)
        self._trained = [p for group in self.optimizer.param_groups for p in group["params"]]
        self._random, self._draws = torch.get_rng_state(), False

    @contextlib.contextmanager
    def own_random(self) -> Iterator[None]:
        """Inside, dropout draws the run's own random numbers, whatever others draw between two such blocks."""
        outside = torch.get_rng_state()
        torch.set_rng_state(self._random)
        self._draws = True
        try:
            yield
        finally:
            self._random, self._draws = torch.get_rng_state(), False
            torch.set_rng_state(outside)

    @recording()
    @denormals_as_zero()
    def update(self, stop: int = 0) -> float:
        """Run one update and return the loss before it, without penalties.

        stop: a wish to stop after this update; `stop` afterwards is the greatest wish of all processes.
        Raises NonFiniteError, with the parameters untouched, if the loss is NaN or infinite.
        """
        config = self.config
        batch = to_device(self.problem.train(self.step, config.batch_size, config.seed), self._device)
        if self.objective.carries_state and self.objective.begins(self.step, config.batch_size):
            self._carried = None
        for parameter in self._trained:  # what zero_grad does, in a tenth of its time
            parameter.grad = None
        if config.accumulate == self.processes.count == 1:
            loss, extra = self._loss(batch)
            (loss if extra is None else loss + extra).backward()
            value = loss.item()  # only now: a GPU's host has launched the backward pass before it waits
            self._check(value, batch)
            self.stop = stop
        else:
            value = self._sum_of_parts(batch, stop)
        if config.optimizer.clip_value is not None:
            nn.utils.clip_grad_value_(self._trained, config.optimizer.clip_value)
        if config.optimizer.clip_norm is not None:
            nn.utils.clip_grad_norm_(self._trained, config.optimizer.clip_norm)
        self.optimizer.step()
        if self._scheduler is not None and not isinstance(self._scheduler, ReduceLROnPlateau):
            self._scheduler.step()
        self.step += 1
        self._carried, self._after = detached(self._after), None
        return value

    def validated(self, metrics: Mapping[str, float]) -> None:
        """Tell the schedule how a validation went. NonFiniteError if its loss is NaN or infinite."""
        if not math.isfinite(metrics["loss"]):
            bad = guards.not_finite(self.model.named_parameters())
            raise NonFiniteError(
                f"Expected a finite validation loss, but got {metrics['loss']} after update {self.step}. "
                f"{'The outputs overflow' if bad is None else f'{bad} is not finite'}: the updates were too large. "
                f"{self._smaller_updates}"
            )
        if isinstance(self._scheduler, ReduceLROnPlateau):
            self._scheduler.step(metrics[self.objective.metric])

    def _check_optimizer(self) -> None:
        """Raise ValueError if what the optimizer remembers of a parameter does not have its shape."""
        for parameter, name, entry in _remembered(self.optimizer):
            if entry.shape != parameter.shape:
                raise ValueError(f"{name} has shape {tuple(entry.shape)}, its parameter {tuple(parameter.shape)}")

    def _checked(self, carried: Any) -> Any:
        """Return a carried state on the device; raise ValueError if it is not a state of the model."""
        if carried is None:
            return None
        inputs = self.problem.train(0, self.config.batch_size, self.config.seed).inputs[:1]
        with torch.no_grad(), self._precision():
            expected = self.model.stream(inputs.to(self._device))[1]
        as_tuples = [state if isinstance(state, tuple) else (state,) for state in (expected, carried)]
        shapes = [[(entry.shape, entry.dtype) for entry in state] for state in as_tuples]
        if shapes[0] != shapes[1]:
            raise ValueError(f"the carried state has {shapes[1]}, the model's state {shapes[0]}")
        moved = tuple(entry.to(self._device) for entry in as_tuples[1])
        return moved if isinstance(carried, tuple) else moved[0]

    def _loss(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor | None]:
        return penalized_loss(self.model, self.objective, batch, self.config.penalties, self._forward)

    def _forward(self, inputs: Any) -> torch.Tensor:
        if self.objective.carries_state:
            with self._precision():
                prediction, self._after = self.model.stream(inputs, self._carried)
            return prediction.float()
        if self.config.autocast is None:
            return self.model(inputs)
        with self._precision():
            return self.model(inputs).float()

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        if self.config.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(next(self.model.parameters()).device.type, getattr(torch, self.config.autocast))

    def _sum_of_parts(self, batch: Batch, stop: int) -> float:
        """Return gradients of the whole batch from its parts: over time, and over processes."""
        rank, count = self.processes.rank, self.processes.count
        value = 0.0
        for part, weight in split_batch(self.objective, batch, self.config.accumulate * count)[rank::count]:
            loss, extra = self._loss(part)
            (weight * (loss if extra is None else loss + extra)).backward()
            value += weight * loss.item() if weight else 0.0  # a mean of nothing is NaN
        gradients = [p.grad for p in self._trained if p.grad is not None]
        wishes = [float(stop == wish) for wish in (1, 2)]
        value, *wishes = self.processes.sum_(gradients, [value, *wishes])
        self.stop = max((wish for wish in (1, 2) if wishes[wish - 1]), default=0)
        self._check(value, batch)
        return value

    def _check(self, loss: float, batch: Batch) -> None:
        if not math.isfinite(loss):
            config = self.config
            cause = guards.likely_cause(self.model, batch, self._smaller_updates)
            raise NonFiniteError(
                f"Expected a finite training loss, but got {loss} at step {self.step} (seed {config.seed}). {cause} The "
                f"batch is task.problem().train({self.step}, {config.batch_size}, {config.seed})."
            )

    @recording()
    def evaluate(self, batches: Iterator[Batch], threshold: float | None = None) -> dict[str, float]:
        """Return the metrics over these batches. threshold: Of a decision between two classes."""
        sums: dict[str, float] = {}
        counts: dict[str, float] = {}
        decision = {} if threshold is None else {"threshold": threshold}

        def add(prediction: torch.Tensor, targets: Any) -> None:
            for name, (total, count) in self.objective.metrics(prediction, targets, **decision).items():
                sums[name] = sums.get(name, 0.0) + total
                counts[name] = counts.get(name, 0.0) + count

        self._predict(batches, add)
        means = {name: sums[name] / counts[name] for name in sums if counts[name]}  # mape of zeros alone has none
        return self.objective.summarized(means)

    @denormals_as_zero()
    def _predict(self, batches: Iterator[Batch], take: Callable[[torch.Tensor, Any], None]) -> None:
        """Call `take` with the prediction and the targets of each batch."""
        in_training, self._carried = self._carried, None
        self.model.eval()
        try:
            with torch.no_grad():
                for on_cpu in batches:
                    batch = to_device(on_cpu, self._device)
                    take(self._forward(batch.inputs), batch.targets)
                    self._carried = self._after
        finally:
            self.model.train()
            self._carried, self._after = in_training, None

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a run needs to resume from here."""
        state = {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self._scheduler is None else self._scheduler.state_dict(),
            "random": torch.get_rng_state() if self._draws else self._random,
        }
        return {**state, "carried": self._carried} if self.objective.carries_state else state

    def load_state_dict(self, state: dict[str, Any], steps: int | None = None) -> None:
        """Go on from a `state_dict`.

        steps: Steps of the run that returned it. If they differ, the rates continue as if this run's had applied from
            the first update on, except on a plateau. Default: the steps of this run.
        """
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        rates = None
        if steps not in (None, self.config.steps) and not isinstance(self._scheduler, ReduceLROnPlateau):
            rates = rates_after(self.step, self.optimizer, self._scheduler)
        self.optimizer.load_state_dict(state["optimizer"])
        self._check_optimizer()
        if rates is not None:
            for group, rate in zip(self.optimizer.param_groups, rates):
                group["lr"] = rate
        elif self._scheduler is not None:
            self._scheduler.load_state_dict(state["scheduler"])
        if self.objective.carries_state:
            self._carried = self._checked(state["carried"])
        random = torch.Generator()
        random.set_state(state["random"])  # raises for what is none
        self._random = random.get_state()


def _remembered(optimizer: torch.optim.Optimizer) -> Iterator[tuple[torch.Tensor, str, torch.Tensor]]:
    """Yield (parameter, name, tensor) of what an optimizer remembers of every number of a parameter."""
    for parameter, entries in optimizer.state.items():
        for name in ("exp_avg", "exp_avg_sq", "square_avg", "momentum_buffer"):
            if isinstance(entries.get(name), torch.Tensor):
                yield parameter, name, entries[name]


def detached(state: Any) -> Any:
    """Return a state, a tensor or a tuple of tensors, without its graph."""
    if isinstance(state, tuple):
        return tuple(detached(entry) for entry in state)
    return state.detach() if isinstance(state, torch.Tensor) else state


def outputs_of(learner: Learner, batches: Iterator[Batch]) -> list[tuple[torch.Tensor, Any]]:
    """Return (prediction, targets) of each batch."""
    found: list[tuple[torch.Tensor, Any]] = []
    learner._predict(batches, lambda *pair: found.append(pair))
    return found


def check_parts(objective: Objective, config: RunConfig, processes: Processes) -> None:
    """Raise ArgumentError if streams whose state is carried over would be divided."""
    if objective.carries_state and config.accumulate * processes.count > 1:
        raise ArgumentError(
            f"Expected one process and accumulate=1 for {objective.name}, whose streams carry their state from batch to "
            f"batch, but got {processes.count} and {config.accumulate}. Leave them out."
        )
