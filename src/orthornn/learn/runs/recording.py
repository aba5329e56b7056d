"""Looking at a network while it is trained.

kind         record
"gradients"  "loss" ("last" or "total"), "norms": by layer and direction, ||dL/dh_t|| for t = 0, 1, ...
"spectrum"   "layer"; "mean", "std", "min", "max" of W's singular values; "error" ||W^H W - I||_F; "manifold_error",
             the largest such error of the tensors that must stay on the Stiefel manifold, if there are some, and
             "manifold_travel", by name, ||M - M_0||_F / sqrt(2N): 0 where M has not moved from its initial value M_0,
             about 1 where they have nothing in common

The cost is a forward and a backward pass of a few sequences, and one singular value decomposition, at each
interval; none in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.linalg import matrix_norm
from torch.nn.utils.rnn import PackedSequence

from ..._warnings import warn
from ...diagnostics import hidden_gradient_norms, orthogonality_error, singular_values
from ...modules import Transition
from ...parametrizations.matrices import as_complex
from ..fit import Fit, Observer
from ..systems import SequenceModel
from ..tasks import Batch, Objective, Problem
from ..training.batch_splitting import to_device
from ..training.config import RecordConfig


class Recorder(Observer):
    """The recorder of `config` for a model on a problem."""

    def __init__(self, model: SequenceModel, problem: Problem, objective: Objective, config: RecordConfig) -> None:
        self.model, self.problem, self.objective, self.config = model, problem, objective, config
        self._batch: Batch | None = None
        self._last_step = -1
        self._first = {name: list(on_manifold(module)) for name, module in _transitions(model)}
        if config.spectrum is not None and not self._first:
            warn(f'{type(model.core).__name__} has no recurrent matrix, so there will be no "spectrum" records of it.')

    def look(self, fit: Fit) -> None:
        """Make the records that are due."""
        for kind, numbers in self.at(fit.learner.step):
            fit.record(kind, numbers)

    def at(self, step: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (kind, numbers) of the records that are due after `step` updates; asked twice for a step, none."""
        if step == self._last_step:
            return
        self._last_step = step
        if self.config.gradients is not None and step % self.config.gradients == 0:
            norms = self._gradient_norms()
            yield "gradients", {"loss": self.config.gradient_loss, "norms": [_short(row) for row in norms.tolist()]}
        if self.config.spectrum is not None and step % self.config.spectrum == 0:
            for name, module in _transitions(self.model):
                yield "spectrum", {"layer": name, **describe(module), **self._travel(name, module)}

    def skip(self, records: Sequence[dict[str, Any]], step: int) -> None:
        """Skip records after `step` updates that are among these, the records of a run that is resumed there."""
        if any(record["step"] == step and record["kind"] in ("gradients", "spectrum") for record in reversed(records)):
            self._last_step = step

    def _travel(self, name: str, transition: Transition) -> dict[str, Any]:
        pairs = zip(on_manifold(transition), self._first[name])
        moved = {key: float(matrix_norm(M - M0) / (2 * len(M)) ** 0.5) for (key, M), (_, M0) in pairs}
        return {"manifold_travel": moved} if moved else {}

    def _gradient_norms(self) -> Tensor:
        if self._batch is None:
            device = next(self.model.parameters()).device
            self._batch = to_device(next(iter(self.problem.validation(self.config.sequences))), device)
        inputs, targets = self._batch
        last = self.config.gradient_loss == "last" and self.objective.output == "all"

        def loss(prediction: Tensor) -> Tensor:
            return self.objective.loss(*(_last_step(prediction, targets) if last else (prediction, targets)))

        training = self.model.training
        self.model.eval()
        try:
            return hidden_gradient_norms(self.model, inputs, loss)
        finally:
            self.model.train(training)


def _last_step(prediction: Tensor, targets: Any) -> tuple[Tensor, Any]:
    """Return the part of both at the last time step, of the sequences that reach it."""
    if not isinstance(targets, PackedSequence):
        return prediction[-1:], targets[-1:]
    reached = int(targets.batch_sizes[-1])
    return prediction[-reached:], PackedSequence(targets.data[-reached:], targets.batch_sizes[-1:])


@torch.no_grad()
def describe(transition: Transition) -> dict[str, float]:
    """Return the numbers of a "spectrum" record."""
    W = transition.matrix()
    s = singular_values(W)
    found = {
        "mean": float(s.mean()),
        "std": float(s.std(correction=0)),
        "min": float(s.min()),
        "max": float(s.max()),
        "error": orthogonality_error(W),
    }
    errors = [orthogonality_error(M) for _, M in on_manifold(transition)]
    if errors:
        found["manifold_error"] = max(errors)
    return found


def on_manifold(transition: Transition) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, a copy of its value) of the free tensors that must stay on the Stiefel manifold, complex if they
    are.
    """
    for name, free in zip(transition.method.names, transition.free()):
        if name in transition.method.manifolds:
            yield name, (as_complex(free) if free.dim() == 3 else free).detach().clone()


def _transitions(model: SequenceModel) -> Iterator[tuple[str, Transition]]:
    for name, module in model.named_modules():
        if isinstance(module, Transition):
            yield name, module


def _short(row: list[float]) -> list[float]:
    return [float(f"{value:.5g}") for value in row]
