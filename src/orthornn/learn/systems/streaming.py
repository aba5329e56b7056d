"""A network step by step: the core's state, what its pool has seen, and the last steps that it reads."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .pooling import RunningPool
from .sequence_model import SequenceModel


class Stream:
    """A model of one direction that is called with one step after the other; it returns what it would after the whole."""

    def __init__(self, model: SequenceModel) -> None:
        self.model = model
        self._pool = RunningPool(model.pool if model.output == "last" else "last")
        self._state: Any = None
        self._before: Tensor | None = None

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Return the prediction (B, O) after a step (B, I), or tokens (B,)."""
        model, core = self.model, self.model.core
        x, given, times = model.read(x)
        if hasattr(core, "step"):
            output, self._state = core.step(x, self._state, **times)  # type: ignore[operator]
        else:
            step = model._one_hot(x) if model.needs_one_hot else x
            outputs, self._state = core(step.unsqueeze(0), self._state)
            output = outputs[0]
        output = torch.view_as_real(output).flatten(-2) if output.is_complex() else output
        prediction = model.head(self._pool(output))
        if model.recent is None:
            return prediction
        added, self._before = model.recent.step(given, self._before)
        return prediction + added
