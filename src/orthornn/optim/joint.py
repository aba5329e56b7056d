"""Several optimizers that step together, in the place of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..errors import ArgumentError, ArgumentTypeError


class JointOptimizer(torch.optim.Optimizer):
    """Its groups are those of its parts, so that learning-rate schedules and gradient clipping see all of them.

    parts: the optimizers, in the order in which they step; no tensor may be in two of them.
    """

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        if not parts:
            raise ArgumentError("JointOptimizer needs at least one optimizer; got none.")
        for part in parts:
            if not isinstance(part, torch.optim.Optimizer):
                kind = type(part).__name__
                raise ArgumentTypeError(f"Expected each part to be a torch.optim.Optimizer, but got {kind}.")
        super().__init__([dict(group) for part in parts for group in part.param_groups], {})
        self.parts = parts
        self._share_groups()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "parts": self.parts}

    def _share_groups(self) -> None:
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of every part; what `closure`, called once, returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """{"parts": the state of each}."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a `state_dict` of as many optimizers."""
        states = state_dict.get("parts", ())
        if len(states) != len(self.parts):
            raise ArgumentError(
                f"the state is of {len(states)} optimizers; these are {len(self.parts)}: "
                f"{', '.join(type(part).__name__ for part in self.parts)}."
            )
        for part, state in zip(self.parts, states):
            part.load_state_dict(state)
        self._share_groups()  # loading gives each part new groups

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Only a part can take a new group."""
        if hasattr(self, "parts"):
            raise ArgumentError("add the group to one of `parts`, then build the JointOptimizer anew.")
        super().add_param_group(param_group)
