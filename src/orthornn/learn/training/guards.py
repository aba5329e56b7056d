"""Detection of failed updates and reports of the likely cause."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ...modules import Transition
from ...parametrizations.parametrization import ORTHOGONAL_GROUPS
from ..tasks import Batch

SMALLER_UPDATES = "Lower lr and recurrent_lr, or set clip_norm=1 (--lr, --recurrent-lr, --clip-norm 1)."
_HUGE = 1e10  # for a parameter; products of two are far from overflowing still


def not_finite(tensors: Iterable[tuple[str, Tensor]]) -> str | None:
    """Return the name of the first tensor that holds a NaN or an infinity; None if there is none."""
    for name, tensor in tensors:
        if not bool(torch.isfinite(tensor).all()):
            return name
    return None


def likely_cause(model: nn.Module, batch: Batch, smaller_updates: str = SMALLER_UPDATES) -> str:
    """Return why a loss is not finite, as far as the batch, the parameters and the outputs show it.

    smaller_updates: How the caller gets them, as a sentence.
    """
    spoilt = "The {} of the batch hold {} values that are not finite: look at the data."
    inputs, targets = _rows(batch.inputs), _rows(batch.targets)
    if not bool(torch.isfinite(inputs).all()):
        return spoilt.format("inputs", int((~torch.isfinite(inputs)).sum()))
    name, size = max(((name, float(p.detach().abs().max())) for name, p in model.named_parameters()), key=_by_size)
    if not size < _HUGE:
        state = f"reaches {size:.3g}" if math.isfinite(size) else "is not finite"
        return f"{name} {state}: the update before was too large. {smaller_updates}"
    with torch.no_grad():
        outputs = model(batch.inputs)
    if not bool(torch.isfinite(outputs).all()):
        return (
            "The states overflow within the sequence: the recurrent matrix is not orthogonal, or the inputs are huge."
        )
    if not bool(torch.isfinite(targets).all()):  # asked last: a target that is NaN may be one that is not there
        return spoilt.format("targets", int((~torch.isfinite(targets)).sum()))
    largest = float(outputs.detach().abs().float().max())
    return (
        f"The outputs reach {largest:.3g} and the loss overflows. Scale the targets, or make the updates smaller. "
        f"{smaller_updates}"
    )


def _by_size(named: tuple[str, float]) -> float:
    return math.inf if math.isnan(named[1]) else named[1]


def _rows(values: Any) -> Tensor:
    """Return the tensor itself, or the tensor in a packed sequence or in targets with weights."""
    return values if isinstance(values, Tensor) else values.data


def orthogonality_error(model: nn.Module) -> float | None:
    """Return the largest ||W^H W - I||_F of the matrices that ought to be orthogonal or unitary; None if there are
    none.
    """
    return largest_error(model, lambda transition: transition.method.group in ORTHOGONAL_GROUPS)


@torch.no_grad()
def largest_error(model: nn.Module, counts: Callable[[Transition], bool] = lambda transition: True) -> float | None:
    """Return the largest ||W^H W - I||_F of a model's transitions that count; None if it has none."""
    transitions = (module for module in model.modules() if isinstance(module, Transition))
    errors = (one.method.orthogonality_error(one.matrix()) for one in transitions if counts(one))
    return max(errors, default=None)
