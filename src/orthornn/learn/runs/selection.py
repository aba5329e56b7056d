"""Which validation has the best weights, and whether the network still learns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from torch import Tensor, nn

from ..fit import Fit, Observer

_Made = TypeVar("_Made")


class Selection:
    """The best validation so far, and the validations since the network last became better.

    The best validation is the one with the best metric, and among equal metrics the latest: if few sequences are held
    back, many validations have the same accuracy, and later weights have seen more data, at lower rates. The loss would
    choose badly among them, because one sequence that is wrong with certainty raises it more than many others lower it.
    It counts for `stale`: a network becomes better with a better metric, or with the same metric and a lower loss.

    Args:
        metric: Name of the metric. higher_is_better: Which of two is better.

    Attributes:
        best: What was seen of the best validation; None before the first. stale: Validations since a better one.

    Example::

        >>> selection = Selection("accuracy", higher_is_better=True)
        >>> selection.update({"accuracy": 0.9, "loss": 0.4, "step": 1})
        True
        >>> selection.update({"accuracy": 0.8, "loss": 0.5, "step": 2})
        False
        >>> selection.update({"accuracy": 0.9, "loss": 0.6, "step": 3})
        True
        >>> selection.best["step"], selection.stale
        (3, 2)
    """

    def __init__(self, metric: str, *, higher_is_better: bool) -> None:
        self.metric = metric
        self.sign = 1 if higher_is_better else -1
        self.best: dict[str, Any] | None = None
        self.stale = 0
        self._lead: tuple[float, float] | None = None

    def update(self, validation: Mapping[str, Any]) -> bool:
        """Count a validation; return whether it is the best now. One whose loss is not finite never is."""
        rank = self._rank(validation)
        if not math.isfinite(validation["loss"]):
            self.stale += 1
            return False
        if self._lead is None or rank > self._lead:
            self._lead, self.stale = rank, 0
        else:
            self.stale += 1
        if self.best is not None and rank[0] < self._rank(self.best)[0]:
            return False
        self.best = dict(validation)
        return True

    def restore(self, best: dict[str, Any] | None, stale: int, validations: Iterable[Mapping[str, Any]]) -> None:
        """Go on from what a checkpoint holds. validations: All that were seen."""
        self.best, self.stale = best, stale
        self._lead = max((self._rank(one) for one in validations), default=None)

    def _rank(self, validation: Mapping[str, Any]) -> tuple[float, float]:
        return self.sign * validation[self.metric], -validation["loss"]


class BestWeights(Observer):
    """The weights of the best validation, and the patience of a run.

    selection: Selection among the validations. patience: Validations without improvement after which a run ends, or
        None.
    """

    def __init__(self, selection: Selection, patience: int | None) -> None:
        self.selection, self.patience = selection, patience
        self._weights: dict[str, Any] | None = None  # a resumed run reads them from their checkpoint

    def validated(self, fit: Fit) -> None:
        """Store the weights of the best validation."""
        if self.selection.update({key: value for key, value in fit.records[-1].items() if key != "kind"}):
            self._weights = _copied(fit.learner.model)

    def wants_end(self) -> bool:
        """Return whether so many validations were no better that the run ends."""
        return self.patience is not None and self.selection.stale >= self.patience

    def load(self, model: nn.Module) -> None:
        """Give a model the weights that are in memory."""
        assert self._weights is not None
        model.load_state_dict(self._weights)

    def use(self, fit: Fit, read: Callable[[int], dict[str, Any] | None], make: Callable[[], _Made]) -> _Made | None:
        """Return the result of `make` with the weights of the best validation in the model; None if they are lost.

        read: Reads the weights of a step, if they are not in memory; None if they are gone.
        """
        assert self.selection.best is not None
        step, model = int(self.selection.best["step"]), fit.learner.model
        if step == fit.learner.step:
            return make()
        weights = read(step) if self._weights is None else self._weights
        if weights is None:
            return None
        current = _copied(model)
        model.load_state_dict(weights)
        try:
            return make()
        finally:
            model.load_state_dict(current)


def _copied(model: nn.Module) -> dict[str, Any]:
    """Return the state_dict of a model, which later updates do not change."""
    return {key: value.clone() if isinstance(value, Tensor) else value for key, value in model.state_dict().items()}
